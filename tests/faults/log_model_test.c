/* The commit log's protocol as a state machine: processes that move, die and are cut off from power
 * at every step, against what users were told.
 *
 *   log_model_test              some seconds
 *   log_model_test soak         some minutes
 *   log_model_test seed N [M]   one random run, with mistake M
 */
#include "log_steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

enum { RUN_STEPS = 400 };

static long runs = 60000, mistake_runs = 400000;
static size_t states_max = 1 << 19;
static int soak;

static void world_init(model_world *world, model_mistake mistake)
{
    memset(world, 0, sizeof *world);
    world->mistake = (uint8_t)mistake;
    world->segments[0] = (model_segment){.used = 1, .shown = 1, .durable = 1, .first = 1};
    world->lock_w = world->lock_y = world->lock_c = MODEL_NOBODY;
    for (unsigned i = 0; i < MODEL_PACKS; i++)
        world->packs[i].owner = MODEL_NOBODY;
}

static void add_process(model_world *world, model_role role, unsigned budget)
{
    world->processes[world->process_count++] =
        (model_process){.role = (uint8_t)role, .budget = (uint8_t)budget};
}

/* --- faults --- */

static void kill_all(model_world *world)
{
    for (unsigned i = 0; i < world->process_count; i++)
        model_die(world, &world->processes[i]);
}

/* Of what a folder's syncs have not settled, the disk has a prefix, or any subset. */
static void cut_folder(model_world *world, int folder, model_chooser *chooser)
{
    unsigned count = world->pending_count[folder];
    int subset = model_happens(chooser, 2);
    unsigned prefix = subset ? 0 : model_choose(chooser, count + 1);
    for (unsigned i = 0; i < count; i++)
        if (subset ? model_happens(chooser, 2) : i < prefix)
            model_set_entry(world, world->pending[folder][i], 1);
    world->pending_count[folder] = 0;
    memset(world->pending[folder], 0, sizeof world->pending[folder]);
}

static void power_cut(model_world *world, model_chooser *chooser)
{
    kill_all(world);
    cut_folder(world, 0, chooser);
    cut_folder(world, 1, chooser);
    for (unsigned i = 0; i < MODEL_SEGMENTS; i++) {
        model_segment *segment = &world->segments[i];
        segment->shown = segment->durable;
        segment->errors = segment->error_seen = 0;
        for (unsigned k = 0; k < MODEL_SLOTS * 2; k++) {
            uint8_t left = model_survivor(&segment->cells[k], chooser);
            segment->cells[k] = (model_cell){.cached = left, .durable = left};
        }
    }
    for (unsigned i = 0; i < MODEL_CHECKPOINTS; i++)
        world->checkpoints[i].shown = world->checkpoints[i].durable;
    for (unsigned i = 0; i < MODEL_PACKS; i++)
        world->packs[i].shown = world->packs[i].durable;
    uint8_t synced = model_happens(chooser, 2) ? world->head_on_disk : world->head.synced;
    world->head = (model_head){.synced = synced, .epoch = (uint8_t)(world->head.epoch + 1)};
    world->head_on_disk = synced;
    world->index = 0;
}

/* Clean pages leave the cache; where their write had failed, older content comes back. */
static void evict(model_world *world)
{
    for (unsigned i = 0; i < MODEL_SEGMENTS; i++)
        for (unsigned k = 0; k < MODEL_SLOTS * 2; k++) {
            model_cell *cell = &world->segments[i].cells[k];
            if (!cell->dirty)
                cell->cached = cell->durable;
        }
}

