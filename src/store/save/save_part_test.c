#include "part_scene.h"

#include <dirent.h>
#include <sys/wait.h>

static part_scene model, other;

static size_t count_packs(const scene *places)
{
    char path[160];
    size_t count = 0;
    struct dirent *entry;
    if (!SCENE_IN_FOLDER)
        return 0;
    snprintf(path, sizeof path, "%s/store/packs", places->folder);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL)
        count += strstr(entry->d_name, ".pack") != NULL;
    closedir(folder);
    return count;
}

static void expect_packs(const scene *places, size_t expected)
{
    if (!SCENE_IN_FOLDER)
        return;
    scene_eventually(count_packs(places) == expected);
    assert_int_equal(count_packs(places), expected);
}

/* --- one model from several --- */

static void check_round(const char *uri)
{
    for (int writers = 1; writers <= 5; writers += 2) {
        part_fill(&model, (uint64_t)writers);
        part_save(uri, "m", &model, writers, NULL);
        lig_store *store;
        lig_model *shown;
        assert_ok(lig_store_open(&store, uri));
        part_compare(store, "m", &model);
        assert_ok(lig_store_model(store, "m", &shown));
        assert_int_equal(shown->tensors[0].boxes, writers);
        assert_int_equal(shown->tensors[2].boxes, 1);
        assert_int_equal(shown->bytes, sizeof model);
        assert_int_equal(shown->own_bytes, sizeof model);
        lig_model_destroy(shown);
        lig_model **models;
        size_t count;
        assert_ok(lig_store_models(store, NULL, &models, &count));
        assert_int_equal(count, 1);
        assert_int_equal(models[0]->tensor_count, 4);
        lig_models_destroy(models, count);
        part_sound(store);
        lig_store_close(store);
    }
}

static void test_round(void **state)
{
    scene *places = *state;
    check_round(places->file);
    lig_store *held; /* memory lives as long as somebody has it open */
    assert_ok(lig_store_open(&held, places->memory));
    check_round(places->memory);
    lig_store_close(held);
}

static void test_slices(void **state)
{
    scene *places = *state;
    lig_store *store;
    uint64_t seed = 3;
    part_fill(&model, 3);
    part_save(places->file, "m", &model, 4, NULL);
    assert_ok(lig_store_open(&store, places->file));
    static float out[PART_ROWS * PART_COLUMNS];
    for (int i = 0; i < 300; i++) {
        int which = (int)(scene_random(&seed) % 2), back = (int)(scene_random(&seed) % 2);
        lig_slice slices[2];
        int64_t shape[2];
        for (int d = 0; d < 2; d++) {
            int64_t step = 1 + (int64_t)(scene_random(&seed) % 3);
            int64_t start = (int64_t)(scene_random(&seed) % (uint64_t)part_shape[d]);
            int64_t most = (back ? start : part_shape[d] - 1 - start) / step + 1;
            shape[d] = 1 + (int64_t)(scene_random(&seed) % (uint64_t)most);
            slices[d] = (lig_slice){start, back ? -step : step, shape[d]};
        }
        lig_read read = {.into = part_tensor(which ? "columns" : "rows", out, shape, 2),
                         .slices = slices};
        assert_ok(lig_store_read(store, "m", &read, 1, 0));
        for (int64_t r = 0; r < shape[0]; r++)
            for (int64_t c = 0; c < shape[1]; c++) {
                int64_t row = slices[0].start + r * slices[0].step;
                int64_t column = slices[1].start + c * slices[1].step;
                const float *from = which ? &model.columns[row][column] : &model.rows[row][column];
                assert_memory_equal(&out[r * shape[1] + c], from, sizeof *from);
            }
    }
    lig_store_close(store);
}

