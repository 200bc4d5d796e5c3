/* Models of which everything follows from a number, for tests that save them again and again. */
#ifndef STORE_NUMBERS_H
#define STORE_NUMBERS_H

#include "store_scene.h"

#include <dirent.h>

enum { TENSORS = 3, LENGTH = 400000 };

static float values[TENSORS][LENGTH], reads[TENSORS][LENGTH];
static const char *const tensor_names[TENSORS] = {"x", "y", "z"};

static inline lig_store *opened(const char *uri)
{
    lig_store *store = NULL;
    assert_ok(lig_store_open(&store, uri));
    return store;
}

/* Everything about a model follows from its number: small ones lie inline, large ones in a pack. */
static inline void make(uint64_t number, int64_t *lengths, lig_tensor *tensors,
                        float memory[][LENGTH])
{
    uint64_t seed = number;
    int large = scene_random(&seed) % 2;
    for (int i = 0; i < TENSORS; i++) {
        lengths[i] = 1 + (int64_t)(scene_random(&seed) % (large ? LENGTH : 2000));
        tensors[i] = scene_tensor(tensor_names[i], memory[i], &lengths[i]);
    }
}

static inline lig_status save_number(lig_store *store, const char *name, uint64_t number)
{
    int64_t lengths[TENSORS];
    lig_tensor tensors[TENSORS];
    lig_metric metric = {"number", (double)number};
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    options.metrics = &metric, options.metric_count = 1;
    make(number, lengths, tensors, values);
    for (int i = 0; i < TENSORS; i++)
        scene_fill(values[i], tensors[i].bytes, number + (uint64_t)i);
    return lig_store_save(store, name, tensors, TENSORS, &options);
}

/* Loads the model, compares every byte with what its number says, and tells the number. */
static inline uint64_t check_number(lig_store *store, const char *name)
{
    lig_ref *ref;
    assert_ok(lig_store_resolve(store, name, &ref));
    uint64_t number = (uint64_t)lig_ref_model(ref)->metrics[0].value;
    int64_t lengths[TENSORS];
    lig_tensor tensors[TENSORS];
    make(number, lengths, tensors, reads);
    assert_ok(lig_ref_load(ref, tensors, TENSORS));
    lig_ref_release(ref);
    for (int i = 0; i < TENSORS; i++) {
        scene_fill(values[i], tensors[i].bytes, number + (uint64_t)i);
        assert_memory_equal(values[i], reads[i], tensors[i].bytes);
    }
    return number;
}

static inline void check_sound(lig_store *store)
{
    lig_report *report;
    assert_ok(lig_store_check(store, 0, &report));
    if (report->problem_count)
        fail_msg("%zu problems: %s", report->problem_count, report->problems[0]);
    lig_report_destroy(report);
}

static inline size_t count_files(const char *folder)
{
    size_t count = 0;
    char path[256];
    snprintf(path, sizeof path, "%s/store/packs", folder);
    DIR *listing = opendir(path);
    for (struct dirent *entry; listing && (entry = readdir(listing));)
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    if (listing)
        closedir(listing);
    return count;
}

static inline void store_quiet(void *context, lig_log_level level, const char *text)
{
    (void)context, (void)level, (void)text;
}

#endif
