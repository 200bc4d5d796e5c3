#include "base/test.h"
#include "store/format/record.h"
#include "store/serve/message/served_message_testing.h"

/* --- one of each --- */

static const int64_t shape[] = {3, 5}, whole[] = {6, 5}, start[] = {3, 0};
static const lig_metric metrics[] = {{"loss", 0.25}, {"steps", 7}};
static const lig_tag tags[] = {{"team", "a"}, {"gone", NULL}};

static void put_hello(ligi_writer *out)
{
    ligi_served_hello hello = {.client = {1, 2, 3}, .pid = 77, .host = "node", .pass = {4}};
    ligi_served_hello_put(out, &hello);
}

static void put_welcome(ligi_writer *out)
{
    ligi_served_welcome welcome = {.flags = LIGI_SERVED_READ_ONLY,
                                   .volume_flags = 4,
                                   .uuid = {9},
                                   .secret = {8},
                                   .session = 5,
                                   .lease_ns = 1000,
                                   .flight_bytes_max = 64,
                                   .read_bytes_max = 8,
                                   .request_max = 3,
                                   .card = (const uint8_t *)"card",
                                   .card_bytes = 4};
    ligi_served_welcome_put(out, &welcome);
}

static void put_error(ligi_writer *out)
{
    ligi_served_error_put(out, &(ligi_served_error){28, "no space left on device"});
}

static void put_selector(ligi_writer *out)
{
    ligi_served_selector_put(out, &(ligi_served_selector){"resnet", 0, 4, LIGI_SERVED_HOLD});
}

static ligi_served_model a_model(void)
{
    return (ligi_served_model){.ref = 3,
                               .id = 900,
                               .record = (const uint8_t *)"record",
                               .record_bytes = 6,
                               .manifest = (const uint8_t *)"mani",
                               .manifest_bytes = 4,
                               .inlined = (const uint8_t *)"in",
                               .inline_bytes = 2};
}

static void put_model(ligi_writer *out)
{
    ligi_served_model model = a_model();
    ligi_served_model_put(out, &model);
}

static void put_list(ligi_writer *out)
{
    ligi_served_model models[] = {a_model(), {.id = 4}};
    ligi_served_list_put(out, &(ligi_served_list){models, 2});
}

static void put_lineage(ligi_writer *out)
{
    ligi_served_model models[] = {a_model(), {.id = 4}};
    ligi_served_lineage_put(out, &(ligi_served_lineage){{models, 2}, {models, 1}});
}

static void put_query(ligi_writer *out)
{
    lig_query query = LIG_QUERY_INIT;
    query.name = "res*";
    query.tags = tags;
    query.tag_count = 2;
    query.order = "-loss";
    query.limit = 10;
    ligi_served_query_put(out, &query);
}

static void put_read(ligi_writer *out)
{
    ligi_served_range ranges[] = {{4096, 100}, {8192, 1}};
    ligi_served_read_put(out,
                         &(ligi_served_read){.pack = 7, .ref = 2, .ranges = ranges, .count = 2});
}

static void put_descriptor(ligi_writer *out)
{
    ligi_served_descriptor_put(out, &(ligi_served_descriptor){4096, "ligament-1", {1, 2}});
}

static void put_update(ligi_writer *out)
{
    ligi_served_update update = {"resnet", LIG_UPDATE_INIT};
    update.update.metrics = metrics;
    update.update.metric_count = 2;
    update.update.tags = tags;
    update.update.tag_count = 2;
    update.update.name = "other";
    ligi_served_update_put(out, &update);
}

static void put_alias(ligi_writer *out)
{
    ligi_served_alias_put(out, &(ligi_served_alias){"best", NULL});
}

