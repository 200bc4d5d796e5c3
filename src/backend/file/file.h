/* The volume in a folder:
 *   ligament                 the marker, "ligament store, format 2"
 *   log/                     the commits, which are the catalog (log/, docs/decisions/0008)
 *   index.mdb (-lock)        LMDB: the index made from the log (of a shared store: elsewhere)
 *   catalog.mdb (-lock)      the catalog of format 1, after an upgrade (catalog/upgrade.h)
 *   packs/<16 hex>.pack      sealed packs; packs/tmp-<16 hex> on their way
 *   leases/<16 hex>          packs that a process pins (leases/file_pins.h)
 *   leases/run-<16 hex>      names that a process holds (leases/named_lock.h)
 * names.h has all names; entry.h says how they are opened.
 * A writer holds flock(LOCK_EX) on its pack from creation to pack_close: that is how the living are
 * told from the dead. */
#ifndef LIGI_FILE_H
#define LIGI_FILE_H

#include "backend/file/entry.h"
#include "backend/file/packs/engine.h"

#include <pthread.h>
#include <sys/types.h>

#define LIGI_PACK_NAME_BYTES 32

typedef struct ligi_file_options {
    char *mode, *direct, *uring, *share, *index;
    uint64_t cache, map, log;
    int fsync;
    int64_t wait;
} ligi_file_options;

typedef struct ligi_file_catalog ligi_file_catalog;
typedef struct ligi_pins ligi_pins;
typedef struct ligi_warmer ligi_warmer;
typedef struct ligi_file_catalog_copy ligi_file_catalog_copy;
typedef struct ligi_file_reader ligi_file_reader;

typedef struct ligi_file { /* one open instance */
    char *place, *packs_place;
    ligi_file_options options;
    int folder_fd, packs_fd;
    ligi_entry_id packs_id;
    pid_t pid;
    int read_only, network;
    int format;                 /* of the store when it was opened; 0: it was made */
    int direct;                 /* whether O_DIRECT is tried */
    const char *direct_note;    /* for people */
    uint32_t memory_align;      /* of addresses, and ... */
    uint32_t offset_align;      /* of offsets and lengths under O_DIRECT */
    ligi_file_catalog *catalog; /* NULL for a reader */
    /* NULL for a writer, and if there is no log; set once, under the lock */
    _Atomic(ligi_file_reader *) reader;
    ligi_file_catalog_copy *copy; /* for a reader of format 1; unused when there is a log */

    pthread_mutex_t lock; /* guards everything below */
    ligi_engine *idle[4];
    size_t idle_count;
    ligi_warmer *warmer; /* NULL until the first load that is worth it */
    ligi_pins *pins;     /* NULL until the first pin */
    uint64_t *pack_ids;  /* the last listing, ascending */
    size_t pack_count, pack_capacity;
    int64_t listed_ns,
        listed_change_ns; /* when, and the folder's change time then; 0: not listed */
} ligi_file;

/* LIG_E_CLOSED in a forked child; LIG_E_DENIED for a reader. */
lig_status ligi_file_usable(const ligi_file *self);
lig_status ligi_file_writable(const ligi_file *self);

/* An idle engine or a new one; with a ring where that is wanted and possible. */
lig_status ligi_file_engine(ligi_file *self, ligi_engine **engine);
void ligi_file_engine_return(ligi_file *self, ligi_engine *engine);

#endif
