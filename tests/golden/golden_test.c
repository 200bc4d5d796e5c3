/* Files that versions 1 and 2 of the format wrote must be read by every later library.
 *
 *     golden_test                  reads tests/golden/store-1 and store-3
 *     golden_test make FOLDER      writes such a store; done once for each version of the format
 *
 * store-1 is of format 1, whose catalog is an LMDB file; store-3 of format 2, a log with checkpoints.
 * Of the latter index and head are left out, which a store does without, and the zeros at the ends
 * of segments. */
#include "store/format/packfile.h"
#include "store_scene.h"

#include <dirent.h>

#define GOLDEN LIGI_SOURCE_DIR "/tests/golden/store-1"
#define GOLDEN_LOG LIGI_SOURCE_DIR "/tests/golden/store-3"

enum { WEIGHTS = 64 * 300 };

static float weights[WEIGHTS];
static uint16_t halves[7];
static int8_t one = -5;
static const int64_t weights_shape[2] = {64, 300}, halves_shape[3] = {7, 1, 1},
                     none_shape[2] = {0, 3};

static size_t make_tensors(lig_tensor *tensors)
{
    for (int i = 0; i < WEIGHTS; i++)
        weights[i] = (float)i / 8;
    for (int i = 0; i < 7; i++)
        halves[i] = (uint16_t)(i * 1000);
    tensors[0] = (lig_tensor){"layer/weights",
                              weights,
                              sizeof weights,
                              weights_shape,
                              NULL,
                              2,
                              LIG_FLOAT32,
                              0,
                              0,
                              0,
                              {0}};
    tensors[1] = tensors[0];
    tensors[1].name = "layer/tied";
    tensors[2] = (lig_tensor){
        "h\xc3\xa9", halves, sizeof halves, halves_shape, NULL, 3, LIG_BFLOAT16, 0, 0, 0, {0}};
    tensors[3] = (lig_tensor){"one", &one, 1, NULL, NULL, 0, LIG_INT8, 0, 0, 0, {0}};
    tensors[4] = (lig_tensor){"none", NULL, 0, none_shape, NULL, 2, LIG_COMPLEX64, 0, 0, 0, {0}};
    return 5;
}

static const lig_layer layers[2] = {{"layer", "dense", 5}, {"one", "\x00\xff", 2}};
static const lig_input from_layer = {0, 1};
static const lig_call calls[2] = {{0, 0, NULL}, {1, 1, &from_layer}};
static const lig_graph graph = {"golden 1", layers, calls, 2, 2};

static int make(const char *folder)
{
    char uri[512];
    lig_store *store;
    lig_tensor tensors[5];
    size_t count = make_tensors(tensors);
    lig_metric metrics[] = {{"val_acc", .91}, {"loss", -1e300}};
    lig_tag tags[] = {{"run", "a"}, {"", ""}};
    lig_save_options options = LIG_SAVE_INIT;
    options.metrics = metrics, options.metric_count = 2;
    options.tags = tags, options.tag_count = 1;
    options.meta = "{\"lr\": 0.1}";
    options.structure = "{\"0\": 1}";
    snprintf(uri, sizeof uri, "%s?mode=w&log=4KiB", folder);
    lig_status status = lig_store_open(&store, uri);
    if (status == LIG_OK)
        status = lig_store_save(store, "inline/1", tensors + 2, count - 2, &options);
    options.graphs = &graph, options.graph_count = 1;
    if (status == LIG_OK)
        status = lig_store_save(store, "packed/1", tensors, count, &options);
    options.parent = "packed/1";
    if (status == LIG_OK)
        status = lig_store_save(store, "shared/1", tensors + 2, count - 2, &options);
    if (status == LIG_OK)
        status = lig_store_alias(store, "prod", "packed/1");
    if (status == LIG_OK)
        status = lig_store_alias(store, "last", "inline/1");
    if (status != LIG_OK) {
        fprintf(stderr, "%s\n", lig_error_text());
        return 1;
    }
    lig_store_close(store);
    return 0;
}

