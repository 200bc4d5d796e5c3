/* What a remote volume does when replies are lost, others commit, processes stop and objects are
 * damaged. Handles whose options differ share nothing but the service: they stand for processes. */
#include "base/test.h"
#include "commit_ops.h"
#include "remote/trial_engine.h"

#include <stdatomic.h>

static const lig_volume_ops *const ops = &ligi_remote_volume_ops;
static const uint8_t secret[LIG_SECRET_BYTES];

/* Process number `number` at a place. */
static void *opened(const char *place, int number, const char *options)
{
    char config[256];
    void *self = NULL;

    snprintf(config, sizeof config, "%s?wait=%d&%s", place, number + 1, options);
    assert_ok(ligi_remote_open(&trial_ops, config, &self));
    return self;
}

static uint64_t version_of(void *self)
{
    void *snapshot;
    uint64_t version;

    assert_ok(ops->catalog_begin(self, &snapshot, &version));
    ops->catalog_end(snapshot);
    return version;
}

static uint64_t write_pack(void *self, void **writer)
{
    const lig_piece piece = {.data = "abc", .bytes = 3};
    uint64_t id;

    assert_ok(ops->pack_create(self, 3, secret, writer));
    assert_ok(ops->pack_put(*writer, &piece));
    assert_ok(ops->pack_seal(*writer, &id));
    return id;
}

static lig_status name_pack(void *self, uint64_t id)
{
    const lig_catalog_op op = {"pack", 4, &id, sizeof id};
    const lig_catalog_edit edit = {
        .version = version_of(self), .ops = &op, .op_count = 1, .packs = &id, .pack_count = 1};

    return ops->catalog_commit(self, &edit);
}

static void set_service(const char *place, unsigned faults, int64_t skew_s)
{
    trial_store *store = trial_find(place);

    pthread_mutex_lock(&store->lock);
    store->faults = faults;
    store->skew_ns = skew_s * 1000000000;
    pthread_mutex_unlock(&store->lock);
}

/* --- commits --- */

enum { WRITERS = 6, ADDS = 60 };

typedef struct adder {
    pthread_t thread;
    void *self;
    uint64_t acknowledged, unknown;
} adder;

/* Adds one to a number in the catalog. */
static lig_status add_one(void *self, uint64_t *was)
{
    void *snapshot;
    lig_catalog_item item;
    uint64_t version, value = 0;

    LIG_TRY(ops->catalog_begin(self, &snapshot, &version));
    if (ops->catalog_get(snapshot, "n", 1, &item) == LIG_OK)
        memcpy(&value, item.value, sizeof value);
    ops->catalog_end(snapshot);
    *was = value++;
    const lig_catalog_op op = {"n", 1, &value, sizeof value};
    return commit_ops(ops, self, version, &op, 1);
}

static void *add_many(void *context)
{
    adder *me = context;
    uint64_t was;

    for (int done = 0; done < ADDS;) {
        lig_status status = add_one(me->self, &was);
        me->acknowledged += status == LIG_OK;
        me->unknown += status == LIG_E_IO;
        done += status == LIG_OK || status == LIG_E_IO;
        assert_true(status == LIG_OK || status == LIG_E_IO || status == LIG_E_BUSY ||
                    status == LIG_E_TIMEOUT);
    }
    return NULL;
}

/* Every acknowledged addition counts once, although a third of the requests get no reply. */
static void lost_replies_lose_nothing(void **state)
{
    adder adders[WRITERS] = {{0}};
    uint64_t acknowledged = 0, unknown = 0, was;

    (void)state;
    for (int i = 0; i < WRITERS; i++)
        adders[i].self = opened("lost", i, "grace=0&keep=2&fresh=1");
    set_service("lost", 330, 0);
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&adders[i].thread, NULL, add_many, &adders[i]), 0);
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(adders[i].thread, NULL);
        acknowledged += adders[i].acknowledged;
        unknown += adders[i].unknown;
    }
    set_service("lost", 0, 0);
    assert_ok(add_one(adders[0].self, &was));
    assert_true(was >= acknowledged && was <= acknowledged + unknown);
    void *late = opened("lost", WRITERS, "grace=0");
    assert_int_equal(version_of(late), version_of(adders[0].self));
    ops->catalog_settle(late);
    ligi_remote_close(late);
    for (int i = 0; i < WRITERS; i++)
        ligi_remote_close(adders[i].self);
}

