#include "store/format/record.h"

#include "store/format/packfile.h"
#include "store_scene.h"

static const uint8_t secret[LIG_SECRET_BYTES] = {1, 2, 3};

static lig_catalog_item item_of(const ligi_catalog_key *key, const ligi_writer *value)
{
    return (lig_catalog_item){key->bytes, key->size, value->data, value->bytes};
}

static ligi_record example(lig_metric *metrics, lig_tag *tags, ligi_use *uses)
{
    metrics[0] = (lig_metric){"acc", .25};
    tags[0] = (lig_tag){"run", "a"};
    tags[1] = (lig_tag){"empty", ""};
    uses[0] = (ligi_use){UINT64_C(0xFEDCBA9876543210), 3};
    return (ligi_record){.about = {.id = 300,
                                   .parent = 7,
                                   .created_ns = 1234567890123,
                                   .name = "m\xc3\xa9",
                                   .parent_name = "p",
                                   .meta = "{}",
                                   .metrics = metrics,
                                   .tags = tags,
                                   .metric_count = 1,
                                   .tag_count = 2},
                         .tensor_count = 3,
                         .bytes = 1000,
                         .own_bytes = 900,
                         .pack = UINT64_C(0xFEDCBA9876543210),
                         .offset = 4096,
                         .manifest_bytes = 500,
                         .manifest_hash = 42,
                         .uses = uses,
                         .use_count = 1};
}

static void test_record(void **state)
{
    (void)state;
    lig_metric metrics[1];
    lig_tag tags[2];
    ligi_use uses[1];
    ligi_record record = example(metrics, tags, uses), back = {0};
    ligi_writer value = {0};
    ligi_record_put(&value, &record, secret);
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, 300);
    lig_catalog_item item = item_of(&key, &value);
    assert_ok(ligi_record_get(&item, secret, &back));
    assert_int_equal(back.about.id, 300);
    assert_string_equal(back.about.name, "m\xc3\xa9");
    assert_string_equal(back.about.tags[1].value, "");
    assert_true(back.about.metrics[0].value == .25);
    assert_int_equal(back.uses[0].pack, uses[0].pack);
    assert_int_equal(back.uses[0].tensors, 3);
    assert_int_equal(back.manifest_hash, 42);
    ligi_record_fini(&back);

    ligi_catalog_key other = ligi_catalog_key_id(LIGI_TABLE_MODEL, 301);
    item = item_of(&other, &value);
    memset(&back, 0, sizeof back);
    assert_fails(ligi_record_get(&item, secret, &back), LIG_E_CORRUPT);
    ligi_record_fini(&back);
    ligi_writer_fini(&value);
}

/* Any byte that changes is found; a newer version is told apart. */
static void test_damage(void **state)
{
    (void)state;
    lig_metric metrics[1];
    lig_tag tags[2];
    ligi_use uses[1];
    ligi_record record = example(metrics, tags, uses);
    ligi_writer value = {0};
    ligi_record_put(&value, &record, secret);
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, 300);
    lig_catalog_item item = item_of(&key, &value);
    for (size_t i = 0; i < value.bytes; i++) {
        ligi_record back = {0};
        value.data[i] ^= 4;
        assert_fails(ligi_record_get(&item, secret, &back),
                     i == 0 ? LIG_E_UNSUPPORTED : LIG_E_CORRUPT);
        ligi_record_fini(&back);
        value.data[i] ^= 4;
    }
    for (size_t i = 0; i < value.bytes; i++) {
        ligi_record back = {0};
        item.value_bytes = i;
        assert_fails(ligi_record_get(&item, secret, &back), LIG_E_CORRUPT);
        ligi_record_fini(&back);
    }
    ligi_writer_fini(&value);
}

static void test_others(void **state)
{
    (void)state;
    ligi_writer value = {0};
    ligi_header header = {.next_id = 77}, header_back;
    memcpy(header.secret, secret, sizeof secret);
    ligi_header_put(&value, &header);
    ligi_catalog_key key = ligi_catalog_key_header();
    lig_catalog_item item = item_of(&key, &value);
    assert_ok(ligi_header_get(&item, &header_back));
    assert_memory_equal(&header, &header_back, sizeof header);

    ligi_pack_record pack = {3, 500, 1 << 20}, pack_back;
    ligi_pack_record_put(&value, 9, &pack, secret);
    key = ligi_catalog_key_id(LIGI_TABLE_PACK, 9);
    item = item_of(&key, &value);
    assert_ok(ligi_pack_record_get(&item, secret, &pack_back));
    assert_memory_equal(&pack, &pack_back, sizeof pack);

    const char *alias;
    uint64_t id;
    key = ligi_catalog_key_text(LIGI_TABLE_ALIAS, secret, "prod");
    ligi_alias_put(&value, &key, "prod", 5, secret);
    item = item_of(&key, &value);
    assert_ok(ligi_alias_get(&item, secret, &alias, &id));
    assert_string_equal(alias, "prod");
    assert_int_equal(id, 5);

    ligi_inline inlined = {(const uint8_t *)"manifest", (const uint8_t *)"data", 8, 4}, back;
    ligi_inline_put(&value, 6, &inlined, secret);
    key = ligi_catalog_key_id(LIGI_TABLE_INLINE, 6);
    item = item_of(&key, &value);
    assert_ok(ligi_inline_get(&item, secret, &back));
    assert_int_equal(back.manifest_bytes, 8);
    assert_memory_equal(back.data, "data", 4);
    ligi_writer_fini(&value);
}

