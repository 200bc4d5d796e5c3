/* Reading packs of a remote volume. */
#ifndef LIGI_REMOTE_READ_H
#define LIGI_REMOTE_READ_H

#include "backend/remote/remote_volume.h"

/* The volume's members. */
lig_status ligi_remote_pack_size(void *self, uint64_t id, uint64_t *bytes);
lig_status ligi_remote_pack_read(void *self, uint64_t id, const void *secret,
                                 const lig_range *ranges, size_t count, size_t *bad);
lig_status ligi_remote_pack_map(void *self, uint64_t id, uint32_t flags, lig_mapping *mapping);
void ligi_remote_pack_unmap(void *self, lig_mapping *mapping);

#endif
