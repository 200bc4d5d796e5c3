/* The commit log of a file volume as a pure state machine: the page cache, the disk below it,
 * processes that take one step at a time, and what users may rely on.
 *
 * A record fills two sectors; a file's sectors reach the disk one by one, in any order, until a
 * sync. A record's identity stands for its content, its predecessor's identity for the chain. All
 * that is undecided (who moves, what survives) is asked of `model_choose`, so that a test can draw
 * it by lot or go through all of it. */
#ifndef LOG_MODEL_H
#define LOG_MODEL_H

#include <stdint.h>
#include <string.h>

enum {
    MODEL_RECORDS = 62,
    MODEL_SLOTS = 4, /* records a segment */
    MODEL_SEGMENTS = 10,
    MODEL_CHECKPOINTS = 4,
    MODEL_PACKS = 40,
    MODEL_NAMES = 2,
    MODEL_PROCESSES = 5,
    MODEL_PENDING = 24,
    MODEL_DAMAGED = 255, /* a sector with some other content */
    MODEL_NOBODY = 255,
};

/* Mistakes that the model must notice; 0 is the protocol. */
typedef enum model_mistake {
    MODEL_SOUND,
    MODEL_DELETE_ON_SNAPSHOT,   /* a pack is removed on the word of the index */
    MODEL_NO_CHAIN,             /* a record counts by its version, and zeros hide what follows */
    MODEL_RETRY_SYNC,           /* a failed fdatasync is repeated */
    MODEL_PUBLISH_BEFORE_INDEX, /* and readers trust the index */
    MODEL_LATE_SYNC,            /* fdatasync by a descriptor that may have missed an error */
    MODEL_WAIT_BY_VERSION,      /* "synced >= n", though n was lost and written anew */
    MODEL_ZEROS_END,            /* zeros end the log, whatever a witness says */
    MODEL_NO_WITNESS,           /* whatever does not fit is cut */
    MODEL_ROLL_UNSYNCED,        /* the next segment begins before the last one is synced */
    MODEL_ROLL_FORGOTTEN,       /* a segment whose writer died is not announced */
    MODEL_SYNC_OLD_SEGMENT,     /* by a descriptor opened before the roll */
    MODEL_TRUNCATE_EARLY,       /* old segments go before the checkpoint's name is synced */
    MODEL_SHOW_UNSYNCED,        /* a reader shows what is not synced */
    MODEL_COPY_FROM_HINT,       /* a copy begins at `synced`, though that lies segments back */
    MODEL_NO_FOLDER_SYNC,       /* a segment is used before its name is synced */
    MODEL_FOUND_NAME,           /* one left by a dead process is used without that */
    MODEL_NO_ADOPT,             /* a writer continues after the published tail */
    MODEL_REMOVE_OWN,           /* a writer removes its pack after "outcome unknown" */
    MODEL_INDEX_BY_VERSION,     /* an index is current when its version is */
    MODEL_INDEX_LATER,          /* lost commits leave the index after the new epoch has begun */
    MODEL_STALE_EDIT,           /* an edit is made before W is taken */
    MODEL_MISTAKES,
} model_mistake;

typedef struct model_record {
    uint8_t version, previous, known; /* known: the version known to be synced */
    uint8_t packs[MODEL_NAMES];       /* what each name stands for after this commit */
    uint64_t past;                    /* it and all before it */
} model_record;

typedef struct model_cell {
    uint8_t cached, durable, dirty, older_count;
    uint8_t older[2]; /* contents since the last sync that the disk may hold */
} model_cell;

typedef struct model_segment {
    uint8_t used, shown, durable; /* shown: in the folder */
    uint8_t first, epoch;
    uint8_t errors, error_seen; /* as the kernel's errseq_t */
    model_cell cells[MODEL_SLOTS * 2];
} model_segment;

typedef struct model_checkpoint {
    uint8_t used, shown, durable, whole, id;
} model_checkpoint;

typedef struct model_pack {
    uint8_t shown, durable, owner;
} model_pack;

typedef enum model_kind { MODEL_SEGMENT, MODEL_CHECKPOINT, MODEL_PACK } model_kind;

typedef struct model_entry_change { /* of a folder, not yet synced */
    uint8_t kind, index, shown;
} model_entry_change;

typedef struct model_head {
    uint8_t appended, segment, synced, epoch, poisoned, valid;
    uint8_t next; /* the segment being begun + 1: the next holder of W completes it */
} model_head;

