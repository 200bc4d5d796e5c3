#include "store_numbers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

/* Numbers of models stored in a pack and inline (store_numbers.h). */
enum { PACKED = 1, PACKED_TOO = 3, INLINE = 2 };

typedef struct pair {
    lig_store *writer, *reader;
} pair;

/* A handle to write with and one to read with: of file and mem, writable and read-only. */
static pair open_pair(const scene *places, int which)
{
    char uri[200];
    const char *place = which % 2 ? places->memory : places->file;
    pair both = {.writer = opened(place)};
    snprintf(uri, sizeof uri, "%s%s", place, which / 2 ? "?mode=r" : "");
    both.reader = opened(uri);
    return both;
}

static void close_pair(pair *both)
{
    lig_store_close(both->reader);
    lig_store_close(both->writer);
}

static int is_packed(uint64_t number)
{
    int64_t lengths[TENSORS];
    lig_tensor tensors[TENSORS];
    make(number, lengths, tensors, values);
    return tensors[0].bytes + tensors[1].bytes + tensors[2].bytes > 65536;
}

static void fill(uint64_t number, const lig_tensor *tensors)
{
    for (int i = 0; i < TENSORS; i++)
        scene_fill(tensors[i].data, tensors[i].bytes, number + (uint64_t)i);
}

static void compare(uint64_t number, const lig_tensor *tensors)
{
    for (int i = 0; i < TENSORS; i++) {
        scene_fill(values[i], tensors[i].bytes, number + (uint64_t)i);
        assert_memory_equal(values[i], tensors[i].data, tensors[i].bytes);
    }
}

/* Everything that a ref returns belongs to one number. */
static uint64_t check_ref(const lig_ref *ref)
{
    const lig_model *model = lig_ref_model(ref);
    uint64_t number = (uint64_t)model->metrics[0].value;
    int64_t lengths[TENSORS];
    lig_tensor tensors[TENSORS];
    make(number, lengths, tensors, reads);
    assert_int_equal(model->tensor_count, TENSORS);
    for (int i = 0; i < TENSORS; i++)
        assert_int_equal(model->tensors[i].tensor.bytes, tensors[i].bytes);
    assert_ok(lig_ref_load(ref, tensors, TENSORS));
    compare(number, tensors);
    lig_slice slice = {.start = lengths[1] - 1, .step = 1, .count = 1};
    int64_t one = 1;
    float last;
    lig_read read = {.name = "y", .into = scene_tensor("y", &last, &one), .slices = &slice};
    assert_ok(lig_ref_read(ref, &read, 1, 0));
    assert_true(memcmp(&last, &reads[1][lengths[1] - 1], sizeof last) == 0);
    for (uint32_t flags = 0; flags <= LIG_VIEW_PRIVATE; flags += LIG_VIEW_PRIVATE) {
        lig_view *view;
        assert_ok(lig_ref_map(ref, flags, &view));
        lig_tensor mapped[TENSORS];
        for (int i = 0; i < TENSORS; i++)
            mapped[i] = lig_view_model(view)->tensors[i].tensor;
        compare(number, mapped);
        lig_view_destroy(view);
    }
    return number;
}

/* A resolved model does not change, and packs that only a ref held are removed with it. */
static void test_stays(void **state)
{
    scene *places = *state;
    static const uint64_t numbers[] = {PACKED, INLINE};
    assert_true(is_packed(PACKED) && is_packed(PACKED_TOO) && !is_packed(INLINE));
    for (int which = 0; which < 4; which++)
        for (int n = 0; n < 2; n++) {
            pair both = open_pair(places, which);
            lig_ref *first, *second;
            lig_report *report;
            lig_store_stats stats;
            assert_ok(save_number(both.writer, "m", numbers[n]));
            assert_ok(lig_store_resolve(both.reader, "m", &first));
            assert_ok(save_number(both.writer, "m", PACKED_TOO));
            assert_ok(lig_store_resolve(both.reader, "m", &second));
            assert_ok(lig_store_retire(both.writer, "m"));
            assert_ok(lig_store_compact(both.writer, &report));
            lig_report_destroy(report);
            assert_int_equal(check_ref(first), numbers[n]);
            assert_int_equal(check_ref(second), PACKED_TOO);
            lig_diff *diff;
            assert_ok(lig_ref_diff(first, second, &diff));
            assert_int_equal(diff->counts[LIG_CHANGE_NONE], 0);
            lig_diff_destroy(diff);
            lig_store *other = opened("mem:");
            assert_ok(lig_ref_copy(first, other, "copy", 0));
            assert_int_equal(check_number(other, "copy"), numbers[n]);
            lig_store_close(other);
            lig_ref_release(first);
            lig_ref_release(second);
            assert_ok(lig_store_stat(both.writer, &stats));
            assert_int_equal(stats.packs, 0);
            scene_eventually(which % 2 || count_files(places->folder) == 0);
            assert_int_equal(which % 2 ? 0 : count_files(places->folder), 0);
            check_sound(both.writer);
            close_pair(&both);
        }
}

