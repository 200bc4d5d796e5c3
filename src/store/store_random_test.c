#include "store_scene.h"

/* A store beside a slow, obvious one: an array of what should be there. */
enum { NAMES = 12, ALIASES = 4, TENSORS = 5, STEPS = 1500, ROOM = 3 << 20 };

typedef struct expected {
    int there;
    uint64_t seed; /* of the contents */
    size_t tensor_count;
    int64_t lengths[TENSORS];
    int tied; /* the last tensor is the first one's memory */
    double metric;
    char tag[16];
} expected;

typedef struct world {
    const char *uri;
    lig_store *store;
    uint64_t seed;
    expected models[NAMES];
    int aliases[ALIASES]; /* index of a model, -1: none */
} world;

static uint8_t *rooms[TENSORS], *reads[TENSORS];

static const char *name_of(size_t model)
{
    static const char *const names[NAMES] = {"a",        "b",  "a/b", "..",   "/", "x y",
                                             "\xc3\xa9", "a*", "?",   "long", "z", "zz"};
    return names[model];
}

static const char *alias_of(size_t alias)
{
    static const char *const names[ALIASES] = {"prod", "latest", "best", "a/prod"};
    return names[alias];
}

static const char *tensor_of(size_t tensor)
{
    static const char *const names[TENSORS] = {"w", "b", "layer.0", "layer.1", "e"};
    return names[tensor];
}

static size_t make_tensors(const expected *model, lig_tensor *tensors, uint8_t **memory)
{
    for (size_t i = 0; i < model->tensor_count; i++)
        tensors[i] = (lig_tensor){.name = tensor_of(i),
                                  .data = memory[i],
                                  .bytes = (uint64_t)model->lengths[i],
                                  .shape = &model->lengths[i],
                                  .ndim = 1,
                                  .dtype = LIG_UINT8};
    if (model->tied)
        tensors[model->tensor_count - 1].data = memory[0];
    return model->tensor_count;
}

static void fill_rooms(const expected *model)
{
    for (size_t i = 0; i < model->tensor_count; i++)
        scene_fill(rooms[i], (size_t)model->lengths[i], model->seed + i);
}

static void imagine(world *self, expected *model)
{
    memset(model, 0, sizeof *model);
    model->there = 1;
    model->seed = scene_random(&self->seed);
    model->tensor_count = scene_random(&self->seed) % (TENSORS + 1);
    uint64_t kind = scene_random(&self->seed) % 8;
    for (size_t i = 0; i < model->tensor_count; i++)
        model->lengths[i] = (int64_t)(scene_random(&self->seed) % (kind == 0  ? ROOM
                                                                   : kind < 3 ? 70000
                                                                              : 3000));
    model->tied = model->tensor_count > 1 && scene_random(&self->seed) % 4 == 0;
    if (model->tied)
        model->lengths[model->tensor_count - 1] = model->lengths[0];
    model->metric = (double)(scene_random(&self->seed) % 100);
    snprintf(model->tag, sizeof model->tag, "v%d", (int)(scene_random(&self->seed) % 3));
}

static void do_save(world *self, size_t at)
{
    expected model;
    lig_tensor tensors[TENSORS];
    imagine(self, &model);
    fill_rooms(&model);
    size_t count = make_tensors(&model, tensors, rooms);
    lig_metric metric = {"metric", model.metric};
    lig_tag tag = {"tag", model.tag};
    lig_save_options options = LIG_SAVE_INIT;
    options.metrics = &metric, options.metric_count = 1;
    options.tags = &tag, options.tag_count = 1;
    options.flags = scene_random(&self->seed) % 2 ? LIG_SAVE_REPLACE : 0;
    if (self->models[at].there && !options.flags) {
        assert_fails(lig_store_save(self->store, name_of(at), tensors, count, &options),
                     LIG_E_EXISTS);
        return;
    }
    if (scene_random(&self->seed) % 2) {
        lig_ticket *ticket;
        assert_ok(
            lig_store_save_start(self->store, name_of(at), tensors, count, &options, &ticket));
        assert_ok(lig_ticket_wait(ticket, LIG_FOREVER));
        lig_ticket_destroy(ticket);
    } else {
        assert_ok(lig_store_save(self->store, name_of(at), tensors, count, &options));
    }
    self->models[at] = model;
}

static void do_load(world *self, const char *name, const expected *model)
{
    lig_tensor tensors[TENSORS];
    size_t count = make_tensors(model, tensors, reads);
    if (!model->there) {
        lig_model *found;
        assert_fails(lig_store_model(self->store, name, &found), LIG_E_NOTFOUND);
        return;
    }
    if (model->tied && model->lengths[0])
        tensors[count - 1].data = reads[count - 1];
    assert_ok(lig_store_load(self->store, name, tensors, count));
    fill_rooms(model);
    for (size_t i = 0; i < count; i++)
        assert_memory_equal(tensors[i].data, rooms[model->tied && i == count - 1 ? 0 : i],
                            tensors[i].bytes);
    lig_view *view;
    assert_ok(lig_store_map(self->store, name, 0, &view));
    const lig_model *found = lig_view_model(view);
    assert_int_equal(found->tensor_count, count);
    assert_true(found->metrics[0].value == model->metric);
    assert_string_equal(found->tags[0].value, model->tag);
    for (size_t i = 0; i < count; i++)
        assert_memory_equal(found->tensors[i].tensor.data, tensors[i].data, tensors[i].bytes);
    lig_view_destroy(view);
}