/* Damages a random part of a log that no process has open. */
static void damage(model_world *world, model_chooser *chooser)
{
    world->cut = 0;
    for (int tries = 0; tries < 20 && !world->damaged; tries++) {
        model_segment *segment = &world->segments[model_choose(chooser, MODEL_SEGMENTS)];
        model_checkpoint *checkpoint =
            &world->checkpoints[model_choose(chooser, MODEL_CHECKPOINTS)];
        unsigned slot = model_choose(chooser, MODEL_SLOTS), zero = model_happens(chooser, 2);
        uint8_t id = model_record_at(segment, slot);
        if (checkpoint->shown && model_happens(chooser, 3)) {
            checkpoint->whole = 0;
            world->damaged = 1;
        } else if (segment->shown && id && world->relied >> id & 1 &&
                   (!zero ||
                    model_version(world, world->head.synced) >= model_version(world, id))) {
            unsigned both = zero || model_happens(chooser, 2), at = model_choose(chooser, 2);
            uint8_t value = zero ? 0 : MODEL_DAMAGED;
            for (unsigned i = 0; i < 2; i++)
                if (both || i == at)
                    segment->cells[slot * 2 + i] = (model_cell){value, value, 0, 0, {0, 0}};
            world->damaged = 1;
        }
    }
}

/* --- by lot --- */

typedef struct rates { /* once in so many steps; 0: never */
    unsigned kill, cut, evict, error;
} rates;

static rates draw_rates(model_chooser *chooser)
{
    static const unsigned odds[] = {0, 0, 15, 40, 100};
    rates drawn;
    drawn.kill = odds[model_choose(chooser, 5)];
    drawn.cut = odds[model_choose(chooser, 5)] * 2;
    drawn.evict = odds[model_choose(chooser, 5)];
    drawn.error = odds[model_choose(chooser, 5)];
    return drawn;
}

static void strike(model_world *world, const rates *drawn, model_chooser *chooser)
{
    if (drawn->kill && model_happens(chooser, drawn->kill)) {
        model_process *one = &world->processes[model_choose(chooser, world->process_count)];
        if (model_happens(chooser, 8))
            kill_all(world);
        else
            model_die(world, one);
    }
    if (drawn->cut && model_happens(chooser, drawn->cut))
        power_cut(world, chooser);
    if (drawn->evict && model_happens(chooser, drawn->evict)) {
        evict(world);
        world->head_on_disk = world->head.synced;
    }
    if (drawn->error && world->failures_left && model_happens(chooser, drawn->error)) {
        world->failures_left--;
        model_lose_pages(&world->segments[world->head.segment], chooser);
    }
}

/* One after the other, in turns of some steps: a process that stands still is the interesting one. */
static void let_move(model_world *world, model_chooser *chooser, unsigned *turn)
{
    if (model_happens(chooser, 4) || !model_is_enabled(world, &world->processes[*turn]))
        *turn = model_choose(chooser, world->process_count);
    model_process *one = &world->processes[*turn];
    if (model_is_enabled(world, one))
        model_move(world, one, chooser);
}

static void run_last_reader(model_world *world, model_chooser *chooser)
{
    world->failures_left = 0;
    model_process *last = &world->processes[0];
    last->role = MODEL_READER;
    last->budget = 2;
    for (int i = 0; i < 200 && !chooser->violation && model_is_enabled(world, last); i++)
        model_move(world, last, chooser);
    if (!chooser->violation && !world->corrupt && (last->budget || last->step))
        model_violate(chooser, "a reader does not come to an end");
}

/* What went wrong, NULL for nothing. */
static const char *run_random(uint64_t seed, model_mistake mistake)
{
    model_chooser chooser = {.random = (seed + 1) * UINT64_C(0x9E3779B97F4A7C15)};
    model_world world;
    unsigned turn = 0;
    world_init(&world, mistake);
    for (int i = 0; i < 8; i++)
        model_choose(&chooser, 2);
    unsigned writers = 1 + model_choose(&chooser, 3), others = model_choose(&chooser, 3);
    for (unsigned i = 0; i < writers + others; i++)
        add_process(&world,
                    i < writers ? MODEL_WRITER
                                : (model_role)(1 + model_choose(&chooser, MODEL_ROLES - 1)),
                    2 + model_choose(&chooser, 8));
    world.failures_left = (uint8_t)model_choose(&chooser, 4);
    rates drawn = draw_rates(&chooser);
    for (int i = 0; i < RUN_STEPS && !chooser.violation && !world.corrupt; i++) {
        strike(&world, &drawn, &chooser);
        let_move(&world, &chooser, &turn);
    }
    if (model_happens(&chooser, 2))
        power_cut(&world, &chooser);
    else
        kill_all(&world);
    if (model_happens(&chooser, 3))
        damage(&world, &chooser);
    if (!world.corrupt)
        run_last_reader(&world, &chooser);
    return chooser.violation;
}

