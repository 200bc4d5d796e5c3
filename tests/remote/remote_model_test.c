/* The commit and removal protocols of a remote volume under a random scheduler: several processes,
 * each a list of small steps, over a service that loses, delays and repeats requests. Any of them
 * may stop for days, or die, between two steps. An argument is the number of schedules. */
#include "remote/service_model.h"

#include <stdio.h>

enum { ACTORS = 4, STEPS = 200, SCHEDULES = 100000, REQUESTS_MAX = 8 };

typedef enum actor_kind {
    SAVER,
    RETIRER,
    REMOVER,
    SWEEPER,
    READER,
    REVIVER,
    TRIMMER,
    COMMITTER
} actor_kind;
enum { KINDS = COMMITTER + 1, PROFILES = 3 };

/* Of 16 processes that start, so many of each kind: all of them; packs that come and go; a log that
 * grows and is removed. */
static const int profiles[PROFILES][KINDS] = {
    {2, 2, 2, 2, 2, 2, 2, 2}, {2, 2, 3, 3, 5, 1, 0, 0}, {0, 0, 0, 0, 0, 0, 6, 10}};

typedef struct actor {
    actor_kind kind;
    int step;
    int asleep;       /* steps that it still sleeps */
    int64_t skew;     /* of its clock */
    uint64_t version; /* it has read the log up to here */
    int64_t seen;     /* by its clock */
    uint64_t pack;
    int claimed, named; /* it claims the pack, which another commit has named since */
    int64_t renewed;    /* when it pinned or claimed, by the time that passes everywhere */
    size_t pin;         /* index + 1 */
    uint64_t trim;
    /* The commit under way. */
    int committing;
    uint64_t begun; /* the last version that was acknowledged when the view was read */
    uint64_t requests;
    model_record record;
    ligi_numbered_commit commit;
} actor;

typedef enum commit_kind { NAME, UNNAME, CONDEMN, NOTHING } commit_kind;

static int64_t clock_of(const service *world, const actor *self)
{
    return world->now + self->skew;
}

static actor_kind draw_kind(service *world)
{
    int left = (int)model_random(world, 16), kind = 0;

    while (left >= profiles[world->profile][kind])
        left -= profiles[world->profile][kind++];
    return (actor_kind)kind;
}

static void restart(service *world, actor *self)
{
    free(self->record.bytes);
    /* A dead process does not unpin; one that slept for long has no pin any more. */
    if (self->pin != 0 && world->now - self->renewed < TTL && model_random(world, 2))
        world->pins[self->pin - 1].pack = 0;
    *self =
        (actor){.kind = draw_kind(world), .skew = (int64_t)model_random(world, 2 * SKEW) - SKEW};
    /* A new process reads the newest checkpoint, and what it leads to. */
    self->version = world->checkpoint;
    self->seen = INT64_MIN / 2;
}

/* --- reading --- */

/* What is written while it is read may be in the result, or not. */
static void refresh(service *world, actor *self)
{
    int64_t now = clock_of(world, self);
    uint64_t next = self->version + 1;
    int removed = next < world->first;
    int fresh = !world->by_head && now - self->seen <= FRESH;

    self->begun = world->acknowledged;
    if (removed && !fresh) { /* an entry that does not exist is not taken for the end */
        self->version = world->checkpoint;
        self->named = 1;
        removed = self->version + 1 < world->first;
        assert_false(removed);
    }
    for (uint64_t v = next; v <= world->head && !removed; v++)
        self->named |= world->history[v].pack == self->pack && self->pack != 0;
    if (!removed)
        self->version = world->head;
    self->seen = now;
    if (self->version < self->begun)
        fail_msg("a view of version %d, but version %d was acknowledged before", (int)self->version,
                 (int)self->begun);
}

static const ligi_remote_state *view_of(const service *world, const actor *self)
{
    return world->states[self->version];
}

static uint64_t any_pack(service *world, const actor *self, int named)
{
    const ligi_remote_state *state = view_of(world, self);

    for (int i = 0; i < 4 && world->pack_count > 1; i++) {
        uint64_t pack = 1 + model_random(world, world->pack_count - 1);
        if (world->exists[pack] && world->sealed[pack] && model_named(state, pack) == named)
            return pack;
    }
    return 0;
}

/* --- committing --- */

/* The record follows the actor's view. */
static void begin_commit(service *world, actor *self, commit_kind what)
{
    uint8_t key[8];
    pack_key(self->pack, key);
    const lig_catalog_op op = {key, 8, what == NAME ? "" : NULL, 0};
    const lig_catalog_edit edit = {.ops = &op, .op_count = what == NAME || what == UNNAME};
    ligi_remote_edit made = {.edit = &edit,
                             .version = self->version + 1,
                             .previous = view_of(world, self)->chain,
                             .date_ns = world->now};
    ligi_writer bytes = {0};

    for (int i = 0; i < LIGI_REMOTE_ID_BYTES; i++)
        made.id[i] = (uint8_t)model_random(world, 256);
    if (what == NAME)
        made.named = (ligi_pack_list){&self->pack, 1};
    if (what == CONDEMN)
        made.condemned = (ligi_pack_list){&self->pack, 1};
    assert_ok(ligi_remote_record_put(&bytes, &made));
    self->record = (model_record){bytes.data, bytes.bytes, what == NAME ? self->pack : 0};
    ligi_numbered_commit_begin(&self->commit, self->seen, FRESH);
    self->committing = 1;
    self->requests = 0;
}

