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
/* Maps all of it for reading and writing; at `at` (a reservation of the caller's) unless NULL. The
 * descriptor may be closed after it. */
lig_status ligi_sealed_map(int fd, uint64_t bytes, void *at, void **memory);

#endif