/* After an unknown outcome the next snapshot shows it, and it stays that way. */
static void unknown_outcomes_are_settled(void **state)
{
    void *self = opened("unknown", 0, "");
    const lig_catalog_op op = {"k", 1, "v", 1};
    int unknown = 0;

    (void)state;
    for (int i = 0; i < 200 && unknown < 5; i++) {
        uint64_t before = version_of(self);
        lig_catalog_item item;
        void *snapshot;
        uint64_t version, later;
        set_service("unknown", 900, 0);
        lig_status status = commit_ops(ops, self, before, &op, 1);
        set_service("unknown", 0, 0);
        if (status != LIG_E_IO)
            continue;
        unknown++;
        assert_says("unknown");
        assert_ok(ops->catalog_begin(self, &snapshot, &version));
        assert_true(version > before); /* the number is used, by it or by nothing */
        int there = ops->catalog_get(snapshot, "k", 1, &item) == LIG_OK;
        ops->catalog_end(snapshot);
        later = version_of(self);
        assert_int_equal(later, version);
        void *other = opened("unknown", 1, "");
        assert_ok(ops->catalog_begin(other, &snapshot, &version));
        assert_int_equal(ops->catalog_get(snapshot, "k", 1, &item) == LIG_OK, there);
        ops->catalog_end(snapshot);
        ligi_remote_close(other);
        assert_ok(commit_ops(ops, self, later, &(lig_catalog_op){"k", 1, NULL, 0}, 1));
    }
    assert_int_equal(unknown, 5);
    ligi_remote_close(self);
}

static struct {
    ligi_log_end end;
    void *bytes;
    size_t count;
    int wanted;
} overdue; /* a commit that is on its way */

static lig_status delay_append(void *self, const ligi_log_end *end, int64_t fresh_ns,
                               const void *bytes, size_t count)
{
    if (!overdue.wanted)
        return trial_log_append(self, end, fresh_ns, bytes, count);
    overdue.wanted = 0;
    overdue.end = *end;
    overdue.count = count;
    overdue.bytes = malloc(count);
    memcpy(overdue.bytes, bytes, count);
    return lig_fail(LIG_E_IO, "no reply");
}

/* It arrives after the end of the log was looked at. */
static lig_status read_then_arrive(void *self, const ligi_log_end *end, int64_t fresh_ns,
                                   ligi_log_visit visit, void *context)
{
    lig_status status = trial_log_read(self, end, fresh_ns, visit, context);

    if (overdue.bytes != NULL)
        assert_ok(trial_log_append(self, &overdue.end, fresh_ns, overdue.bytes, overdue.count));
    free(overdue.bytes);
    overdue.bytes = NULL;
    return status;
}

static void a_commit_arrives_while_it_is_settled(void **state)
{
    ligi_engine_ops engine = trial_ops;
    const lig_catalog_op op = {"k", 1, "v", 1};
    lig_catalog_item item;
    void *self = NULL, *snapshot;
    uint64_t version;

    (void)state;
    engine.log_append = delay_append;
    engine.log_read = read_then_arrive;
    assert_ok(ligi_remote_open(&engine, "overdue", &self));
    version = version_of(self);
    overdue.wanted = 1;
    assert_status(commit_ops(ops, self, version, &op, 1), LIG_E_IO);
    assert_ok(ops->catalog_begin(self, &snapshot, &version));
    assert_ok(ops->catalog_get(snapshot, "k", 1, &item));
    ops->catalog_end(snapshot);
    ligi_remote_close(self);
}

/* --- checkpoints --- */

static uint64_t newest_checkpoint(const char *place)
{
    uint64_t version = 0;

    (void)trial_checkpoint_newest(trial_find(place), UINT64_MAX, &version);
    return version;
}

static void commit_many(void *self, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t version = version_of(self), key = version % 50;
        const lig_catalog_op op = {&key, sizeof key, &version, sizeof version};
        assert_ok(commit_ops(ops, self, version, &op, 1));
    }
}

