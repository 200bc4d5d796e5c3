/* Reading ranges of packs: the volume's member. */
#ifndef LIGI_PACK_READ_H
#define LIGI_PACK_READ_H

#include "backend/file/file.h"

lig_status ligi_file_pack_read(void *self, uint64_t id, const void *secret, const lig_range *ranges,
                               size_t count, size_t *bad);

#endif