static void put_save(ligi_writer *out)
{
    lig_tensor tensors[] = {
        {.name = "w", .dtype = LIG_FLOAT32, .ndim = 2, .shape = shape, .bytes = 60},
        {.name = "tied", .dtype = LIG_FLOAT32, .ndim = 2, .shape = shape, .bytes = 60},
        {.name = "scalar", .dtype = LIG_INT8, .bytes = 1}};
    uint64_t tied[] = {LIGI_SERVED_NOT_TIED, 0, LIGI_SERVED_NOT_TIED}, orders[] = {1, 2, 3};
    ligi_box_position places[] = {{whole, start}, {NULL, NULL}, {NULL, NULL}};
    lig_part_data parts[] = {{"part", 4}, {NULL, 0}};
    ligi_served_save_put(out, &(ligi_served_save){.name = "resnet",
                                                  .flags = LIG_SAVE_REPLACE,
                                                  .wants = LIGI_SERVED_WANT_REF,
                                                  .created_ns = -1,
                                                  .parent = "parent",
                                                  .match = 4,
                                                  .match_model = 5,
                                                  .metrics = metrics,
                                                  .metric_count = 2,
                                                  .tags = tags,
                                                  .tag_count = 2,
                                                  .meta = "{}",
                                                  .structure = "tree",
                                                  .graphs = "graphs",
                                                  .graph_bytes = 6,
                                                  .tensors = tensors,
                                                  .count = 3,
                                                  .tied = tied,
                                                  .places = places,
                                                  .orders = orders,
                                                  .shown_count = 2,
                                                  .parts = parts,
                                                  .part_count = 2});
}

static void put_saved(ligi_writer *out)
{
    ligi_served_saved_put(out, &(ligi_served_saved){.id = 900,
                                                    .has_model = 1,
                                                    .model = a_model(),
                                                    .part = 3,
                                                    .part_data = (const uint8_t *)"part",
                                                    .part_bytes = 4});
}

static void put_need(ligi_writer *out)
{
    ligi_served_stretch stretches[] = {{0, 0, 4096}, {3, LIG_BLOCK_BYTES, 1}};
    ligi_served_need_put(out, &(ligi_served_need){9, LIGI_SERVED_NEED_HASHES, stretches, 2, 0});
}

static void put_find(ligi_writer *out)
{
    const char *excluded[] = {"a", "b"};
    ligi_served_find find = {.layers = "layers", .layer_bytes = 6, .options = LIG_FIND_INIT};
    find.options.tags = tags;
    find.options.tag_count = 2;
    find.options.exclude = excluded;
    find.options.exclude_count = 2;
    find.options.prefer = "-loss";
    find.options.lease_ns = 5;
    ligi_served_find_put(out, &find);
}

static void put_matches(ligi_writer *out)
{
    uint32_t layers[] = {0, 7};
    lig_matched_tensor tensors[] = {{"w", 0}, {"b", 4}};
    ligi_served_match match = {.model = a_model(),
                               .expires_ns = 77,
                               .bytes = 60,
                               .layers = layers,
                               .layer_count = 2,
                               .tensors = tensors,
                               .tensor_count = 2};
    ligi_served_matches_put(out, &(ligi_served_matches){&match, 1});
}

static void put_info(ligi_writer *out)
{
    ligi_served_info_put(
        out, &(ligi_served_info){"file:///models", "io_uring", "1.0", (const uint8_t *)"card", 4});
}

static void put_stats(ligi_writer *out)
{
    ligi_served_stats_put(out, &(lig_store_stats){1, 2, 3, 4, 5, 6});
}

static void put_report(ligi_writer *out)
{
    const char *const problems[] = {"one", "two"};
    ligi_served_report_put(
        out,
        &(lig_report){.models = 1, .freed_bytes = 9, .problem_count = 2, .problems = problems});
}

static void put_watch(ligi_writer *out)
{
    ligi_served_watch_put(out, &(ligi_served_watch){7, 1000, 64});
}

static void put_events(ligi_writer *out)
{
    ligi_served_event events[] = {{8, 99, (const uint8_t *)"ev", 2}, {9, 100, NULL, 0}};
    ligi_served_events_put(out, &(ligi_served_events){9, events, 2});
}

