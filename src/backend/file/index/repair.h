/* A damaged log: what is left of it as an index, and as a new log. */
#ifndef LIGI_REPAIR_H
#define LIGI_REPAIR_H

#include "backend/file/catalog/catalog_gate.h"
#include "backend/file/index/index_items.h"

/* Fills the transaction of an empty index with what is whole in checkpoints and log. On LIG_E_IO
 * index->number is LMDB's refusal. */
lig_status ligi_repair_fill(ligi_file_log *log, ligi_mdb_txn *index);
/* The same for the catalog's index. Nobody else has the log open. From then on the catalog can be
 * read, and nothing is written. */
lig_status ligi_repair_index(ligi_file_catalog *catalog);

/* The volume's catalog_verify. */
lig_status ligi_repair_verify(ligi_file_catalog *catalog, int repair, lig_catalog_problem problem,
                              void *context);

#endif
