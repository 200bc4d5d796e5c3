/* The users of a pack: its writer, readers that pin it, its remover. All are locks of the first
 * stripe with a duration by the OSD's clock, so that those of dead processes expire. */
#ifndef LIGI_RADOS_CLAIM_H
#define LIGI_RADOS_CLAIM_H

#include "backend/rados/rados.h"

#define LIGI_RADOS_WRITER_LOCK "writer" /* exclusive: from create to close */
#define LIGI_RADOS_PIN_LOCK "pin"       /* shared by readers, exclusive for the remover */

lig_status ligi_rados_pack_held(void *self, uint64_t id);

lig_status ligi_rados_pin(void *self, const uint64_t *packs, size_t count, int64_t ttl_ns,
                          void **pin);
lig_status ligi_rados_pin_renew(void *pin, int64_t ttl_ns);
void ligi_rados_unpin(void *pin, int forked);
lig_status ligi_rados_pinned(void *self, const uint64_t *packs, size_t count, uint8_t *pinned);

/* Locks by name. */
lig_status ligi_rados_lock(void *self, const char *name, const char *holder, int64_t ttl_ns,
                           void **lock);
lig_status ligi_rados_lock_renew(void *lock, int64_t ttl_ns);
void ligi_rados_unlock(void *lock, int forked);

#endif
