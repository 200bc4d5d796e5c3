#include "backend/remote/remote_volume.h"

#include "backend/remote/cache/cache_files.h"
#include "backend/remote/engine_load.h"
#include "backend/remote/remote_catalog.h"
#include "backend/remote/remote_commit.h"
#include "backend/remote/remote_keeper.h"
#include "backend/remote/remote_leases.h"
#include "backend/remote/remote_read.h"
#include "backend/remote/remote_removal.h"
#include "backend/remote/remote_view.h"
#include "backend/remote/remote_write.h"
#include "backend/shared_instances.h"
#include "base/boot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)
#define SECONDS_MAX (INT64_C(365) * 86400)
#define MARKER_MAGIC "ligament remote store 1\n"

/* --- options --- */

typedef struct remote_options {
    char *mode;
    int64_t timeout, grace, fresh, keep, ttl, wait;
    char *cache;
    uint64_t cache_bytes;
} remote_options;

#define MODE_HELP "r: read only, w: create a new store, a: create it if it does not exist"
#define TIMEOUT_HELP "seconds after which an unanswered request fails"
#define GRACE_HELP "seconds between dropping a pack from the catalog and deleting it"
#define FRESH_HELP "seconds for which a commit may rely on an earlier read of the log's end"
#define KEEP_HELP "seconds for which commits stay in the log"
#define TTL_HELP "seconds after which pins and claims of a dead process expire"
#define CACHE_HELP "local folder that caches blocks of packs"
#define CACHE_BYTES_HELP "maximum size of the cache"
#define WAIT_HELP "seconds that a commit waits for concurrent commits"

static const ligi_option option_table[] = {
    {"mode", LIGI_OPTION_TEXT, "a", MODE_HELP, offsetof(remote_options, mode)},
    {"timeout", LIGI_OPTION_INT, "60", TIMEOUT_HELP, offsetof(remote_options, timeout)},
    {"grace", LIGI_OPTION_INT, "900", GRACE_HELP, offsetof(remote_options, grace)},
    {"fresh", LIGI_OPTION_INT, "3600", FRESH_HELP, offsetof(remote_options, fresh)},
    {"keep", LIGI_OPTION_INT, "86400", KEEP_HELP, offsetof(remote_options, keep)},
    {"ttl", LIGI_OPTION_INT, "3600", TTL_HELP, offsetof(remote_options, ttl)},
    {"wait", LIGI_OPTION_INT, "30", WAIT_HELP, offsetof(remote_options, wait)},
    {"cache", LIGI_OPTION_TEXT, NULL, CACHE_HELP, offsetof(remote_options, cache)},
    {"cache_bytes", LIGI_OPTION_BYTES, "100G", CACHE_BYTES_HELP,
     offsetof(remote_options, cache_bytes)},
};
#define OPTION_COUNT (sizeof option_table / sizeof option_table[0])

const lig_backend_option ligi_remote_shown_options[] = {
    {"mode", "text", "a", MODE_HELP},
    {"timeout", "int", "60", TIMEOUT_HELP},
    {"grace", "int", "900", GRACE_HELP},
    {"fresh", "int", "3600", FRESH_HELP},
    {"keep", "int", "86400", KEEP_HELP},
    {"ttl", "int", "3600", TTL_HELP},
    {"wait", "int", "30", WAIT_HELP},
    {"cache", "text", NULL, CACHE_HELP},
    {"cache_bytes", "bytes", "100G", CACHE_BYTES_HELP},
    {NULL, NULL, NULL, NULL},
};

typedef struct all_options { /* ours, then the engine's, filled by one table */
    ligi_option *table;
    size_t count;
    remote_options *ours;
    void *engines;
} all_options;

static lig_status options_fill(const ligi_engine_ops *ops, const ligi_uri *uri, all_options *all)
{
    size_t skip = (sizeof(remote_options) + 15) / 16 * 16;

    LIG_TRY(
        ligi_calloc(&all->table, OPTION_COUNT + ops->option_count, sizeof *all->table, "options"));
    LIG_TRY(ligi_calloc(&all->ours, 1, skip + ops->config_bytes, "options"));
    memcpy(all->table, option_table, sizeof option_table);
    for (size_t i = 0; i < ops->option_count; i++) {
        all->table[OPTION_COUNT + i] = ops->options[i];
        all->table[OPTION_COUNT + i].offset += skip;
    }
    all->engines = (uint8_t *)all->ours + skip;
    LIG_TRY(ligi_options_fill(all->table, OPTION_COUNT + ops->option_count, uri, NULL, all->ours));
    all->count = OPTION_COUNT + ops->option_count;
    return LIG_OK;
}

