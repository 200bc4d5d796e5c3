#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backend/registry.h"
#include "base/error.h"

#define PLUGINS_MAX 64

/* Plugins are added and never removed, so a thread that has read the count may read that many
 * entries without the lock. */
static pthread_mutex_t plugins_lock = PTHREAD_MUTEX_INITIALIZER;
static ligi_builtin plugins[PLUGINS_MAX];
static size_t plugin_count;

static size_t plugins_seen(void)
{
    pthread_mutex_lock(&plugins_lock);
    size_t count = plugin_count;
    pthread_mutex_unlock(&plugins_lock);
    return count;
}

static const lig_backend_ops *find_builtin(const char *name)
{
    for (const ligi_builtin *entry = ligi_builtins; entry->name != NULL; entry++)
        if (strcasecmp(entry->name, name) == 0)
            return entry->ops;
    return NULL;
}

static const lig_backend_ops *find_plugin(const char *name, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(plugins[i].name, name) == 0)
            return plugins[i].ops;
    return NULL;
}

const lig_backend_ops *lig_backend_find(const char *name)
{
    const lig_backend_ops *ops = find_builtin(name);
    return ops != NULL ? ops : find_plugin(name, plugins_seen());
}

const char *lig_backend_name(size_t index)
{
    size_t at = 0;

    while (ligi_builtins[at].name != NULL) {
        if (at == index)
            return ligi_builtins[at].name;
        at++;
    }
    return index - at < plugins_seen() ? plugins[index - at].name : NULL;
}

lig_status ligi_backend_register(const char *name, const lig_backend_ops *ops)
{
    lig_status status = LIG_OK;

    pthread_mutex_lock(&plugins_lock);
    const lig_backend_ops *there = find_builtin(name);
    if (there == NULL)
        there = find_plugin(name, plugin_count);
    if (there != NULL && there != ops) {
        status =
            lig_fail(LIG_E_EXISTS, "backend '%s' already exists (rename one of the two)", name);
    } else if (there == NULL && plugin_count == PLUGINS_MAX) {
        status = lig_fail(LIG_E_LIMIT, "too many plugins: the limit is %d (cannot load '%s')",
                          PLUGINS_MAX, name);
    } else if (there == NULL) {
        plugins[plugin_count].name = name;
        plugins[plugin_count].ops = ops;
        plugin_count++;
    }
    pthread_mutex_unlock(&plugins_lock);
    return status;
}

static lig_status find_table(const char *scheme, const lig_backend_ops **ops)
{
    const lig_backend_ops *found = lig_backend_find(scheme);
    if (found != NULL) {
        *ops = found;
        return LIG_OK;
    }
    char known[512] = "";
    size_t used = 0;
    const char *name;
    for (size_t i = 0; (name = lig_backend_name(i)) != NULL && used < sizeof known; i++)
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ", name);
    return lig_fail(LIG_E_NOTFOUND,
                    "unknown backend '%s' (known: %s; load plugins with LIGAMENT_PLUGINS, "
                    "ligament.plugins.load or lig_plugin_load)",
                    scheme, known);
}

/* A plugin that fails without lig_fail, or with a number that is not a status, still results in an
 * error text.
 */
lig_status ligi_backend_heard(const char *name, const char *call, lig_status status)
{
    if (status == LIG_OK)
        return LIG_OK;
    if (strcmp(lig_status_name(status), "unknown") == 0)
        return lig_fail(LIG_E_INTERNAL, "backend '%s': %s returned %d, which is not a status", name,
                        call, (int)status);
    if (lig_error_text()[0] == '\0')
        return lig_fail(status, "backend '%s': %s failed without an error message", name, call);
    return status;
}

lig_status ligi_backend_open_raw(const char *scheme, const char *config,
                                 const lig_backend_ops **ops, void **self)
{
    const lig_backend_ops *found = NULL;
    void *opened = NULL;

    LIG_TRY(find_table(scheme, &found));
    ligi_fail_clear();
    if (found->open != NULL)
        LIG_TRY(
            ligi_backend_heard(scheme, "open", found->open(&opened, config != NULL ? config : "")));
    *ops = found;
    *self = opened;
    return LIG_OK;
}

void ligi_backend_close_raw(const lig_backend_ops *ops, void *self)
{
    if (ops->close != NULL)
        ops->close(self);
}
