/* What the processes of the model do, one step at a time: between any two steps others may move, and
 * the process may die. */
#ifndef LOG_STEPS_H
#define LOG_STEPS_H

#include "log_model.h"

enum model_step {
    MODEL_IDLE,
    /* tail, under W */
    MODEL_TAIL,
    MODEL_CUT,
    MODEL_CATCH_UP,
    MODEL_ADOPT,
    /* the copy of a poisoned segment, under W */
    MODEL_COPY,
    MODEL_COPY_FILL,
    MODEL_COPY_SYNC,
    MODEL_COPY_INDEX,
    MODEL_COPY_SWITCH,
    MODEL_COPY_DONE,
    /* the next segment, under W */
    MODEL_ROLL,
    MODEL_ROLL_SYNC,
    MODEL_ROLL_SWITCH,
    /* sync */
    MODEL_SYNC,
    MODEL_REWRITE,
    MODEL_SYNC_TARGET,
    MODEL_SYNC_CALL,
    MODEL_SYNC_PUBLISH,
    MODEL_SYNC_POISON,
    /* a commit */
    MODEL_COMMIT_LOCK,
    MODEL_COMMIT_EDIT,
    MODEL_COMMIT_WRITE,
    MODEL_COMMIT_WRITE_REST,
    MODEL_COMMIT_INDEX,
    MODEL_COMMIT_PUBLISH,
    MODEL_COMMIT_UNLOCK,
    MODEL_COMMIT_DONE,
    MODEL_COMMIT_UNKNOWN,
    /* a read */
    MODEL_READ_LOOK,
    MODEL_READ_LOCK,
    MODEL_READ_CAUGHT_UP,
    MODEL_READ_SHOW,
    /* removing a pack */
    MODEL_REMOVE_LOCK,
    MODEL_REMOVE_SETTLE,
    MODEL_REMOVE_LOOK,
    MODEL_REMOVE_UNLINK,
    /* a checkpoint */
    MODEL_KEEP_LOCK,
    MODEL_KEEP_ROLL,
    MODEL_KEEP_LOOK,
    MODEL_KEEP_WRITE,
    MODEL_KEEP_SYNC,
    MODEL_KEEP_TRUNCATE,
    MODEL_LEAVE, /* gives up, with whatever locks it has */
};

static inline uint8_t model_index_of(const model_world *world, const model_process *self)
{
    return (uint8_t)(self - world->processes);
}

static inline void model_unlock(model_world *world, const model_process *self)
{
    uint8_t me = model_index_of(world, self);
    world->lock_w = world->lock_w == me ? MODEL_NOBODY : world->lock_w;
    world->lock_y = world->lock_y == me ? MODEL_NOBODY : world->lock_y;
}

static inline void model_leave(model_world *world, model_process *self)
{
    uint8_t me = model_index_of(world, self);
    model_unlock(world, self);
    world->lock_c = world->lock_c == me ? MODEL_NOBODY : world->lock_c;
    for (unsigned i = 0; i < MODEL_PACKS; i++)
        if (world->packs[i].owner == me)
            world->packs[i].owner = MODEL_NOBODY;
    self->pack = self->id = 0;
    self->step = MODEL_IDLE;
}

static inline void model_die(model_world *world, model_process *self)
{
    model_leave(world, self);
    *self = (model_process){.role = self->role, .budget = self->budget};
}

/* --- tail --- */

static inline void model_begin_tail(model_process *self, enum model_step after)
{
    self->after_tail = (uint8_t)after;
    self->step = MODEL_TAIL;
}

/* The next sector to be zeroed; MODEL_SLOTS * 2: none. */
static inline uint8_t model_next_garbage(const model_segment *segment, unsigned at)
{
    while (at < MODEL_SLOTS * 2 && segment->cells[at].cached == 0)
        at++;
    return (uint8_t)at;
}

