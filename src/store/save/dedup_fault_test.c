#include "store_numbers.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* A model is a code: two bits choose the bytes of each of its tensors, so that any two models have
 * some in common. The first tensor holds the code itself. */
enum { SLOTS = 4, NAMES = 5, KILLS = 200 };

static const size_t slot_bytes[SLOTS] = {8, 6000, 80000, 1200000};
static const char *const slot_names[SLOTS] = {"code", "small", "middle", "large"};
static const char *const model_names[NAMES] = {"a", "b", "c", "d", "e"};
static char palette[SLOTS][4][1200000], loaded[SLOTS][1200000];

static void make_palette(void)
{
    for (int s = 0; s < SLOTS; s++)
        for (int v = 0; v < 4; v++)
            scene_fill(palette[s][v], slot_bytes[s], (uint64_t)(s * 4 + v + 1));
}

static void describe(lig_tensor *tensors, int64_t *lengths)
{
    for (int s = 0; s < SLOTS; s++) {
        lengths[s] = (int64_t)slot_bytes[s];
        tensors[s] = (lig_tensor){.name = slot_names[s],
                                  .data = loaded[s],
                                  .bytes = slot_bytes[s],
                                  .shape = &lengths[s],
                                  .ndim = 1,
                                  .dtype = LIG_UINT8};
    }
}

static lig_status save_code(lig_store *store, const char *name, uint64_t code, const char *parent)
{
    lig_tensor tensors[SLOTS];
    int64_t lengths[SLOTS];
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    options.parent = parent;
    describe(tensors, lengths);
    tensors[0].data = &code;
    for (int s = 1; s < SLOTS; s++)
        tensors[s].data = palette[s][code >> (2 * s) & 3];
    return lig_store_save(store, name, tensors, SLOTS, &options);
}

/* The code of a model, after every byte was compared with it; 0 when there is none. */
static uint64_t load_code(lig_store *store, const char *name)
{
    lig_tensor tensors[SLOTS];
    int64_t lengths[SLOTS];
    uint64_t code;
    describe(tensors, lengths);
    lig_status status = lig_store_load(store, name, tensors, SLOTS);
    if (status == LIG_E_NOTFOUND)
        return 0;
    assert_ok(status);
    memcpy(&code, loaded[0], sizeof code);
    for (int s = 1; s < SLOTS; s++)
        assert_memory_equal(loaded[s], palette[s][code >> (2 * s) & 3], slot_bytes[s]);
    return code;
}

/* --- killed --- */

typedef struct journal {                         /* in memory that both processes have */
    volatile uint64_t done[NAMES], doing[NAMES]; /* 0: retired */
    volatile uint64_t steps;
} journal;

static void work_for_ever(const char *uri, journal *log, uint64_t seed)
{
    lig_store *store;
    lig_report *report;
    if (lig_store_open(&store, uri) != LIG_OK)
        _exit(9);
    for (;;) {
        int at = (int)(scene_random(&seed) % NAMES), other = (int)(scene_random(&seed) % NAMES);
        uint64_t choice = scene_random(&seed) % 16;
        lig_status status = LIG_OK;
        uint64_t code = choice < 11 ? scene_random(&seed) | 1 : 0;
        if (choice == 15) {
            status = lig_store_compact(store, &report);
            if (status == LIG_OK)
                lig_report_destroy(report);
        } else {
            log->doing[at] = code;
            status = code ? save_code(store, model_names[at], code,
                                      log->done[other] ? model_names[other] : NULL)
                          : lig_store_retire(store, model_names[at]);
            log->done[at] = code;
        }
        if (status != LIG_OK && status != LIG_E_NOTFOUND) {
            fprintf(stderr, "%s\n", lig_error_text());
            _exit(8);
        }
        log->steps++;
    }
}

static void await_step(const journal *log, pid_t child)
{
    siginfo_t ended = {0};
    for (uint64_t before = log->steps; log->steps == before && ended.si_pid == 0; sched_yield())
        assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
}

/* Never fewer models than were promised, never other bytes, nothing left over. Every second one is
 * seen at work first: a slow machine may give the others no turn before they die. */
