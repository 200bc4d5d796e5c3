/* A model is often loaded again soon, and the first load goes past the page cache because that is
 * faster. A thread of the volume then brings what was read into the cache, so that the second load
 * does not wait for the disk. The thread lives only while there is something to do. */
#ifndef LIGI_PACK_WARM_H
#define LIGI_PACK_WARM_H

#include "backend/file/file.h"

/* Queues bytes [from, to) of the pack, unless they are cached, are too many for the memory, or the
 * volume's options keep packs out of the cache. A hint: what cannot be queued is dropped. */
void ligi_file_pack_warm(void *volume, uint64_t id, uint64_t from, uint64_t to);

/* Whether a read of so many bytes may go through the page cache. */
int ligi_file_may_cache(const ligi_file *volume, uint64_t bytes);

/* Waits for the current step and drops the rest. In a forked child there is no thread. */
void ligi_file_warm_end(ligi_file *volume, int forked);
/* Waits until everything queued has been requested: for tests and benchmarks. */
void ligi_file_warm_wait(ligi_file *volume);

#endif