static void checkpoints_replace_the_log(void **state)
{
    void *self = opened("long", 0, "keep=2&fresh=1"),
         *sleeper = opened("long", 1, "keep=2&fresh=1");
    trial_store *store = trial_find("long");

    (void)state;
    assert_int_equal(version_of(sleeper), 0);
    for (int round = 0; round < 4; round++) {
        set_service("long", 0, 100 * round); /* entries of the round before are old */
        commit_many(self, 64);
        while (newest_checkpoint("long") < 64 * (uint64_t)(round + 1))
            sched_yield();
    }
    trial_entry entry = {0};
    while (trial_copy_entry(store, 64, &entry) == LIG_OK) { /* until it is trimmed */
        free(entry.bytes);
        sched_yield();
    }
    void *fresh = opened("long", 2, "keep=2&fresh=1");
    assert_int_equal(version_of(fresh), 256);
    assert_int_equal(version_of(sleeper), 256); /* by the checkpoint: its log is gone */
    assert_status(ops->catalog_events(fresh, 1, NULL, NULL), LIG_E_NOTFOUND);
    ligi_remote_close(fresh);
    ligi_remote_close(sleeper);
    ligi_remote_close(self);
}

/* --- damage --- */

typedef struct problem_list {
    size_t count;
    char first[256];
} problem_list;

static lig_status note_problem(void *context, const char *text, const void *event, size_t bytes)
{
    problem_list *list = context;

    (void)event, (void)bytes;
    if (list->count++ == 0)
        snprintf(list->first, sizeof list->first, "%s", text);
    return LIG_OK;
}

static void damaged_commits_are_repaired(void **state)
{
    void *self = opened("damaged", 0, "");
    trial_store *store = trial_find("damaged");
    problem_list problems = {0};
    lig_catalog_item item;
    uint64_t version, key = 5;
    void *snapshot;

    (void)state;
    commit_many(self, 10);
    ligi_remote_close(self);
    store->log[4].bytes[store->log[4].size - 20] ^= 1;
    self = opened("damaged", 0, "");
    assert_int_equal(version_of(self), 10);
    assert_status(commit_ops(ops, self, 10, &(lig_catalog_op){"k", 1, "v", 1}, 1), LIG_E_CORRUPT);
    assert_says("--repair");
    assert_ok(ops->catalog_verify(self, 0, note_problem, &problems));
    assert_int_equal(problems.count, 1);
    assert_non_null(strstr(problems.first, "commit 5"));
    assert_ok(ops->catalog_verify(self, 1, note_problem, &problems));
    assert_ok(ops->catalog_begin(self, &snapshot, &version));
    assert_int_equal(version, 11);
    assert_ok(ops->catalog_get(snapshot, &key, sizeof key, &item));
    ops->catalog_end(snapshot);
    problems.count = 0;
    assert_ok(ops->catalog_verify(self, 0, note_problem, &problems));
    assert_int_equal(problems.count, 0);
    commit_many(self, 3);
    void *other = opened("damaged", 1, "");
    assert_int_equal(version_of(other), 14);
    ligi_remote_close(other);
    ligi_remote_close(self);
}

static void make_empty(trial_store *store)
{
    store->log[4].size = 0;
}

static void make_copy(trial_store *store)
{
    assert_true(store->log[4].size == store->log[5].size);
    memcpy(store->log[4].bytes, store->log[5].bytes, store->log[4].size);
}

/* The first record of another store has this number too, but not this past. */
static void make_foreign(trial_store *store)
{
    void *other = opened("foreign", 0, "");

    commit_many(other, 5);
    trial_store *from = trial_find("foreign");
    assert_true(store->log[4].size == from->log[4].size);
    memcpy(store->log[4].bytes, from->log[4].bytes, store->log[4].size);
    ligi_remote_close(other);
}

/* One commit that is not what belongs there is named, hides none of the others and is repaired. */
static void replaced_commits_are_repaired(void **state)
{
    static void (*const damages[])(trial_store *) = {make_empty, make_copy, make_foreign};
    static const char *const places[] = {"empty", "copy", "alien"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        problem_list problems = {0};
        void *self = opened(places[i], 0, "");
        commit_many(self, 10);
        ligi_remote_close(self);
        damages[i](trial_find(places[i]));
        self = opened(places[i], 0, "");
        assert_int_equal(version_of(self), 10);
        assert_ok(ops->catalog_verify(self, 0, note_problem, &problems));
        assert_true(problems.count >= 1);
        assert_non_null(strstr(problems.first, "commit 5"));
        assert_ok(ops->catalog_verify(self, 1, note_problem, &problems));
        commit_many(self, 3);
        problems.count = 0;
        assert_ok(ops->catalog_verify(self, 0, note_problem, &problems));
        assert_int_equal(problems.count, 0);
        ligi_remote_close(self);
    }
}

