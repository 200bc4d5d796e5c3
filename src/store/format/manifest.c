#include "store/format/manifest.h"

#include "base/error.h"
#include "base/hash.h"
#include "store/format/assemble.h"
#include "tensor/memory.h"
#include "tensor/tensor.h"

#include <ligament/backend.h>

#include <stdlib.h>
#include <string.h>

enum { FLAG_OWNER = 1, FLAG_PACK = 2, FLAG_TIED = 4, FLAG_AGAIN = 8, FLAG_BOX = 16 };
enum { FLAGS_KNOWN = 15, KIND_MODEL = 0, KIND_PART = 1 };

static const char magic[4] = {'L', 'I', 'G', 'M'};

/* The fewest bytes that a metric, a tag and a tensor can take. */
enum { METRIC_BYTES = 10, TAG_BYTES = 4, TENSOR_BYTES = 6 };

uint64_t ligi_manifest_block_count(uint64_t bytes)
{
    return bytes / LIG_BLOCK_BYTES + (bytes % LIG_BLOCK_BYTES != 0);
}

void ligi_about_put(ligi_writer *writer, const ligi_about *about)
{
    ligi_put_varint(writer, about->id);
    ligi_put_varint(writer, about->parent);
    ligi_put_u64(writer, (uint64_t)about->created_ns);
    ligi_put_text(writer, about->name);
    ligi_put_text(writer, about->parent_name);
    ligi_put_varint(writer, about->metric_count);
    for (size_t i = 0; i < about->metric_count; i++) {
        ligi_put_text(writer, about->metrics[i].name);
        ligi_put_f64(writer, about->metrics[i].value);
    }
    ligi_put_varint(writer, about->tag_count);
    for (size_t i = 0; i < about->tag_count; i++) {
        ligi_put_text(writer, about->tags[i].name);
        ligi_put_text(writer, about->tags[i].value);
    }
    ligi_put_text(writer, about->meta);
}

static lig_status get_labels(ligi_reader *reader, ligi_about *about)
{
    size_t count = ligi_get_count(reader, METRIC_BYTES);
    LIG_TRY(ligi_calloc(&about->metrics, count, sizeof *about->metrics, "metrics"));
    about->metric_count = count;
    for (size_t i = 0; i < count; i++) {
        about->metrics[i].name = ligi_get_text(reader, LIG_NAME_BYTES_MAX);
        about->metrics[i].value = ligi_get_f64(reader);
    }
    count = ligi_get_count(reader, TAG_BYTES);
    LIG_TRY(ligi_calloc(&about->tags, count, sizeof *about->tags, "tags"));
    about->tag_count = count;
    for (size_t i = 0; i < count; i++) {
        about->tags[i].name = ligi_get_text(reader, LIG_NAME_BYTES_MAX);
        about->tags[i].value = ligi_get_text(reader, LIGI_TEXT_BYTES_MAX);
    }
    return LIG_OK;
}

static int is_text(const char *text)
{
    return ligi_utf8_valid(text, strlen(text));
}

static int texts_valid(const ligi_about *about)
{
    int valid = is_text(about->parent_name) && is_text(about->meta);
    for (size_t i = 0; i < about->metric_count && valid; i++)
        valid = is_text(about->metrics[i].name);
    for (size_t i = 0; i < about->tag_count && valid; i++)
        valid = is_text(about->tags[i].name) && is_text(about->tags[i].value);
    return valid;
}

/* A part has no id. */
static lig_status get_about(ligi_reader *reader, ligi_about *about)
{
    about->id = ligi_get_varint(reader);
    about->parent = ligi_get_varint(reader);
    about->created_ns = (int64_t)ligi_get_u64(reader);
    about->name = ligi_get_text(reader, LIG_NAME_BYTES_MAX);
    about->parent_name = ligi_get_text(reader, LIG_NAME_BYTES_MAX);
    LIG_TRY(get_labels(reader, about));
    about->meta = ligi_get_text(reader, LIGI_TEXT_BYTES_MAX);
    if (reader->failed)
        return lig_fail(LIG_E_CORRUPT, "a model's description is truncated");
    if (!texts_valid(about))
        return lig_fail(LIG_E_CORRUPT, "a model's description is not valid UTF-8");
    if (about->name[0] == '\0' || !ligi_utf8_valid(about->name, strlen(about->name)))
        return lig_fail(LIG_E_CORRUPT, "a model's record has an invalid name");
    return LIG_OK;
}

lig_status ligi_about_get(ligi_reader *reader, ligi_about *about)
{
    LIG_TRY(get_about(reader, about));
    if (about->id == 0)
        return lig_fail(LIG_E_CORRUPT, "a model's record has an invalid id");
    return LIG_OK;
}

void ligi_about_fini(ligi_about *about)
{
    free(about->metrics);
    free(about->tags);
    about->metrics = NULL;
    about->tags = NULL;
}