static inline void model_step_tail(model_world *world, model_process *self, model_chooser *chooser)
{
    if (world->head.poisoned) {
        self->step = MODEL_COPY;
        return;
    }
    if (world->head.next && world->head.valid) {
        /* Otherwise records would be written where that segment supersedes them. */
        self->made = (uint8_t)(world->head.next - 1);
        self->after_roll = MODEL_TAIL;
        self->step = MODEL_ROLL_SYNC;
        return;
    }
    if (world->mistake == MODEL_NO_ADOPT && world->head.valid) {
        self->step = self->after_tail;
        return;
    }
    model_place place = model_walk(world);
    if (model_is_witnessed(world, &place)) {
        world->corrupt = 1;
        if (!world->damaged)
            model_violate(chooser, "a sound log is called damaged");
        self->step = MODEL_LEAVE;
        return;
    }
    self->end = place.id;
    self->segment = place.segment;
    self->slot = model_next_garbage(&world->segments[place.segment], place.slot * 2u);
    if (world->mistake == MODEL_NO_CHAIN && self->slot / 2 > place.slot)
        self->slot = MODEL_SLOTS * 2;
    world->cut |= self->slot < MODEL_SLOTS * 2;
    model_check_end(world, place.id, chooser);
    self->step = self->slot < MODEL_SLOTS * 2 ? MODEL_CUT : MODEL_CATCH_UP;
}

static inline void model_step_cut(model_world *world, model_process *self)
{
    model_segment *segment = &world->segments[self->segment];
    model_write(&segment->cells[self->slot], 0);
    self->slot = model_next_garbage(segment, self->slot);
    if (self->slot >= MODEL_SLOTS * 2)
        self->step = MODEL_CATCH_UP;
}

static inline void model_set_index(model_world *world, uint8_t id)
{
    if (world->mistake != MODEL_INDEX_BY_VERSION ||
        model_version(world, world->index) < model_version(world, id))
        world->index = id;
}

static inline void model_step_adopt(model_world *world, model_process *self)
{
    if (self->step == MODEL_CATCH_UP) {
        model_set_index(world, self->end);
        self->step = MODEL_ADOPT;
        return;
    }
    if (!world->head.valid && world->mistake != MODEL_FOUND_NAME)
        model_folder_sync(world, 0);
    /* The segment was begun when all before it was synced; the hint may be older than that. */
    uint8_t before = model_ancestor(world, self->end, world->segments[self->segment].first - 1u);
    if (model_version(world, before) > model_version(world, world->head.synced) &&
        world->mistake != MODEL_COPY_FROM_HINT)
        world->head.synced = before;
    world->head.appended = self->end;
    world->head.segment = self->segment;
    world->head.next = 0;
    world->head.valid = 1;
    self->step = self->after_tail;
}

/* --- the copy of a poisoned segment --- */

static inline void model_fill_copy(model_world *world, model_process *self)
{
    const model_segment *from = &world->segments[world->head.segment];
    model_segment *to = &world->segments[self->made];
    uint8_t id = self->target;
    for (unsigned slot = 0; slot < MODEL_SLOTS; slot++) {
        unsigned version = model_version(world, id) + 1u;
        unsigned at = version - from->first;
        uint8_t next = version >= from->first && at < MODEL_SLOTS ? model_record_at(from, at) : 0;
        if (!model_fits(world, next, id))
            break;
        to->cells[slot * 2] = to->cells[slot * 2 + 1] = (model_cell){next, next, 0, 0, {0, 0}};
        id = next;
    }
    self->end = id;
    world->cut |= model_version(world, id) < model_version(world, world->head.appended);
}

