/* Leases of this process at the service: pins, claims of packs, locks by name. All of them expire
 * some time after the process ends; until then the keeper renews them. */
#ifndef LIGI_REMOTE_LEASES_H
#define LIGI_REMOTE_LEASES_H

#include "backend/remote/remote_volume.h"

/* The keeper renews it until `until_ns` (a date) or ligi_remote_lease_end, which waits for a
 * renewal in progress. */
lig_status ligi_remote_lease_begin(ligi_remote_volume *volume, ligi_remote_lease *lease,
                                   int64_t until_ns);
void ligi_remote_lease_end(ligi_remote_volume *volume, ligi_remote_lease *lease);
/* Renews those that are due. The lock is held, and released meanwhile. Returns the moment
 * (CLOCK_MONOTONIC) when the next is due; INT64_MAX: none. */
int64_t ligi_remote_leases_renew(ligi_remote_volume *volume);

/* A process can claim a pack only once: LIG_E_BUSY. */
lig_status ligi_remote_claim_begin(ligi_remote_volume *volume, ligi_remote_claim *claim,
                                   uint64_t id);
void ligi_remote_claim_end(ligi_remote_volume *volume, ligi_remote_claim *claim);
/* 1 if no commit of another process has named the pack since this process claimed it, or if it has
 * no claim. */
int ligi_remote_claim_sound(ligi_remote_volume *volume, uint64_t id);
/* LIG_E_NOTFOUND if this process writes the pack and its claim of it was lost. */
lig_status ligi_remote_claim_check(ligi_remote_volume *volume, uint64_t id);

/* The volume's members. */
lig_status ligi_remote_pin(void *self, const uint64_t *packs, size_t count, int64_t expires_ns,
                           void **pin);
void ligi_remote_unpin(void *pin);
lig_status ligi_remote_lock(void *self, const char *name, void **lock);
void ligi_remote_unlock(void *lock);

#endif