/* Consecutive tensors mostly have the same pack and owner, which are written once. `last` is the
 * slot that wrote them last. */
static int slot_flags(const ligi_slot *slot, const ligi_slot *last)
{
    if (slot->tied != SIZE_MAX)
        return FLAG_TIED;
    if (slot->owner && slot->pack && last && last->owner == slot->owner && last->pack == slot->pack)
        return FLAG_AGAIN;
    return (slot->owner ? FLAG_OWNER : 0) | (slot->pack ? FLAG_PACK : 0);
}

static void put_numbers(ligi_writer *writer, const int64_t *numbers, uint32_t count)
{
    for (uint32_t d = 0; d < count; d++)
        ligi_put_varint(writer, (uint64_t)numbers[d]);
}

static void put_tensor(ligi_writer *writer, const ligi_body *body, size_t index, int flags)
{
    const lig_tensor *tensor = &body->tensors[index];
    const ligi_slot *slot = &body->slots[index];
    const ligi_box_position *place = body->places ? &body->places[index] : NULL;
    int boxed = place && place->whole;
    ligi_put_u8(writer, (uint8_t)(flags | (boxed ? FLAG_BOX : 0)));
    ligi_put_u8(writer, (uint8_t)tensor->dtype);
    ligi_put_u8(writer, (uint8_t)tensor->ndim);
    ligi_put_text(writer, tensor->name);
    put_numbers(writer, tensor->shape, tensor->ndim);
    if (boxed) {
        put_numbers(writer, place->whole, tensor->ndim);
        put_numbers(writer, place->start, tensor->ndim);
    }
    if (flags & FLAG_TIED) {
        ligi_put_varint(writer, slot->tied);
        return;
    }
    if (flags & FLAG_OWNER)
        ligi_put_varint(writer, slot->owner);
    if (flags & FLAG_PACK)
        ligi_put_varint(writer, slot->pack);
    ligi_put_varint(writer, slot->offset);
    for (uint64_t b = 0; b < ligi_manifest_block_count(tensor->bytes); b++)
        ligi_put_u64(writer, body->hashes[slot->first_hash + b]);
}

static int has_boxes(const ligi_body *body)
{
    for (size_t i = 0; i < body->count && body->places; i++)
        if (body->places[i].whole)
            return 1;
    return 0;
}

void ligi_manifest_put(ligi_writer *writer, const ligi_about *about, const ligi_body *body)
{
    ligi_put_bytes(writer, magic, sizeof magic);
    /* Manifests that an older library can read are written in the old version. */
    int newer = body->part || has_boxes(body);
    ligi_put_varint(writer, newer ? LIGI_MANIFEST_VERSION : 1);
    if (newer)
        ligi_put_u8(writer, body->part ? KIND_PART : KIND_MODEL);
    ligi_about_put(writer, about);
    ligi_put_text(writer, body->structure);
    ligi_put_varint(writer, body->count);
    const ligi_slot *last = NULL;
    for (size_t i = 0; i < body->count; i++) {
        int flags = slot_flags(&body->slots[i], last);
        put_tensor(writer, body, i, flags);
        if ((flags & FLAG_OWNER) && (flags & FLAG_PACK))
            last = &body->slots[i];
    }
    ligi_put_varint(writer, body->graph_bytes);
    ligi_put_bytes(writer, body->graphs, body->graph_bytes);
}

/* Where the next shape and the next hashes go; both pools are large enough for all that the bytes
 * can hold. */
typedef struct cursor {
    ligi_reader reader;
    int64_t *shape;
    uint64_t *hash;
    uint64_t here;
    uint64_t owner, pack; /* said last, both together; 0: not yet */
    int known;            /* flags that this version has */
} cursor;

/* The pool has room for what the bytes can hold. */
static lig_status get_numbers(cursor *at, uint32_t count, const int64_t **numbers)
{
    if (count > at->reader.bytes - at->reader.at)
        return lig_fail(LIG_E_CORRUPT, "truncated entry");
    *numbers = at->shape;
    for (uint32_t d = 0; d < count; d++)
        *at->shape++ = (int64_t)ligi_get_varint(&at->reader);
    return LIG_OK;
}

