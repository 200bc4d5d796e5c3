/* How commits use the volume's catalog_lock: a backend that is `mem`, with a lock in front. */
#include "backend/registry.h"
#include "store/catalog/catalog_wait.h"
#include "store/catalog/change.h"
#include "store/catalog/commit.h"
#include "store_scene.h"

#include <pthread.h>

static const lig_volume_ops *mem;
static lig_volume_ops locking_volume;
static lig_backend_ops locking;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static pthread_cond_t refused_lock = PTHREAD_COND_INITIALIZER;
static int held, locks, unlocks, settles, locked_commits, free_commits, lock_tries;
static int frozen; /* somebody else holds the lock, for ever */
static int busy;   /* so many commits are refused */
static uint32_t last_flags;
static size_t last_events;

static lig_status catalog_lock(void *self, int64_t timeout_ns)
{
    (void)self;
    assert_true(timeout_ns >= 0 && timeout_ns <= LIGI_WAIT_SLICE_NS);
    pthread_mutex_lock(&lock);
    lock_tries++;
    int taken = !frozen && !held;
    if (taken) {
        held = 1;
        locks++;
    }
    pthread_cond_broadcast(&refused_lock);
    pthread_mutex_unlock(&lock);
    return taken ? LIG_OK : lig_fail(LIG_E_TIMEOUT, "process 123 holds the lock");
}

static void catalog_unlock(void *self)
{
    (void)self;
    pthread_mutex_lock(&lock);
    assert_int_equal(held, 1);
    held = 0;
    unlocks++;
    pthread_mutex_unlock(&lock);
}

static lig_status catalog_settle(void *self)
{
    assert_int_equal(held, 0); /* it may wait for the lock */
    settles++;
    return mem->catalog_settle(self);
}

static lig_status catalog_commit(void *self, const lig_catalog_edit *edit)
{
    pthread_mutex_lock(&lock);
    int refused = busy > 0 && busy--;
    if (held)
        locked_commits++;
    else
        free_commits++;
    held = 0;
    last_flags = edit->flags;
    last_events = edit->event_count;
    pthread_mutex_unlock(&lock);
    return refused ? lig_fail(LIG_E_BUSY, "another commit came first")
                   : mem->catalog_commit(self, edit);
}

static void register_locking(void)
{
    const lig_backend_ops *ops = lig_backend_find("mem");
    locking = *ops;
    mem = ops->volume;
    locking_volume = *mem;
    locking_volume.catalog_lock = catalog_lock;
    locking_volume.catalog_unlock = catalog_unlock;
    locking_volume.catalog_settle = catalog_settle;
    locking_volume.catalog_commit = catalog_commit;
    locking.volume = &locking_volume;
    assert_ok(ligi_backend_register("locking", &locking));
}

static lig_store *opened(void)
{
    lig_store *store;
    assert_ok(lig_store_open(&store, "locking:"));
    held = locks = unlocks = settles = locked_commits = free_commits = lock_tries = frozen = busy =
        0;
    return store;
}

static float values[30000];

static lig_status save(lig_store *store, const char *name, int64_t length)
{
    lig_tensor tensor = scene_tensor("t", values, &length);
    return lig_store_save(store, name, &tensor, 1, NULL);
}

static void test_every_lock_ends(void **state)
{
    (void)state;
    lig_store *store = opened();
    lig_report *report;
    assert_ok(save(store, "small", 10));
    assert_ok(save(store, "large", 30000)); /* which reserves ids first */
    assert_int_equal(locked_commits, 3);
    assert_int_equal(last_flags, 0);
    assert_int_equal(last_events, 1);
    assert_ok(lig_store_alias(store, "alias", "large"));
    assert_int_equal(last_flags, 0);
    assert_ok(lig_store_alias(store, "alias", NULL));
    assert_int_equal(last_flags, LIG_EDIT_FREES);
    assert_ok(lig_store_retire(store, "large"));
    assert_int_equal(last_flags, LIG_EDIT_FREES);
    assert_ok(lig_store_compact(store, &report));
    lig_report_destroy(report);
    assert_int_equal(unlocks, settles);
    assert_fails(lig_store_retire(store, "large"), LIG_E_NOTFOUND); /* nothing to commit */
    assert_int_equal(unlocks, settles + 1);
    assert_int_equal(free_commits, 1); /* of compact: it frees, and changes nothing */
    assert_int_equal(held, 0);
    assert_int_equal(locks, locked_commits + unlocks);
    lig_store_close(store);
}

static lig_status make_nothing(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)view, (void)change;
    assert_int_equal(held, *(int *)context);
    return LIG_OK;
}