static void damage_checkpoint(const char *place, uint64_t version)
{
    trial_object *object =
        *trial_look(trial_find(place), (ligi_object){LIGI_OBJECT_CHECKPOINT, version});

    object->bytes[object->size / 2] ^= 4;
}

static void damaged_checkpoints_fall_back(void **state)
{
    void *self = opened("fall", 0, "");

    (void)state;
    commit_many(self, 128);
    ligi_remote_close(self); /* finishes the checkpoint */
    uint64_t newest = newest_checkpoint("fall");
    assert_true(newest >= 64);
    damage_checkpoint("fall", newest);
    self = opened("fall", 0, "");
    assert_int_equal(version_of(self), 128);
    commit_many(self, 1);
    ligi_remote_close(self);
}

/* The checkpoint before the newest is not read by anybody else until it is needed. */
static void older_checkpoints_are_checked(void **state)
{
    problem_list problems = {0};
    uint64_t older = 0, left;

    (void)state;
    for (int i = 0; i < 2; i++) {
        void *self = opened("older", 0, "");
        older = newest_checkpoint("older");
        commit_many(self, 64);
        ligi_remote_close(self);
    }
    assert_in_range(older, 64, newest_checkpoint("older") - 1);
    damage_checkpoint("older", older);
    void *self = opened("older", 0, "");
    assert_ok(ops->catalog_verify(self, 0, note_problem, &problems));
    assert_int_equal(problems.count, 1);
    assert_non_null(strstr(problems.first, "checkpoint 64"));
    assert_ok(ops->catalog_verify(self, 1, note_problem, &problems));
    assert_int_equal(version_of(self), 128); /* no commit was needed */
    assert_int_equal(trial_checkpoint_newest(trial_find("older"), older + 1, &left),
                     LIG_E_NOTFOUND);
    problems.count = 0;
    assert_ok(ops->catalog_verify(self, 0, note_problem, &problems));
    assert_int_equal(problems.count, 0);
    ligi_remote_close(self);
}

/* --- packs --- */

/* What a killed writer began goes with the next look for leftovers, also if no pack is removed. */
static void drafts_of_dead_writers_go(void **state)
{
    void *self = opened("drafts", 0, "");
    trial_store *store = trial_find("drafts");
    const ligi_object name = {LIGI_OBJECT_PACK, 77};
    trial_object *draft = calloc(1, sizeof *draft);
    uint64_t id;

    (void)state;
    *draft = (trial_object){.next = store->objects, .name = name, .claimed_until_ns = 1};
    store->objects = draft;
    assert_status(ops->pack_next(self, 0, &id), LIG_E_NOTFOUND);
    trial_object **left = trial_look(store, name);
    assert_true(left == NULL || *left == NULL);
    ligi_remote_close(self);
}

/* A pack that another process names while this one claims it is not removed. */
static void claims_notice_commits(void **state)
{
    void *remover = opened("claim", 0, "grace=0"), *saver = opened("claim", 1, "grace=0"), *writer,
         *claim;
    uint64_t id = write_pack(saver, &writer), size;

    (void)state;
    assert_status(ops->pack_claim(remover, id, &claim), LIG_E_BUSY);
    ops->pack_close(writer);
    assert_ok(ops->pack_claim(remover, id, &claim));
    assert_ok(name_pack(saver, id));
    assert_status(ops->pack_remove(remover, id), LIG_E_BUSY);
    ops->pack_close(claim);
    assert_ok(ops->pack_size(saver, id, &size));
    ligi_remote_close(saver);
    ligi_remote_close(remover);
}

/* A writer that slept finds its pack removed, and says so instead of committing it. */
static void sleepers_do_not_commit_removed_packs(void **state)
{
    void *remover = opened("sleep", 0, "grace=0"), *saver = opened("sleep", 1, "grace=0"), *writer,
         *claim;
    uint64_t id = write_pack(saver, &writer);

    (void)state;
    set_service("sleep", 0, 2 * 3600); /* its claim has ended */
    assert_ok(ops->pack_claim(remover, id, &claim));
    assert_ok(ops->pack_remove(remover, id));
    ops->pack_close(claim);
    assert_status(name_pack(saver, id), LIG_E_NOTFOUND);
    assert_says("save again");
    ops->pack_close(writer);
    ligi_remote_close(saver);
    ligi_remote_close(remover);
}

