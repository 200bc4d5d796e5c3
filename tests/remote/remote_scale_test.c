/* A catalog of 20,000 small models on a service (`soak`: 100,000): what opening, looking and
 * committing cost. Requests and memory are checked, times are printed. */
#include "base/test.h"
#include "commit_ops.h"
#include "remote/trial_engine.h"

#include <malloc.h>
#include <sched.h>
#include <unistd.h>

enum { ITEMS = 4, VALUE_BYTES = 500, BULK = 500, SINGLE = 300, LOOKS = 2000 };
/* docs/engines.md: what an item takes besides key and value. */
enum { ITEM_BYTES = 120 };
/* Entries since the newest checkpoint: at most one for so much of the catalog, those made while it
 * was written, and a few other requests. */
enum { ENTRY_BYTES = 32768, OTHER_REQUESTS = 200 };

static const lig_volume_ops *const ops = &ligi_remote_volume_ops;
static uint64_t model_count = 20000;

static void *opened(int number)
{
    char config[64];
    void *self = NULL;

    /* Another `wait` is another process. */
    snprintf(config, sizeof config, "scale?wait=%d&keep=2&fresh=1", number + 1);
    assert_ok(ligi_remote_open(&trial_ops, config, &self));
    return self;
}

static double spent_ms(int64_t begin_ns)
{
    return (double)(ligi_now_ns() - begin_ns) / 1e6;
}

/* Item `item` of model `model`; keys of consecutive models are far apart, as those of hashes. */
static size_t key_of(uint64_t model, unsigned item, char key[32])
{
    uint64_t spread = model * UINT64_C(0x9E3779B97F4A7C15);

    return (size_t)snprintf(key, 32, "%c%016llx%08llx", 'a' + (int)item, (unsigned long long)spread,
                            (unsigned long long)model);
}

static void commit_models(void *self, uint64_t first, uint64_t count)
{
    char (*keys)[32] = calloc(count * ITEMS, sizeof *keys);
    lig_catalog_op *edits = calloc(count * ITEMS, sizeof *edits);
    char value[VALUE_BYTES];
    void *snapshot;
    uint64_t version;

    memset(value, 7, sizeof value);
    for (uint64_t i = 0; i < count * ITEMS; i++) {
        size_t bytes = key_of(first + i / ITEMS, (unsigned)(i % ITEMS), keys[i]);
        edits[i] = (lig_catalog_op){keys[i], bytes, value, sizeof value};
    }
    assert_ok(ops->catalog_begin(self, &snapshot, &version));
    ops->catalog_end(snapshot);
    assert_ok(commit_ops(ops, self, version, edits, count * ITEMS));
    free(edits);
    free(keys);
}

static uint64_t requests(void)
{
    trial_store *store = trial_find("scale");

    pthread_mutex_lock(&store->lock);
    uint64_t count = store->requests;
    pthread_mutex_unlock(&store->lock);
    return count;
}

static void look_up(void *self, uint64_t models)
{
    void *snapshot;
    uint64_t version, before = requests();
    char key[32];
    lig_catalog_item item;
    int64_t begin = ligi_now_ns();

    assert_ok(ops->catalog_begin(self, &snapshot, &version));
    for (uint64_t i = 0; i < LOOKS; i++) {
        size_t bytes = key_of(i * 7919 % models, (unsigned)(i % ITEMS), key);
        assert_ok(ops->catalog_get(snapshot, key, bytes, &item));
        assert_int_equal(item.value_bytes, VALUE_BYTES);
    }
    assert_int_equal(ops->catalog_get(snapshot, "absent", 6, &item), LIG_E_NOTFOUND);
    ops->catalog_end(snapshot);
    assert_true(requests() - before <= 2);
    print_message("  look at the catalog and %d items: %.2f ms\n", LOOKS, spent_ms(begin));
}

/* The catalog is in memory once, and opening reads a checkpoint and the few commits since. */
static void open_again(void)
{
    uint64_t before = requests();
    size_t heap = mallinfo2().uordblks + mallinfo2().hblkhd;
    int64_t begin = ligi_now_ns();
    void *self = opened(2);
    void *snapshot;
    uint64_t version;

    assert_ok(ops->catalog_begin(self, &snapshot, &version));
    ops->catalog_end(snapshot);
    double ms = spent_ms(begin);
    size_t taken = mallinfo2().uordblks + mallinfo2().hblkhd - heap;
    uint64_t items = model_count * ITEMS;
    print_message("  open: %.1f ms, %llu requests, %.1f MiB\n", ms,
                  (unsigned long long)(requests() - before), (double)taken / (1 << 20));
    assert_true(requests() - before < items * (VALUE_BYTES + 25) / ENTRY_BYTES + OTHER_REQUESTS);
    assert_true(taken < items * (VALUE_BYTES + 25 + ITEM_BYTES + ITEM_BYTES / 4));
    look_up(self, model_count);
    ligi_remote_close(self);
}

static void test_many_models(void **state)
{
    void *self = opened(1);
    int64_t begin = ligi_now_ns();

    (void)state;
    for (uint64_t i = 0; i + SINGLE < model_count; i += BULK)
        commit_models(self, i, i + BULK + SINGLE <= model_count ? BULK : model_count - SINGLE - i);
    print_message("  %llu models in bulk: %.0f ms\n", (unsigned long long)model_count,
                  spent_ms(begin));
    begin = ligi_now_ns();
    for (uint64_t i = model_count - SINGLE; i < model_count; i++)
        commit_models(self, i, 1);
    print_message("  a commit: %.1f us\n", 1e3 * spent_ms(begin) / SINGLE);
    look_up(self, model_count);
    ligi_remote_close(self); /* its thread has written the last checkpoint */
    open_again();
    trial_end();
}

static uint64_t newest_checkpoint(void)
{
    uint64_t newest = 0;

    if (trial_checkpoint_newest(trial_find("scale"), UINT64_MAX, &newest) != LIG_OK)
        return 0;
    return newest;
}

static void commit_value(void *self, uint64_t version, uint64_t key, const char *value,
                         size_t bytes)
{
    const lig_catalog_op op = {&key, sizeof key, value, bytes};
    lig_status status = LIG_E_BUSY;

    /* Busy although nobody else commits: on a slow machine the view is too old. It was renewed. */
    for (int i = 0; i < 10 && status == LIG_E_BUSY; i++)
        status = commit_ops(ops, self, version, &op, 1);
    assert_ok(status);
}

/* 64 MiB are not written again for a thousand small commits. */
static void test_few_checkpoints(void **state)
{
    void *self = opened(1);
    size_t bytes = 1 << 20;
    char *value = calloc(1, bytes);

    (void)state;
    for (uint64_t i = 0; i < 64; i++)
        commit_value(self, i, i, value, bytes);
    int64_t begin = ligi_now_ns();
    while (newest_checkpoint() < 64 && spent_ms(begin) < 60000)
        sched_yield(); /* its thread writes it */
    assert_int_equal(newest_checkpoint(), 64);
    for (uint64_t i = 64; i < 64 + 1200; i++)
        commit_value(self, i, 64, value, 8);
    ligi_remote_close(self); /* would finish another one */
    assert_int_equal(newest_checkpoint(), 64);
    free(value);
    trial_end();
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many_models),
                                       cmocka_unit_test(test_few_checkpoints)};

    if (count > 1 && strcmp(words[1], "soak") == 0)
        model_count = 100000;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
