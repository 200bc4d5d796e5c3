/* What the store's tests share: places to open, tensors to save. */
#ifndef STORE_SCENE_H
#define STORE_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ligament/ligament.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/served_scene.h"

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        lig_status scene_status_ = (call);                                                         \
        if (scene_status_ != LIG_OK)                                                               \
            fail_msg("%s: %s: %s", #call, lig_status_name(scene_status_), lig_error_text());       \
    } while (0)

#define assert_fails(call, status)                                                                 \
    do {                                                                                           \
        lig_status scene_status_ = (call);                                                         \
        if (scene_status_ != (status))                                                             \
            fail_msg("%s: %s, wanted %s (%s)", #call, lig_status_name(scene_status_),              \
                     lig_status_name(status), lig_error_text());                                   \
    } while (0)

/* A folder that is removed at the end, and the URIs of the places in it. */
typedef struct scene {
    char folder[64], file[128], memory[64];
} scene;

static inline int scene_setup(void **state)
{
    static int number;
    scene *made = calloc(1, sizeof *made);
    snprintf(made->folder, sizeof made->folder, "/tmp/ligament-store-XXXXXX");
    if (made == NULL || mkdtemp(made->folder) == NULL)
        return -1;
    snprintf(made->file, sizeof made->file, "file://%s/store", made->folder);
    snprintf(made->memory, sizeof made->memory, "mem:scene%d", number++);
    *state = made;
    return 0;
}

static inline int scene_teardown(void **state)
{
    scene *made = *state;
    char command[128];
    scene_end_servers();
    snprintf(command, sizeof command, "rm -rf '%s'", made->folder);
    int failed = system(command);
    free(made);
    return failed;
}

/* A stream of numbers that every run repeats. */
static inline uint64_t scene_random(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline void scene_fill(void *data, size_t bytes, uint64_t seed)
{
    uint8_t *at = data;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t value = scene_random(&seed);
        memcpy(at + i, &value, bytes - i < 8 ? bytes - i : 8);
    }
}

/* A one-dimensional float tensor over `data`; *length becomes its shape. */
static inline lig_tensor scene_tensor(const char *name, void *data, int64_t *length)
{
    return (lig_tensor){.name = name,
                        .data = data,
                        .bytes = (uint64_t)*length * 4,
                        .shape = length,
                        .ndim = 1,
                        .dtype = LIG_FLOAT32};
}

/* The catalog was lost and made from the packs: `check` says so until a repair has (LIG_CHECK_REPAIR
 * in `flags`). */
static inline void scene_lost(lig_store *store, uint32_t flags)
{
    lig_report *report;
    assert_ok(lig_store_check(store, flags, &report));
    assert_int_equal(report->problem_count, 1);
    assert_non_null(strstr(report->problems[0], "models below 64 KiB"));
    lig_report_destroy(report);
}

#endif