/* Condemned while somebody pins it: it can be read until the pin ends. */
static void pins_outlast_condemnation(void **state)
{
    void *remover = opened("pin", 0, "grace=1"), *reader = opened("pin", 1, "grace=1"), *writer,
         *pin;
    uint64_t id = write_pack(remover, &writer), size;
    char bytes[3];
    size_t bad;
    const lig_range range = {.data = bytes, .bytes = 3};

    (void)state;
    ops->pack_close(writer);
    assert_ok(ops->pack_remove(remover, id));
    assert_status(ops->pack_size(remover, id, &size), LIG_E_NOTFOUND);
    assert_ok(ops->pin(reader, &id, 1, INT64_MAX, &pin)); /* before the grace is over */
    set_service("pin", 0, 100);
    void *sweeper = opened("pin", 2, "grace=1"); /* sweeps when it is opened */
    assert_ok(ops->pack_read(reader, id, secret, &range, 1, &bad));
    assert_memory_equal(bytes, "abc", 3);
    assert_status(ops->pack_size(reader, id, &size),
                  LIG_E_NOTFOUND); /* it can no longer be pinned */
    ops->unpin(pin);
    ligi_remote_close(sweeper);
    sweeper = opened("pin", 2, "grace=1");
    while (ops->pack_read(reader, id, secret, &range, 1, &bad) == LIG_OK)
        sched_yield();
    ligi_remote_close(sweeper);
    ligi_remote_close(reader);
    ligi_remote_close(remover);
}

/* --- turns --- */

static void *lock_and_go(void *context)
{
    lig_status *status = context;
    void *self = opened("turn", 0, "");

    *status = ops->catalog_lock(self, 0);
    ligi_remote_close(self);
    return NULL;
}

static void threads_take_turns(void **state)
{
    void *self = opened("turn", 0, "");
    lig_status status = LIG_OK;
    pthread_t thread;

    (void)state;
    assert_ok(ops->catalog_lock(self, 0));
    assert_status(ops->catalog_lock(self, 0), LIG_E_INVALID);
    assert_int_equal(pthread_create(&thread, NULL, lock_and_go, &status), 0);
    pthread_join(thread, NULL);
    assert_status(status, LIG_E_TIMEOUT);
    assert_ok(commit_ops(ops, self, 0, &(lig_catalog_op){"k", 1, "v", 1}, 1)); /* ends it */
    assert_ok(ops->catalog_lock(self, 0));
    ops->catalog_unlock(self);
    ligi_remote_close(self);
}

static void options_are_checked(void **state)
{
    void *self;

    (void)state;
    assert_status(ligi_remote_open(&trial_ops, "x?mode=q", &self), LIG_E_INVALID);
    assert_status(ligi_remote_open(&trial_ops, "x?fresh=100&keep=150", &self), LIG_E_INVALID);
    assert_says("twice");
    assert_status(ligi_remote_open(&trial_ops, "x?ttl=0", &self), LIG_E_INVALID);
    assert_status(ligi_remote_open(&trial_ops, "x?colour=1", &self), LIG_E_INVALID);
    assert_status(ligi_remote_open(&trial_ops, "absent?mode=r", &self), LIG_E_NOTFOUND);
    self = opened("readers", 0, "");
    void *reader = opened("readers", 1, "mode=r"), *pack;
    assert_status(ops->pack_create(reader, 1, secret, &pack), LIG_E_DENIED);
    assert_int_equal(version_of(reader), 0);
    ligi_remote_close(reader);
    ligi_remote_close(self);
}

static int end(void **state)
{
    (void)state;
    trial_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lost_replies_lose_nothing),
        cmocka_unit_test(unknown_outcomes_are_settled),
        cmocka_unit_test(a_commit_arrives_while_it_is_settled),
        cmocka_unit_test(checkpoints_replace_the_log),
        cmocka_unit_test(damaged_commits_are_repaired),
        cmocka_unit_test(replaced_commits_are_repaired),
        cmocka_unit_test(damaged_checkpoints_fall_back),
        cmocka_unit_test(older_checkpoints_are_checked),
        cmocka_unit_test(drafts_of_dead_writers_go),
        cmocka_unit_test(claims_notice_commits),
        cmocka_unit_test(sleepers_do_not_commit_removed_packs),
        cmocka_unit_test(pins_outlast_condemnation),
        cmocka_unit_test(threads_take_turns),
        cmocka_unit_test(options_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
