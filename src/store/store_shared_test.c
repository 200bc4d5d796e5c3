#include "store_numbers.h"

#include <pthread.h>
#include <sys/wait.h>

static void test_two_processes(void **state)
{
    scene *places = *state;
    for (int round = 0; round < 10; round++) {
        int won = 0, lost = 0;
        char name[16];
        snprintf(name, sizeof name, "m%d", round);
        pid_t children[4];
        for (int i = 0; i < 4; i++) {
            children[i] = fork();
            if (children[i])
                continue;
            lig_store *store;
            int64_t length = round % 2 ? 100 : LENGTH;
            lig_tensor tensor = scene_tensor("t", values[0], &length);
            if (lig_store_open(&store, places->file) != LIG_OK) {
                fprintf(stderr, "%s\n", lig_error_text());
                _exit(100);
            }
            lig_status status = lig_store_save(store, name, &tensor, 1, NULL);
            if (status != LIG_OK && status != LIG_E_EXISTS)
                fprintf(stderr, "%s\n", lig_error_text());
            lig_store_close(store);
            _exit((int)status);
        }
        for (int i = 0; i < 4; i++) {
            int ended;
            waitpid(children[i], &ended, 0);
            assert_true(WIFEXITED(ended));
            won += WEXITSTATUS(ended) == LIG_OK;
            lost += WEXITSTATUS(ended) == LIG_E_EXISTS;
        }
        assert_int_equal(won, 1);
        assert_int_equal(lost, 3);
    }
    lig_store *store = opened(places->file);
    check_sound(store);
    lig_store_stats stats;
    assert_ok(lig_store_stat(store, &stats));
    assert_int_equal(stats.models, 10);
    assert_int_equal(count_files(places->folder), stats.packs);
    lig_store_close(store);
}

static void test_fork(void **state)
{
    scene *places = *state;
    const char *uris[] = {places->memory, places->file};
    for (int i = 0; i < 2; i++) {
        lig_store *store = opened(uris[i]);
        assert_ok(save_number(store, "m", 4));
        pid_t child = fork();
        if (child == 0) {
            lig_model *model;
            lig_store *again;
            int right = lig_store_model(store, "m", &model) == LIG_E_CLOSED &&
                        strstr(lig_error_text(), "fork") != NULL &&
                        save_number(store, "n", 5) == LIG_E_CLOSED &&
                        lig_store_retire(store, "m") == LIG_E_CLOSED;
            lig_store_close(store);
            if (i == 1) /* opened anew it works here */
                right = right && lig_store_open(&again, uris[i]) == LIG_OK &&
                        save_number(again, "child", 6) == LIG_OK;
            if (i == 1 && right)
                lig_store_close(again);
            _exit(right ? 0 : 1);
        }
        int ended;
        waitpid(child, &ended, 0);
        assert_true(WIFEXITED(ended));
        assert_int_equal(WEXITSTATUS(ended), 0);
        assert_int_equal(check_number(store, "m"), 4);
        if (i == 1)
            assert_int_equal(check_number(store, "child"), 6);
        assert_ok(save_number(store, "m", 7));
        check_sound(store);
        lig_store_close(store);
    }
}

typedef struct worker {
    lig_store *store;
    int number, failed;
} worker;

/* Saves its own models, replaces one that all share, and reads the others' while they come and go.
 */
static void *work(void *argument)
{
    worker *self = argument;
    static const char *const names[] = {"w0", "w1", "w2", "w3", "all"};
    uint64_t seed = (uint64_t)self->number;
    float *memory = calloc(60000, sizeof *memory);
    for (int i = 0; i < 60 && !self->failed; i++) {
        int64_t length = scene_random(&seed) % 2 ? 200 : 60000;
        float value = (float)(scene_random(&seed) % 1000);
        for (int64_t j = 0; j < length; j++)
            memory[j] = value;
        lig_tensor tensor = scene_tensor("t", memory, &length);
        lig_save_options options = LIG_SAVE_INIT;
        options.flags = LIG_SAVE_REPLACE;
        const char *name = names[i % 3 ? 4 : self->number];
        self->failed |= lig_store_save(self->store, name, &tensor, 1, &options) != LIG_OK;
        lig_view *view;
        lig_status status = lig_store_map(self->store, names[scene_random(&seed) % 5], 0, &view);
        if (status == LIG_OK) {
            const lig_tensor *found = &lig_view_model(view)->tensors[0].tensor;
            const float *data = found->data;
            for (int64_t j = 1; j < found->shape[0]; j++)
                self->failed |= data[j] != data[0];
            lig_view_destroy(view);
        } else if (status != LIG_E_NOTFOUND) {
            self->failed = 1;
        }
        if (i % 10 == 9) {
            status = lig_store_retire(self->store, names[4]);
            self->failed |= status != LIG_OK && status != LIG_E_NOTFOUND;
        }
        if (self->failed)
            fprintf(stderr, "worker %d: %s\n", self->number, lig_error_text());
    }
    free(memory);
    return NULL;
}

static void run_threads(const char *uri)
{
    lig_store *store = opened(uri);
    pthread_t threads[4];
    worker workers[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){.store = store, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failed, 0);
    }
    check_sound(store);
    lig_store_close(store);
}

static void test_threads(void **state)
{
    scene *places = *state;
    run_threads(places->memory);
    run_threads(places->file);
    lig_store *store = opened(places->file);
    lig_store_stats stats;
    assert_ok(lig_store_stat(store, &stats));
    assert_int_equal(count_files(places->folder), stats.packs);
    lig_store_close(store);
}

/* One thread replaces a model without pause, the other reads it: always one version or another. */
static void *replace_always(void *argument)
{
    worker *self = argument;
    static float memory[30000];
    int64_t length = 30000;
    lig_tensor tensor = scene_tensor("t", memory, &length);
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    for (int i = 0; i < 2000 && !self->failed; i++) {
        for (int j = 0; j < 30000; j += 29999)
            memory[j] = (float)i;
        self->failed = lig_store_save(self->store, "m", &tensor, 1, &options) != LIG_OK;
    }
    self->number = 0;
    return NULL;
}

static void test_read_while_replaced(void **state)
{
    scene *places = *state;
    lig_store *store = opened(places->memory);
    int64_t length = 30000;
    lig_tensor tensor = scene_tensor("t", reads[0], &length);
    memset(reads[0], 0, sizeof reads[0]);
    assert_ok(lig_store_save(store, "m", &tensor, 1, NULL));
    worker replacer = {.store = store, .number = 1};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, replace_always, &replacer), 0);
    for (int i = 0; i < 2000; i++) {
        assert_ok(lig_store_load(store, "m", &tensor, 1));
        assert_true(reads[0][0] == reads[0][29999]);
    }
    pthread_join(thread, NULL);
    assert_int_equal(replacer.failed, 0);
    lig_store_close(store);
}

int main(void)
{
    lig_log_set(store_quiet, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_two_processes, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_fork, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_read_while_replaced, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_threads, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
