/* Stores of format 1, whose catalog was the LMDB file catalog.mdb. An upgrade writes a checkpoint
 * and a first segment, then changes one byte of catalog.mdb: the item `version` has 7 bytes from
 * then on instead of 8. Programs of before, which read it first in all they do, refuse that, also
 * those that have the store open. At this moment the log becomes the catalog; the marker follows.
 * catalog.mdb stays beside. */
#ifndef LIGI_UPGRADE_H
#define LIGI_UPGRADE_H

#include "backend/file/catalog/catalog_gate.h"

/* Called by who is alone. Upgrades a store whose marker says format 1; one that an upgrade left
 * half way is upgraded again, or finished. When it fails the store is of format 1 as it was.
 * LIG_E_CORRUPT when catalog.mdb is damaged. */
lig_status ligi_upgrade(ligi_file_catalog *catalog);

/* 1 when the database is a catalog.mdb that has been upgraded. */
int ligi_upgrade_done(MDB_txn *txn, MDB_dbi dbi);

#endif
