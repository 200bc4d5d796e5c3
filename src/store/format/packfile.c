#include "store/format/packfile.h"

#include "base/codec.h"
#include "base/error.h"
#include "base/hash.h"

#include <string.h>

enum { MAGIC_BYTES = 8, HASH_BYTES = 8 };

static const char header_magic[] = "LIGAPACK", trailer_magic[] = "LIGATAIL";

static void seal(uint8_t *bytes, size_t size)
{
    ligi_store_le(bytes + size - HASH_BYTES, ligi_hash64_plain(bytes, size - HASH_BYTES), 8);
}

/* Magic first, then the hash, then the version: a newer format keeps these three where they are. */
static lig_status open_frame(const uint8_t *bytes, size_t size, const char *magic,
                             ligi_reader *reader)
{
    const char *what = magic == header_magic ? "header" : "trailer";
    if (memcmp(bytes, magic, MAGIC_BYTES) != 0)
        return lig_fail(LIG_E_CORRUPT, "the pack has no %s", what);
    *reader = (ligi_reader){.data = bytes, .bytes = size, .at = size - HASH_BYTES};
    if (ligi_get_u64(reader) != ligi_hash64_plain(bytes, size - HASH_BYTES))
        return lig_fail(LIG_E_CORRUPT, "the pack's %s is damaged", what);
    reader->at = MAGIC_BYTES;
    uint32_t version = ligi_get_u32(reader);
    if (version > LIGI_FORMAT_VERSION)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "the pack has version %u, but this library supports versions up to %d (use "
                        "a newer library)",
                        version, LIGI_FORMAT_VERSION);
    (void)ligi_get_u32(reader);
    return LIG_OK;
}

void ligi_pack_header_make(const ligi_pack_header *header, void *bytes)
{
    uint8_t *at = bytes;
    memset(at, 0, LIGI_PACK_HEADER_BYTES);
    memcpy(at, header_magic, MAGIC_BYTES);
    ligi_store_le(at + 8, LIGI_FORMAT_VERSION, 4);
    memcpy(at + 16, header->uuid, LIGI_UUID_BYTES);
    memcpy(at + 32, header->secret, LIG_SECRET_BYTES);
    ligi_store_le(at + 32 + LIG_SECRET_BYTES, (uint64_t)header->created_ns, 8);
    seal(at, LIGI_PACK_HEADER_BYTES);
}

lig_status ligi_pack_header_parse(const void *bytes, ligi_pack_header *header)
{
    ligi_reader reader;
    LIG_TRY(open_frame(bytes, LIGI_PACK_HEADER_BYTES, header_magic, &reader));
    memcpy(header->uuid, ligi_get_bytes(&reader, LIGI_UUID_BYTES), LIGI_UUID_BYTES);
    memcpy(header->secret, ligi_get_bytes(&reader, LIG_SECRET_BYTES), LIG_SECRET_BYTES);
    header->created_ns = (int64_t)ligi_get_u64(&reader);
    return LIG_OK;
}

void ligi_pack_trailer_make(const ligi_pack_trailer *trailer, void *bytes)
{
    uint8_t *at = bytes;
    memset(at, 0, LIGI_PACK_TRAILER_BYTES);
    memcpy(at, trailer_magic, MAGIC_BYTES);
    ligi_store_le(at + 8, LIGI_FORMAT_VERSION, 4);
    ligi_store_le(at + 16, trailer->footer_offset, 8);
    ligi_store_le(at + 24, trailer->footer_bytes, 8);
    ligi_store_le(at + 32, trailer->footer_hash, 8);
    seal(at, LIGI_PACK_TRAILER_BYTES);
}

lig_status ligi_pack_trailer_parse(const void *bytes, uint64_t pack_bytes,
                                   ligi_pack_trailer *trailer)
{
    ligi_reader reader;
    LIG_TRY(open_frame(bytes, LIGI_PACK_TRAILER_BYTES, trailer_magic, &reader));
    trailer->footer_offset = ligi_get_u64(&reader);
    trailer->footer_bytes = ligi_get_u64(&reader);
    trailer->footer_hash = ligi_get_u64(&reader);
    uint64_t end = pack_bytes - LIGI_PACK_TRAILER_BYTES;
    if (pack_bytes < LIGI_PACK_HEADER_BYTES + LIGI_PACK_TRAILER_BYTES ||
        trailer->footer_offset < LIGI_PACK_HEADER_BYTES || trailer->footer_offset > end ||
        trailer->footer_bytes > end - trailer->footer_offset)
        return lig_fail(LIG_E_CORRUPT, "the pack's footer is outside the pack");
    return LIG_OK;
}

lig_status ligi_pack_tensors_check(const ligi_manifest *manifest, uint64_t here, uint64_t end)
{
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const lig_stored_tensor *stored = &manifest->tensors[i];
        if (stored->pack != here || stored->tensor.bytes == 0)
            continue;
        if (stored->offset < LIGI_PACK_HEADER_BYTES || stored->offset > end ||
            stored->tensor.bytes > end - stored->offset)
            return lig_fail(LIG_E_CORRUPT, "model '%s': tensor '%s' is outside its pack",
                            manifest->about.name, stored->tensor.name);
    }
    return LIG_OK;
}
