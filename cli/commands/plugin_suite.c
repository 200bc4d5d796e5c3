/* Requirements of every backend: sets of tensors are loaded as they were saved, and impossible
 * requests fail with an error message. */
#include "commands/plugin_suite.h"

#include <stdlib.h>
#include <string.h>

lig_status cli_suite_open(cli_suite *suite)
{
    return suite->ops->volume != NULL
               ? lig_checkpoint_open(&suite->checkpoint, suite->name, suite->config)
               : lig_backend_open(&suite->backend, suite->name, suite->config);
}

void cli_suite_close(cli_suite *suite)
{
    lig_checkpoint_close(suite->checkpoint);
    lig_backend_close(suite->backend);
    suite->checkpoint = NULL;
    suite->backend = NULL;
}

lig_status cli_suite_save(cli_suite *suite, const char *set, const lig_tensor *tensors,
                          size_t count)
{
    return suite->checkpoint != NULL ? lig_checkpoint_save(suite->checkpoint, set, tensors, count)
                                     : lig_backend_save(suite->backend, set, tensors, count);
}

lig_status cli_suite_load(cli_suite *suite, const char *set, const lig_tensor *tensors,
                          size_t count)
{
    return suite->checkpoint != NULL ? lig_checkpoint_load(suite->checkpoint, set, tensors, count)
                                     : lig_backend_load(suite->backend, set, tensors, count);
}

static const char armed[] = "the plugin did not set an error message";

void cli_suite_arm(void)
{
    (void)lig_fail(LIG_E_INTERNAL, "%s", armed);
}

lig_status cli_suite_refused(lig_status status, lig_status wanted, const char *what)
{
    if (status == LIG_OK)
        return lig_fail(LIG_E_MISMATCH, "%s did not fail", what);
    /* The library supplies a generic message for a plugin that sets none. */
    if (strcmp(lig_error_text(), armed) == 0 || lig_error_text()[0] == '\0' ||
        strstr(lig_error_text(), "failed without an error message") != NULL)
        return lig_fail(LIG_E_MISMATCH, "%s failed without an error message: use lig_fail", what);
    if (wanted != LIG_OK && status != wanted)
        return lig_fail(LIG_E_MISMATCH, "%s failed with '%s', expected '%s'", what,
                        lig_status_name(status), lig_status_name(wanted));
    return LIG_OK;
}

static lig_status load_equals(cli_suite *suite, const char *set, const cli_sample *wanted)
{
    cli_sample got;
    LIG_TRY(cli_sample_twin(&got, wanted, 77));
    lig_status status = cli_suite_load(suite, set, got.tensors, got.count);
    if (status == LIG_OK)
        status = cli_sample_compare(&got, wanted);
    cli_sample_destroy(&got);
    return status;
}

static lig_status round_trip(cli_suite *suite, const char *set, const cli_sample *sample)
{
    cli_sample before;
    LIG_TRY(cli_sample_twin(&before, sample, 1));
    for (size_t i = 0; i < sample->count; i++)
        if (sample->tensors[i].bytes > 0)
            memcpy(before.tensors[i].data, sample->tensors[i].data, sample->tensors[i].bytes);
    lig_status status = cli_suite_save(suite, set, sample->tensors, sample->count);
    if (status == LIG_OK && cli_sample_compare(sample, &before) != LIG_OK)
        status = lig_fail(LIG_E_CORRUPT, "saving modified the tensors passed to it");
    if (status == LIG_OK)
        status = load_equals(suite, set, sample);
    cli_sample_destroy(&before);
    return status;
}

static lig_status trip_specs(cli_suite *suite, const char *set, const cli_spec *specs, size_t count)
{
    cli_sample sample;
    LIG_TRY(cli_sample_create(&sample, specs, count, 42));
    lig_status status = round_trip(suite, set, &sample);
    cli_sample_destroy(&sample);
    return status;
}

/* --- the checks
 * --------------------------------------------------------------------------------------- */

static lig_status check_reopen(cli_suite *suite)
{
    for (int i = 0; i < 3; i++) {
        cli_suite_close(suite);
        LIG_TRY(cli_suite_open(suite));
    }
    return LIG_OK;
}

