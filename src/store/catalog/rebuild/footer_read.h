/* The packs of a volume, and their footers. */
#ifndef LIGI_FOOTER_READ_H
#define LIGI_FOOTER_READ_H

#include "store/format/packfile.h"
#include "store/handle.h"

/* Appends the ids of all packs of the volume, ascending. The caller frees *packs. */
lig_status ligi_footer_packs(ligi_volume *volume, uint64_t **packs, size_t *count,
                             size_t *capacity);
/* Reads and checks a pack's header, trailer and footer. The caller frees *footer. */
lig_status ligi_footer_read(ligi_volume *volume, uint64_t pack, ligi_pack_header *header,
                            ligi_pack_trailer *trailer, void **footer);

#endif
