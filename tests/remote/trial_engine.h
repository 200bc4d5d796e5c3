/* A storage service in memory, for tests of what is above the table of an engine: places are shared
 * by all who open them in this process, and replies can be delayed and lost. Its log is one of
 * numbered objects, so it commits with ligi_numbered_commit, as S3 does. */
#ifndef TRIAL_ENGINE_H
#define TRIAL_ENGINE_H

#include "backend/registry.h"
#include "backend/remote/format/numbered_commit.h"
#include "backend/remote/remote_volume.h"
#include "base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIAL_ROOM_BYTES (UINT64_C(1) << 20)

typedef struct trial_object {
    struct trial_object *next;
    ligi_object name;
    uint8_t *bytes;
    uint64_t size;
    int sealed;
    int64_t claimed_until_ns; /* 0: not claimed */
} trial_object;

typedef struct trial_lease { /* a pin, or a lock by name */
    struct trial_lease *next;
    struct trial_store *store;
    int64_t until_ns;
    char *name; /* NULL: a pin */
    size_t count;
    uint64_t packs[];
} trial_lease;

typedef struct trial_entry {
    uint8_t *bytes;
    size_t size;
    int64_t date_ns;
} trial_entry;

typedef struct trial_store {
    struct trial_store *next;
    char name[128];
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t news;
    uint8_t marker[LIGI_ENGINE_MARKER_MAX];
    size_t marker_bytes;
    trial_entry *log; /* entry i is commit i + 1; without bytes: trimmed */
    size_t log_count, log_capacity;
    trial_object *objects;
    trial_lease *leases;
    uint64_t seed;
    unsigned faults; /* of 1000 requests, so many get no reply; half of them had their effect */
    int64_t skew_ns; /* added to the service's clock */
    uint64_t requests;
} trial_store;

/* Places, for as long as the process runs. */
static trial_store *trial_stores;
static pthread_mutex_t trial_lock = PTHREAD_MUTEX_INITIALIZER;

static inline trial_store *trial_find(const char *name)
{
    pthread_mutex_lock(&trial_lock);
    trial_store *found = trial_stores;
    while (found != NULL && strcmp(found->name, name) != 0)
        found = found->next;
    if (found == NULL) {
        found = calloc(1, sizeof *found);
        snprintf(found->name, sizeof found->name, "%s", name);
        pthread_mutex_init(&found->lock, NULL);
        pthread_condattr_t monotonic;
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&found->news, &monotonic);
        pthread_condattr_destroy(&monotonic);
        found->seed = 20;
        found->next = trial_stores;
        trial_stores = found;
    }
    pthread_mutex_unlock(&trial_lock);
    return found;
}

static inline void trial_forget_object(trial_object **link)
{
    trial_object *gone = *link;
    *link = gone->next;
    free(gone->bytes);
    free(gone);
}

/* Frees all places, which must not be in use. */
static inline void trial_end(void)
{
    while (trial_stores != NULL) {
        trial_store *store = trial_stores;
        trial_stores = store->next;
        for (size_t i = 0; i < store->log_count; i++)
            free(store->log[i].bytes);
        free(store->log);
        while (store->objects != NULL)
            trial_forget_object(&store->objects);
        pthread_cond_destroy(&store->news);
        pthread_mutex_destroy(&store->lock);
        free(store);
    }
}

/* --- requests --- */

static inline int64_t trial_now_ns(const trial_store *store)
{
    return ligi_date_ns() + store->skew_ns;
}

typedef enum trial_fate { TRIAL_DONE, TRIAL_LOST_BEFORE, TRIAL_LOST_AFTER } trial_fate;

/* Every request begins here, with the lock, and ends by releasing it. */
static inline trial_fate trial_begin(trial_store *store)
{
    pthread_mutex_lock(&store->lock);
    store->requests++;
    store->seed = store->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    unsigned drawn = (unsigned)(store->seed >> 33) % 1000;
    if (drawn >= store->faults)
        return TRIAL_DONE;
    return drawn % 2 ? TRIAL_LOST_BEFORE : TRIAL_LOST_AFTER;
}

static inline void trial_done(trial_store *store)
{
    int faulty = store->faults != 0;
    pthread_mutex_unlock(&store->lock);
    if (faulty)
        sched_yield();
}

