#include "backend/registry.h"
#include "store_scene.h"

/* A backend that is `mem` until its calls have been counted down: then one of them fails. What the
 * store leaves behind is looked at through `mem` itself. */
static long countdown; /* 0: nothing fails */
static long outdated;  /* likewise: then a snapshot is too old */
static int fail_late;  /* a commit is applied, and fails all the same */
static int no_pins;
static int settles;          /* calls so far */
static int snapshots;        /* open ones: whoever settles has ended his */
static lig_store *retire_in; /* reading a pack retires its model here, and fails */

static int is_due(void)
{
    return countdown > 0 && --countdown == 0;
}

static lig_status broken(const char *what)
{
    return lig_fail(LIG_E_IO, "%s was made to fail", what);
}

static const lig_volume_ops *mem;
static lig_volume_ops faulty_volume;
static lig_backend_ops faulty;

static lig_status pack_create(void *self, uint64_t bytes, const void *secret, void **pack)
{
    return is_due() ? broken("pack_create") : mem->pack_create(self, bytes, secret, pack);
}

static lig_status pack_put(void *pack, const lig_piece *piece)
{
    return is_due() ? broken("pack_put") : mem->pack_put(pack, piece);
}

static lig_status pack_seal(void *pack, uint64_t *id)
{
    return is_due() ? broken("pack_seal") : mem->pack_seal(pack, id);
}

static lig_status pack_size(void *self, uint64_t id, uint64_t *bytes)
{
    return is_due() ? broken("pack_size") : mem->pack_size(self, id, bytes);
}

static lig_status pack_read(void *self, uint64_t id, const void *secret, const lig_range *ranges,
                            size_t count, size_t *bad)
{
    if (retire_in) {
        lig_store *other = retire_in;
        retire_in = NULL;
        assert_ok(lig_store_retire(other, "there"));
        return broken("pack_read");
    }
    return is_due() ? broken("pack_read") : mem->pack_read(self, id, secret, ranges, count, bad);
}

static lig_status pack_map(void *self, uint64_t id, uint32_t flags, lig_mapping *mapping)
{
    return is_due() ? broken("pack_map") : mem->pack_map(self, id, flags, mapping);
}

static lig_status pack_claim(void *self, uint64_t id, void **pack)
{
    return is_due() ? broken("pack_claim") : mem->pack_claim(self, id, pack);
}

static lig_status pack_remove(void *self, uint64_t id)
{
    return is_due() ? broken("pack_remove") : mem->pack_remove(self, id);
}

static lig_status pack_next(void *self, uint64_t after, uint64_t *id)
{
    return is_due() ? broken("pack_next") : mem->pack_next(self, after, id);
}

static lig_status catalog_begin(void *self, void **snapshot, uint64_t *version)
{
    if (is_due())
        return broken("catalog_begin");
    LIG_TRY(mem->catalog_begin(self, snapshot, version));
    snapshots++;
    return LIG_OK;
}

static void catalog_end(void *snapshot)
{
    snapshots--;
    mem->catalog_end(snapshot);
}

static lig_status read_old(void)
{
    return outdated > 0 && --outdated == 0 ? lig_fail(LIG_E_BUSY, "this version is no longer kept")
                                           : LIG_OK;
}

static lig_status catalog_get(void *snapshot, const void *key, size_t bytes, lig_catalog_item *item)
{
    LIG_TRY(read_old());
    return is_due() ? broken("catalog_get") : mem->catalog_get(snapshot, key, bytes, item);
}

static lig_status catalog_seek(void *snapshot, const void *key, size_t bytes,
                               lig_catalog_item *item)
{
    LIG_TRY(read_old());
    return is_due() ? broken("catalog_seek") : mem->catalog_seek(snapshot, key, bytes, item);
}

static lig_status catalog_commit(void *self, const lig_catalog_edit *edit)
{
    int due = is_due();
    if (due && !fail_late)
        return broken("catalog_commit");
    lig_status status = mem->catalog_commit(self, edit);
    return due && status == LIG_OK ? broken("the end of catalog_commit") : status;
}

static lig_status catalog_settle(void *self)
{
    assert_int_equal(snapshots, 0);
    settles++;
    return is_due() ? broken("catalog_settle") : mem->catalog_settle(self);
}

static lig_status pin(void *self, const uint64_t *packs, size_t count, int64_t expires_ns,
                      void **out)
{
    return no_pins || is_due() ? broken("pin") : mem->pin(self, packs, count, expires_ns, out);
}