/* Bytes that a model shares with others are held too, wherever a compaction moves them. */
static void test_shared_bytes(void **state)
{
    scene *places = *state;
    for (int which = 0; which < 4; which++) {
        pair both = open_pair(places, which);
        int64_t lengths[TENSORS];
        lig_tensor tensors[TENSORS];
        lig_save_options options = LIG_SAVE_INIT;
        lig_metric metric = {"number", PACKED};
        lig_ref *ref;
        lig_report *report;
        assert_ok(save_number(both.writer, "parent", PACKED));
        make(PACKED, lengths, tensors, values);
        fill(PACKED, tensors);
        options.parent = "parent";
        options.metrics = &metric, options.metric_count = 1;
        assert_ok(lig_store_save(both.writer, "child", tensors, TENSORS, &options));
        assert_ok(lig_store_resolve(both.reader, "child", &ref));
        assert_int_equal(lig_ref_model(ref)->own_bytes, 0);
        assert_ok(lig_store_retire(both.writer, "parent"));
        assert_ok(lig_store_retire(both.writer, "child"));
        assert_ok(lig_store_compact(both.writer, &report));
        lig_report_destroy(report);
        assert_int_equal(check_ref(ref), PACKED);
        lig_ref_release(ref);
        check_sound(both.writer);
        close_pair(&both);
    }
}

static void test_ids(void **state)
{
    scene *places = *state;
    for (int which = 0; which < 2; which++) {
        pair both = open_pair(places, which);
        lig_ref *ref;
        lig_update update = LIG_UPDATE_INIT;
        update.name = "renamed";
        assert_ok(save_number(both.writer, "m", PACKED));
        assert_ok(lig_store_resolve(both.reader, "m", &ref));
        lig_model *model = lig_ref_detach(ref), *again;
        assert_ok(lig_store_update(both.writer, "m", &update));
        assert_ok(lig_store_model_id(both.reader, model->id, &again));
        assert_string_equal(again->name, "renamed");
        assert_int_equal(again->tensors[0].fingerprint[0], model->tensors[0].fingerprint[0]);
        lig_model_destroy(again);
        assert_ok(lig_store_resolve_id(both.reader, model->id, &ref));
        assert_string_equal(lig_ref_model(ref)->name, "renamed");
        assert_string_equal(model->name, "m");
        assert_int_equal(lig_ref_model(ref)->tensors[0].fingerprint[0],
                         model->tensors[0].fingerprint[0]);
        lig_ref_release(ref);
        assert_ok(save_number(both.writer, "renamed", PACKED_TOO));
        assert_fails(lig_store_model_id(both.reader, model->id, &again), LIG_E_NOTFOUND);
        assert_fails(lig_store_resolve_id(both.reader, model->id, &ref), LIG_E_NOTFOUND);
        assert_non_null(strstr(lig_error_text(), "replaced or retired"));
        assert_fails(lig_store_resolve(both.reader, "m", &ref), LIG_E_NOTFOUND);
        assert_fails(lig_store_resolve(both.reader, "", &ref), LIG_E_INVALID);
        assert_fails(lig_store_resolve(both.reader, NULL, &ref), LIG_E_INVALID);
        lig_model_destroy(model);
        lig_ref_release(NULL);
        close_pair(&both);
    }
}

/* --- refs returned by saves --- */

static lig_status save_with(lig_store *store, uint64_t number, int how, lig_ref **ref)
{
    int64_t lengths[TENSORS];
    lig_tensor tensors[TENSORS];
    lig_metric metric = {"number", (double)number};
    lig_save_options options = LIG_SAVE_INIT;
    lig_ticket *ticket = NULL;
    lig_save *save;
    options.flags = LIG_SAVE_REPLACE;
    options.metrics = &metric, options.metric_count = 1;
    options.ref = ref;
    make(number, lengths, tensors, values);
    fill(number, tensors);
    if (how == 0)
        return lig_store_save(store, "m", tensors, TENSORS, &options);
    if (how == 1)
        LIG_TRY(lig_store_save_start(store, "m", tensors, TENSORS, &options, &ticket));
    if (how == 2) {
        LIG_TRY(lig_save_begin(&save, store, "m", tensors, TENSORS, &options));
        for (int i = 0; i < TENSORS; i++)
            LIG_TRY(lig_save_offer(save, tensors[i].data, NULL));
        LIG_TRY(lig_save_commit(save, &ticket));
    }
    lig_status status = lig_ticket_wait(ticket, LIG_FOREVER);
    lig_ticket_destroy(ticket);
    return status;
}