/* Requests without an effect are simply repeated by an engine. */
static inline void trial_begin_idempotent(trial_store *store)
{
    while (trial_begin(store) != TRIAL_DONE)
        trial_done(store);
}

/* --- opening --- */

static lig_status trial_open(const ligi_engine_host *host, const ligi_engine_place *place,
                             void **self)
{
    if (host->abi != LIGI_ENGINE_ABI)
        return (host->fail)(LIG_E_UNSUPPORTED, "another library");
    *self = trial_find(place->uri->rest);
    return LIG_OK;
}

static void trial_close(void *self, int forked)
{
    (void)self, (void)forked;
}

static void trial_limits(void *self, ligi_engine_limits *limits)
{
    (void)self;
    *limits = (ligi_engine_limits){
        .record_bytes_max = UINT64_C(1) << 30, .range_bytes = UINT64_C(2) << 20, .reads = 4};
}

static void trial_describe(void *self, char *text, size_t bytes)
{
    snprintf(text, bytes, "a service in memory: %s", ((trial_store *)self)->name);
}

static lig_status trial_now(void *self, int64_t *now_ns)
{
    trial_store *store = self;

    pthread_mutex_lock(&store->lock);
    *now_ns = trial_now_ns(store);
    pthread_mutex_unlock(&store->lock);
    return LIG_OK;
}

static lig_status trial_marker_put(void *self, const void *marker, size_t bytes)
{
    trial_store *store = self;

    trial_begin_idempotent(store);
    int there = store->marker_bytes != 0;
    if (!there) {
        memcpy(store->marker, marker, bytes);
        store->marker_bytes = bytes;
    }
    trial_done(store);
    return there ? LIG_E_EXISTS : LIG_OK;
}

static lig_status trial_marker_get(void *self, void *marker, size_t *bytes)
{
    trial_store *store = self;

    trial_begin_idempotent(store);
    *bytes = store->marker_bytes;
    memcpy(marker, store->marker, store->marker_bytes);
    trial_done(store);
    return *bytes == 0 ? LIG_E_NOTFOUND : LIG_OK;
}

/* --- log --- */

static inline ligi_commit_reply trial_put_entry(trial_store *store, uint64_t version,
                                                const void *record, size_t bytes)
{
    ligi_commit_reply reply = LIGI_REPLY_WRITTEN;
    trial_fate fate = trial_begin(store);

    if (fate != TRIAL_LOST_BEFORE) {
        if (store->log_capacity < version) {
            store->log_capacity = 2 * version;
            store->log = realloc(store->log, store->log_capacity * sizeof *store->log);
        }
        while (store->log_count < version)
            store->log[store->log_count++] = (trial_entry){0};
        trial_entry *entry = &store->log[version - 1];
        if (entry->bytes != NULL) {
            reply = LIGI_REPLY_EXISTS;
        } else {
            entry->bytes = malloc(bytes);
            memcpy(entry->bytes, record, bytes);
            entry->size = bytes;
            entry->date_ns = trial_now_ns(store);
            pthread_cond_broadcast(&store->news);
        }
    }
    trial_done(store);
    return fate == TRIAL_DONE ? reply : LIGI_REPLY_LOST;
}

static inline ligi_commit_reply trial_get_entry(trial_store *store, uint64_t version,
                                                const void *record)
{
    ligi_commit_reply reply = LIGI_REPLY_ABSENT;
    trial_fate fate = trial_begin(store);

    if (version <= store->log_count && store->log[version - 1].bytes != NULL)
        reply = memcmp(store->log[version - 1].bytes, record, LIGI_RECORD_ID_BYTES) == 0
                    ? LIGI_REPLY_MINE
                    : LIGI_REPLY_OTHERS;
    trial_done(store);
    return fate == TRIAL_DONE ? reply : LIGI_REPLY_LOST;
}