/* What equals a box of the parent is not written; another number of writers writes all. */
static void test_sharing(void **state)
{
    scene *places = *state;
    lig_store *store;
    lig_model *shown;
    part_fill(&model, 4);
    part_save(places->file, "a", &model, 2, NULL);
    other = model;
    scene_fill(other.rows, sizeof other.rows / 2, 9);
    part_save(places->file, "b", &other, 2, "a");
    assert_ok(lig_store_open(&store, places->file));
    assert_ok(lig_store_model(store, "b", &shown));
    assert_int_equal(shown->own_bytes, sizeof other.rows / 2);
    assert_string_equal(shown->parent_name, "a");
    lig_model_destroy(shown);
    lig_diff *diff;
    assert_ok(lig_store_diff(store, "a", "b", &diff));
    assert_int_equal(diff->counts[LIG_CHANGE_BYTES], 1);
    assert_int_equal(diff->counts[LIG_CHANGE_NONE], 3);
    lig_diff_destroy(diff);
    part_compare(store, "a", &model);
    part_compare(store, "b", &other);
    assert_ok(lig_store_retire(store, "a"));
    part_compare(store, "b", &other);
    lig_report *report;
    assert_ok(lig_store_compact(store, &report));
    lig_report_destroy(report);
    part_compare(store, "b", &other);
    part_sound(store);
    assert_ok(lig_store_retire(store, "b"));
    lig_store_close(store);
    expect_packs(places, 0);
}

/* A pack that is mostly dead is emptied, and the boxes move with the others. */
static void test_compact(void **state)
{
    scene *places = *state;
    lig_store *store;
    part_fill(&model, 5);
    part_save(places->file, "a", &model, 2, NULL);
    other = model;
    scene_fill(other.rows, sizeof other.rows, 6);
    scene_fill(other.columns, sizeof other.columns, 7);
    memcpy(other.rows, model.rows, sizeof other.rows / 2);
    part_save(places->file, "b", &other, 2, "a");
    assert_ok(lig_store_open(&store, places->file));
    assert_ok(lig_store_retire(store, "a"));
    size_t before = count_packs(places);
    lig_report *report;
    assert_ok(lig_store_compact(store, &report));
    assert_true(report->freed_bytes > sizeof model.rows / 2);
    lig_report_destroy(report);
    assert_true(count_packs(places) <= before);
    part_compare(store, "b", &other);
    part_sound(store);
    lig_store *copy;
    char uri[160];
    snprintf(uri, sizeof uri, "file://%s/copy", places->folder);
    assert_ok(lig_store_open(&copy, uri));
    assert_ok(lig_store_copy(store, "b", copy, "c", 0));
    part_compare(copy, "c", &other);
    part_sound(copy);
    lig_store_close(copy);
    lig_store_close(store);
}

/* Without a catalog the footers tell of the model, and later saves still find its boxes. */
/* What was lost with the log is a problem until somebody repairs the store. */
static void acknowledge_loss(lig_store *store)
{
    lig_report *report;

    assert_ok(lig_store_check(store, 1, &report));
    assert_int_equal(report->problem_count, 1);
    assert_non_null(strstr(report->problems[0], "the log of commits was lost"));
    lig_report_destroy(report);
}

static void test_footers(void **state)
{
    scene_local_only();
    scene *places = *state;
    lig_store *store;
    lig_model *shown;
    char command[200];
    part_fill(&model, 8);
    part_save(places->file, "a", &model, 2, NULL);
    snprintf(command, sizeof command, "rm -r %s/store/log %s/store/index.mdb*", places->folder,
             places->folder);
    assert_int_equal(system(command), 0);
    assert_ok(lig_store_open(&store, places->file));
    part_compare(store, "a", &model);
    acknowledge_loss(store);
    part_sound(store);
    lig_store_close(store);
    part_save(places->file, "b", &model, 2, NULL);
    assert_ok(lig_store_open(&store, places->file));
    assert_ok(lig_store_model(store, "b", &shown));
    assert_int_equal(shown->own_bytes, sizeof model.bias + sizeof model.scale);
    lig_model_destroy(shown);
    part_compare(store, "b", &model);
    part_sound(store);
    lig_store_close(store);
}

