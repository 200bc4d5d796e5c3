/* Anonymous shared memory of fixed size. A peer that could shrink memory that we have mapped could
 * kill this process (SIGBUS); so only sealed memory is mapped, and the seals are checked here. */
#ifndef LIGI_SEALED_H
#define LIGI_SEALED_H

#include <ligament/base.h>

/* Creates zeroed memory of `bytes` bytes, sealed against shrinking, growing and further seals;
 * fills a file descriptor (close-on-exec) that the caller closes. */
lig_status ligi_sealed_create(uint64_t bytes, int *fd);
/* LIG_E_DENIED, with an error text, unless `fd` (from a peer) is such memory of exactly `bytes`
 * bytes. */
lig_status ligi_sealed_check(int fd, uint64_t bytes);
/* Creates such memory and maps it at `at` (reserved by the caller) for reading and writing; from
 * then on others can map it only for reading. The caller closes *fd. */
lig_status ligi_sealed_create_read_only(uint64_t bytes, void *at, int *fd);
/* Maps all of it for reading and writing; at `at` (reserved by the caller) unless NULL. The
 * descriptor may be closed after it. */
lig_status ligi_sealed_map(int fd, uint64_t bytes, void *at, void **memory);
/* The same, anywhere; memory sealed against writing is mapped read-only: *read_only is 1. */
lig_status ligi_sealed_view(int fd, uint64_t bytes, void **memory, int *read_only);

#endif