static lig_status trial_log_append(void *self, const ligi_log_end *end, int64_t fresh_ns,
                                   const void *record, size_t bytes)
{
    trial_store *store = self;
    ligi_numbered_commit commit;

    ligi_numbered_commit_begin(&commit, end->seen_ns, fresh_ns);
    for (int tries = 0;; tries++) {
        switch (ligi_numbered_commit_next(&commit, ligi_date_ns(), tries > 3)) {
        case LIGI_COMMIT_PUT:
            ligi_numbered_commit_reply(&commit,
                                       trial_put_entry(store, end->version + 1, record, bytes));
            break;
        case LIGI_COMMIT_GET:
            ligi_numbered_commit_reply(&commit, trial_get_entry(store, end->version + 1, record));
            break;
        case LIGI_COMMIT_DONE: return LIG_OK;
        case LIGI_COMMIT_BUSY: return LIG_E_BUSY;
        case LIGI_COMMIT_FAILED: return lig_fail(LIG_E_TIMEOUT, "no answer");
        case LIGI_COMMIT_UNKNOWN: return lig_fail(LIG_E_IO, "no answer from %s", store->name);
        }
    }
}

/* A copy of entry number `version`: LIG_E_NOTFOUND behind the end, LIG_E_BUSY where it was trimmed.
 */
static inline lig_status trial_copy_entry(trial_store *store, uint64_t version, trial_entry *copy)
{
    lig_status status = LIG_E_NOTFOUND;

    trial_begin_idempotent(store);
    if (version <= store->log_count) {
        const trial_entry *entry = &store->log[version - 1];
        status = entry->bytes == NULL ? LIG_E_BUSY : LIG_OK;
        if (status == LIG_OK) {
            copy->bytes = malloc(entry->size);
            memcpy(copy->bytes, entry->bytes, entry->size);
            copy->size = entry->size;
        }
    }
    trial_done(store);
    return status;
}

static lig_status trial_log_read(void *self, const ligi_log_end *end, int64_t fresh_ns,
                                 ligi_log_visit visit, void *context)
{
    trial_store *store = self;

    (void)fresh_ns;
    pthread_mutex_lock(&store->lock);
    int beyond = end->version > store->log_count;
    pthread_mutex_unlock(&store->lock);
    for (uint64_t version = end->version + 1; !beyond; version++) {
        trial_entry copy = {0};
        lig_status status = trial_copy_entry(store, version, &copy);
        if (status == LIG_E_NOTFOUND)
            return LIG_OK;
        if (status == LIG_E_BUSY)
            break;
        status = visit(context, version, copy.bytes, copy.size);
        free(copy.bytes);
        LIG_TRY(status);
    }
    return LIG_E_NOTFOUND;
}

static lig_status trial_log_wait(void *self, uint64_t since, int64_t timeout_ns)
{
    trial_store *store = self;
    struct timespec deadline = ligi_deadline(timeout_ns);

    pthread_mutex_lock(&store->lock);
    while (store->log_count <= since &&
           pthread_cond_timedwait(&store->news, &store->lock, &deadline) == 0)
        ;
    pthread_mutex_unlock(&store->lock);
    return LIG_OK;
}

static lig_status trial_log_trim(void *self, uint64_t before, int64_t keep_ns)
{
    trial_store *store = self;

    trial_begin_idempotent(store);
    for (uint64_t version = 1; version < before && version <= store->log_count; version++) {
        if (trial_now_ns(store) - store->log[version - 1].date_ns <= keep_ns)
            break;
        free(store->log[version - 1].bytes);
        store->log[version - 1].bytes = NULL;
    }
    trial_done(store);
    return LIG_OK;
}

static lig_status trial_checkpoint_publish(void *self, uint64_t version)
{
    (void)self, (void)version;
    return LIG_OK;
}

static lig_status trial_checkpoint_newest(void *self, uint64_t before, uint64_t *version)
{
    trial_store *store = self;
    lig_status status = LIG_E_NOTFOUND;

    trial_begin_idempotent(store);
    for (const trial_object *at = store->objects; at != NULL; at = at->next)
        if (at->name.kind == LIGI_OBJECT_CHECKPOINT && at->sealed && at->name.id < before &&
            (status != LIG_OK || at->name.id > *version)) {
            *version = at->name.id;
            status = LIG_OK;
        }
    trial_done(store);
    return status;
}

/* --- objects --- */