static void test_ties(void **state)
{
    scene *places = *state;
    lig_store *store;
    lig_part *parts[2] = {NULL, NULL};
    lig_part_data data[2];
    lig_model *shown;
    part_fill(&model, 10);
    assert_ok(lig_store_open(&store, places->file));
    for (int rank = 0; rank < 2; rank++) {
        part_share share;
        part_share_of(&share, &model, rank, 2);
        share.count = 2;
        share.tensors[1] = share.tensors[0];
        share.tensors[1].name = "again";
        share.boxes[1] = share.boxes[0];
        share.boxes[0].order = 7; /* the one that comes first in the model is the other's target */
        share.boxes[1].order = 2;
        assert_ok(part_write(store, "m", &share, NULL, &parts[rank]));
        data[rank] = part_data(parts[rank]);
    }
    assert_ok(lig_store_join(store, "m", data, 2, NULL));
    lig_part_close(parts[0], store);
    lig_part_close(parts[1], store);
    assert_ok(lig_store_model(store, "m", &shown));
    assert_string_equal(shown->tensors[0].tensor.name, "again");
    assert_int_equal(shown->tensors[1].tied, 0);
    assert_int_equal(shown->bytes, sizeof model.rows);
    lig_model_destroy(shown);
    lig_tensor tensors[2] = {part_tensor("rows", other.rows, part_shape, 2),
                             part_tensor("again", other.columns, part_shape, 2)};
    assert_ok(lig_store_load(store, "m", tensors, 2));
    assert_memory_equal(other.rows, model.rows, sizeof model.rows);
    assert_memory_equal(other.columns, model.rows, sizeof model.rows);
    part_sound(store);
    lig_store_close(store);
}

static void test_small(void **state)
{
    scene *places = *state;
    lig_store *store;
    float values[6] = {1, 2, 3, 4, 5, 6}, found[6];
    int64_t whole = 6, two = 2;
    lig_part *parts[3] = {NULL};
    lig_part_data data[3];
    assert_ok(lig_store_open(&store, places->file));
    for (int64_t i = 0; i < 3; i++) {
        int64_t start = 2 * i;
        lig_tensor tensor = part_tensor("x", values + start, &two, 1);
        lig_box box = {&whole, &start, 0};
        lig_save_options options = LIG_SAVE_INIT;
        options.part = &parts[i];
        options.boxes = &box;
        assert_ok(lig_store_save(store, "m", &tensor, 1, &options));
        data[i] = part_data(parts[i]);
    }
    assert_ok(lig_store_join(store, "m", data, 3, NULL));
    expect_packs(places, 0);
    lig_tensor tensor = part_tensor("x", found, &whole, 1);
    assert_ok(lig_store_load(store, "m", &tensor, 1));
    assert_memory_equal(found, values, sizeof values);
    assert_fails(lig_store_join(store, "m", data, 3, NULL), LIG_E_EXISTS);
    for (int i = 0; i < 3; i++)
        lig_part_close(parts[i], store);
    part_sound(store);
    lig_store_close(store);
}

/* --- what is refused --- */

static void expect(lig_store *store, const lig_part_data *data, size_t count, lig_status wanted,
                   const char *sentence)
{
    assert_fails(lig_store_join(store, "m", data, count, NULL), wanted);
    if (!strstr(lig_error_text(), sentence))
        fail_msg("'%s' is not in: %s", sentence, lig_error_text());
}

static void test_refused(void **state)
{
    scene *places = *state;
    lig_store *store;
    lig_part *parts[6] = {NULL};
    lig_part_data data[6];
    part_fill(&model, 12);
    assert_ok(lig_store_open(&store, places->file));
    for (int i = 0; i < 6; i++) {
        part_share share;
        part_share_of(&share, &model, i < 2 ? i : 1, i == 2 ? 3 : 2);
        if (i == 3)
            share.boxes[0].order = 5;
        int64_t wrong[2] = {PART_ROWS + 1, PART_COLUMNS};
        if (i == 4)
            share.boxes[0].shape = wrong;
        if (i == 5)
            share.tensors[0].dtype = LIG_INT32;
        assert_ok(part_write(store, "m", &share, NULL, &parts[i]));
        data[i] = part_data(parts[i]);
    }
    expect(store, data, 0, LIG_E_INVALID, "at least one part");
    expect(store, data, 1, LIG_E_MISMATCH, "tensor 'rows' of part 0: its boxes cover 20000 of");
    lig_part_data two[3] = {data[0], data[2], data[1]};
    expect(store, two, 2, LIG_E_MISMATCH, "tensor 'rows' of parts 0 and 1: its boxes [0:20");
    expect(store, two, 3, LIG_E_MISMATCH, "cover the same elements");
    lig_part_data twice[3] = {data[0], data[1], data[1]};
    expect(store, twice, 3, LIG_E_MISMATCH, "cover the same elements");
    const char *sentences[3] = {"order 1 in part 1", "[41, 1000] in part 1", "int32 [40, 1000]"};
    for (int i = 0; i < 3; i++) {
        lig_part_data pair[2] = {data[0], data[3 + i]};
        assert_fails(lig_store_join(store, "m", pair, 2, NULL), LIG_E_MISMATCH);
        if (i && !strstr(lig_error_text(), sentences[i]))
            fail_msg("'%s' is not in: %s", sentences[i], lig_error_text());
    }
    for (int i = 0; i < 6; i++)
        lig_part_close(parts[i], store);
    part_sound(store);
    lig_store_close(store);
    expect_packs(places, 0);
}