static lig_status get_shape(cursor *at, lig_tensor *tensor)
{
    tensor->dtype = ligi_get_u8(&at->reader);
    tensor->ndim = ligi_get_u8(&at->reader);
    tensor->name = ligi_get_text(&at->reader, LIG_NAME_BYTES_MAX);
    if (at->reader.failed)
        return lig_fail(LIG_E_CORRUPT, "truncated entry");
    size_t name_bytes = strlen(tensor->name);
    if (name_bytes == 0 || !ligi_utf8_valid(tensor->name, name_bytes))
        return lig_fail(LIG_E_CORRUPT, "invalid name");
    if (lig_dtype_bytes(tensor->dtype) == 0)
        return lig_fail(LIG_E_CORRUPT, "unknown dtype %u", tensor->dtype);
    if (tensor->ndim > LIG_NDIM_MAX)
        return lig_fail(LIG_E_CORRUPT, "invalid number of dimensions: %u", tensor->ndim);
    LIG_TRY(get_numbers(at, tensor->ndim, &tensor->shape));
    if (ligi_shape_bytes(tensor->shape, tensor->ndim, tensor->dtype, &tensor->bytes) != LIG_OK)
        return lig_fail(LIG_E_CORRUPT, "invalid shape");
    return LIG_OK;
}

static lig_status get_box(cursor *at, const lig_tensor *tensor, ligi_box_position *place)
{
    uint64_t bytes;
    LIG_TRY(get_numbers(at, tensor->ndim, &place->whole));
    LIG_TRY(get_numbers(at, tensor->ndim, &place->start));
    if (ligi_shape_bytes(place->whole, tensor->ndim, tensor->dtype, &bytes) != LIG_OK)
        return lig_fail(LIG_E_CORRUPT, "invalid shape of the whole tensor");
    for (uint32_t d = 0; d < tensor->ndim; d++)
        if (place->start[d] < 0 || place->start[d] > place->whole[d] ||
            tensor->shape[d] > place->whole[d] - place->start[d])
            return lig_fail(LIG_E_CORRUPT, "its box is outside the whole tensor");
    return LIG_OK;
}

static lig_status get_tied(cursor *at, ligi_manifest *manifest, size_t index)
{
    lig_stored_tensor *stored = &manifest->tensors[index];
    uint64_t target = ligi_get_varint(&at->reader);
    if (at->reader.failed || target >= index || manifest->tensors[target].tied >= 0)
        return lig_fail(LIG_E_CORRUPT, "invalid tie");
    const lig_stored_tensor *other = &manifest->tensors[target];
    const lig_tensor *a = &stored->tensor, *b = &other->tensor;
    if (a->dtype != b->dtype || a->ndim != b->ndim ||
        (a->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) != 0))
        return lig_fail(LIG_E_CORRUPT, "it is tied to a tensor of a different shape");
    stored->tied = (int64_t)target;
    stored->owner = other->owner;
    stored->pack = other->pack;
    stored->offset = other->offset;
    manifest->hashes[index] = manifest->hashes[target];
    return LIG_OK;
}

static lig_status get_place(cursor *at, ligi_manifest *manifest, size_t index, int flags)
{
    lig_stored_tensor *stored = &manifest->tensors[index];
    stored->owner = flags & FLAG_OWNER   ? ligi_get_varint(&at->reader)
                    : flags & FLAG_AGAIN ? at->owner
                                         : manifest->about.id;
    stored->pack = flags & FLAG_PACK    ? ligi_get_varint(&at->reader)
                   : flags & FLAG_AGAIN ? at->pack
                                        : at->here;
    if ((flags & FLAG_OWNER) && (flags & FLAG_PACK)) {
        at->owner = stored->owner;
        at->pack = stored->pack;
    }
    stored->offset = ligi_get_varint(&at->reader);
    uint64_t bytes = stored->tensor.bytes, blocks = ligi_manifest_block_count(bytes);
    if (at->reader.failed || blocks > (at->reader.bytes - at->reader.at) / sizeof(uint64_t))
        return lig_fail(LIG_E_CORRUPT, "truncated entry");
    if (stored->offset % LIGI_ALIGN_SMALL || stored->offset > INT64_MAX - bytes ||
        (flags & (FLAG_PACK | FLAG_AGAIN) && stored->pack == 0) ||
        (flags & FLAG_AGAIN && flags != FLAG_AGAIN))
        return lig_fail(LIG_E_CORRUPT, "invalid location");
    manifest->hashes[index] = at->hash;
    for (uint64_t b = 0; b < blocks; b++)
        *at->hash++ = ligi_get_u64(&at->reader);
    return LIG_OK;
}

static lig_status get_tensor(cursor *at, ligi_manifest *manifest, size_t index)
{
    lig_stored_tensor *stored = &manifest->tensors[index];
    stored->tied = -1;
    int flags = ligi_get_u8(&at->reader);
    stored->boxes = 1;
    if (flags & ~at->known)
        return lig_fail(LIG_E_CORRUPT, "invalid flags %#x", flags);
    LIG_TRY(get_shape(at, &stored->tensor));
    if (flags & FLAG_BOX)
        LIG_TRY(get_box(at, &stored->tensor, &manifest->places[index]));
    flags &= ~FLAG_BOX;
    return flags & FLAG_TIED ? get_tied(at, manifest, index)
                             : get_place(at, manifest, index, flags);
}