static lig_status check_dtypes(cli_suite *suite)
{
    char names[LIG_DTYPE_COUNT][40];
    cli_spec specs[LIG_DTYPE_COUNT];
    size_t count = 0;
    for (uint32_t dtype = 1; dtype < LIG_DTYPE_COUNT; dtype++) {
        snprintf(names[count], sizeof names[count], "of.%s", lig_dtype_name(dtype));
        specs[count] = (cli_spec){names[count], dtype, 2, {3, 5, 0, 0}};
        count++;
    }
    return trip_specs(suite, "dtypes", specs, count);
}

static lig_status check_shapes(cli_suite *suite)
{
    static const cli_spec specs[] = {
        {"scalar", LIG_FLOAT32, 0, {0}},
        {"empty", LIG_FLOAT32, 1, {0}},
        {"no.rows", LIG_INT64, 2, {0, 4}},
        {"no.columns", LIG_INT64, 2, {4, 0}},
        {"one", LIG_UINT8, 1, {1}},
        {"prime", LIG_FLOAT16, 1, {7}},
        {"cube", LIG_COMPLEX64, 3, {2, 3, 4}},
        {"long", LIG_FLOAT64, 4, {1, 1, 513, 1}},
        {"scalar.bool", LIG_BOOL, 0, {0}},
    };
    return trip_specs(suite, "shapes", specs, sizeof specs / sizeof specs[0]);
}

static lig_status check_sizes(cli_suite *suite)
{
    static const int64_t sizes[] = {1,     63,    64,    65,      4095,    4096,    4097,
                                    65535, 65536, 65537, 1048575, 1048576, 1048577, 5242883};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    char names[COUNT][40];
    cli_spec specs[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "bytes.%lld", (long long)sizes[i]);
        specs[i] = (cli_spec){names[i], LIG_UINT8, 1, {sizes[i], 0, 0, 0}};
    }
    return trip_specs(suite, "sizes", specs, COUNT);
}

static lig_status check_names(cli_suite *suite)
{
    char longest[LIG_NAME_BYTES_MAX + 1];
    memset(longest, 'n', LIG_NAME_BYTES_MAX);
    longest[LIG_NAME_BYTES_MAX] = '\0';
    const cli_spec specs[] = {
        {"layer/0/kernel:0", LIG_INT32, 1, {3}},
        {"../escape", LIG_INT32, 1, {3}},
        {" spaces and\nlines ", LIG_INT32, 1, {3}},
        {"gr\xc3\xb6\xc3\x9f"
         "e",
         LIG_INT32,
         1,
         {3}},
        {"a", LIG_INT32, 1, {3}},
        {"A", LIG_INT32, 1, {3}},
        {"a.", LIG_INT32, 1, {3}},
        {longest, LIG_INT32, 1, {3}},
    };
    return trip_specs(suite, "names", specs, sizeof specs / sizeof specs[0]);
}

static lig_status check_many(cli_suite *suite)
{
    size_t count = suite->tensor_count;
    char (*names)[24];
    cli_spec *specs;
    LIG_TRY(cli_alloc(&names, count, sizeof *names));
    lig_status status = cli_alloc(&specs, count, sizeof *specs);
    if (status == LIG_OK) {
        for (size_t i = 0; i < count; i++) {
            snprintf(names[i], sizeof names[i], "t%zu", i);
            specs[i] = (cli_spec){names[i], LIG_FLOAT32, 1, {(int64_t)(i % 17), 0, 0, 0}};
        }
        status = trip_specs(suite, "many", specs, count);
        free(specs);
    }
    free(names);
    return status;
}

static const cli_spec plain[] = {{"weight", LIG_FLOAT32, 2, {16, 9}},
                                 {"bias", LIG_FLOAT32, 1, {16}},
                                 {"step", LIG_INT64, 0, {0}}};
enum { PLAIN = sizeof plain / sizeof plain[0] };

static lig_status check_replace(cli_suite *suite)
{
    cli_sample sample;
    LIG_TRY(trip_specs(suite, "replaced", plain, PLAIN));
    LIG_TRY(cli_sample_create(&sample, plain, PLAIN, 43));
    lig_status status = round_trip(suite, "replaced", &sample);
    cli_sample_destroy(&sample);
    LIG_TRY(status);
    static const cli_spec other[] = {{"weight", LIG_UINT8, 1, {100000}}};
    LIG_TRY(trip_specs(suite, "replaced", other, 1));
    return trip_specs(suite, "replaced", plain, PLAIN);
}