static void protocol_holds(void **state)
{
    (void)state;
    for (long i = 0; i < runs; i++) {
        const char *violation = run_random((uint64_t)i, MODEL_SOUND);
        if (violation)
            fail_msg("seed %ld: %s", i, violation);
    }
    print_message("%ld random runs\n", runs);
}

static const char *const mistake_names[MODEL_MISTAKES] = {
    [MODEL_DELETE_ON_SNAPSHOT] = "a pack is removed on the word of a snapshot",
    [MODEL_NO_CHAIN] = "no chain",
    [MODEL_RETRY_SYNC] = "a failed fdatasync is repeated",
    [MODEL_PUBLISH_BEFORE_INDEX] = "published before the index has it",
    [MODEL_LATE_SYNC] = "fdatasync by a descriptor that missed the error",
    [MODEL_WAIT_BY_VERSION] = "a waiter takes another commit's sync for its own",
    [MODEL_ZEROS_END] = "zeros end the log against a witness",
    [MODEL_NO_WITNESS] = "no witnesses",
    [MODEL_ROLL_UNSYNCED] = "the next segment begins before the last is synced",
    [MODEL_ROLL_FORGOTTEN] = "a segment whose maker died supersedes the next records",
    [MODEL_SYNC_OLD_SEGMENT] = "the segment before is synced",
    [MODEL_TRUNCATE_EARLY] = "old segments go before the checkpoint's name is synced",
    [MODEL_SHOW_UNSYNCED] = "readers show what is not synced",
    [MODEL_COPY_FROM_HINT] = "a copy begins at an old hint",
    [MODEL_NO_FOLDER_SYNC] = "a segment is used before its name is synced",
    [MODEL_FOUND_NAME] = "a dead process's segment is used before its name is synced",
    [MODEL_NO_ADOPT] = "a dead writer's record is not adopted",
    [MODEL_REMOVE_OWN] = "a writer removes its pack after an unknown outcome",
    [MODEL_INDEX_BY_VERSION] = "the index is compared by version",
    [MODEL_INDEX_LATER] = "lost commits stay in the index of the new epoch",
    [MODEL_STALE_EDIT] = "the edit is made before the lock",
};

static void mistakes_show(void **state)
{
    (void)state;
    int missed = 0;
    for (int mistake = 1; mistake < MODEL_MISTAKES; mistake++) {
        const char *violation = NULL;
        long i = 0;
        while (i < mistake_runs && violation == NULL)
            violation = run_random((uint64_t)i++, (model_mistake)mistake);
        if (soak || violation == NULL)
            print_message("%s: %s, after %ld runs\n", mistake_names[mistake],
                          violation ? violation : "NOT NOTICED", i);
        missed += violation == NULL;
    }
    assert_int_equal(missed, 0);
}

/* --- all that can happen --- */

typedef struct explorer {
    uint64_t *seen; /* hashes of states, open addressing */
    size_t count, edges;
    const char *violation;
} explorer;

static uint64_t hash_world(const model_world *world)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325), word;
    for (size_t i = 0; i + 8 <= sizeof *world; i += 8) {
        memcpy(&word, (const char *)world + i, 8);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    return hash ? hash : 1;
}

/* 1 when it was not there. */
static int remember(explorer *self, const model_world *world)
{
    uint64_t hash = hash_world(world);
    size_t at = hash % states_max;
    while (self->seen[at] && self->seen[at] != hash)
        at = (at + 1) % states_max;
    if (self->seen[at])
        return 0;
    self->seen[at] = hash;
    self->count++;
    return 1;
}