static inline trial_object **trial_look(trial_store *store, ligi_object name)
{
    trial_object **link = &store->objects;

    while (*link != NULL && ((*link)->name.kind != name.kind || (*link)->name.id != name.id))
        link = &(*link)->next;
    return link;
}

typedef struct trial_writer {
    trial_store *store;
    ligi_object name;
    uint8_t *bytes, *room;
    uint64_t size, capacity;
    int sealed;
} trial_writer;

static lig_status trial_object_create(void *self, ligi_object object, uint64_t bytes,
                                      int64_t ttl_ns, void **out)
{
    trial_store *store = self;
    int pack = object.kind == LIGI_OBJECT_PACK;

    (void)bytes;
    trial_begin_idempotent(store);
    int there = *trial_look(store, object) != NULL;
    if (!there) {
        trial_object *made = calloc(1, sizeof *made);
        made->name = object;
        made->claimed_until_ns = pack ? trial_now_ns(store) + ttl_ns : 0;
        made->next = store->objects;
        store->objects = made;
    }
    trial_done(store);
    if (there && pack)
        return LIG_E_EXISTS;
    trial_writer *writer = calloc(1, sizeof *writer);
    writer->store = store;
    writer->name = object;
    *out = writer;
    return LIG_OK;
}

static lig_status trial_object_room(void *opaque, void **memory, uint64_t *bytes)
{
    trial_writer *writer = opaque;

    if (writer->room == NULL && posix_memalign((void **)&writer->room, 4096, TRIAL_ROOM_BYTES) != 0)
        return LIG_E_NOMEM;
    *memory = writer->room;
    *bytes = TRIAL_ROOM_BYTES;
    return LIG_OK;
}

static lig_status trial_object_push(void *opaque, uint64_t bytes)
{
    trial_writer *writer = opaque;

    if (writer->size % TRIAL_ROOM_BYTES != 0)
        return lig_fail(LIG_E_INTERNAL, "a push behind one that did not fill its room");
    if (writer->size + bytes > writer->capacity) {
        writer->capacity = 2 * (writer->size + bytes);
        writer->bytes = realloc(writer->bytes, writer->capacity);
    }
    memcpy(writer->bytes + writer->size, writer->room, bytes);
    writer->size += bytes;
    memset(writer->room, 0x5A, TRIAL_ROOM_BYTES);
    return LIG_OK;
}

static lig_status trial_object_seal(void *opaque)
{
    trial_writer *writer = opaque;

    trial_begin_idempotent(writer->store);
    trial_object *object = *trial_look(writer->store, writer->name);
    if (object != NULL) {
        free(object->bytes);
        object->bytes = writer->bytes;
        object->size = writer->size;
        object->sealed = writer->sealed = 1;
        writer->bytes = NULL;
    }
    trial_done(writer->store);
    return object != NULL ? LIG_OK : lig_fail(LIG_E_NOTFOUND, "the claim of a pack was lost");
}

static lig_status trial_object_renew(void *opaque, int64_t ttl_ns)
{
    trial_writer *writer = opaque;

    trial_begin_idempotent(writer->store);
    trial_object *object = *trial_look(writer->store, writer->name);
    if (object != NULL)
        object->claimed_until_ns = trial_now_ns(writer->store) + ttl_ns;
    trial_done(writer->store);
    return object != NULL ? LIG_OK : lig_fail(LIG_E_NOTFOUND, "the claim of a pack was lost");
}

static void trial_object_close(void *opaque, int forked)
{
    trial_writer *writer = opaque;

    if (writer == NULL)
        return;
    if (!forked) {
        trial_begin_idempotent(writer->store);
        trial_object **object = trial_look(writer->store, writer->name);
        if (*object != NULL && !(*object)->sealed)
            trial_forget_object(object);
        else if (*object != NULL)
            (*object)->claimed_until_ns = 0;
        trial_done(writer->store);
    }
    free(writer->bytes);
    free(writer->room);
    free(writer);
}

static lig_status trial_object_size(void *self, ligi_object object, uint64_t *bytes)
{
    trial_store *store = self;

    trial_begin_idempotent(store);
    const trial_object *found = *trial_look(store, object);
    int there = found != NULL && found->sealed;
    if (there)
        *bytes = found->size;
    trial_done(store);
    return there ? LIG_OK : lig_fail(LIG_E_NOTFOUND, "there is no such object");
}

