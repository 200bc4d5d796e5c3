/* Packs in anonymous maps: the volume's members. */
#ifndef LIGI_MEM_PACK_H
#define LIGI_MEM_PACK_H

#include "backend/mem/mem.h"

void ligi_mem_pack_release(ligi_mem_pack *pack);
lig_status ligi_mem_pack_create(void *self, uint64_t bytes, const void *secret, void **pack);
lig_status ligi_mem_pack_put(void *pack, const lig_piece *piece);
lig_status ligi_mem_pack_seal(void *pack, uint64_t *id);
void ligi_mem_pack_close(void *pack);
lig_status ligi_mem_pack_size(void *self, uint64_t id, uint64_t *bytes);
lig_status ligi_mem_pack_read(void *self, uint64_t id, const void *secret, const lig_range *ranges,
                              size_t count, size_t *bad);
lig_status ligi_mem_pack_map(void *self, uint64_t id, uint32_t flags, lig_mapping *mapping);
void ligi_mem_pack_unmap(void *self, lig_mapping *mapping);
lig_status ligi_mem_pack_claim(void *self, uint64_t id, void **pack);
lig_status ligi_mem_pack_remove(void *self, uint64_t id);
lig_status ligi_mem_pack_next(void *self, uint64_t after, uint64_t *id);

#endif
