/* The volume in memory: packs in anonymous maps, the catalog as sorted arrays that are never
 * changed once published. */
#ifndef LIGI_MEM_H
#define LIGI_MEM_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include <ligament/backend.h>

typedef struct ligi_mem_pack {
    atomic_size_t refs; /* the volume, its writer or claimer, readers, mappings */
    uint64_t id;
    uint8_t *base;
    uint64_t bytes, capacity;
    int held; /* under the volume's lock: somebody writes or claims it */
} ligi_mem_pack;

typedef struct ligi_mem_catalog ligi_mem_catalog;
typedef struct ligi_mem_pin ligi_mem_pin;

typedef struct ligi_mem_volume {
    pthread_mutex_t lock;  /* guards everything below */
    ligi_mem_pack **packs; /* ascending ids */
    size_t pack_count, pack_capacity;
    uint64_t last_id;
    ligi_mem_catalog *catalog; /* NULL: empty, version 0 */
    ligi_mem_pin *pins;
} ligi_mem_volume;

typedef struct ligi_mem { /* one open instance */
    ligi_mem_volume *volume;
    int shared, read_only;
    pid_t pid;
} ligi_mem;

/* LIG_E_CLOSED in a forked child. */
lig_status ligi_mem_usable(const ligi_mem *self);
lig_status ligi_mem_writable(const ligi_mem *self);

void ligi_mem_pack_release(ligi_mem_pack *pack);
lig_status ligi_mem_pack_create(void *self, uint64_t bytes, const void *secret, void **pack);
lig_status ligi_mem_pack_put(void *pack, const lig_piece *piece);
lig_status ligi_mem_pack_seal(void *pack, uint64_t *id);
void ligi_mem_pack_close(void *pack);
lig_status ligi_mem_pack_size(void *self, uint64_t id, uint64_t *bytes);
lig_status ligi_mem_pack_read(void *self, uint64_t id, const void *secret, const lig_range *ranges,
                              size_t count, size_t *bad);
lig_status ligi_mem_pack_map(void *self, uint64_t id, uint32_t flags, lig_mapping *mapping);
void ligi_mem_pack_unmap(void *self, lig_mapping *mapping);
lig_status ligi_mem_pack_claim(void *self, uint64_t id, void **pack);
lig_status ligi_mem_pack_remove(void *self, uint64_t id);
lig_status ligi_mem_pack_next(void *self, uint64_t after, uint64_t *id);

lig_status ligi_mem_pin_packs(void *self, const uint64_t *packs, size_t count, int64_t expires_ns,
                              void **pin);
void ligi_mem_unpin(void *pin);
/* 1 when a pin that has not expired names the pack. The volume's lock is held. */
int ligi_mem_pinned(const ligi_mem_volume *volume, uint64_t id);

void ligi_mem_catalog_release(ligi_mem_catalog *catalog);
lig_status ligi_mem_catalog_begin(void *self, void **snapshot, uint64_t *version);
void ligi_mem_catalog_end(void *snapshot);
lig_status ligi_mem_catalog_get(void *snapshot, const void *key, size_t key_bytes,
                                lig_catalog_item *item);
lig_status ligi_mem_catalog_seek(void *snapshot, const void *key, size_t key_bytes,
                                 lig_catalog_item *item);
lig_status ligi_mem_catalog_commit(void *self, uint64_t version, const lig_catalog_op *ops,
                                   size_t count);

#endif
