#include "file_volume.h"

#define NETWORK "share=network"

static void hold(void *context)
{
    void *volume;

    if (open_at(context, NETWORK, &volume) != LIG_OK || commit_text(volume, 0, "k", "v") != LIG_OK)
        _exit(5);
}

static void one_process_writes(void **state)
{
    void *volume = NULL, *second;
    char number[32];

    pid_t child = child_start(hold, *state);
    assert_status(open_at(*state, NETWORK, &volume), LIG_E_BUSY);
    snprintf(number, sizeof number, "process %d", (int)child);
    assert_says(number);
    assert_says("ligament serve");
    assert_ok(open_at(*state, NETWORK "&mode=r", &volume));
    assert_true(OPS->flags(volume) & LIG_VOLUME_NO_CATALOG);
    assert_true(OPS->flags(volume) & LIG_VOLUME_NO_INLINE);
    close_at(volume);
    child_kill(child);
    assert_ok(open_at(*state, NETWORK, &volume));
    assert_int_equal(version_of(volume), 1);
    assert_ok(open_at(*state, NETWORK, &second));
    assert_ok(commit_text(second, 1, "k", "w"));
    close_at(second);
    assert_ok(commit_text(volume, 2, "k", "x"));
    close_at(volume);
    assert_int_equal(count_entries(*state, "writer"), 0);
}

static void write_lease(const char *folder, const char *text, int age_s)
{
    char path[128];

    snprintf(path, sizeof path, "%s/writer", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    struct timespec times[2];
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= age_s;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

#define ELSEWHERE "host elsewhere\nboot b\nspace s\npid 77\nstarted 5\ntoken 00000000000000aa\n"

static void silent_holders_are_replaced(void **state)
{
    const char *folder = *state;
    void *volume = NULL;

    assert_ok(open_at(folder, NETWORK, &volume));
    close_at(volume);
    write_lease(folder, ELSEWHERE, 5);
    assert_status(open_at(folder, NETWORK, &volume), LIG_E_BUSY);
    assert_says("process 77 on elsewhere");
    assert_ok(open_at(folder, NETWORK "&lease=2", &volume));
    close_at(volume);
    write_lease(folder, "half a li", 1);
    assert_status(open_at(folder, NETWORK, &volume), LIG_E_BUSY);
    write_lease(folder, "half a li", 100);
    assert_ok(open_at(folder, NETWORK, &volume));
    close_at(volume);
    assert_int_equal(count_entries(folder, "writer"), 0);
}

static void lost_leases_stop_writing(void **state)
{
    const char *folder = *state;
    void *volume, *pack;

    assert_ok(open_at(folder, NETWORK, &volume));
    assert_ok(commit_text(volume, 0, "k", "v"));
    write_lease(folder, ELSEWHERE, 0);
    assert_status(commit_text(volume, 1, "k", "w"), LIG_E_BUSY);
    assert_says("elsewhere");
    assert_status(OPS->pack_create(volume, 1, test_secret, &pack), LIG_E_BUSY);
    assert_int_equal(version_of(volume), 1);
    close_at(volume);
    assert_int_equal(count_entries(folder, "writer"), 1);
}

static int64_t beat_of(const char *folder)
{
    struct stat info;
    char path[128];

    snprintf(path, sizeof path, "%s/writer", folder);
    assert_int_equal(stat(path, &info), 0);
    return info.st_mtim.tv_sec * 1000000000LL + info.st_mtim.tv_nsec;
}

/* Nobody calls, and it is held past the end that it was taken with: the heartbeat goes on by
 * itself. */
static void leases_are_renewed(void **state)
{
    const struct timespec moment = {0, 20000000};
    void *volume;

    assert_ok(open_at(*state, NETWORK "&lease=1", &volume));
    int64_t taken_ns = beat_of(*state);
    for (int i = 0; i < 3000 && beat_of(*state) - taken_ns <= 1000000000; i++)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL);
    assert_true(beat_of(*state) - taken_ns > 1000000000);
    assert_int_equal(version_of(volume), 0);
    close_at(volume);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(one_process_writes),
        folder_test(silent_holders_are_replaced),
        folder_test(lost_leases_stop_writing),
        folder_test(leases_are_renewed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