static void options_fini(all_options *all)
{
    ligi_options_fini(all->table, all->count, all->ours);
    free(all->table);
    free(all->ours);
}

static lig_status window(const char *name, int64_t seconds, int64_t least, int64_t *window_ns)
{
    if (seconds < least || seconds > SECONDS_MAX)
        return lig_fail(LIG_E_INVALID, "%s=%lld: expected %lld to %lld seconds", name,
                        (long long)seconds, (long long)least, (long long)SECONDS_MAX);
    *window_ns = seconds * SECOND_NS;
    return LIG_OK;
}

/* A number that was free within `fresh` and the life of a signature (S3: 15 minutes) must not have
 * been used and removed meanwhile. */
static lig_status check_windows(const remote_options *options, ligi_remote_windows *windows)
{
    LIG_TRY(window("timeout", options->timeout, 1, &windows->timeout_ns));
    LIG_TRY(window("grace", options->grace, 0, &windows->grace_ns));
    LIG_TRY(window("fresh", options->fresh, 1, &windows->fresh_ns));
    LIG_TRY(window("keep", options->keep, 1, &windows->keep_ns));
    LIG_TRY(window("ttl", options->ttl, 1, &windows->ttl_ns));
    if (options->keep < 2 * options->fresh)
        return lig_fail(LIG_E_INVALID, "keep=%lld must be at least twice fresh=%lld",
                        (long long)options->keep, (long long)options->fresh);
    if (strlen(options->mode) != 1 || strchr("rwa", options->mode[0]) == NULL)
        return lig_fail(LIG_E_INVALID, "invalid mode '%s' (expected r, w or a)", options->mode);
    return LIG_OK;
}

/* --- the place --- */

static lig_status find_marker(ligi_remote_volume *volume)
{
    uint8_t marker[LIGI_ENGINE_MARKER_MAX];
    size_t bytes = 0, magic = strlen(MARKER_MAGIC);

    LIG_TRY(volume->ops->marker_get(volume->engine, marker, &bytes));
    if (bytes < magic + LIGI_REMOTE_ID_BYTES || memcmp(marker, MARKER_MAGIC, magic) != 0)
        return lig_fail(LIG_E_CORRUPT,
                        "%s is not a store, or was created by a newer version of Ligament",
                        volume->name);
    memcpy(volume->id, marker + magic, LIGI_REMOTE_ID_BYTES);
    return LIG_OK;
}

static lig_status make_marker(ligi_remote_volume *volume)
{
    uint8_t marker[sizeof MARKER_MAGIC - 1 + LIGI_REMOTE_ID_BYTES];
    size_t magic = sizeof MARKER_MAGIC - 1;

    memcpy(marker, MARKER_MAGIC, magic);
    LIG_TRY(ligi_random(marker + magic, LIGI_REMOTE_ID_BYTES));
    lig_status status = volume->ops->marker_put(volume->engine, marker, sizeof marker);
    return status == LIG_E_EXISTS ? LIG_OK : status; /* another process was first */
}

static lig_status find_store(ligi_remote_volume *volume)
{
    lig_status status = find_marker(volume);

    if (status == LIG_E_NOTFOUND && volume->read_only)
        return lig_fail(LIG_E_NOTFOUND, "there is no store at %s", volume->name);
    if (status != LIG_E_NOTFOUND)
        return status;
    LIG_TRY(make_marker(volume));
    status = find_marker(volume);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(LIG_E_IO, "%s: the object that was just written cannot be found",
                        volume->name);
    return status;
}

static lig_status check_limits(const ligi_remote_volume *volume)
{
    if (volume->limits.range_bytes < LIG_BLOCK_BYTES ||
        volume->limits.range_bytes % LIG_BLOCK_BYTES != 0)
        return lig_fail(LIG_E_INTERNAL, "%s: the engine's limits are invalid", volume->name);
    return LIG_OK;
}

typedef struct place_request {
    const ligi_engine_ops *ops;
    const ligi_uri *uri;
    const all_options *options;
    ligi_remote_windows windows;
} place_request;

