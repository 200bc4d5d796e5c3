/* The RADOS engine's table, used directly, against the cluster of tools/engines. */
#ifndef RADOS_SCENE_H
#define RADOS_SCENE_H

#include "backend/rados/rados.h"
#include "base/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

extern const ligi_engine_ops lig_engine_entry;
static const ligi_engine_ops *const ops = &lig_engine_entry;

#define SECOND INT64_C(1000000000)
#define STRIPE (UINT64_C(1) << 20)

/* --- what the library does for engines --- */

static void log_nothing(int level, const char *format, ...) LIG_PRINTF(2, 3);
static inline void log_nothing(int level, const char *format, ...)
{
    (void)level, (void)format;
}

static inline lig_status random_bytes(void *bytes, size_t count)
{
    return getrandom(bytes, count, 0) == (ssize_t)count ? LIG_OK : lig_fail(LIG_E_IO, "getrandom");
}

static inline lig_status no_credential(const char *name, char *value, size_t value_bytes)
{
    (void)name, (void)value, (void)value_bytes;
    return LIG_E_NOTFOUND;
}

static const ligi_engine_host host = {.abi = LIGI_ENGINE_ABI,
                                      .size = sizeof host,
                                      .fail = lig_fail,
                                      .error_text = lig_error_text,
                                      .log = log_nothing,
                                      .random = random_bytes,
                                      .credential = no_credential};

/* --- places --- */

static const char *setting(const char *name)
{
    char full[64];

    snprintf(full, sizeof full, "LIGAMENT_TEST_RADOS_%s", name);
    const char *value = getenv(full);
    if (value == NULL) {
        fprintf(stderr, "no cluster: tools/engines run build/tests/rados_engine_test\n");
        exit(1);
    }
    return value;
}

typedef struct place {
    char pool[64], prefix[64];
    char *conf, *data;
    int64_t timeout_ns;
} place;

static inline place fresh_place(void)
{
    uint64_t number;
    place made = {.conf = (char *)setting("CONF"), .timeout_ns = 60 * SECOND};

    assert_ok(random_bytes(&number, sizeof number));
    snprintf(made.pool, sizeof made.pool, "%s", setting("POOL"));
    snprintf(made.prefix, sizeof made.prefix, "engine-%016llx", (unsigned long long)number);
    return made;
}

static inline lig_status open_place(const place *where, void **self)
{
    char rest[160];
    ligi_uri uri = {.scheme = "rados", .rest = rest};
    const ligi_rados_config config = {
        .conf = where->conf, .id = (char *)setting("ID"), .data = where->data, .stripe = STRIPE};
    const ligi_engine_place at = {.uri = &uri, .options = &config, .timeout_ns = where->timeout_ns};

    snprintf(rest, sizeof rest, "//%s/%s", where->pool, where->prefix);
    return ops->open(&host, &at, self);
}

static inline void *new_store(const place *where)
{
    void *self = NULL;

    assert_ok(open_place(where, &self));
    assert_ok(ops->marker_put(self, "marker", 6));
    return self;
}

/* --- the log --- */

static inline void fill_record(uint8_t *record, size_t bytes, uint64_t seed)
{
    assert_ok(random_bytes(record, LIGI_RECORD_ID_BYTES));
    for (size_t i = LIGI_RECORD_ID_BYTES; i < bytes; i++)
        record[i] = (uint8_t)(seed * 31 + i);
}

static inline lig_status append(void *self, uint64_t before, size_t bytes)
{
    uint8_t *record = malloc(bytes);
    const ligi_log_end end = {.version = before};

    fill_record(record, bytes, before + 1);
    lig_status status = ops->log_append(self, &end, 0, record, bytes);
    free(record);
    return status;
}

typedef struct seen {
    uint64_t first, last;
    size_t bytes[64];
    size_t count;
} seen;

static inline lig_status see(void *context, uint64_t version, const void *record, size_t bytes)
{
    seen *s = context;
    const uint8_t *from = record;

    if (s->count == 0)
        s->first = version;
    s->last = version;
    if (s->count < 64)
        s->bytes[s->count] = bytes;
    s->count++;
    for (size_t i = LIGI_RECORD_ID_BYTES; i < bytes; i++)
        if (from[i] != (uint8_t)(version * 31 + i))
            return lig_fail(LIG_E_CORRUPT, "commit %llu", (unsigned long long)version);
    return LIG_OK;
}

static inline lig_status read_after(void *self, uint64_t version, seen *s)
{
    const ligi_log_end end = {.version = version};

    *s = (seen){0};
    return ops->log_read(self, &end, 0, see, s);
}

#endif
