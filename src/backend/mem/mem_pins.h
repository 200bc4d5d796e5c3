/* Pins of packs in memory: the volume's members. */
#ifndef LIGI_MEM_PINS_H
#define LIGI_MEM_PINS_H

#include "backend/mem/mem.h"

lig_status ligi_mem_pin_packs(void *self, const uint64_t *packs, size_t count, int64_t expires_ns,
                              void **pin);
void ligi_mem_unpin(void *pin);
/* 1 if a pin that has not expired contains the pack. The volume's lock is held. */
int ligi_mem_pinned(const ligi_mem_volume *volume, uint64_t id);

#endif