static inline void model_step_copy(model_world *world, model_process *self, model_chooser *chooser)
{
    switch (self->step) {
    case MODEL_COPY: {
        self->target = world->head.synced; /* once: a sync under way may still raise it */
        unsigned made =
            model_make_segment(world, (uint8_t)(model_version(world, self->target) + 1));
        self->made = (uint8_t)made;
        self->step = made < MODEL_SEGMENTS ? MODEL_COPY_FILL : MODEL_LEAVE;
        break;
    }
    case MODEL_COPY_FILL:
        model_fill_copy(world, self);
        model_enter(world, MODEL_SEGMENT, self->made, 1);
        self->step = MODEL_COPY_SYNC;
        break;
    case MODEL_COPY_SYNC:
        if (world->mistake != MODEL_NO_FOLDER_SYNC)
            model_folder_sync(world, 0);
        self->step = MODEL_COPY_INDEX;
        break;
    case MODEL_COPY_INDEX:
        /* Before the epoch: who finds the new one must not find a lost commit in the index. */
        if (world->mistake != MODEL_INDEX_LATER)
            model_set_index(world, self->end);
        self->step = MODEL_COPY_SWITCH;
        break;
    case MODEL_COPY_SWITCH:
        model_check_end(world, self->end, chooser);
        world->head.epoch++;
        world->head.segment = self->made;
        world->head.appended = world->head.synced = self->end;
        world->head.valid = 1;
        world->head.next = 0;
        self->step = MODEL_COPY_DONE;
        break;
    default: world->head.poisoned = 0; self->step = MODEL_TAIL;
    }
}

/* --- the next segment --- */

static inline void model_begin_sync(model_world *world, model_process *self, uint8_t id,
                                    enum model_step after, enum model_step after_failure)
{
    self->want = id;
    self->epoch = world->head.epoch;
    self->after_sync = (uint8_t)after;
    self->after_failure = (uint8_t)after_failure;
    self->step = MODEL_SYNC;
}

static inline void model_begin_roll(model_world *world, model_process *self, enum model_step after)
{
    self->after_roll = (uint8_t)after;
    if (world->mistake == MODEL_ROLL_UNSYNCED)
        self->step = MODEL_ROLL;
    else
        model_begin_sync(world, self, world->head.appended, MODEL_ROLL, MODEL_LEAVE);
}

static inline void model_step_roll(model_world *world, model_process *self)
{
    uint8_t first = (uint8_t)(model_version(world, world->head.appended) + 1);
    switch (self->step) {
    case MODEL_ROLL: {
        const model_segment *now = &world->segments[world->head.segment];
        unsigned made = now->first == first ? world->head.segment /* it is empty */
                                            : model_make_segment(world, first);
        self->made = (uint8_t)made;
        self->step = made < MODEL_SEGMENTS ? MODEL_ROLL_SYNC : MODEL_LEAVE;
        if (made < MODEL_SEGMENTS && made != world->head.segment) {
            world->head.next = world->mistake == MODEL_ROLL_FORGOTTEN ? 0 : (uint8_t)(made + 1);
            model_enter(world, MODEL_SEGMENT, made, 1);
        }
        break;
    }
    case MODEL_ROLL_SYNC:
        if (world->mistake != MODEL_NO_FOLDER_SYNC)
            model_folder_sync(world, 0);
        self->step = MODEL_ROLL_SWITCH;
        break;
    default:
        world->head.segment = self->made;
        world->head.next = 0;
        self->step = self->after_roll;
    }
}

/* --- sync --- */

static inline void model_step_sync(model_world *world, model_process *self)
{
    uint8_t me = model_index_of(world, self);
    if (world->head.epoch != self->epoch && world->mistake != MODEL_WAIT_BY_VERSION)
        self->step = self->after_failure;
    else if (model_version(world, world->head.synced) >= model_version(world, self->want))
        self->step = self->after_sync;
    else if (world->head.poisoned)
        self->step = self->after_failure;
    else {
        model_open_segment(world, self, world->head.segment);
        if (self->late[world->head.segment] && world->mistake != MODEL_LATE_SYNC) {
            self->step = MODEL_REWRITE;
            return;
        }
        /* Y may be held by somebody else: after one second it is done without. */
        if (world->lock_y == MODEL_NOBODY)
            world->lock_y = me;
        self->step = MODEL_SYNC_TARGET;
    }
}

/* Makes the pages dirty again, so that the next fdatasync says something about them. Where one has
 * left the cache after an error, the segment is poisoned. */
