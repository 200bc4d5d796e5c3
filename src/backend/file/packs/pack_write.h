/* Writing and claiming packs: the volume's members. */
#ifndef LIGI_PACK_WRITE_H
#define LIGI_PACK_WRITE_H

#include "backend/file/file.h"

lig_status ligi_file_pack_create(void *self, uint64_t bytes, const void *secret, void **pack);
lig_status ligi_file_pack_put(void *pack, const lig_piece *piece);
lig_status ligi_file_pack_seal(void *pack, uint64_t *id);
void ligi_file_pack_close(void *pack);
lig_status ligi_file_pack_claim(void *self, uint64_t id, void **pack);

#endif
