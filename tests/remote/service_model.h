/* A storage service as a table: what the protocols of a remote volume see of it, with requests that
 * arrive late, twice or never, and replies that get lost. It checks what must always hold. */
#ifndef SERVICE_MODEL_H
#define SERVICE_MODEL_H

#include "backend/remote/format/numbered_commit.h"
#include "backend/remote/format/remote_state.h"
#include "base/test.h"

#include <stdlib.h>

/* Rules that one process breaks, to see that the checks notice it. */
typedef enum model_mutation {
    SOUND,
    SWEEP_IGNORES_PINS,
    SWEEP_WITHOUT_GRACE,
    REMOVER_IGNORES_CLAIMS,
    REMOVER_IGNORES_NAMES,
    REVIVES_CONDEMNED,
    SAVER_IGNORES_LOST_CLAIM,
    READER_LOOKS_BEFORE_PIN,
    CHECKPOINT_BEFORE_COMMIT,
    NO_REFRESH_AFTER_BUSY,
    NEXT_NUMBER_WITHOUT_REFRESH,
    NO_FENCE,
    KEEPS_LOG_TOO_SHORT,
    LOST_REPLY_IS_FAILURE,
    CONFLICT_IS_OTHERS,
    CONFLICT_IS_NOT_SENT,
    MUTATIONS
} model_mutation;

/* Time is in minutes. */
enum { FRESH = 60, SIGNATURE = 15, KEEP = 24 * 60, GRACE = 15, TTL = 60, SKEW = 7 };
enum { VERSIONS = 160, PACKS = 64, LATE = 32, PINS = 32, CHECKPOINT_STEP = 1 };

typedef struct model_record {
    uint8_t *bytes;
    size_t size;
    uint64_t pack; /* named; 0: none */
} model_record;

typedef struct late_put { /* a request that has not arrived yet, or arrives again */
    uint64_t version;
    model_record record;
    int64_t signed_at;
} late_put;

typedef struct model_pin {
    uint64_t pack;
    int64_t until;
} model_pin;

typedef struct service {
    uint64_t seed;
    int by_head;    /* commits compare and set one object, as on RADOS */
    int64_t now;    /* its clock */
    uint64_t head;  /* the last commit that was ever accepted */
    uint64_t first; /* entries before are removed, and those marked in `gone` */
    uint8_t gone[VERSIONS];
    model_record history[VERSIONS];
    int64_t dates[VERSIONS];
    ligi_remote_state *states[VERSIONS]; /* the truth after each commit */
    uint64_t checkpoint;                 /* newest */
    int exists[PACKS], sealed[PACKS];
    int64_t held_until[PACKS];
    uint64_t pack_count;
    model_pin pins[PINS];
    late_put late[LATE];
    size_t late_count;
    size_t profile;        /* of the processes */
    uint64_t deleted;      /* packs */
    uint64_t acknowledged; /* the last version whose writer was told */
    uint64_t checkpoint_chain;
    int64_t condemned[PACKS]; /* when that commit arrived; 0: not condemned */
    int64_t lateness[PACKS];  /* of that commit: it was dated so long before */
    model_mutation broken;
    const char *violation; /* the first rule that did not hold; the schedule ends */
} service;

static inline void model_must(service *self, int holds, const char *rule)
{
    if (!holds && self->violation == NULL)
        self->violation = rule;
}

static inline uint64_t model_random(service *self, uint64_t below)
{
    self->seed = self->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (self->seed >> 33) % below;
}

static inline void model_start(service *self, uint64_t seed)
{
    static const uint8_t id[16] = {20};

    memset(self, 0, sizeof *self);
    self->seed = seed;
    self->by_head = (int)model_random(self, 2);
    self->now = 1000000;
    self->first = 1;
    self->pack_count = 1;
    assert_ok(ligi_remote_state_create(id, &self->states[0]));
}

static inline void model_end(service *self)
{
    for (uint64_t v = 0; v <= self->head; v++) {
        free(self->history[v].bytes);
        ligi_remote_state_release(self->states[v]);
    }
    for (size_t i = 0; i < self->late_count; i++)
        free(self->late[i].record.bytes);
}

static inline model_record model_copy(const model_record *from)
{
    model_record copy = *from;

    copy.bytes = malloc(from->size);
    memcpy(copy.bytes, from->bytes, from->size);
    return copy;
}

/* --- the truth --- */

static inline void pack_key(uint64_t pack, uint8_t key[8])
{
    ligi_put_be64(key, pack);
}

static inline int model_named(const ligi_remote_state *state, uint64_t pack)
{
    uint8_t key[8];
    lig_catalog_item item;

    pack_key(pack, key);
    return ligi_item_map_get(state->items, key, 8, &item);
}

static inline void model_accept_packs(service *self, const ligi_remote_record *record)
{
    for (size_t i = 0; i < record->condemned.count; i++) {
        uint64_t pack = ligi_packed_list_at(&record->condemned, i);
        self->condemned[pack] = self->now;
        self->lateness[pack] = self->now - record->header.date_ns;
        model_must(self, !model_named(self->states[self->head], pack),
                   "a pack that the catalog uses is condemned");
    }
    for (size_t i = 0; i < record->named.count; i++) {
        uint64_t pack = ligi_packed_list_at(&record->named, i);
        model_must(self, self->exists[pack] && self->sealed[pack],
                   "a commit names a pack that does not exist");
        model_must(self, !ligi_remote_condemned(self->states[self->head], pack, NULL),
                   "a commit names a condemned pack");
    }
}