static lig_status trial_object_read(void *self, ligi_object object, const ligi_object_range *ranges,
                                    size_t count, ligi_object_arrived arrived, void *context)
{
    trial_store *store = self;

    for (size_t n = 0; n < count; n++) {
        size_t i = count - 1 - n; /* replies come in any order */
        lig_status status = LIG_E_NOTFOUND;
        trial_begin_idempotent(store);
        const trial_object *found = *trial_look(store, object);
        if (found != NULL && found->sealed) {
            uint64_t at = ranges[i].offset, bytes = ranges[i].bytes;
            status = at <= found->size && bytes <= found->size - at ? LIG_OK : LIG_E_CORRUPT;
            if (status == LIG_OK)
                memcpy(ranges[i].data, found->bytes + at, bytes);
        }
        trial_done(store);
        if (status != LIG_OK)
            return lig_fail(status, "an object at %s is too short or missing", store->name);
        if (arrived != NULL)
            LIG_TRY(arrived(context, i));
    }
    return LIG_OK;
}

static lig_status trial_object_list(void *self, ligi_object_kind kind, uint64_t after,
                                    uint64_t *ids, size_t capacity, size_t *count)
{
    trial_store *store = self;

    trial_begin_idempotent(store);
    for (*count = 0; *count < capacity; after = ids[(*count)++]) {
        uint64_t next = UINT64_MAX;
        for (const trial_object *at = store->objects; at != NULL; at = at->next)
            if (at->name.kind == kind && at->sealed && at->name.id > after && at->name.id < next)
                next = at->name.id;
        if (next == UINT64_MAX)
            break;
        ids[*count] = next;
    }
    trial_done(store);
    return LIG_OK;
}

static inline int trial_is_pinned(const trial_store *store, uint64_t pack)
{
    for (const trial_lease *at = store->leases; at != NULL; at = at->next)
        for (size_t i = 0; i < at->count; i++)
            if (at->packs[i] == pack && at->until_ns > trial_now_ns(store))
                return 1;
    return 0;
}

static lig_status trial_object_remove(void *self, ligi_object_kind kind, const uint64_t *ids,
                                      size_t count, lig_status *results)
{
    trial_store *store = self;

    for (size_t i = 0; i < count; i++) {
        ligi_object name = {kind, ids[i]};
        trial_begin_idempotent(store);
        results[i] =
            kind == LIGI_OBJECT_PACK && trial_is_pinned(store, ids[i]) ? LIG_E_BUSY : LIG_OK;
        trial_object **object = trial_look(store, name);
        if (results[i] == LIG_OK && *object != NULL)
            trial_forget_object(object);
        trial_done(store);
    }
    return LIG_OK;
}

static lig_status trial_pack_held(void *self, uint64_t id)
{
    trial_store *store = self;
    lig_status status = LIG_E_NOTFOUND;

    trial_begin_idempotent(store);
    const trial_object *found = *trial_look(store, (ligi_object){LIGI_OBJECT_PACK, id});
    if (found != NULL && found->sealed)
        status = found->claimed_until_ns > trial_now_ns(store) ? LIG_E_BUSY : LIG_OK;
    trial_done(store);
    return status == LIG_OK ? LIG_OK : lig_fail(status, "the pack is claimed, or is not there");
}

static lig_status trial_drafts_remove(void *self, int *more)
{
    trial_store *store = self;

    *more = 0;
    trial_begin_idempotent(store);
    for (trial_object **link = &store->objects; *link != NULL;) {
        if (!(*link)->sealed && (*link)->name.kind == LIGI_OBJECT_PACK &&
            (*link)->claimed_until_ns <= trial_now_ns(store))
            trial_forget_object(link);
        else
            link = &(*link)->next;
    }
    trial_done(store);
    return LIG_OK;
}

/* --- pins and locks --- */

static inline trial_lease *trial_lease_add(trial_store *store, size_t count, int64_t ttl_ns)
{
    trial_lease *made = calloc(1, sizeof *made + count * sizeof made->packs[0]);

    made->store = store;
    made->count = count;
    made->until_ns = trial_now_ns(store) + ttl_ns;
    made->next = store->leases;
    store->leases = made;
    return made;
}

