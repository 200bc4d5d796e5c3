#include "store/serve/message/served_find.h"

#include "base/error.h"
#include "store/serve/message/served_labels.h"

#include <stdlib.h>

/* Bytes of the shortest of each. */
enum { MATCH_LEAST = 16, NAME_LEAST = 2, LAYER_LEAST = 1, TENSOR_LEAST = 3 };

void ligi_served_find_put(ligi_writer *writer, const ligi_served_find *find)
{
    const lig_find_options *options = &find->options;
    ligi_served_maybe_put(writer, find->like);
    ligi_served_blob_put(writer, find->layers, find->layer_bytes);
    ligi_put_varint(writer, options->flags);
    ligi_served_tags_put(writer, options->tags, options->tag_count);
    ligi_put_varint(writer, options->exclude_count);
    for (size_t i = 0; i < options->exclude_count; i++)
        ligi_put_text(writer, options->exclude[i]);
    ligi_served_maybe_put(writer, options->prefer);
    ligi_put_varint(writer, options->limit);
    ligi_put_u64(writer, (uint64_t)options->lease_ns);
}

static lig_status get_excluded(ligi_reader *reader, lig_find_options *options)
{
    const char **names;
    size_t count = ligi_get_count(reader, NAME_LEAST);
    if (count > LIGI_SERVED_EXCLUDED_MAX)
        return lig_fail(LIG_E_LIMIT, "too many models to exclude: %zu, the limit is %d", count,
                        LIGI_SERVED_EXCLUDED_MAX);
    if (count == 0)
        return LIG_OK;
    LIG_TRY(ligi_calloc(&names, count, sizeof *names, "names of models"));
    options->exclude = names;
    options->exclude_count = count;
    for (size_t i = 0; i < count; i++)
        names[i] = ligi_get_text(reader, LIG_NAME_BYTES_MAX);
    return LIG_OK;
}

lig_status ligi_served_find_get(const void *body, size_t bytes, ligi_served_find *find)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    lig_find_options *options = &find->options;
    lig_tag *tags = NULL;
    *options = (lig_find_options)LIG_FIND_INIT;
    find->like = ligi_served_maybe_get(&reader, LIG_NAME_BYTES_MAX);
    find->layers = ligi_served_blob_get(&reader, &find->layer_bytes);
    options->flags = (uint32_t)ligi_get_varint(&reader);
    LIG_TRY(ligi_served_tags_read(&reader, &tags, &options->tag_count));
    options->tags = tags;
    LIG_TRY(get_excluded(&reader, options));
    options->prefer = ligi_served_maybe_get(&reader, bytes);
    options->limit = ligi_get_varint(&reader);
    options->lease_ns = (int64_t)ligi_get_u64(&reader);
    return ligi_served_end(&reader, "find");
}

void ligi_served_find_fini(ligi_served_find *find)
{
    free((void *)find->options.tags);
    free((void *)find->options.exclude);
    *find = (ligi_served_find){0};
}

static void put_match(ligi_writer *writer, const ligi_served_match *match)
{
    ligi_served_model_put(writer, &match->model);
    ligi_put_u64(writer, (uint64_t)match->expires_ns);
    ligi_put_varint(writer, match->bytes);
    ligi_put_varint(writer, match->layer_count);
    for (size_t i = 0; i < match->layer_count; i++)
        ligi_put_varint(writer, match->layers[i]);
    ligi_put_varint(writer, match->tensor_count);
    for (size_t i = 0; i < match->tensor_count; i++) {
        ligi_put_text(writer, match->tensors[i].name);
        ligi_put_varint(writer, match->tensors[i].stored);
    }
}

void ligi_served_matches_put(ligi_writer *writer, const ligi_served_matches *matches)
{
    ligi_put_varint(writer, matches->count);
    for (size_t i = 0; i < matches->count; i++)
        put_match(writer, &matches->matches[i]);
}

static lig_status get_layers(ligi_reader *reader, ligi_served_match *match)
{
    uint32_t *layers;
    size_t count = ligi_get_count(reader, LAYER_LEAST);
    if (count == 0)
        return LIG_OK;
    LIG_TRY(ligi_calloc(&layers, count, sizeof *layers, "layers of a match"));
    match->layers = layers;
    match->layer_count = count;
    for (size_t i = 0; i < count; i++) {
        uint64_t layer = ligi_get_varint(reader);
        if (layer > UINT32_MAX)
            reader->failed = 1;
        layers[i] = (uint32_t)layer;
    }
    return LIG_OK;
}

static lig_status get_tensors(ligi_reader *reader, ligi_served_match *match)
{
    lig_matched_tensor *tensors;
    size_t count = ligi_get_count(reader, TENSOR_LEAST);
    if (count == 0)
        return LIG_OK;
    LIG_TRY(ligi_calloc(&tensors, count, sizeof *tensors, "tensors of a match"));
    match->tensors = tensors;
    match->tensor_count = count;
    for (size_t i = 0; i < count; i++) {
        tensors[i].name = ligi_get_text(reader, reader->bytes);
        tensors[i].stored = ligi_get_varint(reader);
    }
    return LIG_OK;
}

static lig_status get_match(ligi_reader *reader, ligi_served_match *match)
{
    ligi_served_model_read(reader, &match->model);
    match->expires_ns = (int64_t)ligi_get_u64(reader);
    match->bytes = ligi_get_varint(reader);
    LIG_TRY(get_layers(reader, match));
    return get_tensors(reader, match);
}

lig_status ligi_served_matches_get(const void *body, size_t bytes, ligi_served_matches *matches)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    size_t count = ligi_get_count(&reader, MATCH_LEAST);
    if (count) {
        LIG_TRY(ligi_calloc(&matches->matches, count, sizeof *matches->matches, "matches"));
        matches->count = count;
    }
    for (size_t i = 0; i < count && !reader.failed; i++)
        LIG_TRY(get_match(&reader, &matches->matches[i]));
    return ligi_served_end(&reader, "matches");
}

void ligi_served_matches_fini(ligi_served_matches *matches)
{
    for (size_t i = 0; i < matches->count; i++) {
        free((void *)matches->matches[i].layers);
        free((void *)matches->matches[i].tensors);
    }
    free(matches->matches);
    *matches = (ligi_served_matches){0};
}