static lig_status make_alias(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    ligi_catalog_key key = ligi_catalog_key_text(LIGI_TABLE_ALIAS, view->store->secret, "a");
    ++*(int *)context;
    ligi_alias_put(&change->value, &key, "a", 1, view->store->secret);
    return ligi_change_put(change, &key);
}

static void test_nothing_to_commit(void **state)
{
    (void)state;
    lig_store *store = opened();
    int wanted = 1;
    assert_ok(ligi_change_commit(store, make_nothing, &wanted, NULL));
    assert_int_equal(unlocks, 1);
    assert_int_equal(held, 0);
    lig_store_close(store);
}

/* Refused under the lock, it is taken again; a slow edit first tries without. */
static void test_refused(void **state)
{
    (void)state;
    lig_store *store = opened();
    int calls = 0;
    busy = 2;
    assert_ok(ligi_change_commit(store, make_alias, &calls, NULL));
    assert_int_equal(calls, 3);
    assert_int_equal(locks, 3);
    assert_int_equal(locked_commits, 3);
    ligi_commit slow = {.store = store, .edit = make_alias, .context = &calls, .slow = 1};
    assert_ok(ligi_change_commit_as(&slow));
    assert_int_equal(locks, 3);
    busy = 3;
    assert_ok(ligi_change_commit_as(&slow));
    assert_int_equal(locks, 4);
    assert_int_equal(free_commits, 4);
    lig_store_close(store);
}

static void test_frozen(void **state)
{
    (void)state;
    lig_store *store = opened();
    frozen = 1;
    store->commit_ns = 0;
    assert_fails(save(store, "m", 10), LIG_E_TIMEOUT);
    assert_non_null(strstr(lig_error_text(), "process 123"));
    assert_int_equal(lock_tries, 1);
    frozen = 0;
    store->commit_ns = LIGI_COMMIT_NS;
    assert_ok(save(store, "m", 10));
    lig_store_close(store);
}

static int stop_third(void *context)
{
    return ++*(int *)context == 3;
}

static void test_interrupted(void **state)
{
    (void)state;
    lig_store *store = opened();
    int calls = 0;
    lig_store_set_interrupt(store, stop_third, &calls);
    frozen = 1;
    assert_fails(save(store, "m", 10), LIG_E_CLOSED);
    assert_non_null(strstr(lig_error_text(), "interrupted"));
    assert_int_equal(calls, 3);
    assert_int_equal(lock_tries, 3);
    frozen = 0;
    assert_ok(save(store, "m", 10));
    assert_int_equal(calls, 3);
    lig_store_close(store);
}

/* Who only tidies up waits a while, and calls no hook: its result is that of what came before. */
static void test_settle(void **state)
{
    (void)state;
    lig_store *store = opened();
    int calls = 0;
    lig_store_set_interrupt(store, stop_third, &calls);
    frozen = 1;
    assert_fails(ligi_catalog_settle(store, &store->interrupt, LIGI_COMMIT_NS), LIG_E_CLOSED);
    assert_fails(ligi_catalog_settle(store, NULL, 2 * LIGI_WAIT_SLICE_NS), LIG_E_TIMEOUT);
    assert_int_equal(calls, 3);
    assert_int_equal(settles, 0);
    frozen = 0;
    assert_ok(ligi_catalog_settle(store, NULL, 0));
    assert_int_equal(settles, 1);
    assert_int_equal(held, 0);
    lig_store_close(store);
}

/* A save in the background does not call the hook: its ticket ends the wait. */
static void save_in_background(int64_t length)
{
    lig_store *store = opened();
    lig_ticket *ticket;
    int calls = 0;
    lig_tensor tensor = scene_tensor("t", values, &length);
    lig_store_set_interrupt(store, stop_third, &calls);
    frozen = 1;
    assert_ok(lig_store_save_start(store, "m", &tensor, 1, NULL, &ticket));
    pthread_mutex_lock(&lock);
    while (lock_tries < 3)
        pthread_cond_wait(&refused_lock, &lock);
    pthread_mutex_unlock(&lock);
    lig_ticket_cancel(ticket);
    assert_fails(lig_ticket_wait(ticket, LIG_FOREVER), LIG_E_CLOSED);
    lig_ticket_destroy(ticket);
    assert_int_equal(calls, 0);
    assert_int_equal(held, 0);
    lig_store_close(store);
}

static void test_background(void **state)
{
    (void)state;
    save_in_background(10);
    save_in_background(30000);
}

int main(void)
{
    register_locking();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_lock_ends), cmocka_unit_test(test_nothing_to_commit),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_interrupted),     cmocka_unit_test(test_settle),
        cmocka_unit_test(test_background)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