static lig_status open_engine(ligi_remote_volume *volume, const place_request *request)
{
    ligi_engine_place place = {.uri = request->uri,
                               .options = request->options->engines,
                               .read_only = volume->read_only,
                               .timeout_ns = volume->windows.timeout_ns};

    LIG_TRY(volume->ops->open(&ligi_engine_host_table, &place, &volume->engine));
    volume->ops->limits(volume->engine, &volume->limits);
    LIG_TRY(check_limits(volume));
    LIG_TRY(find_store(volume));
    const remote_options *ours = request->options->ours;
    if (ours->cache == NULL || ours->cache[0] == '\0')
        return LIG_OK;
    return ligi_remote_cache_open(ours->cache, ours->cache_bytes, volume->id, &volume->cache);
}

static void close_engine(ligi_remote_volume *volume)
{
    ligi_keeper_stop(volume);
    if (volume->engine != NULL)
        volume->ops->close(volume->engine, 0);
    volume->engine = NULL;
    ligi_remote_cache_close(volume->cache);
    volume->cache = NULL;
    ligi_remote_state_release(volume->state);
    volume->state = NULL;
    volume->seen_ns = 0;
}

static void volume_destroy(void *object)
{
    ligi_remote_volume *volume = object;

    ligi_item_map_release(volume->swept);
    pthread_cond_destroy(&volume->changed);
    pthread_mutex_destroy(&volume->lock);
    free(volume->name);
    free(volume);
}

/* Does not talk to the service: the table of shared objects is locked. */
static lig_status volume_create(void *context, void **object)
{
    const place_request *request = context;
    size_t bytes = strlen(request->uri->scheme) + strlen(request->uri->rest) + 2;
    ligi_remote_volume *volume;
    pthread_condattr_t monotonic;

    LIG_TRY(ligi_calloc(&volume, 1, sizeof *volume, "a remote volume"));
    lig_status status = ligi_alloc(&volume->name, bytes, "the name of a store");
    if (status != LIG_OK) {
        free(volume);
        return status;
    }
    snprintf(volume->name, bytes, "%s:%s", request->uri->scheme, request->uri->rest);
    volume->ops = request->ops;
    volume->windows = request->windows;
    volume->read_only = request->options->ours->mode[0] == 'r';
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&volume->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&volume->lock, NULL);
    *object = volume;
    return LIG_OK;
}

static const ligi_shared_kind volume_kind = {volume_create, volume_destroy, NULL};

/* --- handles --- */

/* Takes the lock. */
static void end_move(ligi_remote_volume *volume)
{
    pthread_mutex_lock(&volume->lock);
    volume->moving = 0;
    pthread_cond_broadcast(&volume->changed);
}

/* The first handle opens the engine, the others wait for it. */
static lig_status add_handle(ligi_remote_volume *volume, const place_request *request)
{
    lig_status status = LIG_OK;

    pthread_mutex_lock(&volume->lock);
    while (volume->moving)
        pthread_cond_wait(&volume->changed, &volume->lock);
    if (volume->handles == 0) {
        volume->moving = 1;
        pthread_mutex_unlock(&volume->lock);
        status = open_engine(volume, request);
        if (status != LIG_OK)
            close_engine(volume);
        end_move(volume);
    }
    volume->handles += status == LIG_OK;
    pthread_mutex_unlock(&volume->lock);
    return status;
}

static void end_handle(ligi_remote_volume *volume)
{
    pthread_mutex_lock(&volume->lock);
    while (volume->moving)
        pthread_cond_wait(&volume->changed, &volume->lock);
    if (--volume->handles == 0) {
        volume->moving = 1;
        pthread_mutex_unlock(&volume->lock);
        close_engine(volume);
        end_move(volume);
    }
    pthread_mutex_unlock(&volume->lock);
}

static lig_status open_handle(ligi_remote *self, place_request *request, const char *config)
{
    char key[LIGI_URI_BYTES_MAX + 64];
    void *object;

    LIG_TRY(check_windows(request->options->ours, &request->windows));
    self->read_only = request->options->ours->mode[0] == 'r';
    /* Handles opened with other options share nothing, like handles of separate processes. */
    snprintf(key, sizeof key, "remote %s:%s", request->ops->scheme, config);
    LIG_TRY(ligi_shared_acquire(key, &volume_kind, LIGI_SHARED_ANY, request, &object));
    self->volume = object;
    lig_status status = add_handle(self->volume, request);
    if (status != LIG_OK)
        ligi_shared_release(object);
    return status;
}

