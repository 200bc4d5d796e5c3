/* The volume in memory: packs in anonymous maps, the catalog as immutable maps. */
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
    int held; /* under the volume's lock: it is being written or claimed */
} ligi_mem_pack;

typedef struct ligi_mem_catalog ligi_mem_catalog;
typedef struct ligi_mem_pin ligi_mem_pin;
typedef struct ligi_mem_events ligi_mem_events;

typedef struct ligi_mem_history { /* the events of commits since version `since`, all of them */
    ligi_mem_events **blocks;     /* one for each commit that has some, by version */
    size_t first, count, capacity;
    size_t bytes, events;
    uint64_t since;
} ligi_mem_history;

typedef struct ligi_mem_volume {
    pthread_mutex_t lock;  /* guards everything below */
    ligi_mem_pack **packs; /* ascending ids */
    size_t pack_count, pack_capacity;
    uint64_t last_id;
    ligi_mem_catalog *catalog; /* NULL: empty, version 0 */
    ligi_mem_history history;
    pthread_cond_t committed;
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

#endif
