/* Optional operations of a backend: list, drop, read_range, streams, a volume. */
#include "commands/plugin_suite.h"

#include <stdlib.h>
#include <string.h>

static const cli_spec plain[] = {{"weight", LIG_FLOAT32, 2, {33, 70}},
                                 {"bias", LIG_FLOAT32, 1, {70}}};
enum { PLAIN = sizeof plain / sizeof plain[0], SET_BYTES = LIG_NAME_BYTES_MAX + 1 };

static int has_list(const cli_suite *suite)
{
    return suite->ops->list != NULL && suite->backend != NULL;
}

static int has_drop(const cli_suite *suite)
{
    return suite->ops->drop != NULL && suite->backend != NULL;
}

static int has_range(const cli_suite *suite)
{
    return suite->ops->read_range != NULL;
}

static int has_stream(const cli_suite *suite)
{
    return suite->ops->begin != NULL;
}

static int has_volume(const cli_suite *suite)
{
    return suite->ops->volume != NULL;
}

/* Counts how often `set` is listed. */
static lig_status count_set(cli_suite *suite, const char *set, size_t *times)
{
    char name[SET_BYTES];
    lig_status status = LIG_OK;
    *times = 0;
    for (size_t i = 0; i < 100000; i++) {
        status = lig_backend_list(suite->backend, i, name, sizeof name);
        if (status != LIG_OK)
            break;
        *times += strcmp(name, set) == 0;
    }
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    return status != LIG_OK
               ? status
               : lig_fail(LIG_E_MISMATCH, "list never returned LIG_E_NOTFOUND at its end");
}

static lig_status check_list(cli_suite *suite)
{
    cli_sample sample;
    size_t times = 0;
    LIG_TRY(cli_sample_create(&sample, plain, PLAIN, 1));
    lig_status status = cli_suite_save(suite, "listed", sample.tensors, sample.count);
    if (status == LIG_OK)
        status = cli_suite_save(suite, "listed", sample.tensors, sample.count);
    if (status == LIG_OK)
        status = count_set(suite, "listed", &times);
    cli_sample_destroy(&sample);
    LIG_TRY(status);
    return times == 1
               ? LIG_OK
               : lig_fail(LIG_E_MISMATCH, "a saved set was listed %zu times, expected once", times);
}

static lig_status check_drop(cli_suite *suite)
{
    cli_sample sample;
    size_t times = 0;
    LIG_TRY(cli_sample_create(&sample, plain, PLAIN, 1));
    lig_status status = cli_suite_save(suite, "dropped", sample.tensors, sample.count);
    if (status == LIG_OK)
        status = lig_backend_drop(suite->backend, "dropped");
    if (status == LIG_OK) {
        cli_suite_arm();
        status = cli_suite_refused(cli_suite_load(suite, "dropped", sample.tensors, sample.count),
                                   LIG_E_NOTFOUND, "loading a dropped set");
    }
    cli_sample_destroy(&sample);
    LIG_TRY(status);
    cli_suite_arm();
    LIG_TRY(cli_suite_refused(lig_backend_drop(suite->backend, "dropped"), LIG_E_NOTFOUND,
                              "dropping a set that does not exist"));
    if (has_list(suite)) {
        LIG_TRY(count_set(suite, "dropped", &times));
        if (times > 0)
            return lig_fail(LIG_E_MISMATCH, "a dropped set is still listed");
    }
    return LIG_OK;
}

/* --- members that are called directly, on a separate instance
 * ---------------------------------------- */

static lig_status open_raw(const cli_suite *suite, void **self)
{
    *self = NULL;
    return suite->ops->open != NULL ? suite->ops->open(self, suite->config) : LIG_OK;
}

static void close_raw(const cli_suite *suite, void *self)
{
    if (suite->ops->close != NULL)
        suite->ops->close(self);
}

static lig_status compare_range(const cli_suite *suite, void *self, const lig_tensor *tensor,
                                uint64_t offset, uint64_t bytes)
{
    uint8_t *data;
    lig_tensor description = *tensor;
    description.data = NULL;
    LIG_TRY(cli_alloc(&data, bytes + 1, 1));
    data[bytes] = 0xA5;
    lig_status status = suite->ops->read_range(self, "ranges", &description, offset, bytes, data);
    if (status == LIG_OK &&
        (memcmp(data, (uint8_t *)tensor->data + offset, bytes) != 0 || data[bytes] != 0xA5))
        status = lig_fail(LIG_E_CORRUPT, "bytes %llu to %llu of '%s' differ from those saved",
                          (unsigned long long)offset, (unsigned long long)(offset + bytes),
                          tensor->name);
    free(data);
    return status;
}

static lig_status check_range(cli_suite *suite)
{
    cli_sample sample;
    void *self;
    LIG_TRY(open_raw(suite, &self));
    lig_status status = cli_sample_create(&sample, plain, PLAIN, 3);
    if (status == LIG_OK) {
        const lig_tensor *tensor = &sample.tensors[0];
        const uint64_t ranges[][2] = {
            {0, tensor->bytes}, {0, 1}, {tensor->bytes - 1, 1}, {3, 1000}, {tensor->bytes, 0}};
        status = suite->ops->save(self, "ranges", sample.tensors, sample.count);
        for (size_t i = 0; i < sizeof ranges / sizeof ranges[0] && status == LIG_OK; i++)
            status = compare_range(suite, self, tensor, ranges[i][0], ranges[i][1]);
        cli_sample_destroy(&sample);
    }
    close_raw(suite, self);
    return status;
}