static void do_update(world *self, size_t at)
{
    size_t to = scene_random(&self->seed) % NAMES;
    lig_metric metric = {"metric", (double)(scene_random(&self->seed) % 100)};
    lig_update update = LIG_UPDATE_INIT;
    update.metrics = &metric, update.metric_count = 1;
    update.name = scene_random(&self->seed) % 2 ? name_of(to) : NULL;
    lig_status wanted = LIG_OK;
    if (!self->models[at].there)
        wanted = LIG_E_NOTFOUND;
    else if (update.name && to != at && self->models[to].there)
        wanted = LIG_E_EXISTS;
    assert_fails(lig_store_update(self->store, name_of(at), &update), wanted);
    if (wanted != LIG_OK)
        return;
    self->models[at].metric = metric.value;
    if (update.name == NULL || to == at)
        return;
    self->models[to] = self->models[at];
    self->models[at].there = 0;
    for (size_t i = 0; i < ALIASES; i++)
        if (self->aliases[i] == (int)at)
            self->aliases[i] = (int)to;
}

static void do_retire(world *self, size_t at)
{
    assert_fails(lig_store_retire(self->store, name_of(at)),
                 self->models[at].there ? LIG_OK : LIG_E_NOTFOUND);
    self->models[at].there = 0;
    for (size_t i = 0; i < ALIASES; i++)
        if (self->aliases[i] == (int)at)
            self->aliases[i] = -1;
}

static void do_alias(world *self, size_t at)
{
    size_t alias = scene_random(&self->seed) % ALIASES;
    if (scene_random(&self->seed) % 4 == 0) {
        assert_fails(lig_store_alias(self->store, alias_of(alias), NULL),
                     self->aliases[alias] < 0 ? LIG_E_NOTFOUND : LIG_OK);
        self->aliases[alias] = -1;
        return;
    }
    assert_fails(lig_store_alias(self->store, alias_of(alias), name_of(at)),
                 self->models[at].there ? LIG_OK : LIG_E_NOTFOUND);
    if (self->models[at].there)
        self->aliases[alias] = (int)at;
}

static void do_look(world *self)
{
    lig_model **models;
    size_t count, wanted = 0, aliases = 0;
    assert_ok(lig_store_models(self->store, NULL, &models, &count));
    for (size_t i = 0; i < NAMES; i++)
        wanted += self->models[i].there;
    assert_int_equal(count, wanted);
    lig_models_destroy(models, count);
    for (size_t i = 0; i < ALIASES; i++) {
        static const expected nothing;
        int to = self->aliases[i];
        do_load(self, alias_of(i), to < 0 ? &nothing : &self->models[to]);
        aliases += to >= 0;
    }
    char *alias, *name;
    size_t told = 0;
    while (lig_store_alias_at(self->store, told, &alias, &name) == LIG_OK) {
        lig_text_destroy(alias);
        lig_text_destroy(name);
        told++;
    }
    assert_int_equal(told, aliases);
}

static void do_check(world *self)
{
    lig_report *report;
    assert_ok(lig_store_check(self->store, 0, &report));
    if (report->problem_count)
        fail_msg("%s", report->problems[0]);
    lig_report_destroy(report);
    assert_ok(lig_store_compact(self->store, &report));
    assert_int_equal(report->freed_bytes, 0);
    lig_report_destroy(report);
}

static void step(world *self)
{
    size_t at = scene_random(&self->seed) % NAMES;
    switch (scene_random(&self->seed) % 16) {
    case 0:
    case 1:
    case 2:
    case 3: do_save(self, at); break;
    case 4:
    case 5: do_update(self, at); break;
    case 6: do_retire(self, at); break;
    case 7:
    case 8: do_alias(self, at); break;
    case 9: do_look(self); break;
    case 10:
        if (scene_random(&self->seed) % 8 == 0)
            do_check(self);
        break;
    case 11: {
        lig_store *again;
        assert_ok(lig_store_open(&again, self->uri));
        lig_store_close(self->store);
        self->store = again;
        break;
    }
    default: do_load(self, name_of(at), &self->models[at]);
    }
}

static void live(const char *uri, int steps)
{
    world self = {.uri = uri, .seed = 42, .aliases = {-1, -1, -1, -1}};
    assert_ok(lig_store_open(&self.store, uri));
    for (int i = 0; i < steps; i++)
        step(&self);
    do_check(&self);
    lig_store_close(self.store);
}

static void test_memory(void **state)
{
    scene *places = *state;
    live(places->memory, STEPS);
}

static void test_file(void **state)
{
    scene *places = *state;
    live(places->file, STEPS);
}

int main(void)
{
    for (int i = 0; i < TENSORS; i++) {
        rooms[i] = malloc(ROOM);
        reads[i] = malloc(ROOM);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_memory, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_file, scene_setup, scene_teardown),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < TENSORS; i++) {
        free(rooms[i]);
        free(reads[i]);
    }
    return failed;
}