/* Closed while its bytes are still at hand: the pack is gone, and the join says so. */
static void test_gone(void **state)
{
    scene_local_only(); /* a server ends a part after its client has gone on */
    scene *places = *state;
    lig_store *store;
    lig_part *parts[2] = {NULL};
    lig_part_data data[2];
    part_fill(&model, 13);
    assert_ok(lig_store_open(&store, places->file));
    for (int rank = 0; rank < 2; rank++) {
        part_share share;
        part_share_of(&share, &model, rank, 2);
        assert_ok(part_write(store, "m", &share, NULL, &parts[rank]));
        data[rank] = part_data(parts[rank]);
    }
    void *copy = malloc(data[1].bytes);
    memcpy(copy, data[1].data, data[1].bytes);
    data[1].data = copy;
    lig_part_close(parts[1], store);
    expect(store, data, 2, LIG_E_NOTFOUND, "part 1 of 'm' no longer exists");
    free(copy);
    lig_part_close(parts[0], NULL);
    lig_store_close(store);
    expect_packs(places, SCENE_IS_SERVED ? 0 : 1);
    assert_ok(lig_store_open(&store, places->file)); /* removes what nobody holds */
    expect_packs(places, 0);
    lig_store_close(store);
}

static void test_hostile(void **state)
{
    scene *places = *state;
    lig_store *store, *stranger;
    lig_part *part = NULL;
    part_share share;
    part_fill(&model, 14);
    part_share_of(&share, &model, 0, 1);
    assert_ok(lig_store_open(&store, places->file));
    assert_ok(lig_store_open(&stranger, places->memory));
    assert_ok(part_write(store, "m", &share, NULL, &part));
    lig_part_data data = part_data(part), wrong = {NULL, 0};
    expect(stranger, &data, 1, LIG_E_MISMATCH, "another store");
    expect(store, &wrong, 1, LIG_E_INVALID, "no bytes");
    uint8_t *copy = malloc(data.bytes);
    for (size_t cut = 0; cut < data.bytes; cut++) {
        uint8_t *exact = malloc(cut + 1); /* a sanitizer sees a read past the end */
        memcpy(exact, data.data, cut);
        wrong = (lig_part_data){exact, cut};
        assert_int_not_equal(lig_store_join(store, "m", &wrong, 1, NULL), LIG_OK);
        free(exact);
    }
    for (size_t at = 0; at < data.bytes; at++) {
        memcpy(copy, data.data, data.bytes);
        copy[at] ^= 0x41;
        wrong = (lig_part_data){copy, data.bytes};
        assert_int_not_equal(lig_store_join(store, "m", &wrong, 1, NULL), LIG_OK);
    }
    free(copy);
    lig_save_options options = LIG_SAVE_INIT;
    options.boxes = share.boxes;
    assert_fails(lig_store_save(store, "m", share.tensors, share.count, &options), LIG_E_INVALID);
    lig_part *none = NULL;
    options.part = &none;
    int64_t far[2] = {30, 0};
    share.boxes[0].start = far;
    share.boxes[0].shape = part_shape;
    assert_fails(lig_store_save(store, "m", share.tensors, share.count, &options), LIG_E_INVALID);
    assert_null(none);
    lig_part_close(NULL, store);
    lig_part_close(part, store);
    lig_store_close(stranger);
    lig_store_close(store);
}

/* --- in the background --- */