/* A process that opens the store for writing removes packs that others have condemned. */
static void begin_sweep(ligi_remote *self)
{
    if (self->read_only || ligi_remote_refresh(self->volume) != LIG_OK)
        return;
    ligi_remote_state *state = ligi_remote_latest(self->volume, NULL);
    size_t condemned = ligi_item_map_count(state->condemned);
    ligi_remote_state_release(state);
    if (condemned > 0)
        ligi_keeper_sweep(self->volume);
}

lig_status ligi_remote_open(const ligi_engine_ops *ops, const char *config, void **out)
{
    char text[LIGI_URI_BYTES_MAX + 64];
    ligi_uri uri;
    ligi_remote *self;
    all_options options = {0};

    if (snprintf(text, sizeof text, "%s:%s", ops->scheme, config) >= (int)sizeof text)
        return lig_fail(LIG_E_LIMIT, "the URI of a store is too long");
    LIG_TRY(ligi_uri_parse(&uri, text));
    lig_status status = ligi_calloc(&self, 1, sizeof *self, "a remote volume");
    if (status == LIG_OK) {
        place_request request = {.ops = ops, .uri = &uri, .options = &options};
        self->pid = getpid();
        status = options_fill(ops, &uri, &options);
        if (status == LIG_OK)
            status = open_handle(self, &request, config);
        options_fini(&options);
        if (status == LIG_OK)
            *out = self;
        else
            free(self);
    }
    ligi_uri_fini(&uri);
    if (status == LIG_OK)
        begin_sweep(*out);
    return status;
}

void ligi_remote_close(void *opaque)
{
    ligi_remote *self = opaque;

    if (self == NULL)
        return;
    if (self->pid == getpid()) {
        end_handle(self->volume);
        ligi_shared_release(self->volume);
    }
    free(self);
}

lig_status ligi_remote_usable(const ligi_remote *self)
{
    if (self->pid != getpid())
        return lig_fail(LIG_E_CLOSED,
                        "%s was opened before this process was forked (open it again "
                        "in this process)",
                        self->volume->name);
    return LIG_OK;
}

lig_status ligi_remote_writable(const ligi_remote *self)
{
    LIG_TRY(ligi_remote_usable(self));
    if (self->read_only)
        return lig_fail(LIG_E_DENIED, "%s was opened with mode=r", self->volume->name);
    return LIG_OK;
}

int64_t ligi_remote_boot_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

/* A mapping is a copy and would stay valid; but making one for every load would read whole
 * packs. */
static uint32_t remote_flags(void *opaque)
{
    const ligi_remote *self = opaque;

    return (self->read_only ? LIG_VOLUME_READ_ONLY : 0) | LIG_VOLUME_NO_HOLD;
}

static void remote_describe(void *opaque, char *text, size_t text_bytes)
{
    const ligi_remote *self = opaque;

    self->volume->ops->describe(self->volume->engine, text, text_bytes);
}

const lig_volume_ops ligi_remote_volume_ops = {
    .struct_bytes = sizeof(lig_volume_ops),
    .flags = remote_flags,
    .describe = remote_describe,
    .pack_create = ligi_remote_pack_create,
    .pack_put = ligi_remote_pack_put,
    .pack_seal = ligi_remote_pack_seal,
    .pack_close = ligi_remote_pack_close,
    .pack_size = ligi_remote_pack_size,
    .pack_read = ligi_remote_pack_read,
    .pack_map = ligi_remote_pack_map,
    .pack_unmap = ligi_remote_pack_unmap,
    .pack_claim = ligi_remote_pack_claim,
    .pack_remove = ligi_remote_pack_remove,
    .pack_next = ligi_remote_pack_next,
    .pin = ligi_remote_pin,
    .unpin = ligi_remote_unpin,
    .catalog_begin = ligi_remote_catalog_begin,
    .catalog_end = ligi_remote_catalog_end,
    .catalog_get = ligi_item_snapshot_get,
    .catalog_seek = ligi_item_snapshot_seek,
    .catalog_commit = ligi_remote_catalog_commit,
    .catalog_lock = ligi_remote_catalog_lock,
    .catalog_unlock = ligi_remote_catalog_unlock,
    .catalog_settle = ligi_remote_catalog_settle,
    .catalog_events = ligi_remote_catalog_events,
    .catalog_wait = ligi_remote_catalog_wait,
    .catalog_verify = ligi_remote_catalog_verify,
    .lock = ligi_remote_lock,
    .unlock = ligi_remote_unlock,
};
