/* Pinned packs, which must not be removed although no model may refer to them any more: found by a
 * search, not yet read.
 *
 * Each open volume that pins has one file in leases/, locked by flock as long as its process
 * lives, so that dead processes are recognised without clocks. After a human-readable head
 * (process, its start, boot) there are records of 16 bytes: pack, and when the pin ends (ns
 * since 1970; 0: free). Nothing is synced: a crash of the machine ends all pins. */
#ifndef LIGI_FILE_PINS_H
#define LIGI_FILE_PINS_H

#include "backend/file/file.h"

lig_status ligi_file_pin(void *self, const uint64_t *packs, size_t count, int64_t expires_ns,
                         void **pin);
void ligi_file_unpin(void *pin);
/* LIG_E_BUSY if a live process pins the pack. Removes the files of dead processes. */
lig_status ligi_file_pinned(const ligi_file *self, uint64_t pack);
/* Removes what dead processes left. */
void ligi_file_pins_clean(const ligi_file *self);
/* Gives up the volume's own file; in a forked child only the memory. */
void ligi_file_pins_close(ligi_file *self, int forked);

#endif