static void test_killed(void **state)
{
    scene *places = *state;
    journal *log =
        mmap(NULL, sizeof *log, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t seed = 5, survived = 0;
    char uri[160];
    snprintf(uri, sizeof uri, "%s?fsync=0", places->file);
    lig_store_close(opened(uri));
    for (int round = 0; round < KILLS; round++) {
        uint64_t start = scene_random(&seed);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            work_for_ever(uri, log, start);
        if (round % 2)
            await_step(log, child);
        poll(NULL, 0, (int)(scene_random(&seed) % 40));
        kill(child, SIGKILL);
        int ended;
        waitpid(child, &ended, 0);
        assert_true(WIFSIGNALED(ended));
        lig_store *store = opened(uri);
        for (int i = 0; i < NAMES; i++) {
            uint64_t code = load_code(store, model_names[i]);
            assert_true(code == log->done[i] || code == log->doing[i]);
            log->done[i] = log->doing[i] = code;
            survived += code != 0;
        }
        check_sound(store);
        lig_store_stats stats;
        assert_ok(lig_store_stat(store, &stats));
        assert_int_equal(count_files(places->folder), stats.packs);
        lig_store_close(store);
    }
    assert_true(survived > KILLS);
    munmap(log, sizeof *log);
}

/* --- side by side --- */

static int race(const char *uri, uint64_t seed)
{
    lig_store *store;
    lig_report *report;
    if (lig_store_open(&store, uri) != LIG_OK)
        return 9;
    for (int i = 0; i < 60; i++) {
        int at = (int)(scene_random(&seed) % NAMES), other = (int)(scene_random(&seed) % NAMES);
        uint64_t choice = scene_random(&seed) % 16;
        lig_status status = LIG_OK;
        if (choice < 9)
            status = save_code(store, model_names[at], scene_random(&seed) | 1,
                               choice < 6 ? model_names[other] : NULL);
        else if (choice < 12)
            status = lig_store_retire(store, model_names[at]);
        else if (choice < 15)
            load_code(store, model_names[at]);
        else
            status = lig_store_compact(store, &report);
        if (choice == 15 && status == LIG_OK)
            lig_report_destroy(report);
        if (status != LIG_OK && status != LIG_E_NOTFOUND) {
            fprintf(stderr, "%s: %s\n", lig_status_name(status), lig_error_text());
            return 8;
        }
    }
    lig_store_close(store);
    return 0;
}

static void test_race(void **state)
{
    scene *places = *state;
    pid_t children[4];
    char uri[160];
    snprintf(uri, sizeof uri, "%s?fsync=0", places->file);
    lig_store_close(opened(uri));
    fflush(NULL);
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] == 0)
            _exit(race(uri, (uint64_t)i + 50));
    }
    for (int i = 0; i < 4; i++) {
        int ended;
        waitpid(children[i], &ended, 0);
        assert_true(WIFEXITED(ended));
        assert_int_equal(WEXITSTATUS(ended), 0);
    }
    lig_store *store = opened(uri);
    check_sound(store);
    for (int i = 0; i < NAMES; i++)
        load_code(store, model_names[i]);
    lig_store_stats stats;
    assert_ok(lig_store_stat(store, &stats));
    assert_int_equal(count_files(places->folder), stats.packs);
    lig_store_close(store);
}

/* --- lost and full --- */

static void test_missing(void **state)
{
    scene *places = *state;
    lig_store *store = opened(places->file);
    char command[256];
    assert_ok(save_code(store, "a", 1, NULL));
    snprintf(command, sizeof command, "rm '%s'/store/packs/*.pack", places->folder);
    assert_int_equal(system(command), 0);
    assert_ok(save_code(store, "b", 1, "a")); /* does not refer to what is lost */
    assert_int_equal(load_code(store, "b"), 1);
    lig_tensor tensors[SLOTS];
    int64_t lengths[SLOTS];
    describe(tensors, lengths);
    assert_fails(lig_store_load(store, "a", tensors, SLOTS), LIG_E_CORRUPT);
    lig_report *report;
    assert_ok(lig_store_compact(store, &report));
    lig_report_destroy(report);
    assert_ok(lig_store_retire(store, "a"));
    check_sound(store);
    lig_store_close(store);
}

static int save_in_little_room(const char *uri)
{
    lig_store *store;
    struct rlimit limit = {600000, 600000};
    signal(SIGXFSZ, SIG_IGN);
    if (lig_store_open(&store, uri) != LIG_OK)
        return 9;
    setrlimit(RLIMIT_FSIZE, &limit);
    lig_status status = save_code(store, "b", 0x55, "a"); /* another large tensor */
    lig_store_close(store);
    return status == LIG_E_IO ? 0 : 1 + (int)status;
}

static void test_full(void **state)
{
    scene *places = *state;
    lig_store *store = opened(places->file);
    assert_ok(save_code(store, "a", 1, NULL));
    lig_store_close(store);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(save_in_little_room(places->file));
    int ended;
    waitpid(child, &ended, 0);
    assert_true(WIFEXITED(ended));
    assert_int_equal(WEXITSTATUS(ended), 0);
    store = opened(places->file);
    assert_int_equal(load_code(store, "b"), 0);
    assert_int_equal(load_code(store, "a"), 1);
    assert_int_equal(count_files(places->folder), 1);
    check_sound(store);
    lig_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_killed, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_race, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_missing, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_full, scene_setup, scene_teardown),
    };
    make_palette();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
