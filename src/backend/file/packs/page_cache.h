/* The kernel's page cache: what it holds of a file, and what it may be given. */
#ifndef LIGI_PAGE_CACHE_H
#define LIGI_PAGE_CACHE_H

#include <stdint.h>

/* How many bytes of [from, to), which are multiples of LIGI_ALIGN_BYTES, it holds; -1: unknown. */
int64_t ligi_page_cache_bytes(int fd, uint64_t from, uint64_t to);

/* Marks the file as being read until the descriptor is closed, and returns whether another
 * descriptor has marked it: concurrent readers share the cache. */
void ligi_page_cache_announce(int fd);
int ligi_page_cache_shared(int fd);

/* Memory that the kernel can hand out without swapping; 0: unknown. */
uint64_t ligi_page_cache_available(void);
/* Whether a read of so many bytes leaves most of the available memory to others. Pure. */
int ligi_page_cache_fits(uint64_t bytes, uint64_t available);

#endif
