/* Anonymous shared memory whose size can never change again. A peer that could shrink what we have
 * mapped could kill us (SIGBUS); so we map only what is sealed, and look at the seals ourselves. */
#ifndef LIGI_SEALED_H
#define LIGI_SEALED_H

#include <ligament/base.h>

/* Makes zeroed memory of `bytes` bytes, sealed against shrinking, growing and further seals; fills
 * a file descriptor (close-on-exec) that the caller closes. */
lig_status ligi_sealed_create(uint64_t bytes, int *fd);
/* LIG_E_DENIED, with a sentence, unless `fd` (from a peer) is such memory of exactly `bytes`
 * bytes. */
lig_status ligi_sealed_check(int fd, uint64_t bytes);
/* Makes such memory and maps it at `at` (a reservation of the caller's) for reading and writing;
 * from then on nobody can map it but for reading. The caller closes *fd. */
lig_status ligi_sealed_create_read_only(uint64_t bytes, void *at, int *fd);
/* Maps all of it for reading and writing; at `at` (a reservation of the caller's) unless NULL. The
 * descriptor may be closed after it. */
lig_status ligi_sealed_map(int fd, uint64_t bytes, void *at, void **memory);
/* Likewise, anywhere; memory that is sealed against writing for reading alone: *read_only is 1. */
lig_status ligi_sealed_view(int fd, uint64_t bytes, void **memory, int *read_only);

#endif
