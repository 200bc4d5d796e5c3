#include "file_log_scene.h"

enum { VERSION = 40 };

/* Keys of 1 to 40 bytes in ascending order; values of up to 20 KB for every 16th. */
static ligi_checkpoint_item item_at(size_t i, uint8_t key[64], uint8_t *value)
{
    ligi_checkpoint_item item = {.key = key, .value = value, .version = i % VERSION + 1};

    item.key_bytes = 3 + i % 38;
    memset(key, (int)(i % 7), 64);
    key[0] = (uint8_t)(i >> 8);
    key[1] = (uint8_t)i;
    key[2] = 0;
    item.value_bytes = i % 16 == 3 ? 20000 + i : i % 50;
    memset(value, (int)(i % 251), item.value_bytes);
    return item;
}

static void make(log_scene *scene, size_t items)
{
    static uint8_t value[40000];
    const ligi_clog_position at = {.version = VERSION, .chain = 99};
    ligi_checkpoint_writer *writer;
    uint8_t key[64];

    assert_ok(ligi_checkpoint_create(&scene->log, &at, &writer));
    for (size_t i = 0; i < items; i++) {
        ligi_checkpoint_item item = item_at(i, key, value);
        assert_ok(ligi_checkpoint_put(writer, &item));
    }
    assert_ok(ligi_checkpoint_finish(writer));
    ligi_checkpoint_abort(writer);
}

typedef struct visited {
    log_scene *scene;
    size_t count, wrong;
} visited;

static lig_status compare(void *context, const ligi_checkpoint_item *item)
{
    static uint8_t value[40000];
    visited *self = context;
    uint8_t key[64];
    ligi_checkpoint_item wanted = item_at(self->count++, key, value);

    self->wrong += item->key_bytes != wanted.key_bytes || item->version != wanted.version ||
                   item->value_bytes != wanted.value_bytes ||
                   memcmp(item->key, key, item->key_bytes) != 0 ||
                   memcmp(item->value, value, item->value_bytes) != 0;
    return LIG_OK;
}

static void round_trip(void **state)
{
    const size_t counts[] = {0, 1, 2, 700};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        visited seen = {*state, 0, 0};
        ligi_checkpoint_info info;
        make(*state, counts[i]);
        assert_ok(ligi_checkpoint_look(&seen.scene->log, VERSION, &info));
        assert_int_equal(info.version, VERSION);
        assert_int_equal(info.chain, 99);
        assert_int_equal(info.items, counts[i]);
        assert_int_equal(info.bytes, file_size(log_scene_path(*state, "checkpoint", VERSION)));
        assert_memory_equal(info.id, seen.scene->log.id, 16);
        assert_ok(ligi_checkpoint_read(&seen.scene->log, VERSION, compare, &seen));
        assert_int_equal(seen.count, counts[i]);
        assert_int_equal(seen.wrong, 0);
    }
}

static void keys_are_found(void **state)
{
    static uint8_t value[40000];
    log_scene *scene = *state;
    uint8_t key[64];
    void *found;

    make(scene, 700);
    for (size_t i = 0; i < 700; i += 3) {
        ligi_checkpoint_item item = item_at(i, key, value);
        ligi_checkpoint_item got = {.key = key, .key_bytes = item.key_bytes};
        assert_ok(ligi_checkpoint_find(&scene->log, VERSION, &got, &found));
        assert_int_equal(got.value_bytes, item.value_bytes);
        assert_memory_equal(found, value, got.value_bytes);
        assert_int_equal(got.version, item.version);
        free(found);
        key[item.key_bytes] = 0; /* between this one and the next */
        got.key_bytes++;
        assert_int_equal(ligi_checkpoint_find(&scene->log, VERSION, &got, &found), LIG_E_NOTFOUND);
    }
    const char *const absent[] = {"", "\xff", "\xff\xff\xff"};
    for (size_t i = 0; i < 3; i++) {
        ligi_checkpoint_item got = {.key = (const uint8_t *)absent[i], .key_bytes = i};
        assert_int_equal(ligi_checkpoint_find(&scene->log, VERSION, &got, &found), LIG_E_NOTFOUND);
    }
    ligi_checkpoint_item got = {.key = (const uint8_t *)"a", .key_bytes = 1};
    assert_int_equal(ligi_checkpoint_find(&scene->log, 3, &got, &found), LIG_E_NOTFOUND);
}