/* A commit is accepted: the order of these calls is the order of commits. */
static inline void model_accept(service *self, uint64_t version, const model_record *record)
{
    ligi_remote_record parsed;

    model_must(self, version == self->head + 1, "a version was committed twice");
    if (self->violation != NULL)
        return;
    assert_ok(ligi_remote_record_get(record->bytes, record->size, &parsed));
    model_must(
        self,
        ligi_remote_state_apply(self->states[version - 1], &parsed, &self->states[version]) == 0,
        "a commit does not follow the one before it");
    if (self->violation != NULL)
        return;
    self->history[version] = model_copy(record);
    self->dates[version] = self->now;
    self->head = version;
    model_accept_packs(self, &parsed);
}

/* The new checkpoint holds this state. */
static inline void model_checkpoint(service *self, uint64_t version, uint64_t chain)
{
    if (version <= self->checkpoint)
        return;
    self->checkpoint = version;
    self->checkpoint_chain = chain;
}

/* What a process that reads the checkpoint finds. */
static inline uint64_t model_load(service *self)
{
    uint64_t version = self->checkpoint;

    model_must(self,
               version == 0 || (version <= self->head &&
                                self->states[version]->chain == self->checkpoint_chain),
               "a checkpoint of something that was not committed");
    return self->violation == NULL ? version : 0;
}

/* --- requests for the log --- */

static inline int model_there(const service *self, uint64_t version)
{
    return version >= self->first && version <= self->head && !self->gone[version];
}

static inline int model_apply_put(service *self, uint64_t version, const model_record *record,
                                  int64_t signed_at)
{
    int64_t age = self->now - signed_at;

    if (!self->by_head && (age > SIGNATURE || age < -SIGNATURE))
        return LIGI_REPLY_REFUSED;
    if (self->by_head ? self->head + 1 != version : model_there(self, version))
        return LIGI_REPLY_EXISTS;
    model_accept(self, version, record);
    return LIGI_REPLY_WRITTEN;
}

static inline ligi_commit_reply model_put(service *self, uint64_t version,
                                          const model_record *record, int64_t signed_at)
{
    uint64_t fate = model_random(self, 10);

    if ((fate == 0 || fate == 1) && self->late_count < LATE) /* arrives later, or again */
        self->late[self->late_count++] = (late_put){version, model_copy(record), signed_at};
    if (fate == 0 || fate == 2)
        return LIGI_REPLY_LOST;
    if (fate == 3 && model_random(self, 4) == 0)
        return LIGI_REPLY_REFUSED;
    if (fate == 3) { /* another is under way: it may be a copy of this one */
        if (self->late_count < LATE && model_random(self, 2))
            self->late[self->late_count++] = (late_put){version, model_copy(record), signed_at};
        return LIGI_REPLY_AGAIN;
    }
    ligi_commit_reply reply = (ligi_commit_reply)model_apply_put(self, version, record, signed_at);
    return fate == 4 ? LIGI_REPLY_LOST : reply;
}

static inline ligi_commit_reply model_get(service *self, uint64_t version,
                                          const model_record *record)
{
    if (model_random(self, 10) == 0)
        return LIGI_REPLY_LOST;
    if (!model_there(self, version))
        return LIGI_REPLY_ABSENT;
    return memcmp(self->history[version].bytes, record->bytes, LIGI_REMOTE_ID_BYTES) == 0
               ? LIGI_REPLY_MINE
               : LIGI_REPLY_OTHERS;
}

static inline void model_deliver(service *self)
{
    if (self->late_count == 0)
        return;
    size_t which = model_random(self, self->late_count);
    late_put late = self->late[which];
    self->late[which] = self->late[--self->late_count];
    (void)model_apply_put(self, late.version, &late.record, late.signed_at);
    free(late.record.bytes);
}

/* Removes one of the oldest entries, if it may go: of a numbered log several are removed at once, in
 * any order. */
static inline void model_trim(service *self, uint64_t before)
{
    uint64_t version = self->first + (self->by_head ? 0 : model_random(self, 4));

    if (version >= before || version > self->head ||
        (!self->by_head && self->broken != KEEPS_LOG_TOO_SHORT &&
         self->now - self->dates[version] <= KEEP))
        return;
    self->gone[version] = 1;
    while (self->first <= self->head && self->gone[self->first])
        self->first++;
}

/* --- packs and pins --- */

static inline int model_pinned(const service *self, uint64_t pack)
{
    for (size_t i = 0; i < PINS; i++)
        if (self->pins[i].pack == pack && self->pins[i].until > self->now)
            return 1;
    return 0;
}

static inline void model_delete(service *self, uint64_t pack)
{
    model_must(self, !model_named(self->states[self->head], pack),
               "a pack that the catalog uses is deleted");
    int condemned = ligi_remote_condemned(self->states[self->head], pack, NULL);
    model_must(self, condemned || !self->exists[pack], "a pack that is not condemned is deleted");
    self->deleted += self->exists[pack];
    self->exists[pack] = 0;
}

#endif