static void make_manifest(ligi_writer *writer)
{
    static int64_t shape[2] = {512, 1025};
    static uint64_t hashes[4] = {11, 22, 33, 44};
    lig_tensor tensors[4] = {
        {.name = "a", .bytes = 512 * 1025 * 4, .shape = shape, .ndim = 2, .dtype = LIG_FLOAT32},
        {.name = "tied", .bytes = 512 * 1025 * 4, .shape = shape, .ndim = 2, .dtype = LIG_FLOAT32},
        {.name = "scalar", .bytes = 8, .dtype = LIG_INT64},
        {.name = "shared", .bytes = 512, .shape = shape, .ndim = 1, .dtype = LIG_INT8}};
    ligi_slot slots[4] = {{.offset = 4096, .tied = SIZE_MAX},
                          {.tied = 0},
                          {.offset = 3145728, .first_hash = 3, .tied = SIZE_MAX},
                          {.owner = 9, .pack = 8, .offset = 64, .tied = SIZE_MAX}};
    ligi_about about = {.id = 5, .name = "m", .parent_name = "", .meta = ""};
    ligi_body body = {
        .structure = "tree", .tensors = tensors, .slots = slots, .hashes = hashes, .count = 4};
    ligi_manifest_put(writer, &about, &body);
    assert_ok(writer->status);
}

static void test_manifest(void **state)
{
    (void)state;
    ligi_writer writer = {0};
    ligi_manifest back = {0};
    make_manifest(&writer);
    assert_ok(ligi_manifest_get(writer.data, writer.bytes, 17, &back));
    assert_int_equal(back.tensor_count, 4);
    assert_string_equal(back.structure, "tree");
    assert_int_equal(back.tensors[0].tensor.shape[1], 1025);
    assert_int_equal(back.tensors[0].pack, 17);
    assert_int_equal(back.tensors[0].owner, 5);
    assert_int_equal(back.hashes[0][2], 33);
    assert_int_equal(back.tensors[1].tied, 0);
    assert_ptr_equal(back.hashes[1], back.hashes[0]);
    assert_int_equal(back.tensors[2].tensor.ndim, 0);
    assert_int_equal(back.hashes[2][0], 44);
    assert_int_equal(back.tensors[3].owner, 9);
    assert_int_equal(back.tensors[3].pack, 8);

    ligi_record place = {.pack = 17}, record;
    assert_ok(ligi_record_of(&back, &place, &record));
    assert_int_equal(record.bytes, 512 * 1025 * 4 + 8 + 512);
    assert_int_equal(record.own_bytes, 512 * 1025 * 4 + 8);
    assert_int_equal(record.use_count, 2);
    assert_int_equal(record.uses[0].tensors, 2);
    assert_int_equal(record.uses[1].pack, 8);
    free(record.uses);
    ligi_manifest_fini(&back);
    ligi_writer_fini(&writer);
}

/* Whatever is changed, it is read or refused: under a sanitizer this finds what is read past its
 * end. */
static void test_manifest_damage(void **state)
{
    (void)state;
    ligi_writer writer = {0};
    make_manifest(&writer);
    for (size_t i = 0; i < writer.bytes; i++)
        for (int bit = 0; bit < 8; bit++) {
            ligi_manifest back = {0};
            writer.data[i] ^= (uint8_t)(1 << bit);
            (void)ligi_manifest_get(writer.data, writer.bytes, 17, &back);
            ligi_manifest_fini(&back);
            writer.data[i] ^= (uint8_t)(1 << bit);
        }
    for (size_t i = 0; i < writer.bytes; i++) {
        ligi_manifest back = {0};
        uint8_t *cut = malloc(i ? i : 1);
        memcpy(cut, writer.data, i);
        assert_fails(ligi_manifest_get(cut, i, 17, &back), LIG_E_CORRUPT);
        ligi_manifest_fini(&back);
        free(cut);
    }
    ligi_manifest back = {0};
    writer.data[4] = 9;
    assert_fails(ligi_manifest_get(writer.data, writer.bytes, 17, &back), LIG_E_UNSUPPORTED);
    ligi_manifest_fini(&back);
    ligi_writer_fini(&writer);
}

static void test_frame(void **state)
{
    (void)state;
    static uint8_t bytes[LIGI_PACK_HEADER_BYTES];
    ligi_pack_header header = {.created_ns = 99, .uuid = {1, 2}}, header_back;
    ligi_pack_header_make(&header, bytes);
    assert_ok(ligi_pack_header_parse(bytes, &header_back));
    assert_memory_equal(&header, &header_back, sizeof header);
    bytes[300] ^= 1;
    assert_fails(ligi_pack_header_parse(bytes, &header_back), LIG_E_CORRUPT);

    ligi_pack_trailer trailer = {8192, 100, 5}, back;
    ligi_pack_trailer_make(&trailer, bytes);
    assert_ok(ligi_pack_trailer_parse(bytes, 8192 + 100 + 64, &back));
    assert_memory_equal(&trailer, &back, sizeof back);
    assert_fails(ligi_pack_trailer_parse(bytes, 8192 + 99 + 64, &back), LIG_E_CORRUPT);
    assert_fails(ligi_pack_trailer_parse(bytes, 10, &back), LIG_E_CORRUPT);
    trailer.footer_offset = UINT64_MAX - 5;
    ligi_pack_trailer_make(&trailer, bytes);
    assert_fails(ligi_pack_trailer_parse(bytes, 8192 + 100 + 64, &back), LIG_E_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record),          cmocka_unit_test(test_damage),
        cmocka_unit_test(test_others),          cmocka_unit_test(test_manifest),
        cmocka_unit_test(test_manifest_damage), cmocka_unit_test(test_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
