/* Stores of format 1, whose catalog was the LMDB file catalog.mdb. An upgrade writes a checkpoint
 * and a first segment, then changes one byte of catalog.mdb: the item `version` has 7 bytes from
 * then on instead of 8. Earlier versions of Ligament, which read it first in every operation,
 * reject this, even if they have the store open. At this moment the log becomes the catalog; the
 * marker is updated afterwards. catalog.mdb is kept. */
#ifndef LIGI_UPGRADE_H
#define LIGI_UPGRADE_H

#include "backend/file/catalog/catalog_gate.h"

/* Called by the only user of the store. Upgrades a store whose marker says format 1; an interrupted
 * upgrade is repeated or completed. On failure the store remains in format 1. LIG_E_CORRUPT when
 * catalog.mdb is damaged. */
lig_status ligi_upgrade(ligi_file_catalog *catalog);

/* 1 if the database is a catalog.mdb that has been upgraded. */
int ligi_upgrade_done(MDB_txn *txn, MDB_dbi dbi);

#endif