/* Bytes that belong to nothing, zeros between items and at the ends, may change. */
static void damage_is_noticed_at_every_byte(void **state)
{
    log_scene *scene = *state;
    char path[128];
    size_t unnoticed = 0;

    make(scene, 20);
    snprintf(path, sizeof path, "%s", log_scene_path(scene, "checkpoint", VERSION));
    off_t size = file_size(path);
    for (off_t at = 0; at < size; at += at < 1500 || at > size - 400 ? 1 : 97) {
        visited seen = {scene, 0, 0};
        flip_byte(path, at, 0x40);
        lig_status status = ligi_checkpoint_read(&scene->log, VERSION, compare, &seen);
        if (status == LIG_OK) {
            unnoticed++;
            if (seen.wrong > 0 || seen.count != 20)
                fail_msg("byte %lld was changed, and the checkpoint counts as whole",
                         (long long)at);
        } else {
            assert_true(status == LIG_E_CORRUPT || status == LIG_E_UNSUPPORTED);
        }
        flip_byte(path, at, 0x40);
    }
    assert_in_range(unnoticed, 0, 20 * 7);
}

static void cut_files_are_damaged(void **state)
{
    log_scene *scene = *state;
    char path[128];

    make(scene, 20);
    snprintf(path, sizeof path, "%s", log_scene_path(scene, "checkpoint", VERSION));
    for (off_t size = file_size(path) - 1; size >= 0; size -= 1 + size / 13) {
        visited seen = {scene, 0, 0};
        ligi_checkpoint_info info;
        assert_int_equal(truncate(path, size), 0);
        assert_status(ligi_checkpoint_look(&scene->log, VERSION, &info), LIG_E_CORRUPT);
        assert_status(ligi_checkpoint_read(&scene->log, VERSION, compare, &seen), LIG_E_CORRUPT);
    }
}

/* A damaged item does not affect the others. */
static void whole_items_are_salvaged(void **state)
{
    log_scene *scene = *state;
    visited seen = {scene, 0, 0};
    ligi_checkpoint_info info;
    size_t skipped = 0;

    make(scene, 20);
    flip_byte(log_scene_path(scene, "checkpoint", VERSION), 64 + 24, 1);
    assert_ok(ligi_checkpoint_look(&scene->log, VERSION, &info));
    assert_status(ligi_checkpoint_read(&scene->log, VERSION, compare, &seen), LIG_E_CORRUPT);
    seen.count = 1;
    assert_ok(ligi_checkpoint_salvage(&scene->log, VERSION, compare, &seen, &skipped));
    assert_int_equal(skipped, 1);
    assert_int_equal(seen.count, 20);
    assert_int_equal(seen.wrong, 0);
}

/* An unfinished checkpoint is not visible. */
static void unfinished_checkpoints(void **state)
{
    log_scene *scene = *state;
    const ligi_clog_position at = {.version = VERSION};
    ligi_checkpoint_writer *writer;
    ligi_checkpoint_info info;
    char folder[128];

    assert_ok(ligi_checkpoint_create(&scene->log, &at, &writer));
    ligi_checkpoint_abort(writer);
    assert_int_equal(ligi_checkpoint_look(&scene->log, VERSION, &info), LIG_E_NOTFOUND);
    snprintf(folder, sizeof folder, "%s/log", scene->place);
    assert_int_equal(count_entries(folder, ""), 1);
    ligi_checkpoint_abort(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        log_test(round_trip),
        log_test(keys_are_found),
        log_test(damage_is_noticed_at_every_byte),
        log_test(cut_files_are_damaged),
        log_test(whole_items_are_salvaged),
        log_test(unfinished_checkpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