static lig_status get_tensors(cursor *at, ligi_manifest *manifest)
{
    size_t count = ligi_get_count(&at->reader, TENSOR_BYTES);
    if (at->reader.failed)
        return lig_fail(LIG_E_CORRUPT, "the manifest of '%s' is truncated", manifest->about.name);
    /* Every dimension takes a byte at least, every hash eight: what is left bounds both pools. */
    size_t left = at->reader.bytes - at->reader.at;
    LIG_TRY(ligi_calloc(&manifest->tensors, count, sizeof *manifest->tensors, "tensors"));
    LIG_TRY(ligi_calloc(&manifest->hashes, count, sizeof *manifest->hashes, "tensors"));
    if (at->known & FLAG_BOX)
        LIG_TRY(ligi_calloc(&manifest->places, count, sizeof *manifest->places, "boxes"));
    LIG_TRY(ligi_alloc(&manifest->shapes, (left + 1) * sizeof *manifest->shapes, "shapes"));
    LIG_TRY(ligi_alloc(&manifest->hash_pool, left + sizeof *manifest->hash_pool, "hashes"));
    at->shape = manifest->shapes;
    at->hash = manifest->hash_pool;
    manifest->tensor_count = count;
    for (size_t i = 0; i < count; i++)
        if (get_tensor(at, manifest, i) != LIG_OK)
            return ligi_fail_again(LIG_E_CORRUPT,
                                   "the manifest of '%s' is damaged at tensor %zu: %s",
                                   manifest->about.name, i, lig_error_text());
    return LIG_OK;
}

static lig_status get_kind(cursor *at, uint64_t version, ligi_manifest *manifest)
{
    if (version < 2)
        return LIG_OK;
    int kind = ligi_get_u8(&at->reader);
    if (kind != KIND_MODEL && kind != KIND_PART)
        return lig_fail(LIG_E_UNSUPPORTED, "the manifest has unknown kind %d", kind);
    manifest->part = kind == KIND_PART;
    at->known |= FLAG_BOX;
    return LIG_OK;
}

lig_status ligi_manifest_get(const void *bytes, size_t size, uint64_t here, ligi_manifest *manifest)
{
    cursor at = {.reader = {.data = bytes, .bytes = size}, .here = here, .known = FLAGS_KNOWN};
    const void *found = ligi_get_bytes(&at.reader, sizeof magic);
    if (found == NULL || memcmp(found, magic, sizeof magic) != 0)
        return lig_fail(LIG_E_CORRUPT, "not a manifest: wrong magic number");
    uint64_t version = ligi_get_varint(&at.reader);
    if (version > LIGI_MANIFEST_VERSION)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "the manifest has version %llu, but this library supports versions up to "
                        "%d (use a newer library)",
                        (unsigned long long)version, LIGI_MANIFEST_VERSION);
    LIG_TRY(get_kind(&at, version, manifest));
    LIG_TRY(manifest->part ? get_about(&at.reader, &manifest->about)
                           : ligi_about_get(&at.reader, &manifest->about));
    manifest->structure = ligi_get_text(&at.reader, LIGI_TEXT_BYTES_MAX);
    if (!is_text(manifest->structure))
        return lig_fail(LIG_E_CORRUPT, "the structure of '%s' is not valid UTF-8",
                        manifest->about.name);
    LIG_TRY(get_tensors(&at, manifest));
    manifest->graph_bytes = ligi_get_count(&at.reader, 1);
    manifest->graphs = ligi_get_bytes(&at.reader, manifest->graph_bytes);
    if (at.reader.failed || at.reader.at != size)
        return lig_fail(LIG_E_CORRUPT, "the manifest of '%s' has the wrong length",
                        manifest->about.name);
    manifest->shown = manifest->tensors;
    manifest->shown_count = manifest->tensor_count;
    return manifest->places && !manifest->part ? ligi_manifest_assemble(manifest) : LIG_OK;
}

void ligi_manifest_fingerprints(ligi_manifest *manifest, const void *secret)
{
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        lig_stored_tensor *stored = &manifest->tensors[i];
        size_t bytes = ligi_manifest_block_count(stored->tensor.bytes) * sizeof(uint64_t);
        ligi_hash128 hash = ligi_hash128_keyed(secret, manifest->hashes[i], bytes);
        stored->fingerprint[0] = hash.low;
        stored->fingerprint[1] = hash.high;
    }
    ligi_manifest_assemble_fingerprints(manifest, secret);
}

void ligi_manifest_fini(ligi_manifest *manifest)
{
    ligi_about_fini(&manifest->about);
    if (manifest->shown != manifest->tensors)
        free(manifest->shown);
    free(manifest->tensors);
    free(manifest->hashes);
    free(manifest->shapes);
    free(manifest->hash_pool);
    free(manifest->places);
    free(manifest->wholes);
    memset(manifest, 0, sizeof *manifest);
}