static lig_status check_apart(cli_suite *suite)
{
    cli_sample a, b;
    LIG_TRY(cli_sample_create(&a, plain, PLAIN, 5));
    lig_status status = cli_sample_create(&b, plain, PLAIN, 6);
    if (status == LIG_OK) {
        status = cli_suite_save(suite, "apart", a.tensors, a.count);
        if (status == LIG_OK)
            status = cli_suite_save(suite, "apart/2", b.tensors, b.count);
        if (status == LIG_OK)
            status = load_equals(suite, "apart", &a);
        if (status == LIG_OK)
            status = load_equals(suite, "apart/2", &b);
        cli_sample_destroy(&b);
    }
    cli_sample_destroy(&a);
    return status;
}

static lig_status check_order(cli_suite *suite)
{
    cli_sample sample, got;
    lig_tensor turned[PLAIN];
    LIG_TRY(cli_sample_create(&sample, plain, PLAIN, 8));
    lig_status status = cli_sample_twin(&got, &sample, 9);
    if (status == LIG_OK) {
        for (size_t i = 0; i < PLAIN; i++)
            turned[i] = got.tensors[PLAIN - 1 - i];
        status = cli_suite_save(suite, "order", sample.tensors, PLAIN);
        if (status == LIG_OK)
            status = cli_suite_load(suite, "order", turned, PLAIN);
        if (status == LIG_OK)
            status = cli_sample_compare(&got, &sample);
        cli_sample_destroy(&got);
    }
    cli_sample_destroy(&sample);
    return status;
}

/* Loads into tensors that differ from those of the set must fail and write nothing outside them. */
static lig_status refuse_load(cli_suite *suite, const char *set, const cli_spec *specs,
                              size_t count, const char *what)
{
    cli_sample got;
    LIG_TRY(cli_sample_create(&got, specs, count, 10));
    cli_suite_arm();
    lig_status wanted = strncmp(set, "no such", 7) == 0 ? LIG_E_NOTFOUND : LIG_OK;
    lig_status status =
        cli_suite_refused(cli_suite_load(suite, set, got.tensors, got.count), wanted, what);
    if (status == LIG_OK)
        status = cli_sample_marks(&got);
    cli_sample_destroy(&got);
    return status;
}

static lig_status check_unknown(cli_suite *suite)
{
    return refuse_load(suite, "no such set", plain, PLAIN, "loading a set that was never saved");
}

static lig_status check_mismatch(cli_suite *suite)
{
    static const cli_spec absent[] = {{"weight", LIG_FLOAT32, 2, {16, 9}},
                                      {"other", LIG_FLOAT32, 1, {16}}};
    static const cli_spec larger[] = {{"weight", LIG_FLOAT32, 2, {16, 90}},
                                      {"bias", LIG_FLOAT32, 1, {16}},
                                      {"step", LIG_INT64, 0, {0}}};
    static const cli_spec smaller[] = {{"weight", LIG_FLOAT32, 2, {16, 8}},
                                       {"bias", LIG_FLOAT32, 1, {16}},
                                       {"step", LIG_INT64, 0, {0}}};
    LIG_TRY(trip_specs(suite, "mismatch", plain, PLAIN));
    LIG_TRY(refuse_load(suite, "mismatch", absent, 2, "loading a tensor that is not in the set"));
    LIG_TRY(refuse_load(suite, "mismatch", larger, 3,
                        "loading into a tensor larger than the stored one"));
    return refuse_load(suite, "mismatch", smaller, 3,
                       "loading into a tensor smaller than the stored one");
}

const cli_suite_check cli_set_checks[] = {
    {"opens and closes repeatedly", NULL, check_reopen},
    {"every dtype round-trips", NULL, check_dtypes},
    {"0-dimensional and empty tensors round-trip", NULL, check_shapes},
    {"sizes around pages and blocks round-trip", NULL, check_sizes},
    {"unusual names round-trip", NULL, check_names},
    {"many tensors in one set", NULL, check_many},
    {"saving a set again replaces it", NULL, check_replace},
    {"sets are independent", NULL, check_apart},
    {"tensors are found by name, in any order", NULL, check_order},
    {"loading an unknown set fails with an error message", NULL, check_unknown},
    {"loading mismatched tensors fails with an error message", NULL, check_mismatch},
    {NULL, NULL, NULL},
};
