/* Stores of format 1, whose catalog was the LMDB file catalog.mdb. */
#ifndef LIGI_UPGRADE_H
#define LIGI_UPGRADE_H

#include "backend/file/catalog/catalog_gate.h"

/* Nobody else has the log open. When the store has a catalog of format 1 and no log: makes a
 * checkpoint of it, and the marker says format 2. Programs of before that have it open are refused
 * from then on. catalog.mdb stays beside. */
lig_status ligi_upgrade(ligi_file_catalog *catalog);

#endif
