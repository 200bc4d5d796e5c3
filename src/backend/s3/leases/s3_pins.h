/* Packs in use: pin/<token>, one object for all packs of a pin. See storage_engine.h. */
#ifndef LIGI_S3_PINS_H
#define LIGI_S3_PINS_H

#include "backend/s3/s3.h"

lig_status ligi_s3_pin(void *self, const uint64_t *packs, size_t count, int64_t ttl_ns, void **pin);
lig_status ligi_s3_pin_renew(void *pin, int64_t ttl_ns);
void ligi_s3_unpin(void *pin, int forked);
lig_status ligi_s3_pinned(void *self, const uint64_t *packs, size_t count, uint8_t *pinned);
/* Removes pins of processes that died long ago. */
lig_status ligi_s3_pins_sweep(ligi_s3 *s3);

#endif
