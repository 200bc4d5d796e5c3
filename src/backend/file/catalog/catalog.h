/* The catalog of a file volume: one LMDB file, one environment in a process however often the
 * volume is opened.
 *
 * Layout: the main database. Key 0x00 "version" holds the version as 8 bytes, little-endian; the
 * item with key K lies under 0x01 K. Every commit reads the version in its own write transaction,
 * so that two processes cannot both follow one state. Everything here is **shared**. */
#ifndef LIGI_CATALOG_H
#define LIGI_CATALOG_H

#include <ligament/backend.h>

#include <lmdb.h>
#include <pthread.h>
#include <sys/types.h>

typedef struct ligi_file_catalog ligi_file_catalog;

typedef struct ligi_file_catalog_place {
    int folder_fd;
    const char *place;
    uint64_t map_bytes; /* at first */
    int sync;           /* the environment syncs when one of its openers wants it to */
    int network;        /* one process writes, held by a lease */
    int64_t lease_s;
} ligi_file_catalog_place;

/* Makes an empty catalog where there is none. LIG_E_CORRUPT for a file that is no sound catalog;
 * LIG_E_BUSY names the holder of the lease. Closed by ligi_file_catalog_close, not at all in a
 * forked child. NULL is fine there. */
lig_status ligi_file_catalog_open(ligi_file_catalog **catalog,
                                  const ligi_file_catalog_place *place);
void ligi_file_catalog_close(ligi_file_catalog *catalog);

lig_status ligi_file_catalog_begin(ligi_file_catalog *catalog, void **snapshot, uint64_t *version);
lig_status ligi_file_catalog_commit(ligi_file_catalog *catalog, uint64_t version,
                                    const lig_catalog_op *ops, size_t count);

/* After LIG_OK new snapshots show every commit made before the call, also those of killed
 * processes. The thread has ended its own snapshots. LIG_E_IO while a failed commit is in doubt. */
lig_status ligi_file_catalog_settle(ligi_file_catalog *catalog);

/* LIG_E_BUSY when the lease has gone to another process. */
lig_status ligi_file_catalog_may_write(ligi_file_catalog *catalog);

/* Notes that a pack of this place has a writer or claimer in this process, where file locks do not
 * tell (network file systems lock by process): LIG_E_BUSY when it has one already. `on` 0 takes it
 * back. Id 0 is nobody's. */
lig_status ligi_file_catalog_hold(ligi_file_catalog *catalog, uint64_t id, int on);

#endif
