/* Writing packs of a remote volume. */
#ifndef LIGI_REMOTE_WRITE_H
#define LIGI_REMOTE_WRITE_H

#include "backend/remote/remote_volume.h"

/* The object that pack_create and pack_claim return, with a claim that has not begun.
 * ligi_remote_pack_close. */
lig_status ligi_remote_writer_create(ligi_remote_volume *volume, void **pack,
                                     ligi_remote_claim **claim);

/* The volume's members. */
lig_status ligi_remote_pack_create(void *self, uint64_t bytes, const void *secret, void **pack);
lig_status ligi_remote_pack_put(void *pack, const lig_piece *piece);
lig_status ligi_remote_pack_seal(void *pack, uint64_t *id);
void ligi_remote_pack_close(void *pack);

#endif