static inline void model_step_rewrite(model_world *world, model_process *self)
{
    uint8_t at = world->head.segment, id = world->head.synced, next;
    model_segment *segment = &world->segments[at];
    for (unsigned slot = model_version(world, id) + 1u - segment->first;
         slot < MODEL_SLOTS && model_fits(world, next = model_record_at(segment, slot), id);
         slot++) {
        id = next;
        model_write(&segment->cells[slot * 2], id);
        model_write(&segment->cells[slot * 2 + 1], id);
    }
    if (model_version(world, id) < model_version(world, world->head.appended))
        world->head.poisoned = 1;
    self->late[at] = world->head.poisoned;
    self->step = MODEL_SYNC;
}

static inline void model_end_sync(model_world *world, model_process *self, uint8_t step)
{
    if (world->lock_y == model_index_of(world, self))
        world->lock_y = MODEL_NOBODY;
    self->step = step;
}

static inline void model_step_syncing(model_world *world, model_process *self,
                                      model_chooser *chooser)
{
    model_head *head = &world->head;
    switch (self->step) {
    case MODEL_SYNC_TARGET:
        self->target = head->appended;
        if (model_version(world, self->want) > model_version(world, self->target) &&
            head->epoch == self->epoch)
            self->target = self->want; /* its writer has not published it yet */
        self->target_epoch = head->epoch;
        if (world->mistake != MODEL_SYNC_OLD_SEGMENT || !self->fd[self->segment])
            self->segment = head->segment;
        model_open_segment(world, self, self->segment);
        if (self->late[self->segment] && world->mistake != MODEL_LATE_SYNC)
            model_end_sync(world, self, MODEL_SYNC);
        else
            self->step = MODEL_SYNC_CALL;
        break;
    case MODEL_SYNC_CALL:
        if (model_fdatasync(world, self, self->segment, chooser) == 0)
            self->step = MODEL_SYNC_PUBLISH;
        else if (world->mistake != MODEL_RETRY_SYNC)
            self->step = MODEL_SYNC_POISON;
        break;
    case MODEL_SYNC_PUBLISH:
        if (head->epoch == self->target_epoch &&
            model_version(world, self->target) > model_version(world, head->synced))
            head->synced = self->target;
        model_end_sync(world, self, MODEL_SYNC);
        break;
    default:
        if (head->epoch == self->target_epoch)
            head->poisoned = 1;
        model_end_sync(world, self, self->after_failure);
    }
}

/* --- a commit --- */

static inline void model_begin_commit(model_world *world, model_process *self,
                                      model_chooser *chooser)
{
    const uint8_t *now = world->records[world->index].packs;
    if (world->pack_count + 1 >= MODEL_PACKS || world->record_count + 1 >= MODEL_RECORDS)
        return;
    self->budget--;
    /* Where all is tried, names and packs would only multiply what is the same. */
    int all = chooser->random == 0;
    self->name = (uint8_t)(all ? model_index_of(world, self) % MODEL_NAMES
                               : model_choose(chooser, MODEL_NAMES));
    self->begun = world->relied;
    /* A new pack, written and synced, or later on another name's. */
    self->pack = !all && model_happens(chooser, 3) ? 0 : ++world->pack_count;
    if (self->pack)
        world->packs[self->pack] = (model_pack){1, 1, model_index_of(world, self)};
    else if (world->mistake == MODEL_STALE_EDIT)
        self->pack = now[!self->name];
    self->step = MODEL_COMMIT_LOCK;
}