/* What the protocol says about the commit, against the truth. */
static void check_outcome(service *world, const actor *self, ligi_commit_next outcome)
{
    uint64_t version = self->version + 1;
    int there = version <= world->head && memcmp(world->history[version].bytes, self->record.bytes,
                                                 LIGI_REMOTE_ID_BYTES) == 0;

    if (outcome == LIGI_COMMIT_DONE) {
        assert_true(there);
        world->acknowledged = version > world->acknowledged ? version : world->acknowledged;
    }
    if (outcome == LIGI_COMMIT_BUSY || outcome == LIGI_COMMIT_FAILED) {
        assert_false(there);
        for (size_t i = 0; i < world->late_count; i++) /* nor can it be there later */
            if (world->late[i].version == version &&
                memcmp(world->late[i].record.bytes, self->record.bytes, LIGI_REMOTE_ID_BYTES) == 0)
                assert_true(version <= world->head);
    }
}

/* One request of the commit under way; 1 when it has ended, with *outcome. */
static int continue_commit(service *world, actor *self, ligi_commit_next *outcome)
{
    int64_t now = clock_of(world, self);

    if (world->by_head) /* no fence is needed, and none is used */
        self->commit.seen_ns = now;
    *outcome = ligi_numbered_commit_next(&self->commit, now, self->requests++ > REQUESTS_MAX);
    if (*outcome == LIGI_COMMIT_PUT) {
        ligi_numbered_commit_reply(&self->commit,
                                   model_put(world, self->version + 1, &self->record, now));
        return 0;
    }
    if (*outcome == LIGI_COMMIT_GET) {
        ligi_numbered_commit_reply(&self->commit,
                                   model_get(world, self->version + 1, &self->record));
        return 0;
    }
    check_outcome(world, self, *outcome);
    free(self->record.bytes);
    self->record.bytes = NULL;
    self->committing = 0;
    return 1;
}

/* --- processes --- */

/* 1 if the actor's claim or pin has lasted until now. */
static int lasts(const service *world, const actor *self)
{
    return world->now - self->renewed < TTL;
}

static int has_pack(const service *world, const actor *self)
{
    return world->exists[self->pack];
}

/* Renews the claim of a pack that it writes; 0 if it is lost. */
static int renew_claim(service *world, actor *self)
{
    if (!lasts(world, self) && !has_pack(world, self))
        return 0;
    world->held_until[self->pack] = world->now + TTL;
    self->renewed = world->now;
    return 1;
}

/* Commits its change of a pack at the next steps: refresh, decide, commit, until it is done. */
static int step_change(service *world, actor *self, commit_kind what)
{
    ligi_commit_next outcome;

    if (!self->committing) {
        refresh(world, self);
        const ligi_remote_state *state = view_of(world, self);
        int condemned = what != NOTHING && ligi_remote_first_condemned(state, &self->pack, 1) == 0;
        int named = model_named(state, self->pack);
        if (condemned || (what == UNNAME && !named) ||
            (what == CONDEMN && (named || self->named)) ||
            (what == NAME && self->kind == SAVER && !renew_claim(world, self)) ||
            (what == NAME && self->kind == REVIVER && named))
            return -1;
        begin_commit(world, self, what);
        return 0;
    }
    if (!continue_commit(world, self, &outcome))
        return 0;
    if (outcome == LIGI_COMMIT_DONE)
        return 1;
    return outcome == LIGI_COMMIT_BUSY ? 0 : -1;
}

static int step_saver(service *world, actor *self)
{
    if (self->step == 0) {
        if (world->pack_count == PACKS)
            return -1;
        self->pack = world->pack_count++;
        world->exists[self->pack] = 1;
        world->held_until[self->pack] = world->now + TTL;
        self->renewed = world->now;
        return 1;
    }
    if (self->step == 1) {
        if (!has_pack(world, self))
            return -1;
        world->sealed[self->pack] = 1;
        return 1;
    }
    if (self->step == 2)
        return step_change(world, self, NAME);
    world->held_until[self->pack] = 0;
    return -1;
}

static int step_retirer(service *world, actor *self)
{
    if (self->step == 0) {
        refresh(world, self);
        self->pack = any_pack(world, self, 1);
        return self->pack == 0 ? -1 : 1;
    }
    return self->step == 1 ? step_change(world, self, UNNAME) : -1;
}