typedef enum model_role {
    MODEL_WRITER,
    MODEL_READER,
    MODEL_REMOVER,
    MODEL_KEEPER, /* makes checkpoints */
    MODEL_ROLES,
} model_role;

typedef struct model_process {
    uint8_t role, opened, step, budget; /* budget: operations left */
    uint8_t after_tail, after_sync, after_failure, after_roll;
    uint8_t id, epoch, pack, name;      /* of the operation under way */
    uint8_t want, target, target_epoch; /* of a sync */
    uint8_t segment, slot, end, made;   /* of a tail, copy or roll */
    uint8_t fd[MODEL_SEGMENTS];         /* 0: closed, otherwise the errors seen + 1 */
    uint8_t late[MODEL_SEGMENTS];       /* opened when something was not synced */
    uint64_t begun;                     /* what users relied on when it began */
} model_process;

typedef struct model_world {
    model_record records[MODEL_RECORDS + 1]; /* 0: before the first commit */
    model_segment segments[MODEL_SEGMENTS];
    model_checkpoint checkpoints[MODEL_CHECKPOINTS];
    model_pack packs[MODEL_PACKS];
    model_entry_change pending[2][MODEL_PENDING]; /* log/ and packs/ */
    uint8_t pending_count[2];
    model_head head;
    uint8_t head_on_disk; /* an older value of head.synced */
    uint8_t record_count, pack_count, index;
    uint8_t lock_w, lock_y, lock_c;
    uint8_t process_count, failures_left; /* of syncs */
    uint8_t faults_left;                  /* kills and power cuts, where all are tried */
    uint8_t mistake, damaged, corrupt, cut;
    uint64_t relied; /* acknowledged or shown */
    model_process processes[MODEL_PROCESSES];
} model_world;

typedef struct model_chooser {
    uint64_t random; /* 0: by the tape */
    uint8_t tape[64], options[64], used;
    const char *violation;
} model_chooser;

static inline unsigned model_choose(model_chooser *self, unsigned count)
{
    if (self->random == 0) {
        if (self->used >= sizeof self->tape || count < 2)
            return 0;
        self->options[self->used] = (uint8_t)count;
        return self->tape[self->used++];
    }
    self->random ^= self->random << 13;
    self->random ^= self->random >> 7;
    self->random ^= self->random << 17;
    return (unsigned)((self->random >> 11) % count);
}

/* 1 once in `odds`. */
static inline int model_happens(model_chooser *self, unsigned odds)
{
    return self->random == 0 ? model_choose(self, 2) == 1 : model_choose(self, odds) == 1;
}

static inline void model_violate(model_chooser *chooser, const char *what)
{
    if (chooser->violation == NULL)
        chooser->violation = what;
}

static inline uint8_t model_version(const model_world *world, uint8_t id)
{
    return world->records[id].version;
}

/* The commit of that version in the history of `id`. */
static inline uint8_t model_ancestor(const model_world *world, uint8_t id, unsigned version)
{
    while (id && model_version(world, id) > version)
        id = world->records[id].previous;
    return id;
}

/* --- sectors --- */

static inline void model_write(model_cell *cell, uint8_t value)
{
    if (cell->dirty && cell->older_count < sizeof cell->older)
        cell->older[cell->older_count++] = cell->cached;
    cell->cached = value;
    cell->dirty = 1;
}

/* What the disk holds without a sync. */
static inline uint8_t model_survivor(const model_cell *cell, model_chooser *chooser)
{
    if (!cell->dirty || (cell->durable == cell->cached && cell->older_count == 0))
        return cell->durable;
    unsigned at = model_choose(chooser, cell->older_count + 2u);
    return at == 0 ? cell->durable : at == 1 ? cell->cached : cell->older[at - 2];
}

static inline void model_settle(model_cell *cell, uint8_t durable)
{
    *cell = (model_cell){.cached = cell->cached, .durable = durable};
}

/* 0 when no whole record is there. */
static inline uint8_t model_record_at(const model_segment *segment, unsigned slot)
{
    const model_cell *cell = &segment->cells[slot * 2];
    uint8_t id = cell[0].cached;
    return id != MODEL_DAMAGED && id == cell[1].cached ? id : 0;
}

/* --- folders --- */