static void put_number(ligi_writer *out)
{
    ligi_served_number_put(out, UINT64_MAX);
}

static void put_text(ligi_writer *out)
{
    ligi_served_text_put(out, "resnet");
}

static void put_stamps(ligi_writer *out)
{
    const int64_t stamps[] = {1, 2, 3, 4};
    ligi_served_stamps_put(out, stamps, 4);
}

/* In the order of served_recodes. */
static void (*const puts_of[])(ligi_writer *out) = {
    put_hello,  put_welcome, put_error,      put_selector, put_model, put_list,   put_lineage,
    put_query,  put_read,    put_descriptor, put_update,   put_alias, put_save,   put_saved,
    put_need,   put_find,    put_matches,    put_info,     put_stats, put_report, put_watch,
    put_events, put_number,  put_text,       put_stamps,
};

_Static_assert(sizeof puts_of / sizeof puts_of[0] == SERVED_RECODES, "one of each");

static void test_what_is_written_is_read(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < SERVED_RECODES; i++) {
        ligi_writer first = {0}, again = {0};
        puts_of[i](&first);
        assert_ok(first.status);
        assert_ok(served_recodes[i](first.data, first.bytes, &again));
        assert_int_equal(first.bytes, again.bytes);
        assert_memory_equal(first.data, again.data, first.bytes);
        ligi_writer_fini(&first);
        ligi_writer_fini(&again);
    }
}

static void test_every_cut_is_refused(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < SERVED_RECODES; i++) {
        ligi_writer first = {0}, again = {0};
        puts_of[i](&first);
        ligi_put_u8(&first, 0);
        for (size_t bytes = 0; bytes < first.bytes + 1; bytes++)
            if (bytes != first.bytes - 1)
                assert_int_not_equal(served_recodes[i](first.data,
                                                       bytes < first.bytes ? bytes : first.bytes,
                                                       &again),
                                     LIG_OK);
        assert_int_equal(again.bytes, 0);
        ligi_writer_fini(&first);
    }
}

/* --- heads --- */

static void test_heads(void **unused)
{
    (void)unused;
    uint8_t bytes[LIGI_SERVED_HEAD_BYTES + 4] = {0};
    ligi_served_head head = {.op = LIGI_SERVED_SAVE, .id = 7, .number = 9, .body_bytes = 4}, got;
    ligi_served_head_put(&head, bytes);
    assert_ok(ligi_served_head_get(bytes, sizeof bytes, 0, &got));
    assert_int_equal(got.op, LIGI_SERVED_SAVE);
    assert_int_equal(got.id, 7);
    assert_int_equal(got.number, 9);
    assert_ptr_equal(got.body, bytes + LIGI_SERVED_HEAD_BYTES);
    assert_status(ligi_served_head_get(bytes, sizeof bytes - 1, 0, &got), LIG_E_CORRUPT);
    head.flags = LIGI_SERVED_BEHIND;
    ligi_served_head_put(&head, bytes);
    assert_ok(ligi_served_head_get(bytes, LIGI_SERVED_HEAD_BYTES, 4, &got));
    assert_null(got.body);
    assert_status(ligi_served_head_get(bytes, LIGI_SERVED_HEAD_BYTES, 3, &got), LIG_E_CORRUPT);
}