static void test_saved(void **state)
{
    scene *places = *state;
    static const uint64_t numbers[] = {PACKED, INLINE};
    for (int which = 0; which < 2; which++)
        for (int how = 0; how < 3; how++)
            for (int n = 0; n < 2; n++) {
                pair both = open_pair(places, which);
                lig_ref *ref = NULL;
                lig_model *model;
                lig_store_stats stats;
                assert_ok(save_with(both.writer, numbers[n], how, &ref));
                assert_ok(lig_store_model(both.reader, "m", &model));
                assert_int_equal(lig_ref_model(ref)->id, model->id);
                assert_int_equal(lig_ref_model(ref)->own_bytes, model->own_bytes);
                for (int i = 0; i < TENSORS; i++)
                    assert_memory_equal(lig_ref_model(ref)->tensors[i].fingerprint,
                                        model->tensors[i].fingerprint, 16);
                lig_model_destroy(model);
                assert_ok(lig_store_retire(both.reader, "m"));
                assert_int_equal(check_ref(ref), numbers[n]);
                lig_ref_release(ref);
                assert_ok(lig_store_stat(both.writer, &stats));
                assert_int_equal(stats.packs, 0);
                close_pair(&both);
            }
}

/* Options of a caller that was built before they had `ref` and `model`. */
static void test_older_options(void **state)
{
    scene *places = *state;
    static const size_t sizes[] = {offsetof(lig_save_options, ref),
                                   offsetof(lig_save_options, model), sizeof(lig_save_options)};
    lig_store *store = opened(places->file);
    int64_t length = LENGTH;
    lig_tensor tensor = scene_tensor("t", values[0], &length);
    for (size_t i = 0; i < 3; i++) {
        lig_ref *ref = NULL;
        lig_model *model = NULL;
        lig_save_options options = LIG_SAVE_INIT;
        options.struct_bytes = (uint32_t)sizes[i];
        options.flags = LIG_SAVE_REPLACE;
        options.ref = &ref;
        options.model = &model;
        assert_ok(lig_store_save(store, "m", &tensor, 1, &options));
        assert_int_equal(ref != NULL, i > 0);
        assert_int_equal(model != NULL, i > 1);
        lig_ref_release(ref);
        lig_model_destroy(model);
    }
    lig_save_options options = LIG_SAVE_INIT;
    options.struct_bytes = (uint32_t)sizes[0] - 8;
    assert_fails(lig_store_save(store, "n", &tensor, 1, &options), LIG_E_INVALID);
    lig_store_close(store);
}

/* A failed save returns no ref and leaves no files. */
static void test_not_saved(void **state)
{
    scene *places = *state;
    lig_store *store = opened(places->file);
    lig_ref *ref = NULL;
    lig_save_options options = LIG_SAVE_INIT;
    int64_t length = LENGTH;
    lig_tensor tensor = scene_tensor("t", values[0], &length);
    options.ref = &ref;
    assert_ok(save_number(store, "m", PACKED));
    assert_fails(lig_store_save(store, "m", &tensor, 1, &options), LIG_E_EXISTS);
    assert_null(ref);
    assert_int_equal(count_files(places->folder), SCENE_IN_FOLDER);
    lig_store_close(store);
}

/* --- handles and processes --- */

static void test_lives_on(void **state)
{
    scene *places = *state;
    const char *uris[] = {places->file, places->memory, "mem:"};
    for (int i = 0; i < 3; i++) {
        lig_store *store = opened(uris[i]);
        lig_ref *ref;
        assert_ok(save_number(store, "m", PACKED));
        assert_ok(lig_store_resolve(store, "m", &ref));
        lig_store_close(store);
        assert_int_equal(check_ref(ref), PACKED);
        lig_ref_release(ref);
    }
}