static void check_tensors(lig_store *store, const char *name, const lig_tensor *tensors,
                          size_t count)
{
    lig_view *view;
    assert_ok(lig_store_map(store, name, 0, &view));
    const lig_model *model = lig_view_model(view);
    assert_int_equal(model->tensor_count, count);
    for (size_t i = 0; i < count; i++) {
        const lig_tensor *found = &model->tensors[i].tensor;
        assert_string_equal(found->name, tensors[i].name);
        assert_int_equal(found->dtype, tensors[i].dtype);
        assert_int_equal(found->ndim, tensors[i].ndim);
        assert_memory_equal(found->shape, tensors[i].shape, found->ndim * sizeof(int64_t));
        assert_memory_equal(found->data, tensors[i].data, tensors[i].bytes);
    }
    assert_int_equal(model->metric_count, 2);
    assert_string_equal(model->metrics[0].name, "val_acc");
    assert_true(model->metrics[0].value == .91 && model->metrics[1].value == -1e300);
    assert_string_equal(model->tags[0].value, "a");
    assert_string_equal(model->meta, "{\"lr\": 0.1}");
    assert_string_equal(model->structure, "{\"0\": 1}");
    lig_view_destroy(view);
}

static void check_sound(lig_store *store)
{
    lig_report *report;
    assert_ok(lig_store_check(store, 0, &report));
    if (report->problem_count)
        fail_msg("%s", report->problems[0]);
    lig_report_destroy(report);
}

static void read_store(const char *uri)
{
    lig_tensor tensors[5];
    size_t count = make_tensors(tensors);
    lig_store *store;
    assert_ok(lig_store_open(&store, uri));
    check_tensors(store, "prod", tensors, count);
    check_tensors(store, "inline/1", tensors + 2, count - 2);
    check_tensors(store, "shared/1", tensors + 2, count - 2);
    lig_model *model, *parent;
    assert_ok(lig_store_model(store, "shared/1", &model));
    assert_ok(lig_store_model(store, "packed/1", &parent));
    assert_int_equal(parent->tensors[1].tied, 0);
    assert_int_equal(model->parent, parent->id);
    assert_string_equal(model->parent_name, "packed/1");
    assert_int_equal(model->tensors[0].owner, parent->id);
    assert_int_equal(model->tensors[0].pack, parent->tensors[2].pack);
    assert_int_equal(model->own_bytes, 0);
    lig_match **matches;
    size_t found;
    assert_ok(lig_store_find(store, &graph, NULL, &matches, &found));
    assert_int_equal(found, 1);
    assert_int_equal(matches[0]->model->id, parent->id);
    assert_int_equal(matches[0]->layer_count, 2);
    if (strstr(uri, "mode=r"))
        assert_int_equal(matches[0]->expires_ns, 0);
    lig_matches_destroy(matches, found);
    lig_model_destroy(model);
    lig_model_destroy(parent);
    check_sound(store);
    lig_store_close(store);
}

static void test_read(void **state)
{
    (void)state;
    read_store(GOLDEN "?mode=r");
    read_store(GOLDEN_LOG "?mode=r");
}

/* Opened for writing: format 1 is upgraded, format 2 gets a new index. */
static void write_store(const scene *places, const char *golden)
{
    char command[1024];
    snprintf(command, sizeof command, "cp -r '%s' '%s/store' && chmod -R u+w '%s'", golden,
             places->folder, places->folder);
    assert_int_equal(system(command), 0);
    read_store(places->file);
    lig_tensor tensors[5];
    size_t count = make_tensors(tensors);
    lig_store *store;
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "new %d", i);
        assert_ok(lig_store_open(&store, places->file));
        assert_ok(lig_store_save(store, name, tensors, count, NULL));
        check_sound(store);
        lig_store_close(store);
    }
    snprintf(command, sizeof command, "grep -q 'format 2' '%s/store/ligament'", places->folder);
    assert_int_equal(system(command), 0);
    read_store(places->file);
}

