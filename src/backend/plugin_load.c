#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <ligament/plugin.h>

#include "backend/registry.h"
#include "base/error.h"
#include "base/log.h"

/* plugin.h turns these into calls through the table; here they are the functions themselves. */
#undef lig_fail
#undef lig_log
#undef lig_hash_block

static const lig_plugin_host host_table = {
    sizeof(lig_plugin_host), LIG_PLUGIN_ABI,   lig_fail,         ligi_log,          lig_hash_block,
    lig_backend_open,        lig_backend_save, lig_backend_load, lig_backend_close, lig_error_text,
};

static lig_status check_numbers(const char *path, const lig_plugin *entry)
{
    if (entry->abi != LIG_PLUGIN_ABI)
        return lig_fail(
            LIG_E_UNSUPPORTED,
            "plugin %s was built for ABI %u, but this library has ABI %u (rebuild the plugin)",
            path, entry->abi, LIG_PLUGIN_ABI);
    if (entry->struct_bytes != sizeof(lig_plugin) || entry->ops_bytes != sizeof(lig_backend_ops) ||
        entry->tensor_bytes != sizeof(lig_tensor))
        return lig_fail(LIG_E_UNSUPPORTED,
                        "plugin %s has structs of %u, %u and %u bytes, but this library expects "
                        "%zu, %zu and %zu (rebuild it with this library's headers)",
                        path, entry->struct_bytes, entry->ops_bytes, entry->tensor_bytes,
                        sizeof(lig_plugin), sizeof(lig_backend_ops), sizeof(lig_tensor));
    if (entry->ops == NULL || entry->host == NULL)
        return lig_fail(LIG_E_INVALID,
                        "plugin %s has no table of functions (use LIG_REGISTER_BACKEND)", path);
    return LIG_OK;
}

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static lig_status check_name(const char *path, const char *name)
{
    if (name == NULL || !is_letter(name[0]))
        return lig_fail(LIG_E_INVALID, "plugin %s: the name of a backend must start with a letter",
                        path);
    for (const char *c = name; *c != '\0'; c++)
        if (!is_letter(*c) && !(*c >= '0' && *c <= '9') && *c != '_')
            return lig_fail(
                LIG_E_INVALID,
                "plugin %s: invalid name '%s' (only letters, digits and '_' are allowed)", path,
                name);
    return LIG_OK;
}

static lig_status check_volume(const char *path, const lig_volume_ops *volume)
{
    if (volume->struct_bytes != sizeof(lig_volume_ops))
        return lig_fail(LIG_E_UNSUPPORTED,
                        "plugin %s: its lig_volume_ops has %u bytes, but this library expects %zu "
                        "(rebuild the plugin)",
                        path, volume->struct_bytes, sizeof(lig_volume_ops));
    const struct {
        const char *name;
        int there;
    } members[] = {
        {"flags", volume->flags != NULL},
        {"describe", volume->describe != NULL},
        {"pack_create", volume->pack_create != NULL},
        {"pack_put", volume->pack_put != NULL},
        {"pack_seal", volume->pack_seal != NULL},
        {"pack_close", volume->pack_close != NULL},
        {"pack_size", volume->pack_size != NULL},
        {"pack_read", volume->pack_read != NULL},
        {"pack_map", volume->pack_map != NULL},
        {"pack_unmap", volume->pack_unmap != NULL},
        {"pack_claim", volume->pack_claim != NULL},
        {"pack_remove", volume->pack_remove != NULL},
        {"pack_next", volume->pack_next != NULL},
        {"pin", volume->pin != NULL},
        {"unpin", volume->unpin != NULL},
        {"catalog_begin", volume->catalog_begin != NULL},
        {"catalog_end", volume->catalog_end != NULL},
        {"catalog_get", volume->catalog_get != NULL},
        {"catalog_seek", volume->catalog_seek != NULL},
        {"catalog_commit", volume->catalog_commit != NULL},
        {"catalog_settle", volume->catalog_settle != NULL},
        {"catalog_events", volume->catalog_events != NULL},
        {"catalog_wait", volume->catalog_wait != NULL},
    };
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (!members[i].there)
            return lig_fail(LIG_E_INVALID, "plugin %s: its volume lacks %s", path, members[i].name);
    if ((volume->catalog_lock == NULL) != (volume->catalog_unlock == NULL))
        return lig_fail(LIG_E_INVALID,
                        "plugin %s: its volume has only one of catalog_lock and catalog_unlock",
                        path);
    if ((volume->lock == NULL) != (volume->unlock == NULL))
        return lig_fail(LIG_E_INVALID, "plugin %s: its volume has only one of lock and unlock",
                        path);
    return LIG_OK;
}

