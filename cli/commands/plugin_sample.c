#include "commands/plugin_suite.h"

#include <stdlib.h>
#include <string.h>

enum { MARK_BYTES = 64, MARK = 0xA5 };

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static void fill(lig_tensor *tensor, uint64_t seed)
{
    uint8_t *at = tensor->data;
    for (uint64_t done = 0; done < tensor->bytes; done += 8) {
        uint64_t word = next_random(&seed);
        if (tensor->dtype == LIG_BOOL)
            word &= UINT64_C(0x0101010101010101);
        memcpy(at + done, &word, tensor->bytes - done < 8 ? tensor->bytes - done : 8);
    }
}

static uint64_t spec_bytes(const cli_spec *spec)
{
    uint64_t bytes = lig_dtype_bytes(spec->dtype);
    for (uint32_t i = 0; i < spec->ndim; i++)
        bytes *= (uint64_t)spec->shape[i];
    return bytes;
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + MARK_BYTES - 1) / MARK_BYTES * MARK_BYTES;
}

static lig_status describe(cli_sample *sample, const cli_spec *specs)
{
    for (size_t i = 0; i < sample->count; i++) {
        lig_tensor *tensor = &sample->tensors[i];
        LIG_TRY(cli_format(&sample->names[i], "%s", specs[i].name));
        memcpy(sample->shapes[i], specs[i].shape, sizeof specs[i].shape);
        tensor->name = sample->names[i];
        tensor->shape = sample->shapes[i];
        tensor->ndim = specs[i].ndim;
        tensor->dtype = (uint16_t)specs[i].dtype;
        tensor->bytes = spec_bytes(&specs[i]);
        sample->offsets[i] = sample->bytes;
        sample->bytes += MARK_BYTES + padded(tensor->bytes);
    }
    sample->offsets[sample->count] = sample->bytes;
    sample->bytes += MARK_BYTES;
    return LIG_OK;
}

static lig_status give_memory(cli_sample *sample, uint64_t seed)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 64, sample->bytes) != 0)
        return lig_fail(LIG_E_NOMEM, "out of memory for %llu bytes",
                        (unsigned long long)sample->bytes);
    sample->memory = memory;
    memset(memory, MARK, sample->bytes);
    for (size_t i = 0; i < sample->count; i++) {
        lig_tensor *tensor = &sample->tensors[i];
        tensor->data = tensor->bytes > 0 ? sample->memory + sample->offsets[i] + MARK_BYTES : NULL;
        fill(tensor, seed + i * 1000003);
    }
    return LIG_OK;
}

lig_status cli_sample_create(cli_sample *sample, const cli_spec *specs, size_t count, uint64_t seed)
{
    *sample = (cli_sample){.count = count};
    lig_status status = cli_alloc(&sample->tensors, count, sizeof *sample->tensors);
    if (status == LIG_OK)
        status = cli_alloc(&sample->shapes, count, sizeof *sample->shapes);
    if (status == LIG_OK)
        status = cli_alloc(&sample->names, count, sizeof *sample->names);
    if (status == LIG_OK)
        status = cli_alloc(&sample->offsets, count + 1, sizeof *sample->offsets);
    if (status == LIG_OK)
        status = describe(sample, specs);
    if (status == LIG_OK)
        status = give_memory(sample, seed);
    if (status != LIG_OK)
        cli_sample_destroy(sample);
    return status;
}

void cli_sample_destroy(cli_sample *sample)
{
    for (size_t i = 0; sample->names != NULL && i < sample->count; i++)
        free(sample->names[i]);
    free(sample->names);
    free(sample->shapes);
    free(sample->tensors);
    free(sample->offsets);
    free(sample->memory);
    *sample = (cli_sample){0};
}

lig_status cli_sample_twin(cli_sample *twin, const cli_sample *sample, uint64_t seed)
{
    cli_spec *specs;
    LIG_TRY(cli_alloc(&specs, sample->count, sizeof *specs));
    for (size_t i = 0; i < sample->count; i++) {
        const lig_tensor *tensor = &sample->tensors[i];
        specs[i] = (cli_spec){.name = tensor->name, .dtype = tensor->dtype, .ndim = tensor->ndim};
        memcpy(specs[i].shape, sample->shapes[i], sizeof specs[i].shape);
    }
    lig_status status = cli_sample_create(twin, specs, sample->count, seed);
    free(specs);
    return status;
}

lig_status cli_sample_marks(const cli_sample *sample)
{
    for (size_t i = 0; i <= sample->count; i++) {
        /* The guard before tensor i, and the padding after tensor i - 1. */
        uint64_t end = sample->offsets[i] + MARK_BYTES;
        uint64_t begin =
            i == 0 ? 0 : sample->offsets[i - 1] + MARK_BYTES + sample->tensors[i - 1].bytes;
        for (uint64_t at = begin; at < end; at++)
            if (sample->memory[at] != MARK)
                return lig_fail(LIG_E_CORRUPT, "memory %s tensor '%.80s' was overwritten",
                                i < sample->count ? "before" : "after",
                                sample->tensors[i < sample->count ? i : i - 1].name);
    }
    return LIG_OK;
}

lig_status cli_sample_compare(const cli_sample *got, const cli_sample *wanted)
{
    for (size_t i = 0; i < wanted->count; i++) {
        const lig_tensor *a = &got->tensors[i], *b = &wanted->tensors[i];
        if (b->bytes > 0 && memcmp(a->data, b->data, b->bytes) != 0)
            return lig_fail(LIG_E_CORRUPT,
                            "tensor '%.80s' (%s, %llu bytes) was loaded with different contents",
                            b->name, lig_dtype_name(b->dtype), (unsigned long long)b->bytes);
    }
    return cli_sample_marks(got);
}
