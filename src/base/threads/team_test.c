#include "base/test.h"
#include "base/threads/team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARTS = 50, CALLERS = 3, ROUNDS = 200 };

struct count {
    atomic_int parts[PARTS];
    atomic_int inside[LIGI_TEAM_MAX]; /* by member: its memory has one user */
    unsigned size;
};

static void count_part(void *context, size_t part, unsigned member)
{
    struct count *self = context;
    assert_true(member < self->size);
    assert_int_equal(atomic_fetch_add(&self->inside[member], 1), 0);
    atomic_fetch_add(&self->parts[part], 1);
    atomic_fetch_sub(&self->inside[member], 1);
}

static void run_once(ligi_team *team)
{
    struct count found = {.size = ligi_team_size(team)};
    ligi_team_run(team, count_part, &found, PARTS);
    for (size_t i = 0; i < PARTS; i++)
        assert_int_equal(atomic_load(&found.parts[i]), 1);
}

static void *run_often(void *team)
{
    for (int i = 0; i < ROUNDS; i++)
        run_once(team);
    return NULL;
}

static void test_each_part_runs_once(void **unused)
{
    (void)unused;
    ligi_team *team;
    run_once(NULL);
    for (unsigned size = 0; size < 6; size++) {
        assert_ok(ligi_team_create(&team, size));
        assert_in_range(ligi_team_size(team), size ? size : 1, size ? size : 8);
        run_once(team);
        ligi_team_run(team, count_part, NULL, 0);
        ligi_team_destroy(team);
    }
    ligi_team_destroy(NULL);
}

static void test_callers_on_several_threads(void **unused)
{
    (void)unused;
    ligi_team *team;
    pthread_t callers[CALLERS];
    assert_ok(ligi_team_create(&team, 4));
    for (size_t i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, run_often, team), 0);
    for (size_t i = 0; i < CALLERS; i++)
        pthread_join(callers[i], NULL);
    ligi_team_destroy(team);
}

struct meeting {
    atomic_int here;
};

static void meet(void *context, size_t part, unsigned member)
{
    struct meeting *self = context;
    (void)part;
    (void)member;
    atomic_fetch_add(&self->here, 1);
    while (atomic_load(&self->here) < 3)
        sched_yield();
}

static void test_parts_run_at_the_same_time(void **unused)
{
    (void)unused;
    ligi_team *team;
    struct meeting found = {0};
    assert_ok(ligi_team_create(&team, 3));
    ligi_team_run(team, meet, &found, 3);
    ligi_team_destroy(team);
}

static void test_a_child_forgets(void **unused)
{
    (void)unused;
    ligi_team *team;
    int status;
    assert_ok(ligi_team_create(&team, 3));
    run_once(team);
    pid_t child = fork();
    if (child == 0) {
        ligi_team_forget(team);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ligi_team_destroy(team);
}

enum { BAD_PART = 7 };

struct trial {
    atomic_int begun[PARTS];
};

static lig_status try_part(void *context, size_t part, unsigned member)
{
    struct trial *self = context;
    (void)member;
    atomic_fetch_add(&self->begun[part], 1);
    return part == BAD_PART ? lig_fail(LIG_E_CORRUPT, "part %zu is damaged", part) : LIG_OK;
}

static lig_status try_meeting(void *context, size_t part, unsigned member)
{
    meet(context, part, member);
    return LIG_OK;
}

static void test_a_team_for_one_call(void **unused)
{
    (void)unused;
    struct meeting found = {0};
    assert_ok(ligi_team_once(3, try_meeting, &found, 3));
    for (unsigned size = 0; size < 4; size++) {
        struct trial good = {0}, bad = {0};
        assert_ok(ligi_team_once(size, try_part, &good, BAD_PART));
        for (size_t i = 0; i < BAD_PART; i++)
            assert_int_equal(atomic_load(&good.begun[i]), 1);
        assert_status(ligi_team_once(size, try_part, &bad, PARTS), LIG_E_CORRUPT);
        assert_says("part 7 is damaged");
        for (size_t i = 0; i < BAD_PART; i++)
            assert_int_equal(atomic_load(&bad.begun[i]), 1);
        for (size_t i = BAD_PART + 1; size == 1 && i < PARTS; i++)
            assert_int_equal(atomic_load(&bad.begun[i]), 0);
        assert_ok(ligi_team_once(size, try_part, &good, 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_part_runs_once),
        cmocka_unit_test(test_callers_on_several_threads),
        cmocka_unit_test(test_parts_run_at_the_same_time),
        cmocka_unit_test(test_a_child_forgets),
        cmocka_unit_test(test_a_team_for_one_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
