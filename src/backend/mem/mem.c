#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/item_map.h"
#include "backend/mem/mem.h"
#include "backend/mem/mem_catalog.h"
#include "backend/mem/mem_events.h"
#include "backend/mem/mem_pack.h"
#include "backend/mem/mem_pins.h"
#include "backend/shared_instances.h"
#include "base/error.h"
#include "base/uri/option.h"

typedef struct mem_options {
    char *mode;
} mem_options;

static const ligi_option option_table[] = {
    {"mode", LIGI_OPTION_TEXT, "a",
     "r: read only, w: create a new volume, a: create it if it does not exist",
     offsetof(mem_options, mode)},
};
#define OPTION_COUNT (sizeof option_table / sizeof option_table[0])

static const lig_backend_option shown_options[] = {
    {"mode", "text", "a",
     "r: read only, w: create a new volume, a: create it if it does not exist"},
    {NULL, NULL, NULL, NULL},
};

static lig_status volume_create(void *context, void **object)
{
    ligi_mem_volume *volume;

    (void)context;
    LIG_TRY(ligi_calloc(&volume, 1, sizeof *volume, "an in-memory volume"));
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&volume->committed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&volume->lock, NULL);
    *object = volume;
    return LIG_OK;
}

static void volume_destroy(void *object)
{
    ligi_mem_volume *volume = object;

    for (size_t i = 0; i < volume->pack_count; i++)
        ligi_mem_pack_release(volume->packs[i]);
    free(volume->packs);
    ligi_mem_catalog_release(volume->catalog);
    ligi_mem_events_fini(volume);
    /* In a forked child, destroying the condition would wait for threads of the parent. */
    pthread_mutex_destroy(&volume->lock);
    free(volume);
}

static const ligi_shared_kind place_kind = {volume_create, volume_destroy, NULL};

static lig_status place_acquire(ligi_mem *self, const char *name, char mode)
{
    void *object;

    if (name[0] == '\0') {
        if (mode == 'r')
            return lig_fail(
                LIG_E_NOTFOUND,
                "mem: without a name is a new, empty volume and cannot be opened with mode=r");
        LIG_TRY(volume_create(NULL, &object));
        self->volume = object;
        return LIG_OK;
    }
    ligi_shared_want want = mode == 'r'   ? LIGI_SHARED_OLD
                            : mode == 'w' ? LIGI_SHARED_NEW
                                          : LIGI_SHARED_ANY;
    lig_status status = ligi_shared_acquire(name, &place_kind, want, NULL, &object);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(status, "there is no volume mem:%s in this process", name);
    if (status == LIG_E_EXISTS)
        return lig_fail(status, "the volume mem:%s already exists", name);
    LIG_TRY(status);
    self->volume = object;
    self->shared = 1;
    return LIG_OK;
}

static lig_status open_place(ligi_mem *self, const ligi_uri *uri)
{
    mem_options options = {0};

    LIG_TRY(ligi_options_fill(option_table, OPTION_COUNT, uri, NULL, &options));
    lig_status status;
    if (strlen(options.mode) != 1 || strchr("rwa", options.mode[0]) == NULL)
        status = lig_fail(LIG_E_INVALID, "mem:%s: invalid mode '%s' (expected r, w or a)",
                          uri->rest, options.mode);
    else
        status = place_acquire(self, uri->rest, options.mode[0]);
    self->read_only = options.mode[0] == 'r';
    ligi_options_fini(option_table, OPTION_COUNT, &options);
    return status;
}

static lig_status mem_open(void **out, const char *config)
{
    char text[LIGI_URI_BYTES_MAX + 8];
    ligi_uri uri;
    ligi_mem *self;

    if (snprintf(text, sizeof text, "mem:%s", config) >= (int)sizeof text)
        return lig_fail(LIG_E_LIMIT, "the name of an in-memory volume is too long");
    LIG_TRY(ligi_uri_parse(&uri, text));
    lig_status status = ligi_calloc(&self, 1, sizeof *self, "an in-memory volume");
    if (status == LIG_OK) {
        self->pid = getpid();
        status = open_place(self, &uri);
        if (status == LIG_OK)
            *out = self;
        else
            free(self);
    }
    ligi_uri_fini(&uri);
    return status;
}

static void mem_close(void *opaque)
{
    ligi_mem *self = opaque;

    if (self == NULL)
        return;
    if (self->shared)
        ligi_shared_release(self->volume);
    else
        volume_destroy(self->volume);
    free(self);
}

lig_status ligi_mem_usable(const ligi_mem *self)
{
    if (self->pid != getpid())
        return lig_fail(LIG_E_CLOSED, "this in-memory volume was opened before this process was "
                                      "forked (open it again in this process)");
    return LIG_OK;
}

lig_status ligi_mem_writable(const ligi_mem *self)
{
    LIG_TRY(ligi_mem_usable(self));
    if (self->read_only)
        return lig_fail(LIG_E_DENIED, "this in-memory volume was opened with mode=r");
    return LIG_OK;
}

static uint32_t mem_flags(void *self)
{
    return ((ligi_mem *)self)->read_only ? LIG_VOLUME_READ_ONLY : 0;
}

static void mem_describe(void *self, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "memory of this process, %s",
             ((ligi_mem *)self)->shared ? "shared by name" : "private");
}

/* A commit is one assignment under the lock of this process: it is visible at once, or never. */
static lig_status mem_catalog_settle(void *self)
{
    return ligi_mem_usable(self);
}

/* No other process can open this volume, and one process may hold a name several times. */
static lig_status mem_lock(void *opaque, const char *name, void **lock)
{
    (void)name;
    LIG_TRY(ligi_mem_writable(opaque));
    *lock = opaque;
    return LIG_OK;
}

static void mem_unlock(void *lock)
{
    (void)lock;
}

static const lig_volume_ops mem_volume = {
    .struct_bytes = sizeof(lig_volume_ops),
    .flags = mem_flags,
    .describe = mem_describe,
    .pack_create = ligi_mem_pack_create,
    .pack_put = ligi_mem_pack_put,
    .pack_seal = ligi_mem_pack_seal,
    .pack_close = ligi_mem_pack_close,
    .pack_size = ligi_mem_pack_size,
    .pack_read = ligi_mem_pack_read,
    .pack_map = ligi_mem_pack_map,
    .pack_unmap = ligi_mem_pack_unmap,
    .pack_claim = ligi_mem_pack_claim,
    .pack_remove = ligi_mem_pack_remove,
    .pack_next = ligi_mem_pack_next,
    .pin = ligi_mem_pin_packs,
    .unpin = ligi_mem_unpin,
    .catalog_begin = ligi_mem_catalog_begin,
    .catalog_end = ligi_mem_catalog_end,
    .catalog_get = ligi_item_snapshot_get,
    .catalog_seek = ligi_item_snapshot_seek,
    .catalog_commit = ligi_mem_catalog_commit,
    .catalog_settle = mem_catalog_settle,
    .catalog_events = ligi_mem_events_visit,
    .catalog_wait = ligi_mem_events_wait,
    .lock = mem_lock,
    .unlock = mem_unlock,
};

extern const lig_backend_ops ligi_backend_mem;
const lig_backend_ops ligi_backend_mem = {
    .flags = LIG_BACKEND_DEVICE,
    .open = mem_open,
    .close = mem_close,
    .volume = &mem_volume,
    .options = shown_options,
};