static void register_faulty(void)
{
    const lig_backend_ops *ops = lig_backend_find("mem");
    faulty = *ops;
    mem = ops->volume;
    faulty_volume = *mem;
    faulty_volume.pack_create = pack_create;
    faulty_volume.pack_put = pack_put;
    faulty_volume.pack_seal = pack_seal;
    faulty_volume.pack_size = pack_size;
    faulty_volume.pack_read = pack_read;
    faulty_volume.pack_map = pack_map;
    faulty_volume.pack_claim = pack_claim;
    faulty_volume.pack_remove = pack_remove;
    faulty_volume.pack_next = pack_next;
    faulty_volume.pin = pin;
    faulty_volume.catalog_begin = catalog_begin;
    faulty_volume.catalog_end = catalog_end;
    faulty_volume.catalog_get = catalog_get;
    faulty_volume.catalog_seek = catalog_seek;
    faulty_volume.catalog_commit = catalog_commit;
    faulty_volume.catalog_settle = catalog_settle;
    faulty.volume = &faulty_volume;
    assert_ok(ligi_backend_register("faulty", &faulty));
}

/* --- what is tried --- */

enum { LENGTH = 30000 };

static float values[LENGTH], reads[LENGTH];
static int64_t length = LENGTH, little = 50;

static lig_tensor large_tensor(void)
{
    return scene_tensor("t", values, &length);
}

static lig_status save_one(lig_store *store, const char *name, uint64_t number, uint32_t flags)
{
    lig_metric metric = {"number", (double)number};
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = flags;
    options.metrics = &metric, options.metric_count = 1;
    scene_fill(values, sizeof values, number);
    lig_tensor tensor = large_tensor();
    return lig_store_save(store, name, &tensor, 1, &options);
}

static lig_status try_save(lig_store *store)
{
    return save_one(store, "new", 2, 0);
}

/* Fails only where the save does: what it hands out is not worth a failure. */
static lig_status try_hand_out(lig_store *store)
{
    lig_ref *ref = NULL;
    lig_model *model = NULL;
    lig_tensor tensor = large_tensor(), read = large_tensor();
    lig_save_options options = LIG_SAVE_INIT;
    options.ref = &ref;
    options.model = &model;
    scene_fill(values, sizeof values, 4);
    lig_status status = lig_store_save(store, "new", &tensor, 1, &options);
    assert_int_equal(status == LIG_OK, ref != NULL);
    assert_int_equal(status == LIG_OK, model != NULL);
    if (status != LIG_OK)
        return status;
    countdown = countdown ? -1 : 0; /* 0 tells that a call has failed */
    read.data = reads;
    assert_ok(lig_ref_load(ref, &read, 1));
    assert_memory_equal(reads, values, sizeof values);
    assert_int_equal(model->id, lig_ref_model(ref)->id);
    assert_memory_equal(model->tensors[0].fingerprint, lig_ref_model(ref)->tensors[0].fingerprint,
                        16);
    lig_ref_release(ref);
    lig_model_destroy(model);
    return LIG_OK;
}

static lig_status try_replace(lig_store *store)
{
    return save_one(store, "there", 3, LIG_SAVE_REPLACE);
}

static lig_status try_inline(lig_store *store)
{
    lig_tensor tensor = scene_tensor("t", values, &little);
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    return lig_store_save(store, "there", &tensor, 1, &options);
}

/* Of two tensors one is the parent's. */
static lig_status try_child(lig_store *store)
{
    lig_tensor tensors[2] = {large_tensor(), scene_tensor("new", reads, &little)};
    lig_save_options options = LIG_SAVE_INIT;
    options.parent = "there";
    return lig_store_save(store, "child", tensors, 2, &options);
}

/* A pack of which a small part is all that lives. */
static lig_status try_compact(lig_store *store)
{
    lig_tensor tensors[2] = {large_tensor(), scene_tensor("small", reads, &little)};
    lig_save_options options = LIG_SAVE_INIT;
    lig_report *report;
    options.flags = LIG_SAVE_REPLACE;
    scene_fill(values, sizeof values, 9);
    LIG_TRY(lig_store_save(store, "first", tensors, 2, &options));
    options.parent = "first";
    LIG_TRY(lig_store_save(store, "second", tensors + 1, 1, &options));
    LIG_TRY(lig_store_save(store, "third", tensors + 1, 1, &options));
    LIG_TRY(lig_store_retire(store, "first"));
    LIG_TRY(lig_store_compact(store, &report));
    lig_report_destroy(report);
    return LIG_OK;
}

static lig_status try_retire(lig_store *store)
{
    return lig_store_retire(store, "there");
}

static lig_status try_update(lig_store *store)
{
    lig_update update = LIG_UPDATE_INIT;
    update.name = "renamed";
    return lig_store_update(store, "there", &update);
}

static lig_status try_alias(lig_store *store)
{
    return lig_store_alias(store, "other", "there");
}

