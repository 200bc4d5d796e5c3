/* The files of a cache of packs: for each pack its bytes, with holes, and a table of checks. */
#ifndef LIGI_CACHE_FILES_H
#define LIGI_CACHE_FILES_H

#include "backend/remote/cache/pack_cache.h"

/* `folder` is created (0700) if it does not exist; it must belong to this user and be writable by
 * no other user. All processes that share it use at most about `bytes` bytes. `store` is the id of
 * the store (16 bytes). */
lig_status ligi_remote_cache_open(const char *folder, uint64_t bytes, const uint8_t store[16],
                                  ligi_remote_cache **cache);
void ligi_remote_cache_close(ligi_remote_cache *cache); /* NULL is valid */

typedef struct ligi_cache_file {
    int data_fd, sums_fd;
    uint64_t bytes; /* of the pack */
    uint64_t added; /* by this handle */
} ligi_cache_file;

/* 1 if there are files for the pack. `bytes` 0: only if they exist; otherwise they are created for
 * a pack of this size. */
int ligi_cache_file_open(ligi_remote_cache *cache, uint64_t id, uint64_t bytes,
                         ligi_cache_file *file);
/* Counts as a use, and evicts the least recently used packs if too much was added. */
void ligi_cache_file_close(ligi_remote_cache *cache, ligi_cache_file *file);

/* 1 if the bytes are there; they are not compared with the checks of their blocks. */
int ligi_cache_bytes_get(const ligi_cache_file *file, uint64_t offset, void *to, uint64_t bytes);
/* 1 if the block is there and matches its check. */
int ligi_cache_block_get(const ligi_cache_file *file, uint64_t block, void *to, uint64_t bytes);
/* Best effort. */
void ligi_cache_block_put(ligi_cache_file *file, uint64_t block, const void *from, uint64_t bytes);

#endif
