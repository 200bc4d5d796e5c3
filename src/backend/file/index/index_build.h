/* Fills an empty index from a checkpoint and the log after it. */
#ifndef LIGI_INDEX_BUILD_H
#define LIGI_INDEX_BUILD_H

#include "backend/file/index/index_items.h"

/* The newest checkpoint below version `below` whose header and trailer are intact; info->version 0:
 * none. *damaged counts those that are not. */
lig_status ligi_mdb_base(ligi_file_log *log, uint64_t below, ligi_checkpoint_info *info,
                         size_t *damaged);

/* Fills the transaction of `index` from the checkpoint (version 0: from the log's start) and the
 * log up to its end. `tail`: for a caller that is going to append (ligi_file_log_tail). Its
 * progress is logged once a second. LIG_E_CORRUPT; on LIG_E_IO index->number is LMDB's refusal. */
lig_status ligi_mdb_build(ligi_file_log *log, ligi_mdb_txn *index, const ligi_checkpoint_info *info,
                          int tail);

#endif