static void test_fork(void **state)
{
    scene *places = *state;
    for (int which = 0; which < 4; which++) {
        pair both = open_pair(places, which);
        lig_ref *ref;
        assert_ok(save_number(both.writer, "m", PACKED));
        assert_ok(lig_store_resolve(both.reader, "m", &ref));
        pid_t child = fork();
        if (child == 0) {
            lig_view *view;
            lig_diff *diff;
            int right = lig_ref_load(ref, NULL, 0) == LIG_E_CLOSED &&
                        lig_ref_read(ref, NULL, 0, 0) == LIG_E_CLOSED &&
                        lig_ref_map(ref, 0, &view) == LIG_E_CLOSED &&
                        lig_ref_diff(ref, ref, &diff) == LIG_E_CLOSED &&
                        strcmp(lig_ref_model(ref)->name, "m") == 0;
            lig_ref_release(ref);
            close_pair(&both);
            _exit(right ? 0 : 1);
        }
        int ended;
        waitpid(child, &ended, 0);
        assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
        assert_ok(lig_store_retire(both.writer, "m"));
        assert_int_equal(check_ref(ref), PACKED); /* the child has not released it */
        lig_ref_release(ref);
        close_pair(&both);
    }
}

/* The error text is not overwritten by the release that follows. */
static void test_sentences(void **state)
{
    scene *places = *state;
    lig_store *store = opened(places->file), *other = opened("mem:");
    lig_ref *ref, *foreign;
    lig_diff *diff;
    int64_t length = 1;
    lig_tensor tensor = scene_tensor("no such tensor", values[0], &length);
    assert_ok(save_number(store, "m", PACKED));
    assert_ok(save_number(other, "m", PACKED));
    assert_ok(lig_store_resolve(store, "m", &ref));
    assert_ok(lig_store_resolve(other, "m", &foreign));
    assert_fails(lig_ref_diff(ref, foreign, &diff), LIG_E_INVALID);
    assert_ok(lig_store_retire(store, "m"));
    assert_fails(lig_ref_load(ref, &tensor, 1), LIG_E_MISMATCH);
    lig_ref_release(ref);
    assert_non_null(strstr(lig_error_text(), "no such tensor"));
    lig_ref_release(foreign);
    lig_store_close(store);
    lig_store_close(other);
}

/* --- concurrent readers and writers --- */

typedef struct churning {
    lig_store *store;
    atomic_int stop;
} churning;

static void *churn(void *context)
{
    churning *self = context;
    static float memory[LENGTH];
    for (uint64_t i = 1; !self->stop; i++) {
        int64_t length = i % 3 ? LENGTH : 100;
        lig_tensor tensors[2] = {scene_tensor("x", memory, &length),
                                 scene_tensor("y", memory, &length)};
        lig_metric metric = {"number", (double)i};
        lig_save_options options = LIG_SAVE_INIT;
        options.flags = LIG_SAVE_REPLACE;
        options.metrics = &metric, options.metric_count = 1;
        for (int64_t j = 0; j < length; j++)
            memory[j] = (float)i;
        if (lig_store_save(self->store, "m", tensors, 2, &options) != LIG_OK)
            return (void *)"a save failed";
        lig_report *report;
        if (i % 5 == 0 && lig_store_compact(self->store, &report) == LIG_OK)
            lig_report_destroy(report);
    }
    return NULL;
}

static void read_one(lig_store *store)
{
    lig_ref *ref;
    assert_ok(lig_store_resolve(store, "m", &ref));
    const lig_model *model = lig_ref_model(ref);
    float number = (float)model->metrics[0].value;
    for (size_t i = 0; i < model->tensor_count; i++) {
        lig_tensor tensor = model->tensors[i].tensor;
        tensor.data = reads[0];
        assert_ok(lig_ref_load(ref, &tensor, 1));
        for (uint64_t j = 0; j < tensor.bytes / sizeof number; j += 999)
            assert_true(reads[0][j] == number);
    }
    lig_ref_release(ref);
}

static void test_beside_a_writer(void **state)
{
    scene *places = *state;
    for (int which = 0; which < 4; which++) {
        pair both = open_pair(places, which);
        churning work = {.store = both.writer};
        pthread_t thread;
        void *failed;
        int64_t length = 1;
        lig_tensor tensor = scene_tensor("x", values[0], &length);
        lig_metric metric = {"number", values[0][0]};
        lig_save_options options = LIG_SAVE_INIT;
        options.flags = LIG_SAVE_REPLACE;
        options.metrics = &metric, options.metric_count = 1;
        assert_ok(lig_store_save(both.writer, "m", &tensor, 1, &options));
        assert_int_equal(pthread_create(&thread, NULL, churn, &work), 0);
        for (int i = 0; i < 60; i++)
            read_one(both.reader);
        work.stop = 1;
        pthread_join(thread, &failed);
        assert_null(failed);
        lig_report *report;
        assert_ok(lig_store_compact(both.writer, &report));
        lig_report_destroy(report);
        check_sound(both.writer);
        close_pair(&both);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stays, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_shared_bytes, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_ids, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_saved, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_not_saved, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_older_options, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_lives_on, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_fork, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_sentences, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_beside_a_writer, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
