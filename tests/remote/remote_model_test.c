/* The commit and removal protocols of a remote volume under a random scheduler: several processes,
 * each a list of small steps, over a service that loses, delays and repeats requests. Any of them
 * may stop for days, or die, between two steps. An argument is the number of schedules. */
#include "remote/service_model.h"

#include <stdio.h>

enum { ACTORS = 4, STEPS = 200, SCHEDULES = 100000, REQUESTS_MAX = 8 };
enum { FORGOTTEN_MAX = 4, ALONE_MAX = 1000 };

typedef enum actor_kind {
    SAVER,
    RETIRER,
    REMOVER,
    SWEEPER,
    READER,
    WATCHER,
    REVIVER,
    TRIMMER,
    COMMITTER
} actor_kind;
enum { KINDS = COMMITTER + 1, PROFILES = 3 };

/* Of 16 processes that start, so many of each kind: all of them; packs that come and go; a log that
 * grows and is removed. */
static const int profiles[PROFILES][KINDS] = {
    {2, 2, 2, 2, 2, 1, 2, 1, 2}, {2, 2, 3, 3, 3, 2, 1, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 6, 10}};

typedef struct actor {
    actor_kind kind;
    int step;
    int asleep;       /* steps that it still sleeps */
    int64_t skew;     /* of its clock */
    uint64_t version; /* it has read the log up to here, */
    uint64_t chain;   /* and this is what it has read */
    int64_t seen;     /* by its clock */
    uint64_t pack;
    int named;       /* it claims the pack, which another commit has named since */
    int lapsed;      /* the claim of the pack that it writes ended for a while */
    int64_t renewed; /* when it pinned or claimed, by the time that passes everywhere */
    size_t pin;      /* index + 1 */
    uint64_t trim;
    /* The commit under way. */
    int committing;
    uint64_t begun; /* the last version that was acknowledged when the view was read */
    uint64_t requests;
    uint64_t next_chain; /* after the commit */
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
    self->version = model_load(world);
    self->chain = world->states[self->version]->chain;
    self->seen = INT64_MIN / 2;
}

/* --- reading --- */

static uint64_t read_on(const service *world, uint64_t version)
{
    while (model_there(world, version + 1))
        version++;
    return version;
}

