/* The frame of a pack: header and trailer (docs/formats.md). Pure. */
#ifndef LIGI_PACKFILE_H
#define LIGI_PACKFILE_H

#include "store/format/record.h"

#define LIGI_PACK_HEADER_BYTES 4096
#define LIGI_PACK_TRAILER_BYTES 64

typedef struct ligi_pack_header {
    uint8_t uuid[LIGI_UUID_BYTES];
    uint8_t secret[LIG_SECRET_BYTES];
    int64_t created_ns;
} ligi_pack_header;

/* Fills LIGI_PACK_HEADER_BYTES bytes. */
void ligi_pack_header_make(const ligi_pack_header *header, void *bytes);
lig_status ligi_pack_header_parse(const void *bytes, ligi_pack_header *header);

typedef struct ligi_pack_trailer {
    uint64_t footer_offset, footer_bytes, footer_hash;
} ligi_pack_trailer;

/* Fills LIGI_PACK_TRAILER_BYTES bytes. */
void ligi_pack_trailer_make(const ligi_pack_trailer *trailer, void *bytes);
/* `pack_bytes` is the pack's size: a footer outside it is refused. */
lig_status ligi_pack_trailer_parse(const void *bytes, uint64_t pack_bytes,
                                   ligi_pack_trailer *trailer);

/* Checks that the tensors of this pack are between the header and `end` (the footer's offset). */
lig_status ligi_pack_tensors_check(const ligi_manifest *manifest, uint64_t here, uint64_t end);

#endif