static void test_async(void **state)
{
    scene *places = *state;
    lig_store *store;
    lig_part *parts[3] = {NULL};
    lig_part_data data[3];
    part_fill(&model, 15);
    assert_ok(lig_store_open(&store, places->file));
    for (int rank = 0; rank < 3; rank++) {
        part_share share;
        lig_save_options options = LIG_SAVE_INIT;
        lig_ticket *ticket;
        part_share_of(&share, &model, rank, 3);
        options.boxes = share.boxes;
        options.part = &parts[rank];
        if (rank == 0) {
            assert_ok(
                lig_store_save_start(store, "m", share.tensors, share.count, &options, &ticket));
        } else {
            lig_save *save;
            assert_ok(lig_save_begin(&save, store, "m", share.tensors, share.count, &options));
            for (size_t i = 0; i < share.count; i++)
                assert_ok(lig_save_offer(save, share.tensors[i].data, share.tensors[i].strides));
            assert_ok(lig_save_commit(save, &ticket));
        }
        memset(&share.shapes, 0, sizeof share.shapes); /* shapes and boxes were copied */
        memset(&share.starts, 0, sizeof share.starts);
        assert_ok(lig_ticket_wait(ticket, LIG_FOREVER));
        lig_ticket_destroy(ticket);
        data[rank] = part_data(parts[rank]);
    }
    assert_ok(lig_store_join(store, "m", data, 3, NULL));
    for (int rank = 0; rank < 3; rank++)
        lig_part_close(parts[rank], store);
    part_compare(store, "m", &model);
    lig_store_close(store);
}

/* --- processes that die --- */

/* A writer sends its part and dies: at once, or when the pipe to it is closed. */
static pid_t fork_writer(const char *uri, int rank, const int *out, const int *until)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    lig_store *store;
    lig_part *part = NULL;
    part_share share;
    const void *bytes;
    size_t size;
    char end;
    close(out[0]);
    if (until)
        close(until[1]);
    part_share_of(&share, &other, rank, 2);
    if (lig_store_open(&store, uri) != LIG_OK ||
        part_write(store, "m", &share, "m", &part) != LIG_OK ||
        lig_part_bytes(part, &bytes, &size) != LIG_OK ||
        write(out[1], bytes, size) != (ssize_t)size)
        _exit(7);
    close(out[1]);
    if (until && read(until[0], &end, 1) < 0)
        _exit(8);
    _exit(0); /* nothing is closed: as if it had been killed */
}

static void test_dead_writers(void **state)
{
    scene_local_only(); /* a process with a server's threads is forked */
    scene *places = *state;
    static char bytes[2][1 << 16];
    part_fill(&model, 16);
    part_save(places->file, "m", &model, 2, NULL);
    for (int dead = 0; dead < 2; dead++) {
        part_fill(&other, dead ? 18 : 17);
        lig_part_data data[2];
        int until[2], results[2][2];
        pid_t children[2];
        assert_int_equal(pipe(until), 0);
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(pipe(results[rank]), 0);
            children[rank] = fork_writer(places->file, rank, results[rank], dead ? NULL : until);
            close(results[rank][1]);
            size_t size = 0;
            ssize_t got;
            while ((got = read(results[rank][0], bytes[rank] + size, sizeof bytes[0] - size)) > 0)
                size += (size_t)got;
            close(results[rank][0]);
            data[rank] = (lig_part_data){bytes[rank], size};
        }
        for (int rank = 0; rank < 2 && dead; rank++)
            waitpid(children[rank], NULL, 0);
        lig_store *store;
        assert_ok(lig_store_open(&store, places->file)); /* removes what dead writers left */
        lig_save_options options = LIG_SAVE_INIT;
        options.flags = LIG_SAVE_REPLACE;
        lig_status status = lig_store_join(store, "m", data, 2, &options);
        assert_int_equal(status, dead ? LIG_E_NOTFOUND : LIG_OK);
        close(until[1]);
        close(until[0]);
        for (int rank = 0; rank < 2 && !dead; rank++)
            waitpid(children[rank], NULL, 0);
        part_fill(&other, 17); /* what the second round brought is gone */
        part_compare(store, "m", &other);
        part_sound(store);
        lig_store_close(store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_slices, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_sharing, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_compact, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_footers, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_ties, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_small, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_refused, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_gone, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_hostile, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_async, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_dead_writers, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