/* What is written while it is read may be in the result, or not. */
static void refresh(service *world, actor *self)
{
    int64_t now = clock_of(world, self);
    uint64_t from = self->version, end = read_on(world, from);
    int fresh = !world->by_head && now - self->seen <= FRESH;

    self->begun = world->acknowledged;
    if (end < world->head && !fresh) { /* an entry that does not exist is not taken for the end */
        from = model_load(world);
        end = read_on(world, from);
        self->named = 1;
        model_must(world, end == world->head, "the log does not begin where the checkpoint ends");
    }
    for (uint64_t v = from + 1; v <= end; v++)
        self->named |= world->history[v].pack == self->pack && self->pack != 0;
    self->version = end;
    self->chain = world->states[self->version]->chain;
    self->seen = now;
    model_must(world, self->version >= self->begun, "a view lacks an acknowledged commit");
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

/* Packs that were deleted so long ago that no commit can name them any more. */
static size_t find_forgotten(service *world, const actor *self, uint64_t *packs)
{
    size_t kept = 0, found = ligi_remote_due(view_of(world, self), 0, world->now - GRACE - KEEP,
                                             packs, FORGOTTEN_MAX);

    for (size_t i = 0; i < found; i++)
        if (!world->exists[packs[i]])
            packs[kept++] = packs[i];
    return kept;
}

/* The record follows the actor's view. */
static void begin_commit(service *world, actor *self, commit_kind what)
{
    uint8_t key[8];
    uint64_t forgotten[FORGOTTEN_MAX];
    pack_key(self->pack, key);
    const lig_catalog_op op = {key, 8, what == NAME ? "" : NULL, 0};
    const lig_catalog_edit edit = {.ops = &op, .op_count = what == NAME || what == UNNAME};
    ligi_remote_edit made = {.edit = &edit,
                             .version = self->version + 1,
                             .previous = self->chain,
                             .date_ns = world->now};
    ligi_writer bytes = {0};
    ligi_remote_record parsed;

    for (int i = 0; i < LIGI_REMOTE_ID_BYTES; i++)
        made.id[i] = (uint8_t)model_random(world, 256);
    if (what == NAME)
        made.named = (ligi_pack_list){&self->pack, 1};
    if (what == CONDEMN) {
        made.condemned = (ligi_pack_list){&self->pack, 1};
        made.forgotten = (ligi_pack_list){forgotten, find_forgotten(world, self, forgotten)};
    }
    assert_ok(ligi_remote_record_put(&bytes, &made));
    assert_ok(ligi_remote_record_get(bytes.data, bytes.bytes, &parsed));
    self->next_chain = ligi_clog_chain(&parsed.header);
    self->record = (model_record){bytes.data, bytes.bytes, what == NAME ? self->pack : 0};
    ligi_numbered_commit_begin(&self->commit, self->seen, FRESH);
    self->committing = 1;
    self->requests = 0;
    if (world->broken == CHECKPOINT_BEFORE_COMMIT)
        model_checkpoint(world, self->version + 1, self->next_chain);
}

/* What the protocol says about the commit, against the truth. */
static void check_outcome(service *world, const actor *self, ligi_commit_next outcome)
{
    uint64_t version = self->version + 1;
    int there = version <= world->head && memcmp(world->history[version].bytes, self->record.bytes,
                                                 LIGI_REMOTE_ID_BYTES) == 0;

    if (outcome == LIGI_COMMIT_DONE) {
        model_must(world, there, "an acknowledged commit is not there");
        world->acknowledged = version > world->acknowledged ? version : world->acknowledged;
    }
    if (outcome == LIGI_COMMIT_BUSY || outcome == LIGI_COMMIT_FAILED) {
        model_must(world, !there, "a commit is there that was said not to be");
        for (size_t i = 0; i < world->late_count; i++) /* nor can it be there later */
            if (world->late[i].version == version &&
                memcmp(world->late[i].record.bytes, self->record.bytes, LIGI_REMOTE_ID_BYTES) == 0)
                model_must(world, version <= world->head,
                           "a commit may arrive that was said not to");
    }
}

/* The reply to a PUT, as the protocol reads it or as one that is broken does. */
static void take_reply(service *world, actor *self, ligi_commit_reply reply)
{
    int sent = self->commit.sent;

    if (world->broken == LOST_REPLY_IS_FAILURE && reply == LIGI_REPLY_LOST)
        reply = LIGI_REPLY_REFUSED;
    ligi_numbered_commit_reply(&self->commit, reply);
    if (world->broken == CONFLICT_IS_OTHERS && reply == LIGI_REPLY_EXISTS)
        self->commit.next = LIGI_COMMIT_BUSY;
    if (world->broken == CONFLICT_IS_NOT_SENT && reply == LIGI_REPLY_AGAIN)
        self->commit.sent = sent;
}

/* One request of the commit under way; 1 when it has ended, with *outcome. */
static int continue_commit(service *world, actor *self, ligi_commit_next *outcome)
{
    int64_t now = clock_of(world, self);

    if (world->by_head || world->broken == NO_FENCE) /* no fence is needed, and none is used */
        self->commit.seen_ns = now;
    *outcome = ligi_numbered_commit_next(&self->commit, now, self->requests++ > REQUESTS_MAX);
    if (*outcome == LIGI_COMMIT_PUT) {
        take_reply(world, self, model_put(world, self->version + 1, &self->record, now));
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
    self->lapsed |= !lasts(world, self);
    world->held_until[self->pack] = world->now + TTL;
    self->renewed = world->now;
    return 1;
}

/* Whether the view of the actor forbids the change. */
static int is_forbidden(service *world, actor *self, commit_kind what)
{
    const ligi_remote_state *state = view_of(world, self);
    int condemned = what != NOTHING && ligi_remote_first_condemned(state, &self->pack, 1) == 0;
    int named = model_named(state, self->pack);

    model_must(world, !condemned || self->kind != SAVER || self->lapsed || !lasts(world, self),
               "a pack was condemned while its writer held it");
    if (condemned && !(what == NAME && world->broken == REVIVES_CONDEMNED))
        return 1;
    if (what == UNNAME)
        return !named;
    if (what == CONDEMN)
        return (named || self->named) && world->broken != REMOVER_IGNORES_NAMES;
    if (what == NAME && self->kind == SAVER)
        return !renew_claim(world, self) && world->broken != SAVER_IGNORES_LOST_CLAIM;
    return what == NAME && named;
}

/* The view of a process that does not read the log again after a refusal. */
static int is_stale(service *world, actor *self)
{
    if (self->requests == 0 || world->violation != NULL)
        return 0;
    if (world->broken == NEXT_NUMBER_WITHOUT_REFRESH && self->version < world->head)
        self->version++;
    return world->broken == NEXT_NUMBER_WITHOUT_REFRESH || world->broken == NO_REFRESH_AFTER_BUSY;
}

/* Commits its change of a pack at the next steps: refresh, decide, commit, until it is done. */
static int step_change(service *world, actor *self, commit_kind what)
{
    ligi_commit_next outcome;

    if (!self->committing) {
        if (!is_stale(world, self))
            refresh(world, self);
        if (world->violation != NULL || is_forbidden(world, self, what))
            return -1;
        begin_commit(world, self, what);
        return 0;
    }
    if (!continue_commit(world, self, &outcome))
        return 0;
    if (outcome == LIGI_COMMIT_DONE && self->kind == COMMITTER)
        model_checkpoint(world, self->version + 1, self->next_chain);
    if (outcome == LIGI_COMMIT_DONE)
        self->requests = 0;
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
        int held = world->held_until[self->pack] > world->now;
        return held && world->broken != REMOVER_IGNORES_CLAIMS ? -1 : 1;
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
        int64_t until = world->now - (world->broken == SWEEP_WITHOUT_GRACE ? 0 : GRACE);
        return ligi_remote_due(view_of(world, self), from, until, &self->pack, 1) == 1 ? 1 : -1;
    }
    if (self->step == 1) /* a pin that comes after this belongs to one who looks after it */
        return model_pinned(world, self->pack) && world->broken != SWEEP_IGNORES_PINS ? -1 : 1;
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
    if (self->step == 2) { /* its last model may have gone: that does not matter */
        if (world->broken == READER_LOOKS_BEFORE_PIN)
            return has_pack(world, self) ? 1 : -1;
        refresh(world, self);
        int condemned = ligi_remote_condemned(view_of(world, self), self->pack, NULL);
        return condemned || !has_pack(world, self) ? -1 : 1;
    }
    model_must(world, !lasts(world, self) || has_pack(world, self),
               "a pack was deleted while it was pinned");
    return self->step < 20 && lasts(world, self) ? 1 : -1;
}

/* One that cannot pin: what it has found lasts for the grace, less the time by which the commit that
 * condemned the pack was late. */
static int step_watcher(service *world, actor *self)
{
    if (self->step == 0) {
        refresh(world, self);
        self->pack = any_pack(world, self, 1);
        self->renewed = world->now;
        return self->pack == 0 ? -1 : 1;
    }
    int due = world->now - self->renewed >= GRACE - world->lateness[self->pack];
    model_must(world, due || has_pack(world, self), "a pack was deleted within its grace");
    return due ? -1 : 1;
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
        model_checkpoint(world, self->version, self->chain);
        return 1;
    }
    model_trim(world, self->trim);
    return self->step < 12 ? 1 : -1;
}