static lig_status trial_pin(void *self, const uint64_t *packs, size_t count, int64_t ttl_ns,
                            void **pin)
{
    trial_store *store = self;

    trial_begin_idempotent(store);
    trial_lease *made = trial_lease_add(store, count, ttl_ns);
    memcpy(made->packs, packs, count * sizeof *packs);
    trial_done(store);
    *pin = made;
    return LIG_OK;
}

static lig_status trial_lease_renew(void *opaque, int64_t ttl_ns)
{
    trial_lease *lease = opaque;

    trial_begin_idempotent(lease->store);
    lease->until_ns = trial_now_ns(lease->store) + ttl_ns;
    trial_done(lease->store);
    return LIG_OK;
}

static void trial_lease_end(void *opaque, int forked)
{
    trial_lease *lease = opaque;

    if (lease == NULL || forked)
        return;
    trial_begin_idempotent(lease->store);
    trial_lease **link = &lease->store->leases;
    while (*link != lease)
        link = &(*link)->next;
    *link = lease->next;
    trial_done(lease->store);
    free(lease->name);
    free(lease);
}

static lig_status trial_pinned(void *self, const uint64_t *packs, size_t count, uint8_t *pinned)
{
    trial_store *store = self;

    trial_begin_idempotent(store);
    for (size_t i = 0; i < count; i++)
        pinned[i] = (uint8_t)trial_is_pinned(store, packs[i]);
    trial_done(store);
    return LIG_OK;
}

static lig_status trial_take(void *self, const char *name, const char *holder, int64_t ttl_ns,
                             void **lock)
{
    trial_store *store = self;
    trial_lease *made = NULL;

    (void)holder;
    trial_begin_idempotent(store);
    const trial_lease *at = store->leases;
    while (at != NULL &&
           (at->name == NULL || strcmp(at->name, name) != 0 || at->until_ns <= trial_now_ns(store)))
        at = at->next;
    if (at == NULL) {
        made = trial_lease_add(store, 0, ttl_ns);
        made->name = strdup(name);
    }
    trial_done(store);
    *lock = made;
    return made != NULL ? LIG_OK : lig_fail(LIG_E_BUSY, "'%s' is locked", name);
}

static const ligi_engine_ops trial_ops = {
    .abi = LIGI_ENGINE_ABI,
    .size = sizeof(ligi_engine_ops),
    .scheme = "trial",
    .help = "a service in memory",
    .open = trial_open,
    .close = trial_close,
    .limits = trial_limits,
    .describe = trial_describe,
    .now = trial_now,
    .marker_put = trial_marker_put,
    .marker_get = trial_marker_get,
    .log_append = trial_log_append,
    .log_read = trial_log_read,
    .log_wait = trial_log_wait,
    .log_trim = trial_log_trim,
    .checkpoint_publish = trial_checkpoint_publish,
    .checkpoint_newest = trial_checkpoint_newest,
    .object_create = trial_object_create,
    .object_room = trial_object_room,
    .object_push = trial_object_push,
    .object_seal = trial_object_seal,
    .object_renew = trial_object_renew,
    .object_close = trial_object_close,
    .object_size = trial_object_size,
    .object_read = trial_object_read,
    .object_list = trial_object_list,
    .object_remove = trial_object_remove,
    .pack_held = trial_pack_held,
    .drafts_remove = trial_drafts_remove,
    .pin = trial_pin,
    .pin_renew = trial_lease_renew,
    .unpin = trial_lease_end,
    .pinned = trial_pinned,
    .lock = trial_take,
    .lock_renew = trial_lease_renew,
    .unlock = trial_lease_end,
};

/* --- the backend over it --- */

static lig_status trial_backend_open(void **self, const char *config)
{
    return ligi_remote_open(&trial_ops, config, self);
}

static const lig_backend_ops trial_backend = {
    .open = trial_backend_open,
    .close = ligi_remote_close,
    .volume = &ligi_remote_volume_ops,
    .options = ligi_remote_shown_options,
};

static inline lig_status trial_register(void)
{
    return ligi_backend_register("trial", &trial_backend);
}

#endif