static inline void model_step_edit(model_world *world, model_process *self, model_chooser *chooser)
{
    const model_record *last = &world->records[world->head.appended];
    const model_segment *segment = &world->segments[world->head.segment];
    if (last->version + 1u - segment->first >= MODEL_SLOTS) {
        model_begin_roll(world, self, MODEL_COMMIT_EDIT);
        return;
    }
    if (self->begun & ~last->past)
        model_violate(chooser, "a commit does not contain what was acknowledged before it began");
    self->id = ++world->record_count;
    model_record *made = &world->records[self->id];
    *made = (model_record){.version = (uint8_t)(last->version + 1),
                           .previous = world->head.appended,
                           .known = model_version(world, world->head.synced),
                           .past = last->past | UINT64_C(1) << self->id};
    memcpy(made->packs, last->packs, sizeof made->packs);
    made->packs[self->name] = self->pack ? self->pack : last->packs[!self->name];
    self->slot = (uint8_t)(made->version - segment->first);
    self->step = MODEL_COMMIT_WRITE;
}

static inline void model_step_commit(model_world *world, model_process *self,
                                     model_chooser *chooser)
{
    int early = world->mistake == MODEL_PUBLISH_BEFORE_INDEX;
    model_cell *cells = &world->segments[world->head.segment].cells[self->slot * 2u];
    switch (self->step) {
    case MODEL_COMMIT_LOCK:
        world->lock_w = model_index_of(world, self);
        model_begin_tail(self, MODEL_COMMIT_EDIT);
        break;
    case MODEL_COMMIT_EDIT: model_step_edit(world, self, chooser); break;
    case MODEL_COMMIT_WRITE:
        model_open_segment(world, self, world->head.segment);
        model_write(&cells[0], self->id);
        self->step = MODEL_COMMIT_WRITE_REST;
        break;
    case MODEL_COMMIT_WRITE_REST:
        model_write(&cells[1], self->id);
        self->step = early ? MODEL_COMMIT_PUBLISH : MODEL_COMMIT_INDEX;
        break;
    case MODEL_COMMIT_INDEX:
        if (!model_happens(chooser, 8)) /* otherwise that failed, and the commit stands */
            world->index = self->id;
        self->step = early ? MODEL_COMMIT_UNLOCK : MODEL_COMMIT_PUBLISH;
        break;
    case MODEL_COMMIT_PUBLISH:
        world->head.appended = self->id;
        self->step = early ? MODEL_COMMIT_INDEX : MODEL_COMMIT_UNLOCK;
        break;
    case MODEL_COMMIT_UNLOCK:
        model_begin_sync(world, self, self->id, MODEL_COMMIT_DONE, MODEL_COMMIT_UNKNOWN);
        model_unlock(world, self);
        break;
    case MODEL_COMMIT_DONE:
        model_rely(world, self->id, self->begun, chooser);
        self->step = MODEL_LEAVE;
        break;
    default:
        if (world->mistake == MODEL_REMOVE_OWN && self->pack)
            model_enter(world, MODEL_PACK, self->pack, 0);
        self->step = MODEL_LEAVE;
    }
}

/* --- a read --- */

static inline void model_step_read(model_world *world, model_process *self, model_chooser *chooser)
{
    const model_head *head = &world->head;
    int trusts = world->mistake == MODEL_PUBLISH_BEFORE_INDEX && head->valid;
    switch (self->step) {
    case MODEL_READ_LOOK:
        self->id = world->index;
        if (!trusts &&
            (!head->valid || model_version(world, self->id) < model_version(world, head->synced)))
            self->step = MODEL_READ_LOCK;
        else if (world->mistake == MODEL_SHOW_UNSYNCED)
            self->step = MODEL_READ_SHOW;
        else
            model_begin_sync(world, self, self->id, MODEL_READ_SHOW, MODEL_LEAVE);
        break;
    case MODEL_READ_LOCK:
        world->lock_w = model_index_of(world, self);
        model_begin_tail(self, MODEL_READ_CAUGHT_UP);
        break;
    case MODEL_READ_CAUGHT_UP:
        model_unlock(world, self);
        self->step = MODEL_READ_LOOK;
        break;
    default: model_rely(world, self->id, self->begun, chooser); self->step = MODEL_LEAVE;
    }
}

/* --- removing a pack --- */