static lig_status try_load(lig_store *store)
{
    lig_tensor tensor = large_tensor();
    tensor.data = reads;
    return lig_store_load(store, "there", &tensor, 1);
}

static lig_status try_map(lig_store *store)
{
    lig_view *view;
    LIG_TRY(lig_store_map(store, "there", 0, &view));
    lig_view_destroy(view);
    return LIG_OK;
}

static lig_status try_copy(lig_store *store)
{
    return lig_store_copy(store, "there", store, "copy", 0);
}

static lig_status try_check(lig_store *store)
{
    lig_report *report;
    LIG_TRY(lig_store_check(store, LIG_CHECK_REPAIR, &report));
    lig_report_destroy(report);
    return LIG_OK;
}

static lig_status try_verify(lig_store *store)
{
    lig_report *report;
    LIG_TRY(lig_store_check(store, 0, &report));
    assert_int_equal(report->problem_count, 0);
    assert_int_equal(report->models, 1);
    lig_report_destroy(report);
    return LIG_OK;
}

static lig_status try_list(lig_store *store)
{
    lig_model **models;
    size_t count;
    lig_store_stats stats;
    LIG_TRY(lig_store_models(store, NULL, &models, &count));
    lig_models_destroy(models, count);
    return lig_store_stat(store, &stats);
}

/* Two parts: halves of what is there and of something new. */
static lig_status write_part(lig_store *store, int rank, lig_part **part)
{
    static float fresh[LENGTH];
    int64_t whole = LENGTH, half = LENGTH / 2, start = rank * half;
    lig_tensor tensors[2] = {scene_tensor("large", values + start, &half),
                             scene_tensor("fresh", fresh + start, &half)};
    lig_box boxes[2] = {{&whole, &start, 0}, {&whole, &start, 1}};
    lig_save_options options = LIG_SAVE_INIT;
    scene_fill(fresh, sizeof fresh, 77);
    options.parent = "there";
    options.boxes = boxes;
    options.part = part;
    return lig_store_save(store, "joined", tensors, 2, &options);
}

static lig_status try_join(lig_store *store)
{
    lig_part *parts[2] = {NULL, NULL};
    lig_part_data data[2];
    lig_status status = write_part(store, 0, &parts[0]);
    if (status == LIG_OK)
        status = write_part(store, 1, &parts[1]);
    for (int i = 0; i < 2 && status == LIG_OK; i++)
        status = lig_part_bytes(parts[i], &data[i].data, &data[i].bytes);
    if (status == LIG_OK)
        status = lig_store_join(store, "joined", data, 2, NULL);
    char text[600];
    snprintf(text, sizeof text, "%s", lig_error_text());
    for (int i = 0; i < 2; i++)
        lig_part_close(parts[i], store);
    return status == LIG_OK ? LIG_OK : lig_fail(status, "%s", text);
}

/* --- what must hold --- */

static uint64_t version_of(lig_store *store)
{
    lig_store_stats stats;
    assert_ok(lig_store_stat(store, &stats));
    return stats.version;
}

/* Sound, and nothing left over once it has been compacted. */
static void check_after(lig_store *healthy)
{
    lig_report *report;
    lig_store_stats stats;
    assert_ok(lig_store_compact(healthy, &report));
    lig_report_destroy(report);
    assert_ok(lig_store_check(healthy, 0, &report));
    if (report->problem_count)
        fail_msg("%s", report->problems[0]);
    assert_ok(lig_store_stat(healthy, &stats));
    assert_int_equal(report->packs, stats.packs);
    lig_report_destroy(report);
}

static long fail_each_call(lig_status (*what)(lig_store *store), int late)
{
    long call = 0, failed = 0;
    lig_status status;
    fail_late = late;
    do {
        lig_store *healthy, *store;
        char uri[64];
        snprintf(uri, sizeof uri, "mem:injected%ld", call);
        assert_ok(lig_store_open(&healthy, uri));
        assert_ok(save_one(healthy, "there", 1, 0));
        assert_ok(lig_store_alias(healthy, "prod", "there"));
        snprintf(uri, sizeof uri, "faulty:injected%ld", call);
        assert_ok(lig_store_open(&store, uri));
        uint64_t before = version_of(healthy);
        countdown = ++call;
        status = what(store);
        int reached = countdown == 0;
        countdown = 0;
        if (status != LIG_OK) {
            assert_int_equal(status, LIG_E_IO);
            assert_non_null(strstr(lig_error_text(), "was made to fail"));
            failed++;
        }
        check_after(healthy);
        lig_model *model;
        if (status != LIG_OK && version_of(healthy) == before) {
            assert_ok(lig_store_model(healthy, "prod", &model));
            assert_true(model->metrics[0].value == 1);
            lig_model_destroy(model);
        }
        lig_store_close(store);
        lig_store_close(healthy);
        if (!reached)
            break;
        assert_true(call < 1000);
    } while (1);
    assert_int_equal(status, LIG_OK);
    return failed;
}