static int step_committer(service *world, actor *self)
{
    return self->step < 4 ? step_change(world, self, NOTHING) : -1;
}

static int (*const steps[KINDS])(service *, actor *) = {step_saver,   step_retirer, step_remover,
                                                        step_sweeper, step_reader,  step_watcher,
                                                        step_reviver, step_trimmer, step_committer};

static void step_actor(service *world, actor *self)
{
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

/* Left alone, a commit comes to its end. */
static void finish(service *world, actor *self)
{
    int left = ALONE_MAX;

    if (!self->committing)
        return;
    while (left > 0 && world->violation == NULL && steps[self->kind](world, self) == 0)
        left--;
    model_must(world, left > 0, "a commit makes no progress");
}

/* The rule that did not hold; NULL: all did. */
static const char *run_schedule(uint64_t seed, model_mutation broken, model_counts *counts)
{
    static service world;
    actor actors[ACTORS] = {0};

    model_start(&world, seed);
    world.broken = broken;
    world.profile = (size_t)model_random(&world, PROFILES);
    for (int i = 0; i < ACTORS; i++)
        restart(&world, &actors[i]);
    for (int step = 0; step < STEPS && world.head + 2 < VERSIONS && world.violation == NULL;
         step++) {
        pass_time(&world);
        if (model_random(&world, 8) == 0)
            model_deliver(&world);
        if (world.violation == NULL)
            step_actor(&world, &actors[model_random(&world, ACTORS)]);
    }
    for (int i = 0; i < ACTORS && world.head + 2 < VERSIONS && world.violation == NULL; i++)
        finish(&world, &actors[i]);
    for (int i = 0; i < ACTORS; i++)
        free(actors[i].record.bytes);
    counts->commits += world.head;
    counts->removed += world.first - 1;
    counts->deleted += world.deleted;
    model_end(&world);
    return world.violation;
}

static uint64_t seed_of(uint64_t number)
{
    return number * UINT64_C(0x9E3779B97F4A7C15);
}

static uint64_t schedules = SCHEDULES;

static void schedules_keep_what_was_committed(void **state)
{
    model_counts counts = {0};

    (void)state;
    for (uint64_t number = 1; number <= schedules; number++) {
        const char *violation = run_schedule(seed_of(number), SOUND, &counts);
        if (violation != NULL)
            fail_msg("schedule %llu: %s", (unsigned long long)number, violation);
    }
    printf("    %llu schedules: %llu commits, %llu entries removed, %llu packs deleted\n",
           (unsigned long long)schedules, (unsigned long long)counts.commits,
           (unsigned long long)counts.removed, (unsigned long long)counts.deleted);
    assert_true(counts.commits > schedules);
}

/* The schedules are of use only if they find a process that breaks a rule. */
static void broken_rules_are_found(void **state)
{
    model_counts counts = {0};

    (void)state;
    for (int broken = SOUND + 1; broken < MUTATIONS; broken++) {
        const char *violation = NULL;
        uint64_t number = 0;
        while (violation == NULL && number < SCHEDULES)
            violation = run_schedule(seed_of(++number), (model_mutation)broken, &counts);
        if (violation == NULL)
            fail_msg("mutation %d was not found", broken);
        printf("    mutation %2d: schedule %llu: %s\n", broken, (unsigned long long)number,
               violation);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_keep_what_was_committed),
        cmocka_unit_test(broken_rules_are_found),
    };
    if (argc > 1)
        schedules = strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
