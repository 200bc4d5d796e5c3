/* Random histories against a slow model: what every live model must read, and what must be shared.
 */
#include "store_scene.h"

#include <dirent.h>

enum { CONTENTS = 24, MODELS = 12, TENSORS = 5, STEPS = 200 };

static const size_t sizes[] = {40, 5000, 70000, 200000, 1300000};
static char *contents[CONTENTS];
static char back[1300000];
static uint64_t first_seed = 1, emptied;

typedef struct expected {
    uint64_t id;
    int live, packed;
    int tensors[TENSORS]; /* content of each; -1: none */
} expected;

typedef struct history {
    scene *places;
    const char *uri;
    int in_file;
    uint64_t seed;
    lig_store *store;
    expected models[MODELS]; /* number i has the name m<i> */
} history;

static size_t content_bytes(int content)
{
    return sizes[content % 5];
}

/* Of the large ones every second differs from its neighbour in the last byte alone. */
static void make_contents(void)
{
    for (int i = 0; i < CONTENTS; i++) {
        contents[i] = malloc(content_bytes(i));
        scene_fill(contents[i], content_bytes(i), (uint64_t)(i / 10 * 10 + i % 5 + 100));
        contents[i][content_bytes(i) - 1] = (char)i;
    }
}

static uint64_t pick(history *self, uint64_t limit)
{
    return scene_random(&self->seed) % limit;
}

static const char *name_of(int number)
{
    static char names[4][16];
    static int at;
    char *name = names[at++ % 4];
    snprintf(name, 16, "m%d", number);
    return name;
}

static lig_tensor tensor_of(int slot, int content, void *data)
{
    static int64_t lengths[TENSORS][CONTENTS];
    static const char *const names[TENSORS] = {"a", "b", "c", "d", "e"};
    lengths[slot][content] = (int64_t)content_bytes(content);
    return (lig_tensor){.name = names[slot],
                        .data = data,
                        .bytes = content_bytes(content),
                        .shape = &lengths[slot][content],
                        .ndim = 1,
                        .dtype = LIG_UINT8};
}

/* 1 when some live model has this content in a pack. */
static int is_stored(history *self, int content, int among)
{
    for (int m = 0; m < MODELS; m++) {
        lig_model *model;
        int found = 0;
        if (!self->models[m].live || (among >= 0 && among != m))
            continue;
        assert_ok(lig_store_model(self->store, name_of(m), &model));
        for (int t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < model->tensor_count; i++)
                found |= self->models[m].tensors[t] == content && model->tensors[i].pack &&
                         model->tensors[i].tensor.name[0] == 'a' + t;
        lig_model_destroy(model);
        if (found)
            return 1;
    }
    return 0;
}

static void check_model(history *self, int number)
{
    const expected *wanted = &self->models[number];
    lig_model *model;
    assert_ok(lig_store_model(self->store, name_of(number), &model));
    assert_int_equal(model->id, wanted->id);
    uint64_t own = 0;
    for (size_t i = 0; i < model->tensor_count; i++) {
        const lig_stored_tensor *stored = &model->tensors[i];
        int slot = stored->tensor.name[0] - 'a';
        lig_tensor into = tensor_of(slot, wanted->tensors[slot], back);
        assert_ok(lig_store_load(self->store, name_of(number), &into, 1));
        assert_memory_equal(back, contents[wanted->tensors[slot]], into.bytes);
        assert_true(stored->owner > 0);
        own += stored->owner == model->id && stored->tied < 0 ? stored->tensor.bytes : 0;
    }
    assert_int_equal(own, model->own_bytes);
    lig_model_destroy(model);
}

static void check_all(history *self)
{
    lig_report *report;
    lig_store_stats stats;
    size_t live = 0;
    assert_ok(lig_store_check(self->store, 0, &report));
    for (size_t i = 0; i < report->problem_count; i++)
        print_message("problem: %s\n", report->problems[i]);
    assert_int_equal(report->problem_count, 0);
    for (int m = 0; m < MODELS; m++)
        live += self->models[m].live;
    assert_ok(lig_store_stat(self->store, &stats));
    assert_int_equal(stats.models, live);
    assert_int_equal(report->packs, stats.packs); /* nothing lies about */
    lig_report_destroy(report);
}

