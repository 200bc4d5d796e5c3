/* Claims that one thread checks while another ends them. */
#include "backend/remote/remote_leases.h"
#include "base/test.h"

#include <sched.h>
#include <stdatomic.h>

enum { TURNS = 1000 };

typedef struct checking {
    ligi_remote_volume *volume;
    atomic_int begun;
    lig_status status;
} checking;

static void *check(void *context)
{
    checking *self = context;

    atomic_store(&self->begun, 1);
    self->status = ligi_remote_claim_check(self->volume, 7);
    return NULL;
}

/* A commit names a pack whose writer, on another thread, is closed while its claim is renewed: what
 * is left in the writer's memory is not looked at. */
static void a_claim_ends_while_it_is_checked(void **state)
{
    static ligi_remote_volume volume = {.name = "test", .windows = {.ttl_ns = INT64_MAX}};
    ligi_remote_lease lease = {.busy = 1};
    ligi_remote_claim claim = {.lease = &lease};
    checking other = {.volume = &volume};
    pthread_t thread;

    (void)state;
    pthread_mutex_init(&volume.lock, NULL);
    pthread_cond_init(&volume.changed, NULL);
    assert_ok(ligi_remote_claim_begin(&volume, &claim, 7));
    assert_int_equal(pthread_create(&thread, NULL, check, &other), 0);
    for (int i = 0; i < TURNS || !atomic_load(&other.begun); i++)
        sched_yield(); /* it most likely waits by then */
    ligi_remote_claim_end(&volume, &claim);
    pthread_mutex_lock(&volume.lock);
    lease.busy = 0;
    lease.lost = 1;
    pthread_cond_broadcast(&volume.changed);
    pthread_mutex_unlock(&volume.lock);
    pthread_join(thread, NULL);
    assert_int_equal(other.status, LIG_OK);
    pthread_cond_destroy(&volume.changed);
    pthread_mutex_destroy(&volume.lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_claim_ends_while_it_is_checked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
