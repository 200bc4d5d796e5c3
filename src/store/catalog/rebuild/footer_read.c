#include "store/catalog/rebuild/footer_read.h"

#include "base/error.h"
#include "base/hash.h"
#include "store/handle.h"

#include <stdlib.h>

static lig_status read_plain(ligi_volume *volume, uint64_t pack, uint64_t offset, uint64_t bytes,
                             void *data)
{
    lig_range range = {.data = data, .bytes = bytes, .offset = offset};
    size_t bad;
    return volume->ops->pack_read(volume->self, pack, NULL, &range, 1, &bad);
}

lig_status ligi_footer_packs(ligi_volume *volume, uint64_t **packs, size_t *count, size_t *capacity)
{
    uint64_t id = 0;
    for (;;) {
        lig_status status = volume->ops->pack_next(volume->self, id, &id);
        if (status == LIG_E_NOTFOUND)
            return LIG_OK;
        LIG_TRY(status);
        LIG_TRY(ligi_grow(packs, capacity, *count + 1, sizeof **packs, "a list of packs"));
        (*packs)[(*count)++] = id;
    }
}

lig_status ligi_footer_read(ligi_volume *volume, uint64_t pack, ligi_pack_header *header,
                            ligi_pack_trailer *trailer, void **out)
{
    uint64_t bytes;
    uint8_t frame[LIGI_PACK_HEADER_BYTES];
    LIG_TRY(volume->ops->pack_size(volume->self, pack, &bytes));
    if (bytes < LIGI_PACK_HEADER_BYTES + LIGI_PACK_TRAILER_BYTES)
        return lig_fail(LIG_E_CORRUPT, "the pack is too short");
    LIG_TRY(read_plain(volume, pack, 0, LIGI_PACK_HEADER_BYTES, frame));
    LIG_TRY(ligi_pack_header_parse(frame, header));
    LIG_TRY(
        read_plain(volume, pack, bytes - LIGI_PACK_TRAILER_BYTES, LIGI_PACK_TRAILER_BYTES, frame));
    LIG_TRY(ligi_pack_trailer_parse(frame, bytes, trailer));
    void *bytes_read;
    LIG_TRY(ligi_alloc(&bytes_read, trailer->footer_bytes, "a footer"));
    lig_status status =
        read_plain(volume, pack, trailer->footer_offset, trailer->footer_bytes, bytes_read);
    if (status == LIG_OK &&
        ligi_hash64_plain(bytes_read, trailer->footer_bytes) != trailer->footer_hash)
        status = lig_fail(LIG_E_CORRUPT, "the pack's footer is damaged");
    if (status == LIG_OK)
        *out = bytes_read;
    else
        free(bytes_read);
    return status;
}