static void save_model(history *self, int number)
{
    expected made = {.live = 1};
    lig_tensor tensors[TENSORS];
    int parent = (int)pick(self, MODELS), shared[TENSORS] = {0};
    int has_parent = pick(self, 3) && self->models[parent].live;
    size_t count = 0;
    for (int t = 0; t < TENSORS; t++) {
        int inherit = has_parent && self->models[parent].tensors[t] >= 0 && pick(self, 3);
        made.tensors[t] = inherit ? self->models[parent].tensors[t] : (int)pick(self, CONTENTS);
        int content = made.tensors[t];
        shared[count] = (content_bytes(content) >= 65536 && is_stored(self, content, -1)) ||
                        (has_parent && is_stored(self, content, parent));
        tensors[count++] = tensor_of(t, content, contents[content]);
        if (t && pick(self, 5) == 0)
            made.tensors[t] = -1, count--;
    }
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    options.parent = has_parent ? name_of(parent) : NULL;
    if (pick(self, 2)) {
        assert_ok(lig_store_save(self->store, name_of(number), tensors, count, &options));
    } else {
        lig_save *save;
        lig_ticket *ticket;
        assert_ok(lig_save_begin(&save, self->store, name_of(number), tensors, count, &options));
        for (size_t i = 0; i < count; i++)
            assert_ok(lig_save_offer(save, tensors[i].data, NULL));
        assert_ok(lig_save_commit(save, &ticket));
        assert_ok(lig_ticket_wait(ticket, LIG_FOREVER));
        lig_ticket_destroy(ticket);
    }
    lig_model *model;
    assert_ok(lig_store_model(self->store, name_of(number), &model));
    made.id = model->id;
    for (size_t i = 0; i < count; i++) {
        int own = model->tensors[i].owner == model->id;
        assert_false(own && shared[i]); /* bytes that nobody names may still be there to share */
        made.packed |= own && model->tensors[i].pack;
    }
    lig_model_destroy(model);
    self->models[number] = made;
}

static void reopen(history *self, int without_catalog)
{
    char command[256];
    lig_model **models;
    size_t count;
    if (!self->in_file)
        return;
    lig_store_close(self->store);
    snprintf(command, sizeof command, "rm -f '%s'/store/catalog*", self->places->folder);
    if (without_catalog)
        assert_int_equal(system(command), 0);
    assert_ok(lig_store_open(&self->store, self->uri));
    if (!without_catalog)
        return;
    assert_ok(lig_store_models(self->store, NULL, &models, &count));
    int back_again[MODELS] = {0};
    for (size_t i = 0; i < count; i++) { /* what was retired comes back with its pack */
        int known = -1;
        for (int m = 0; m < MODELS; m++)
            if (self->models[m].live && self->models[m].id == models[i]->id &&
                strcmp(models[i]->name, name_of(m)) == 0)
                known = m;
        if (known < 0)
            assert_ok(lig_store_retire(self->store, models[i]->name));
        else
            back_again[known] = 1;
    }
    lig_models_destroy(models, count);
    for (int m = 0; m < MODELS; m++) {
        if (self->models[m].live && self->models[m].packed)
            assert_true(back_again[m]);
        self->models[m].live &= back_again[m];
    }
}

static void compact(history *self)
{
    lig_report *report;
    lig_store_stats before, after;
    assert_ok(lig_store_stat(self->store, &before));
    assert_ok(lig_store_compact(self->store, &report));
    emptied += report->repaired;
    lig_report_destroy(report);
    assert_ok(lig_store_stat(self->store, &after));
    if (!self->in_file) /* the catalog's file does not shrink at once */
        assert_true(after.stored_bytes <= before.stored_bytes + 4096);
}

static void step(history *self)
{
    int number = (int)pick(self, MODELS);
    uint64_t choice = pick(self, 20);
    if (choice < 11) {
        save_model(self, number);
    } else if (choice < 16) {
        lig_status status = lig_store_retire(self->store, name_of(number));
        assert_int_equal(status, self->models[number].live ? LIG_OK : LIG_E_NOTFOUND);
        self->models[number].live = 0;
    } else if (choice < 18) {
        compact(self);
    } else {
        reopen(self, choice == 19);
    }
}

static void run(scene *places, const char *uri, int in_file, uint64_t seed)
{
    history self = {.places = places, .uri = uri, .in_file = in_file, .seed = seed};
    assert_ok(lig_store_open(&self.store, uri));
    for (int i = 0; i < STEPS; i++) {
        step(&self);
        check_all(&self);
        for (int m = 0; m < MODELS; m++)
            if (self.models[m].live && pick(&self, 4) == 0)
                check_model(&self, m);
    }
    for (int m = 0; m < MODELS; m++)
        if (self.models[m].live)
            assert_ok(lig_store_retire(self.store, name_of(m)));
    memset(self.models, 0, sizeof self.models);
    check_all(&self);
    lig_store_stats stats;
    assert_ok(lig_store_stat(self.store, &stats));
    assert_int_equal(stats.packs, 0);
    lig_store_close(self.store);
}

static void test_memory(void **state)
{
    scene *places = *state;
    run(places, places->memory, 0, first_seed);
    assert_true(emptied > 0);
}

static void test_file(void **state)
{
    scene *places = *state;
    char uri[160];
    snprintf(uri, sizeof uri, "%s" SCENE_FAST, places->file);
    run(places, uri, 1, first_seed + 1);
}

/* share_random_test [SEED] */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_memory, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_file, scene_setup, scene_teardown),
    };
    if (argc > 1)
        first_seed = strtoull(argv[1], NULL, 10);
    make_contents();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < CONTENTS; i++)
        free(contents[i]);
    return failed;
}