static inline int model_names(const model_world *world, uint8_t id, uint8_t pack)
{
    const uint8_t *packs = world->records[id].packs;
    return packs[0] == pack || packs[1] == pack;
}

static inline void model_begin_remove(model_world *world, model_process *self,
                                      model_chooser *chooser)
{
    unsigned from = world->pack_count ? model_choose(chooser, world->pack_count) : 0;
    for (unsigned i = 0; i < world->pack_count; i++) {
        uint8_t pack = (uint8_t)(1 + (from + i) % world->pack_count);
        const model_pack *one = &world->packs[pack];
        if (!one->shown || one->owner != MODEL_NOBODY || model_names(world, world->index, pack))
            continue;
        self->budget--;
        self->pack = pack;
        world->packs[pack].owner = model_index_of(world, self);
        self->step =
            world->mistake == MODEL_DELETE_ON_SNAPSHOT ? MODEL_REMOVE_UNLINK : MODEL_REMOVE_LOCK;
        return;
    }
}

static inline void model_step_remove(model_world *world, model_process *self)
{
    switch (self->step) {
    case MODEL_REMOVE_LOCK:
        world->lock_w = model_index_of(world, self);
        model_begin_tail(self, MODEL_REMOVE_SETTLE);
        break;
    case MODEL_REMOVE_SETTLE:
        model_begin_sync(world, self, world->head.appended, MODEL_REMOVE_LOOK, MODEL_LEAVE);
        break;
    case MODEL_REMOVE_LOOK:
        model_unlock(world, self);
        self->step = model_names(world, world->head.appended, self->pack) ? MODEL_LEAVE
                                                                          : MODEL_REMOVE_UNLINK;
        break;
    default: model_enter(world, MODEL_PACK, self->pack, 0); self->step = MODEL_LEAVE;
    }
}

/* --- a checkpoint --- */

/* The checkpoint before `version`; its index, or MODEL_CHECKPOINTS. */
static inline unsigned model_older_checkpoint(const model_world *world, unsigned version)
{
    unsigned found = MODEL_CHECKPOINTS, best = 0;
    for (unsigned i = 0; i < MODEL_CHECKPOINTS; i++) {
        const model_checkpoint *one = &world->checkpoints[i];
        unsigned at = model_version(world, one->id);
        if (one->shown && one->whole && at < version && at >= best) {
            found = i;
            best = at;
        }
    }
    return found;
}

/* Keeps the checkpoint before the newest, and all that follows it. */
static inline void model_truncate(model_world *world, uint8_t id)
{
    unsigned older = model_older_checkpoint(world, model_version(world, id));
    if (older == MODEL_CHECKPOINTS)
        return;
    unsigned kept = model_version(world, world->checkpoints[older].id);
    if (world->mistake == MODEL_TRUNCATE_EARLY)
        kept = model_version(world, id);
    for (unsigned i = 0; i < MODEL_CHECKPOINTS; i++)
        if (world->checkpoints[i].shown && model_version(world, world->checkpoints[i].id) < kept)
            model_enter(world, MODEL_CHECKPOINT, i, 0);
    for (unsigned i = 0; i < MODEL_SEGMENTS; i++) {
        const model_segment *one = &world->segments[i];
        unsigned next = one->shown ? model_next_segment(world, one) : MODEL_SEGMENTS;
        if (next < MODEL_SEGMENTS && world->segments[next].first <= kept + 1)
            model_enter(world, MODEL_SEGMENT, i, 0);
    }
}

static inline void model_step_keep_write(model_world *world, model_process *self)
{
    unsigned at = 0;
    while (at < MODEL_CHECKPOINTS && world->checkpoints[at].used)
        at++;
    if (at < MODEL_CHECKPOINTS) {
        world->checkpoints[at] = (model_checkpoint){.used = 1, .whole = 1, .id = self->id};
        model_enter(world, MODEL_CHECKPOINT, at, 1);
    }
    self->step = at < MODEL_CHECKPOINTS ? MODEL_KEEP_SYNC : MODEL_LEAVE;
}