static inline void model_set_entry(model_world *world, model_entry_change change, int on_disk)
{
    uint8_t *shown, *durable;
    if (change.kind == MODEL_SEGMENT) {
        shown = &world->segments[change.index].shown;
        durable = &world->segments[change.index].durable;
    } else if (change.kind == MODEL_CHECKPOINT) {
        shown = &world->checkpoints[change.index].shown;
        durable = &world->checkpoints[change.index].durable;
    } else {
        shown = &world->packs[change.index].shown;
        durable = &world->packs[change.index].durable;
    }
    *(on_disk ? durable : shown) = change.shown;
}

static inline void model_folder_sync(model_world *world, int folder)
{
    for (unsigned i = 0; i < world->pending_count[folder]; i++)
        model_set_entry(world, world->pending[folder][i], 1);
    world->pending_count[folder] = 0;
    memset(world->pending[folder], 0, sizeof world->pending[folder]);
}

static inline void model_enter(model_world *world, model_kind kind, unsigned index, int shown)
{
    int folder = kind == MODEL_PACK;
    model_entry_change change = {(uint8_t)kind, (uint8_t)index, (uint8_t)shown};
    if (world->pending_count[folder] == MODEL_PENDING)
        model_folder_sync(world, folder);
    model_set_entry(world, change, 0);
    world->pending[folder][world->pending_count[folder]++] = change;
}

/* --- files --- */

/* 1 when somebody may have tried to sync what is not synced; the index is ahead of what is
 * published. */
static inline int model_is_behind(const model_world *world)
{
    uint8_t synced = model_version(world, world->head.synced);
    return model_version(world, world->head.appended) > synced ||
           model_version(world, world->index) > synced;
}

static inline void model_open_segment(model_world *world, model_process *self, unsigned at)
{
    const model_segment *segment = &world->segments[at];
    if (self->fd[at])
        return;
    self->fd[at] = (uint8_t)((segment->error_seen ? segment->errors : 0) + 1);
    self->late[at] = (uint8_t)(model_is_behind(world) || world->head.poisoned);
}

static inline void model_lose_pages(model_segment *segment, model_chooser *chooser)
{
    for (unsigned i = 0; i < MODEL_SLOTS * 2; i++)
        if (segment->cells[i].dirty)
            model_settle(&segment->cells[i], model_survivor(&segment->cells[i], chooser));
    segment->errors++;
    segment->error_seen = 0;
}

/* 0, or -1 for EIO. */
static inline int model_fdatasync(model_world *world, model_process *self, unsigned at,
                                  model_chooser *chooser)
{
    model_segment *segment = &world->segments[at];
    if (world->failures_left && model_happens(chooser, 4)) {
        world->failures_left--;
        model_lose_pages(segment, chooser);
    }
    for (unsigned i = 0; i < MODEL_SLOTS * 2; i++)
        if (segment->cells[i].dirty)
            model_settle(&segment->cells[i], segment->cells[i].cached);
    if (self->fd[at] == segment->errors + 1)
        return 0;
    self->fd[at] = (uint8_t)(segment->errors + 1);
    segment->error_seen = 1;
    return -1;
}

/* A segment of zeros, synced, that the folder does not show yet; MODEL_SEGMENTS when there is no
 * room. */
static inline unsigned model_make_segment(model_world *world, uint8_t first)
{
    unsigned at = 0;
    uint8_t epoch = 0; /* a leftover of the same first version is superseded */
    for (; at < MODEL_SEGMENTS && world->segments[at].used; at++)
        epoch = (uint8_t)(world->segments[at].epoch + 1);
    if (at < MODEL_SEGMENTS)
        world->segments[at] = (model_segment){.used = 1, .first = first, .epoch = epoch};
    return at;
}

/* --- what a process reads from the folder --- */

static inline int model_precedes(const model_segment *a, const model_segment *b)
{
    return a->first != b->first ? a->first < b->first : a->epoch < b->epoch;
}

/* The segment after `segment` (NULL: the first one); MODEL_SEGMENTS: none. */
static inline unsigned model_next_segment(const model_world *world, const model_segment *segment)
{
    unsigned found = MODEL_SEGMENTS;
    for (unsigned i = 0; i < MODEL_SEGMENTS; i++) {
        const model_segment *one = &world->segments[i];
        if (one->shown && (segment == NULL || model_precedes(segment, one)) &&
            (found == MODEL_SEGMENTS || model_precedes(one, &world->segments[found])))
            found = i;
    }
    return found;
}

