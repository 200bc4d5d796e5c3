/* An engine over a fresh prefix of the bucket that tools/engines made, for its tests. */
#ifndef S3_SCENE_H
#define S3_SCENE_H

#include "backend/remote/storage_engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/test.h"
#include "base/uri/option.h"

#define SECOND INT64_C(1000000000)
#define HOUR (3600 * SECOND)
#define MIB (UINT64_C(1) << 20)

extern const ligi_engine_ops lig_engine_entry;

static const char *secret_key;

static lig_status credential(const char *name, char *value, size_t value_bytes)
{
    const char *found = NULL;

    if (strcmp(name, "s3.access_key") == 0)
        found = getenv("LIGAMENT_TEST_S3_KEY");
    if (strcmp(name, "s3.secret_key") == 0)
        found = secret_key;
    if (found == NULL)
        return LIG_E_NOTFOUND;
    snprintf(value, value_bytes, "%s", found);
    return LIG_OK;
}

static lig_status random_bytes(void *bytes, size_t count)
{
    return getentropy(bytes, count) == 0 ? LIG_OK : lig_fail(LIG_E_IO, "getentropy failed");
}

static void silent(int level, const char *format, ...)
{
    (void)level;
    (void)format;
}

static const ligi_engine_host host = {.abi = LIGI_ENGINE_ABI,
                                      .size = sizeof host,
                                      .fail = lig_fail,
                                      .error_text = lig_error_text,
                                      .log = silent,
                                      .random = random_bytes,
                                      .credential = credential};
static const ligi_engine_ops *const ops = &lig_engine_entry;

typedef struct scene {
    char prefix[64];
    void *self;
} scene;

typedef struct opening {
    const char *bucket, *prefix, *endpoint, *extra;
    int64_t timeout_ns;
} opening;

static lig_status open_engine(const opening *how, void **self)
{
    char text[1024];
    ligi_uri uri;
    uint64_t config[64] = {0};

    snprintf(text, sizeof text, "s3://%s/%s?endpoint=%s&region=%s%s",
             how->bucket != NULL ? how->bucket : getenv("LIGAMENT_TEST_S3_BUCKET"), how->prefix,
             how->endpoint != NULL ? how->endpoint : getenv("LIGAMENT_TEST_S3_ENDPOINT"),
             getenv("LIGAMENT_TEST_S3_REGION"), how->extra != NULL ? how->extra : "");
    assert_true(ops->config_bytes <= sizeof config);
    assert_ok(ligi_uri_parse(&uri, text));
    assert_ok(ligi_options_fill(ops->options, ops->option_count, &uri, NULL, config));
    lig_status status = ops->open(
        &host,
        &(ligi_engine_place){.uri = &uri,
                             .options = config,
                             .timeout_ns = how->timeout_ns ? how->timeout_ns : 30 * SECOND},
        self);
    ligi_options_fini(ops->options, ops->option_count, config);
    ligi_uri_fini(&uri);
    return status;
}

static inline int set_up(void **state)
{
    scene *made = calloc(1, sizeof *made);
    uint64_t name;

    secret_key = getenv("LIGAMENT_TEST_S3_SECRET");
    assert_ok(random_bytes(&name, sizeof name));
    snprintf(made->prefix, sizeof made->prefix, "engine test+%%25/%016llx",
             (unsigned long long)name);
    assert_ok(open_engine(&(opening){.prefix = made->prefix}, &made->self));
    *state = made;
    return 0;
}

static inline int tear_down(void **state)
{
    scene *made = *state;

    ops->close(made->self, 0);
    free(made);
    return 0;
}

static uint8_t byte_at(uint64_t seed, uint64_t offset)
{
    uint64_t word = (offset / 8 + seed) * UINT64_C(0x9E3779B97F4A7C15);

    return (uint8_t)((word ^ (word >> 29)) >> (8 * (offset % 8)));
}

static void fill(uint8_t *memory, uint64_t seed, uint64_t offset, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        memory[i] = byte_at(seed, offset + i);
}

static lig_status push_all(void *writer, uint64_t bytes, uint64_t seed)
{
    uint64_t done = 0, room;
    void *memory;

    while (done < bytes) {
        LIG_TRY(ops->object_room(writer, &memory, &room));
        assert_true(room >= MIB);
        uint64_t now = bytes - done < room ? bytes - done : room;
        fill(memory, seed, done, now);
        LIG_TRY(ops->object_push(writer, now));
        done += now;
    }
    return LIG_OK;
}

static inline void write_object(void *self, ligi_object object, uint64_t bytes, uint64_t seed)
{
    void *writer;

    assert_ok(ops->object_create(self, object, bytes, HOUR, &writer));
    assert_ok(push_all(writer, bytes, seed));
    assert_ok(ops->object_seal(writer));
    ops->object_close(writer, 0);
}

#endif