/* The next combination of choices; 0 when there is none. */
static int next_tape(model_chooser *chooser)
{
    while (chooser->used &&
           chooser->tape[chooser->used - 1] + 1 >= chooser->options[chooser->used - 1])
        chooser->tape[--chooser->used] = 0;
    if (chooser->used == 0)
        return 0;
    chooser->tape[chooser->used - 1]++;
    chooser->used = 0;
    return 1;
}

/* Action i: process i moves; then: process i dies; last: the power is cut. */
static int apply(model_world *world, unsigned action, model_chooser *chooser)
{
    unsigned count = world->process_count;
    if (action < count) {
        if (!model_is_enabled(world, &world->processes[action]))
            return 0;
        model_move(world, &world->processes[action], chooser);
        return 1;
    }
    if (world->faults_left == 0)
        return 0;
    world->faults_left--;
    if (action == 2 * count) {
        power_cut(world, chooser);
        return 1;
    }
    if (world->processes[action - count].step == MODEL_IDLE)
        return 0;
    model_die(world, &world->processes[action - count]);
    return 1;
}

static void explore(explorer *self, const model_world *world)
{
    if (self->violation || self->count > states_max / 2 || world->corrupt)
        return;
    for (unsigned action = 0; action <= 2u * world->process_count; action++) {
        model_chooser chooser = {0};
        do {
            model_world next = *world;
            chooser.violation = NULL;
            if (!apply(&next, action, &chooser))
                break;
            self->edges++;
            self->violation = chooser.violation;
            if (self->violation)
                return;
            if (remember(self, &next))
                explore(self, &next);
        } while (next_tape(&chooser));
    }
}

static const char *explore_all(unsigned writers, unsigned readers, unsigned faults,
                               unsigned failures, model_mistake mistake)
{
    explorer self = {.seen = calloc(states_max, sizeof *self.seen)};
    model_world world;
    assert_non_null(self.seen);
    world_init(&world, mistake);
    for (unsigned i = 0; i < writers + readers; i++)
        add_process(&world, i < writers ? MODEL_WRITER : MODEL_READER, 1);
    world.faults_left = (uint8_t)faults;
    world.failures_left = (uint8_t)failures;
    explore(&self, &world);
    print_message("%u writers, %u readers, %u faults, %u failing syncs: %zu states, %zu steps%s\n",
                  writers, readers, faults, failures, self.count, self.edges,
                  self.count > states_max / 2 ? " (not all)" : "");
    free(self.seen);
    return self.violation;
}

static void everything_holds(void **state)
{
    (void)state;
    /* Writers, readers, deaths or power cuts, failing syncs. */
    static const unsigned cases[][4] = {{1, 1, 1, 0}, {1, 1, 1, 1}, {2, 0, 1, 0}, {2, 0, 1, 1},
                                        {2, 1, 0, 1}, {2, 1, 1, 0}, {2, 1, 1, 1}};
    for (size_t i = 0; i < (soak ? sizeof cases / sizeof *cases : 3); i++) {
        const unsigned *one = cases[i];
        const char *violation = explore_all(one[0], one[1], one[2], one[3], MODEL_SOUND);
        if (violation)
            fail_msg("%s", violation);
    }
}

int main(int count, char **arguments)
{
    const char *role = count > 1 ? arguments[1] : "";
    if (count > 2 && strcmp(role, "seed") == 0) {
        const char *violation = run_random(strtoull(arguments[2], NULL, 10),
                                           (model_mistake)(count > 3 ? atoi(arguments[3]) : 0));
        printf("%s\n", violation ? violation : "nothing");
        return violation != NULL;
    }
    soak = strcmp(role, "soak") == 0;
    if (soak) {
        runs = 3000000;
        states_max = 1 << 26;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(protocol_holds),
                                       cmocka_unit_test(mistakes_show),
                                       cmocka_unit_test(everything_holds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