static inline uint8_t model_best_checkpoint(const model_world *world)
{
    uint8_t id = 0;
    for (unsigned i = 0; i < MODEL_CHECKPOINTS; i++) {
        const model_checkpoint *one = &world->checkpoints[i];
        if (one->shown && one->whole && model_version(world, one->id) > model_version(world, id))
            id = one->id;
    }
    return id;
}

static inline int model_fits(const model_world *world, uint8_t id, uint8_t last)
{
    const model_record *record = &world->records[id];
    return id != 0 && record->version == model_version(world, last) + 1 &&
           (record->previous == last || world->mistake == MODEL_NO_CHAIN);
}

typedef struct model_place { /* where the log ends */
    uint8_t id, segment, slot, gap;
} model_place;

/* Reads on in one segment, up to version `limit`. 1 when the log ends in it. */
static inline int model_walk_segment(const model_world *world, unsigned at, unsigned limit,
                                     model_place *place)
{
    const model_segment *segment = &world->segments[at];
    place->segment = (uint8_t)at;
    for (;;) {
        unsigned version = model_version(world, place->id) + 1u;
        if (version >= limit)
            return 0;
        if (version < segment->first) {
            place->gap = 1;
            return 1;
        }
        place->slot = (uint8_t)(version - segment->first);
        if (place->slot >= MODEL_SLOTS)
            return limit < 255;
        uint8_t id = model_record_at(segment, place->slot);
        if (!model_fits(world, id, place->id))
            return 1;
        place->id = id;
    }
}

/* From the head's hint, or from the last checkpoint where the hint is not to be trusted. */
static inline model_place model_walk(const model_world *world)
{
    model_place place = {.id = world->head.appended, .segment = world->head.segment};
    if (world->head.valid) {
        model_walk_segment(world, place.segment, 255, &place);
        return place;
    }
    place.id = model_best_checkpoint(world);
    unsigned at = model_next_segment(world, NULL);
    for (int ended = 0; !ended && at < MODEL_SEGMENTS;) {
        unsigned next = model_next_segment(world, &world->segments[at]);
        unsigned limit = next < MODEL_SEGMENTS ? world->segments[next].first : 255;
        ended = model_walk_segment(world, at, limit, &place);
        /* Where one ends before the next begins, something is missing. */
        place.gap |= ended && next < MODEL_SEGMENTS;
        at = next;
    }
    return place;
}

/* 1 when something proves that the version after the place was synced. */
static inline int model_is_witnessed(const model_world *world, const model_place *place)
{
    const model_segment *segment = &world->segments[place->segment];
    unsigned version = model_version(world, place->id) + 1u;
    int zeros = place->slot < MODEL_SLOTS && segment->cells[place->slot * 2].cached == 0 &&
                segment->cells[place->slot * 2 + 1].cached == 0;
    if (world->mistake == MODEL_NO_WITNESS || (zeros && world->mistake == MODEL_ZEROS_END))
        return 0;
    if (place->gap || model_version(world, world->head.synced) >= version)
        return 1;
    for (unsigned i = place->slot; i < MODEL_SLOTS; i++) {
        uint8_t id = model_record_at(segment, i);
        if (id && world->records[id].known >= version)
            return 1;
    }
    return 0;
}

/* --- what users rely on --- */

/* The log was read to its end: nothing that anybody relied on may be missing. */
static inline void model_check_end(model_world *world, uint8_t id, model_chooser *chooser)
{
    const model_record *record = &world->records[id];
    if ((world->relied & ~record->past) && !(world->damaged && world->cut))
        model_violate(chooser, "an acknowledged commit is lost");
    for (unsigned i = 0; i < MODEL_NAMES && !world->damaged; i++)
        if (record->packs[i] && !world->packs[record->packs[i]].shown)
            model_violate(chooser, "a removed pack is named by a commit");
}

/* A commit is acknowledged or shown: all are on one line, and what came before is part of it. */
static inline void model_rely(model_world *world, uint8_t id, uint64_t begun,
                              model_chooser *chooser)
{
    uint64_t past = world->records[id].past;
    if (world->damaged && world->cut) /* it is reported */
        return;
    if (begun & ~past)
        model_violate(chooser, "a commit does not contain what was acknowledged before it began");
    if ((past & world->relied) != past && (past & world->relied) != world->relied)
        model_violate(chooser, "two histories are shown");
    world->relied |= past;
}

#endif