static void test_hostile_heads(void **unused)
{
    (void)unused;
    const ligi_served_head bad[] = {
        {.op = 0, .id = 1},
        {.op = LIGI_SERVED_OP_END, .id = 1},
        {.op = LIGI_SERVED_PING, .id = 0},
        {.op = LIGI_SERVED_PING, .id = 1, .flags = 4},
        {.op = LIGI_SERVED_PING, .id = 1, .status = 1},
        {.op = LIGI_SERVED_PING, .id = 1, .flags = LIGI_SERVED_REPLY, .status = 9999},
        {.op = LIGI_SERVED_PING, .id = 1, .number = 5},
        {.op = LIGI_SERVED_RETIRE, .id = 1},
        {.op = LIGI_SERVED_PING, .id = 1, .body_bytes = UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t bytes[LIGI_SERVED_HEAD_BYTES];
        ligi_served_head got;
        ligi_served_head_put(&bad[i], bytes);
        assert_status(ligi_served_head_get(bytes, sizeof bytes, 0, &got), LIG_E_CORRUPT);
    }
}

static void test_another_version_is_named(void **unused)
{
    (void)unused;
    ligi_writer out = {0};
    ligi_served_hello hello;
    put_hello(&out);
    out.data[8] = 42;
    assert_status(ligi_served_hello_get(out.data, out.bytes, &hello), LIG_E_UNSUPPORTED);
    assert_says("version 42");
    assert_says("version 2");
    out.data[0] = 'X';
    assert_status(ligi_served_hello_get(out.data, out.bytes, &hello), LIG_E_UNSUPPORTED);
    ligi_writer_fini(&out);
}

/* --- extreme numbers --- */

static void test_hostile_ranges(void **unused)
{
    (void)unused;
    const uint64_t bad[][2] = {{0, 0}, {UINT64_MAX, 1}, {1, UINT64_MAX}, {INT64_MAX, INT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ligi_writer out = {0};
        ligi_served_read read = {0};
        ligi_put_varint(&out, 1);
        ligi_put_varint(&out, 0);
        ligi_put_varint(&out, 1);
        ligi_put_varint(&out, bad[i][0]);
        ligi_put_varint(&out, bad[i][1]);
        assert_status(ligi_served_read_get(out.data, out.bytes, &read), LIG_E_CORRUPT);
        ligi_served_read_fini(&read);
        ligi_writer_fini(&out);
    }
}

static void test_hostile_ties(void **unused)
{
    (void)unused;
    lig_tensor tensors[] = {
        {.name = "w", .dtype = LIG_FLOAT32, .ndim = 2, .shape = shape, .bytes = 60},
        {.name = "v", .dtype = LIG_FLOAT32, .ndim = 2, .shape = shape, .bytes = 60},
        {.name = "i", .dtype = LIG_INT8, .bytes = 1}};
    const uint64_t none = LIGI_SERVED_NOT_TIED;
    const uint64_t bad[][3] = {{0, none, none}, {none, 1, none}, {none, 2, none},
                               {none, none, 0}, {none, 7, none}, {none, 0, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ligi_writer out = {0};
        ligi_served_save save = {.name = "m",
                                 .meta = "",
                                 .structure = "",
                                 .tensors = tensors,
                                 .count = 3,
                                 .tied = bad[i]},
                         got = {0};
        ligi_served_save_put(&out, &save);
        assert_status(ligi_served_save_get(out.data, out.bytes, &got), LIG_E_CORRUPT);
        ligi_served_save_fini(&got);
        ligi_writer_fini(&out);
    }
}

static void test_a_need_has_a_limit(void **unused)
{
    (void)unused;
    ligi_served_stretch one = {0, 0, LIGI_SERVED_NEED_BYTES_MAX};
    ligi_served_need need = {1, LIGI_SERVED_NEED_BYTES, &one, 1, 0}, got = {0};
    ligi_writer out = {0};
    ligi_served_need_put(&out, &need);
    assert_ok(ligi_served_need_get(out.data, out.bytes, &got));
    assert_int_equal(got.data_bytes, LIGI_SERVED_NEED_BYTES_MAX);
    ligi_served_need_fini(&got);
    one.bytes++;
    out.bytes = 0;
    ligi_served_need_put(&out, &need);
    assert_status(ligi_served_need_get(out.data, out.bytes, &got), LIG_E_CORRUPT);
    ligi_served_need_fini(&got);
    ligi_writer_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_every_cut_is_refused),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_hostile_heads),
        cmocka_unit_test(test_another_version_is_named),
        cmocka_unit_test(test_hostile_ranges),
        cmocka_unit_test(test_hostile_ties),
        cmocka_unit_test(test_a_need_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
