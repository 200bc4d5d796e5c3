/* When a checkpoint of the log is made, and what it makes superfluous. */
#ifndef LIGI_CHECKPOINTING_H
#define LIGI_CHECKPOINTING_H

#include "backend/file/catalog/catalog_gate.h"

#define LIGI_CHECKPOINT_COMMITS 64 /* in a numbered log one may be due after so many */

/* Makes a checkpoint when the log has grown enough since the last one, or `now`; nothing when
 * another process is at it. The two last checkpoints stay, with the log since the first of them,
 * and what became superfluous a short time ago.
 * What fails is logged: the log is whole without. */
void ligi_checkpointing(ligi_file_catalog *catalog, int now);

/* Begins a new log with a checkpoint of what the index holds, after which nothing of the old one is
 * needed. Values that can no longer be read are reported and omitted. The caller holds
 * LIGI_HEAD_CHECKPOINT and LIGI_HEAD_WRITE; the latter is released as soon as others may commit to
 * the new log. */
lig_status ligi_checkpointing_anew(ligi_file_catalog *catalog, lig_catalog_problem problem,
                                   void *context);

#endif