/* Claims first, then reads the log: commits after that which name the pack are noticed. */
static int step_remover(service *world, actor *self)
{
    if (self->step == 0) {
        refresh(world, self);
        self->pack = any_pack(world, self, 0);
        self->named = 0;
        return self->pack == 0 ? -1 : 1;
    }
    if (self->step == 1) {
        refresh(world, self);
        return world->held_until[self->pack] > world->now ? -1 : 1;
    }
    if (self->step == 2)
        return model_pinned(world, self->pack) ? -1 : 1;
    return self->step == 3 ? step_change(world, self, CONDEMN) : -1;
}

static int step_sweeper(service *world, actor *self)
{
    if (self->step == 0) {
        refresh(world, self);
        uint64_t from = model_random(world, world->pack_count);
        return ligi_remote_due(view_of(world, self), from, world->now - GRACE, &self->pack, 1) == 1
                   ? 1
                   : -1;
    }
    if (self->step == 1) /* a pin that comes after this belongs to one who looks after it */
        return model_pinned(world, self->pack) ? -1 : 1;
    model_delete(world, self->pack);
    return -1;
}

static int add_pin(service *world, actor *self)
{
    for (size_t i = 0; i < PINS; i++)
        if (world->pins[i].pack == 0 || world->pins[i].until <= world->now) {
            world->pins[i] = (model_pin){self->pack, world->now + TTL};
            self->pin = i + 1;
            self->renewed = world->now;
            return 1;
        }
    return -1;
}

static int step_reader(service *world, actor *self)
{
    if (self->step == 0) {
        refresh(world, self);
        self->pack = any_pack(world, self, 1);
        return self->pack == 0 ? -1 : 1;
    }
    if (self->step == 1)
        return add_pin(world, self);
    if (self->step == 2) {
        refresh(world, self);
        return model_named(view_of(world, self), self->pack) ? 1 : -1;
    }
    if (lasts(world, self) && !has_pack(world, self))
        fail_msg("pack %d was deleted while it was read", (int)self->pack);
    return self->step < 20 && lasts(world, self) ? 1 : -1;
}

/* Pins a model's pack, whose last model may go, and uses it for a model of its own. */
static int step_reviver(service *world, actor *self)
{
    if (self->step <= 2)
        return step_reader(world, self);
    if (self->step < 5)
        return 1; /* time for others */
    return self->step == 5 ? step_change(world, self, NAME) : -1;
}

static int step_trimmer(service *world, actor *self)
{
    if (self->step == 0) {
        refresh(world, self);
        if (self->version < world->checkpoint + CHECKPOINT_STEP)
            return -1;
        self->trim = world->checkpoint + 1;
        world->checkpoint = self->version;
        return 1;
    }
    model_trim(world, self->trim);
    return self->step < 12 ? 1 : -1;
}

static int step_committer(service *world, actor *self)
{
    return self->step < 4 ? step_change(world, self, NOTHING) : -1;
}

static void step_actor(service *world, actor *self)
{
    static int (*const steps[KINDS])(service *, actor *) = {
        step_saver,  step_retirer, step_remover, step_sweeper,
        step_reader, step_reviver, step_trimmer, step_committer};

    if (self->asleep > 0) {
        self->asleep--;
        return;
    }
    if (model_random(world, 8) == 0)
        self->asleep = (int)model_random(world, 12);
    int result = model_random(world, 60) == 0 ? -1 : steps[self->kind](world, self);
    if (result < 0)
        restart(world, self);
    else
        self->step += result;
}

/* --- schedules --- */

typedef struct model_counts {
    uint64_t commits, removed, deleted;
} model_counts;

static void pass_time(service *world)
{
    static const int64_t minutes[8] = {1, 1, 5, 20, 70, 400, 1500, 3000};

    if (model_random(world, 6) == 0)
        world->now += minutes[model_random(world, world->profile == 1 ? 4 : 8)];
}

static void run_schedule(uint64_t seed, model_counts *counts)
{
    static service world;
    actor actors[ACTORS] = {0};

    model_start(&world, seed);
    world.profile = (size_t)model_random(&world, PROFILES);
    for (int i = 0; i < ACTORS; i++)
        restart(&world, &actors[i]);
    for (int step = 0; step < STEPS && world.head + 2 < VERSIONS; step++) {
        pass_time(&world);
        if (model_random(&world, 8) == 0)
            model_deliver(&world);
        step_actor(&world, &actors[model_random(&world, ACTORS)]);
    }
    for (int i = 0; i < ACTORS; i++)
        free(actors[i].record.bytes);
    counts->commits += world.head;
    counts->removed += world.first - 1;
    counts->deleted += world.deleted;
    model_end(&world);
}

static uint64_t schedules = SCHEDULES;

static void schedules_keep_what_was_committed(void **state)
{
    model_counts counts = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= schedules; seed++)
        run_schedule(seed * UINT64_C(0x9E3779B97F4A7C15), &counts);
    printf("    %llu schedules: %llu commits, %llu entries removed, %llu packs deleted\n",
           (unsigned long long)schedules, (unsigned long long)counts.commits,
           (unsigned long long)counts.removed, (unsigned long long)counts.deleted);
    assert_true(counts.commits > schedules);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_keep_what_was_committed),
    };
    if (argc > 1)
        schedules = strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