static inline void model_step_keep(model_world *world, model_process *self)
{
    switch (self->step) {
    case MODEL_KEEP_LOCK:
        world->lock_w = model_index_of(world, self);
        model_begin_tail(self, MODEL_KEEP_ROLL);
        break;
    case MODEL_KEEP_ROLL: model_begin_roll(world, self, MODEL_KEEP_LOOK); break;
    case MODEL_KEEP_LOOK:
        if (world->lock_w == model_index_of(world, self))
            model_unlock(world, self);
        self->id = world->index;
        if (!world->head.valid || model_version(world, self->id) == 0)
            self->step = MODEL_LEAVE;
        else
            model_begin_sync(world, self, self->id, MODEL_KEEP_WRITE, MODEL_LEAVE);
        break;
    case MODEL_KEEP_WRITE: model_step_keep_write(world, self); break;
    case MODEL_KEEP_SYNC:
        if (world->mistake != MODEL_TRUNCATE_EARLY)
            model_folder_sync(world, 0);
        self->step = MODEL_KEEP_TRUNCATE;
        break;
    default: model_truncate(world, self->id); self->step = MODEL_LEAVE;
    }
}

/* --- any step --- */

static inline void model_begin(model_world *world, model_process *self, model_chooser *chooser)
{
    int others = 0;
    for (unsigned i = 0; i < world->process_count; i++)
        others += world->processes[i].opened;
    if (!self->opened && others == 0) { /* the hints and the index are unverified */
        world->head.valid = 0;
        world->index = 0;
    }
    self->opened = 1;
    self->begun = world->relied;
    switch (self->role) {
    case MODEL_WRITER: model_begin_commit(world, self, chooser); break;
    case MODEL_REMOVER: model_begin_remove(world, self, chooser); break;
    case MODEL_READER:
        self->budget--;
        self->step = MODEL_READ_LOOK;
        break;
    default:
        if (world->lock_c != MODEL_NOBODY)
            return;
        world->lock_c = model_index_of(world, self);
        self->budget--;
        self->step = MODEL_KEEP_LOCK;
    }
}

/* 1 when the process can move. */
static inline int model_is_enabled(const model_world *world, const model_process *self)
{
    uint8_t me = model_index_of(world, self);
    int free = world->lock_w == MODEL_NOBODY || world->lock_w == me;
    switch (self->step) {
    case MODEL_IDLE: return self->budget > 0;
    case MODEL_COMMIT_LOCK:
    case MODEL_READ_LOCK:
    case MODEL_REMOVE_LOCK:
    case MODEL_KEEP_LOCK:
    case MODEL_REWRITE: return free;
    default: return 1;
    }
}

static inline void model_move(model_world *world, model_process *self, model_chooser *chooser)
{
    unsigned step = self->step;
    if (step == MODEL_IDLE)
        model_begin(world, self, chooser);
    else if (step == MODEL_TAIL)
        model_step_tail(world, self, chooser);
    else if (step == MODEL_CUT)
        model_step_cut(world, self);
    else if (step <= MODEL_ADOPT)
        model_step_adopt(world, self);
    else if (step <= MODEL_COPY_DONE)
        model_step_copy(world, self, chooser);
    else if (step <= MODEL_ROLL_SWITCH)
        model_step_roll(world, self);
    else if (step == MODEL_SYNC)
        model_step_sync(world, self);
    else if (step == MODEL_REWRITE)
        model_step_rewrite(world, self);
    else if (step <= MODEL_SYNC_POISON)
        model_step_syncing(world, self, chooser);
    else if (step <= MODEL_COMMIT_UNKNOWN)
        model_step_commit(world, self, chooser);
    else if (step <= MODEL_READ_SHOW)
        model_step_read(world, self, chooser);
    else if (step <= MODEL_REMOVE_UNLINK)
        model_step_remove(world, self);
    else if (step <= MODEL_KEEP_TRUNCATE)
        model_step_keep(world, self);
    else
        model_leave(world, self);
}

#endif