static void test_upgrade(void **state)
{
    write_store(*state, GOLDEN);
}

static void test_log(void **state)
{
    write_store(*state, GOLDEN_LOG);
}

static void test_footers(void **state)
{
    scene *places = *state;
    char command[1024];
    snprintf(command, sizeof command,
             "mkdir '%s/store' && cp -r '%s/packs' '%s/ligament' '%s/store/' && chmod -R u+w '%s'",
             places->folder, GOLDEN, GOLDEN, places->folder, places->folder);
    assert_int_equal(system(command), 0);
    lig_tensor tensors[5];
    size_t count = make_tensors(tensors);
    lig_store *store;
    assert_ok(lig_store_open(&store, places->file));
    check_tensors(store, "packed/1", tensors, count);
    scene_lost(store, 0);
    scene_lost(store, LIG_CHECK_REPAIR);
    assert_ok(lig_store_save(store, "new", tensors, count, NULL));
    check_sound(store);
    lig_store_close(store);
}

static uint8_t *read_pack(size_t *bytes)
{
    char path[1024] = "";
    DIR *listing = opendir(GOLDEN "/packs");
    assert_non_null(listing);
    for (struct dirent *entry; (entry = readdir(listing));)
        if (strstr(entry->d_name, ".pack"))
            snprintf(path, sizeof path, "%s/packs/%s", GOLDEN, entry->d_name);
    closedir(listing);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *data = malloc(1 << 20);
    *bytes = fread(data, 1, 1 << 20, file);
    fclose(file);
    return data;
}

/* What is read from the golden pack is written today as the same bytes. */
static void test_write(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *pack = read_pack(&bytes), frame[LIGI_PACK_HEADER_BYTES];
    ligi_pack_header header;
    ligi_pack_trailer trailer;
    assert_ok(ligi_pack_header_parse(pack, &header));
    ligi_pack_header_make(&header, frame);
    assert_memory_equal(frame, pack, LIGI_PACK_HEADER_BYTES);
    const uint8_t *tail = pack + bytes - LIGI_PACK_TRAILER_BYTES;
    assert_ok(ligi_pack_trailer_parse(tail, bytes, &trailer));
    ligi_pack_trailer_make(&trailer, frame);
    assert_memory_equal(frame, tail, LIGI_PACK_TRAILER_BYTES);

    ligi_manifest manifest = {0};
    const uint8_t *footer = pack + trailer.footer_offset;
    assert_ok(ligi_manifest_get(footer, trailer.footer_bytes, 9, &manifest));
    lig_tensor tensors[5];
    ligi_slot slots[5];
    for (size_t i = 0; i < 5; i++) {
        const lig_stored_tensor *stored = &manifest.tensors[i];
        tensors[i] = stored->tensor;
        slots[i] = (ligi_slot){.offset = stored->offset,
                               .first_hash = (size_t)(manifest.hashes[i] - manifest.hash_pool),
                               .tied = stored->tied < 0 ? SIZE_MAX : (size_t)stored->tied};
        for (size_t b = 0; b < ligi_manifest_block_count(stored->tensor.bytes); b++)
            assert_int_equal(
                manifest.hashes[i][b],
                lig_hash_block(header.secret, pack + stored->offset, stored->tensor.bytes));
    }
    ligi_body body = {.structure = manifest.structure,
                      .tensors = tensors,
                      .slots = slots,
                      .hashes = manifest.hash_pool,
                      .count = 5,
                      .graphs = manifest.graphs,
                      .graph_bytes = manifest.graph_bytes};
    ligi_writer writer = {0};
    ligi_manifest_put(&writer, &manifest.about, &body);
    assert_int_equal(writer.bytes, trailer.footer_bytes);
    assert_memory_equal(writer.data, footer, writer.bytes);
    ligi_writer_fini(&writer);
    ligi_manifest_fini(&manifest);
    free(pack);
}

int main(int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "make") == 0)
        return make(arguments[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_write),
        cmocka_unit_test_setup_teardown(test_upgrade, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_log, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_footers, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
