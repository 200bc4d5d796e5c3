#include "base/error.h"
#include "base/hash.h"
#include "store/handle.h"

#include <stdlib.h>

static lig_status read_plain(ligi_place *place, uint64_t pack, uint64_t offset, uint64_t bytes,
                             void *data)
{
    lig_range range = {.data = data, .bytes = bytes, .offset = offset};
    size_t bad;
    return place->ops->pack_read(place->self, pack, NULL, &range, 1, &bad);
}

lig_status ligi_pack_footer_read(ligi_place *place, uint64_t pack, ligi_pack_header *header,
                                 ligi_pack_trailer *trailer, void **out)
{
    uint64_t bytes;
    uint8_t frame[LIGI_PACK_HEADER_BYTES];
    LIG_TRY(place->ops->pack_size(place->self, pack, &bytes));
    if (bytes < LIGI_PACK_HEADER_BYTES + LIGI_PACK_TRAILER_BYTES)
        return lig_fail(LIG_E_CORRUPT, "the pack is too short");
    LIG_TRY(read_plain(place, pack, 0, LIGI_PACK_HEADER_BYTES, frame));
    LIG_TRY(ligi_pack_header_parse(frame, header));
    LIG_TRY(
        read_plain(place, pack, bytes - LIGI_PACK_TRAILER_BYTES, LIGI_PACK_TRAILER_BYTES, frame));
    LIG_TRY(ligi_pack_trailer_parse(frame, bytes, trailer));
    void *bytes_read;
    LIG_TRY(ligi_alloc(&bytes_read, trailer->footer_bytes, "a footer"));
    lig_status status =
        read_plain(place, pack, trailer->footer_offset, trailer->footer_bytes, bytes_read);
    if (status == LIG_OK &&
        ligi_hash64_plain(bytes_read, trailer->footer_bytes) != trailer->footer_hash)
        status = lig_fail(LIG_E_CORRUPT, "the pack's footer is damaged");
    if (status == LIG_OK)
        *out = bytes_read;
    else
        free(bytes_read);
    return status;
}