static void test_each(void **state)
{
    (void)state;
    lig_status (*const all[])(lig_store *) = {
        try_save, try_replace, try_inline, try_retire, try_update,  try_alias, try_load,    try_map,
        try_copy, try_check,   try_list,   try_child,  try_compact, try_join,  try_hand_out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int late = 0; late < 2; late++)
            assert_true(fail_each_call(all[i], late) > 0);
}

/* Leases that cannot be written do not keep a model from being saved. */
static void test_no_pins(void **state)
{
    lig_store *store;
    lig_report *report;
    (void)state;
    assert_ok(lig_store_open(&store, "faulty:pins"));
    no_pins = 1;
    assert_ok(try_hand_out(store));
    assert_ok(save_one(store, "new", 5, LIG_SAVE_REPLACE));
    no_pins = 0;
    assert_ok(lig_store_check(store, 0, &report));
    assert_int_equal(report->problem_count, 0);
    assert_int_equal(report->packs, 1);
    lig_report_destroy(report);
    lig_store_close(store);
}

/* A match that cannot be made is released, and its packs removed, when the search has ended its
 * snapshot. */
static void test_find(void **state)
{
    lig_store *healthy, *store;
    lig_layer layer = {"t", "signature", 9};
    lig_call call = {0, 0, NULL};
    lig_graph graph = {"test/1", &layer, &call, 1, 1};
    lig_tensor tensor = scene_tensor("t.w", values, &length);
    lig_save_options options = LIG_SAVE_INIT;
    lig_store_stats stats;
    lig_match **matches;
    size_t count;
    (void)state;
    options.graphs = &graph, options.graph_count = 1;
    assert_ok(lig_store_open(&healthy, "mem:found"));
    assert_ok(lig_store_save(healthy, "there", &tensor, 1, &options));
    assert_ok(lig_store_open(&store, "faulty:found"));
    retire_in = healthy;
    assert_int_equal(lig_store_find(store, &graph, NULL, &matches, &count), LIG_E_IO);
    assert_null(retire_in);
    assert_ok(lig_store_stat(healthy, &stats));
    assert_int_equal(stats.packs, 0);
    lig_store_close(store);
    lig_store_close(healthy);
}

static void test_open(void **state)
{
    (void)state;
    for (long call = 1;; call++) {
        lig_store *healthy, *store;
        assert_ok(lig_store_open(&healthy, "mem:opened"));
        assert_ok(save_one(healthy, "there", 1, 0));
        countdown = call;
        lig_status status = lig_store_open(&store, "faulty:opened");
        int reached = countdown == 0;
        countdown = 0;
        if (status == LIG_OK)
            lig_store_close(store);
        else
            assert_int_equal(status, LIG_E_IO);
        check_after(healthy);
        lig_store_close(healthy);
        if (!reached)
            return;
    }
}

/* Who reads from a snapshot that others have left far behind takes a new one. */
static void test_old_snapshots(void **state)
{
    lig_status (*const all[])(lig_store *) = {try_list, try_load, try_map, try_check, try_verify};
    lig_store *store;
    (void)state;
    assert_ok(lig_store_open(&store, "faulty:old"));
    assert_ok(save_one(store, "there", 1, 0));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (long call = 1, reached = 1; reached; call++) {
            outdated = call;
            assert_ok(all[i](store));
            reached = outdated == 0;
            outdated = 0;
        }
    lig_store_close(store);
}

/* To settle may wait for a process that is stopped inside its commit. */
static void test_open_waits_for_nobody(void **state)
{
    lig_store *healthy, *store;
    (void)state;
    assert_ok(lig_store_open(&healthy, "mem:waiting"));
    assert_ok(save_one(healthy, "there", 1, 0));
    settles = 0;
    assert_ok(lig_store_open(&store, "faulty:waiting"));
    assert_ok(try_list(store));
    assert_ok(try_load(store));
    assert_int_equal(settles, 0);
    lig_store_close(store);
    lig_store_close(healthy);
}

static void quiet(void *context, lig_log_level level, const char *text)
{
    (void)context, (void)level, (void)text;
}

int main(void)
{
    lig_log_set(quiet, NULL);
    register_faulty();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each),          cmocka_unit_test(test_no_pins),
        cmocka_unit_test(test_find),          cmocka_unit_test(test_open),
        cmocka_unit_test(test_old_snapshots), cmocka_unit_test(test_open_waits_for_nobody)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