static lig_status check_ops(const char *path, const lig_backend_ops *ops)
{
    if (ops->volume != NULL)
        LIG_TRY(check_volume(path, ops->volume));
    if (ops->volume == NULL && (ops->save == NULL || ops->load == NULL))
        return lig_fail(LIG_E_INVALID,
                        "plugin %s lacks %s: a backend needs save and load, or a volume", path,
                        ops->save == NULL ? "save" : "load");
    int streams =
        (ops->begin != NULL) + (ops->put != NULL) + (ops->commit != NULL) + (ops->abort != NULL);
    if (streams != 0 && streams != 4)
        return lig_fail(
            LIG_E_INVALID,
            "plugin %s has %d of begin, put, commit and abort (implement all four or none)", path,
            streams);
    if (ops->open != NULL && ops->close == NULL)
        return lig_fail(LIG_E_INVALID, "plugin %s has open but lacks close", path);
    return LIG_OK;
}

/* A name without a slash refers to a file in the working directory, if there is one, as for every
 * other path; otherwise the system searches it. */
static lig_status open_library(const char *path, void **library)
{
    char here[PATH_MAX];
    const char *open_path = path;

    if (strchr(path, '/') == NULL && access(path, F_OK) == 0) {
        if (snprintf(here, sizeof here, "./%s", path) >= (int)sizeof here)
            return lig_fail(LIG_E_LIMIT, "the path of a plugin is too long: %s", path);
        open_path = here;
    }
    void *opened = dlopen(open_path, RTLD_NOW | RTLD_LOCAL);
    if (opened == NULL)
        return lig_fail(access(open_path, F_OK) == 0 ? LIG_E_INVALID : LIG_E_NOTFOUND,
                        "cannot load plugin %s: %s", path, dlerror());
    *library = opened;
    return LIG_OK;
}

typedef struct entries {
    lig_plugin *one;
    lig_plugin_at_function at; /* NULL: there is just the one */
} entries;

static lig_plugin *entry_at(const entries *all, size_t index)
{
    if (all->at != NULL)
        return all->at(index);
    return index == 0 ? all->one : NULL;
}

static lig_status find_entries(const char *path, void *library, entries *all)
{
    entries found = {dlsym(library, "lig_plugin_entry"), NULL};

    *(void **)&found.at = dlsym(library, "lig_plugin_at"); /* POSIX's way to a function's address */
    if (entry_at(&found, 0) == NULL)
        return lig_fail(
            LIG_E_INVALID,
            "%s is not a plugin: it does not export lig_plugin_entry (use LIG_REGISTER_BACKEND)",
            path);
    *all = found;
    return LIG_OK;
}

static lig_status check_entry(const char *path, const lig_plugin *entry)
{
    LIG_TRY(check_numbers(path, entry));
    LIG_TRY(check_name(path, entry->name));
    return check_ops(path, entry->ops);
}

lig_status lig_plugin_load(const char *path, const char **name)
{
    void *library;
    entries all;

    if (path == NULL || path[0] == '\0')
        return lig_fail(LIG_E_INVALID, "the path of a plugin is empty");
    LIG_TRY(open_library(path, &library));
    /* A library stays open even if it is refused, because its constructors have run. */
    LIG_TRY(find_entries(path, library, &all));
    for (size_t i = 0; entry_at(&all, i) != NULL; i++)
        LIG_TRY(check_entry(path, entry_at(&all, i)));
    for (size_t i = 0; entry_at(&all, i) != NULL; i++) {
        lig_plugin *entry = entry_at(&all, i);
        *entry->host = &host_table;
        LIG_TRY(ligi_backend_register(entry->name, entry->ops));
    }
    if (name != NULL)
        *name = entry_at(&all, 0)->name;
    return LIG_OK;
}
