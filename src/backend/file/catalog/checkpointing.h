/* When a checkpoint of the log is created, and which files it supersedes. */
#ifndef LIGI_CHECKPOINTING_H
#define LIGI_CHECKPOINTING_H

#include "backend/file/catalog/catalog_gate.h"

#define LIGI_CHECKPOINT_COMMITS 64 /* between checkpoints of a numbered log, at least */

/* Creates a checkpoint if the log has grown enough since the last one, or `now`; does nothing if
 * another process is creating one. Keeps the last two checkpoints, the log since the first of them,
 * and recently superseded files. Failures are only logged: the log is complete without a
 * checkpoint. */
void ligi_checkpointing(ligi_file_catalog *catalog, int now);

/* An edit that only frees: releases LIGI_HEAD_WRITE, and creates a checkpoint if the disk is full.
 * The space for one may have been missing when models were retired. */
lig_status ligi_checkpointing_free(ligi_file_catalog *catalog);

/* Under LIGI_HEAD_WRITE, with log.keep for this edit: 1 if it frees space on a full disk, and a
 * checkpoint should be tried because of that. */
int ligi_checkpointing_tight(ligi_file_catalog *catalog, const lig_catalog_edit *edit);

/* Begins a new log with a checkpoint of the index, after which the old log is not needed. Values
 * that can no longer be read are reported and omitted. The caller holds LIGI_HEAD_CHECKPOINT and
 * LIGI_HEAD_WRITE; the latter is released as soon as others may commit to the new log. */
lig_status ligi_checkpointing_anew(ligi_file_catalog *catalog, lig_catalog_problem problem,
                                   void *context);

#endif
