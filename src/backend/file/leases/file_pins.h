/* Packs that must stay although no model may name them any more: found by a search, not yet read.
 *
 * Each open volume that pins has one file in leases/, held by flock as long as its process lives,
 * so that the dead are told from the living without clocks. Behind a head for people (process, its
 * start, boot) stand records of 16 bytes: pack, and when the pin ends (ns since 1970; 0: free).
 * Nothing of it is synced: after a crash of the machine nobody holds a pin. */
#ifndef LIGI_FILE_PINS_H
#define LIGI_FILE_PINS_H

#include "backend/file/file.h"

lig_status ligi_file_pin(void *self, const uint64_t *packs, size_t count, int64_t expires_ns,
                         void **pin);
void ligi_file_unpin(void *pin);
/* LIG_E_BUSY when a living process pins the pack. Removes the files of those that are gone. */
lig_status ligi_file_pinned(const ligi_file *self, uint64_t pack);
/* Removes what dead processes left. */
void ligi_file_pins_clean(const ligi_file *self);
/* Gives up the volume's own file; in a forked child only the memory. */
void ligi_file_pins_close(ligi_file *self, int forked);

#endif
