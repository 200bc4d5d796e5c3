/* Models of boxes, saved by changing numbers of writers, shared, replaced, retired, compacted and
 * copied in random order, against what a plain array says. */
#include "part_scene.h"

enum { NAMES = 4, STEPS = 250, VALUES = 5 };

static const char *const names[NAMES] = {"a", "b", "c", "d"};
static part_scene palette[VALUES], now[NAMES];
static int there[NAMES];

/* Mixes stored models, so that some boxes equal stored ones and some do not. */
static void mix(part_scene *out, uint64_t *seed)
{
    *out = palette[scene_random(seed) % VALUES];
    const part_scene *other = &palette[scene_random(seed) % VALUES];
    size_t rows = scene_random(seed) % (PART_ROWS + 1);
    memcpy(out->rows, other->rows, rows * sizeof out->rows[0]);
    if (scene_random(seed) % 2)
        memcpy(out->columns, other->columns, sizeof out->columns);
    if (scene_random(seed) % 2)
        memcpy(out->bias, other->bias, sizeof out->bias);
}

static void save_one(const char *uri, int at, uint64_t *seed)
{
    int parent = (int)(scene_random(seed) % NAMES), writers = 1 + (int)(scene_random(seed) % 5);
    mix(&now[at], seed);
    part_save(uri, names[at], &now[at], writers, there[parent] ? names[parent] : NULL);
    there[at] = 1;
}

static void check_all(lig_store *store)
{
    for (int i = 0; i < NAMES; i++)
        if (there[i])
            part_compare(store, names[i], &now[i]);
    part_sound(store);
}

static void work(const char *uri, uint64_t seed)
{
    lig_store *store;
    lig_report *report;
    assert_ok(lig_store_open(&store, uri));
    memset(there, 0, sizeof there);
    for (int step = 0; step < STEPS; step++) {
        int at = (int)(scene_random(&seed) % NAMES), to = (int)(scene_random(&seed) % NAMES);
        uint64_t choice = scene_random(&seed) % 12;
        if (choice < 6) {
            save_one(uri, at, &seed);
        } else if (choice < 8 && there[at]) {
            assert_ok(lig_store_retire(store, names[at]));
            there[at] = 0;
        } else if (choice == 8) {
            assert_ok(lig_store_compact(store, &report));
            lig_report_destroy(report);
        } else if (choice == 9 && there[at] && at != to) {
            assert_ok(lig_store_copy(store, names[at], store, names[to], LIG_SAVE_REPLACE));
            now[to] = now[at];
            there[to] = 1;
        }
        if (step % 10 == 0)
            check_all(store);
    }
    check_all(store);
    lig_store_close(store);
}

static void test_random(void **state)
{
    scene *places = *state;
    char uri[160];
    for (int i = 0; i < VALUES; i++)
        part_fill(&palette[i], (uint64_t)i + 1);
    work(places->memory, 1);
    snprintf(uri, sizeof uri, "%s" SCENE_FAST, places->file);
    work(uri, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