/* Streams `sample` as "streamed" and commits it, or aborts after the first tensor. */
static lig_status stream(const cli_suite *suite, void *self, const cli_sample *sample, int commit)
{
    const lig_backend_ops *ops = suite->ops;
    lig_tensor descriptions[PLAIN];
    void *stream = NULL;
    for (size_t i = 0; i < PLAIN; i++) {
        descriptions[i] = sample->tensors[i];
        descriptions[i].data = NULL;
    }
    LIG_TRY(ops->begin(self, "streamed", descriptions, PLAIN, &stream));
    lig_status status = LIG_OK;
    for (size_t i = 0; i < (commit ? PLAIN : 1) && status == LIG_OK; i++)
        status = ops->put(stream, i, &sample->tensors[i]);
    if (status == LIG_OK && commit)
        return ops->commit(stream);
    ops->abort(stream);
    return status;
}

static lig_status load_streamed(const cli_suite *suite, void *self, const cli_sample *wanted)
{
    cli_sample got;
    LIG_TRY(cli_sample_twin(&got, wanted, 4));
    lig_status status = suite->ops->load(self, "streamed", got.tensors, got.count);
    if (status == LIG_OK)
        status = cli_sample_compare(&got, wanted);
    cli_sample_destroy(&got);
    return status;
}

static lig_status stream_both(const cli_suite *suite, void *self, const cli_sample *first,
                              const cli_sample *second)
{
    LIG_TRY(stream(suite, self, first, 1));
    LIG_TRY(load_streamed(suite, self, first));
    LIG_TRY(stream(suite, self, second, 0));
    if (load_streamed(suite, self, first) != LIG_OK)
        return lig_fail(LIG_E_MISMATCH, "an aborted stream changed the set");
    LIG_TRY(stream(suite, self, second, 1));
    return load_streamed(suite, self, second);
}

static lig_status check_stream(cli_suite *suite)
{
    cli_sample first, second;
    void *self;
    LIG_TRY(open_raw(suite, &self));
    lig_status status = cli_sample_create(&first, plain, PLAIN, 11);
    if (status == LIG_OK) {
        status = cli_sample_create(&second, plain, PLAIN, 12);
        if (status == LIG_OK) {
            status = stream_both(suite, self, &first, &second);
            cli_sample_destroy(&second);
        }
        cli_sample_destroy(&first);
    }
    close_raw(suite, self);
    return status;
}

/* --- a store on the volume
 * -------------------------------------------------------------------------------- */

static lig_status use_store(lig_store *store, const cli_sample *sample)
{
    lig_save_options options = LIG_SAVE_INIT;
    lig_report *report;
    lig_model *model;
    lig_view *view;
    options.flags = LIG_SAVE_REPLACE;
    LIG_TRY(lig_store_save(store, "conformance", sample->tensors, sample->count, &options));
    LIG_TRY(lig_store_map(store, "conformance", 0, &view));
    int equal = 1;
    for (size_t i = 0; i < sample->count; i++)
        equal &= memcmp(lig_view_model(view)->tensors[i].tensor.data, sample->tensors[i].data,
                        sample->tensors[i].bytes) == 0;
    lig_view_destroy(view);
    if (!equal)
        return lig_fail(LIG_E_CORRUPT, "a mapped model has different contents");
    LIG_TRY(lig_store_retire(store, "conformance"));
    if (lig_store_model(store, "conformance", &model) != LIG_E_NOTFOUND)
        return lig_fail(LIG_E_MISMATCH, "a retired model still exists");
    LIG_TRY(lig_store_compact(store, &report));
    lig_report_destroy(report);
    LIG_TRY(lig_store_check(store, 0, &report));
    lig_status status =
        report->problem_count == 0
            ? LIG_OK
            : lig_fail(LIG_E_CORRUPT, "check reported: %.500s", report->problems[0]);
    lig_report_destroy(report);
    return status;
}

static lig_status check_volume(cli_suite *suite)
{
    cli_sample sample;
    lig_store *store;
    char *uri;
    LIG_TRY(cli_format(&uri, "%s:%s", suite->name, suite->config));
    lig_status status = lig_store_open(&store, uri);
    free(uri);
    LIG_TRY(status);
    status = cli_sample_create(&sample, plain, PLAIN, 13);
    if (status == LIG_OK) {
        status = use_store(store, &sample);
        cli_sample_destroy(&sample);
    }
    lig_store_close(store);
    return status;
}

const cli_suite_check cli_optional_checks[] = {
    {"list returns every set once, then LIG_E_NOTFOUND", has_list, check_list},
    {"drop removes a set", has_drop, check_drop},
    {"read_range reads parts of a tensor", has_range, check_range},
    {"begin, put, commit and abort", has_stream, check_stream},
    {"volume supports a store", has_volume, check_volume},
    {NULL, NULL, NULL},
};
