/* Checkpoints of the log: the whole map at one version, in the order of its keys, so that the log
 * before it is no longer needed. */
#ifndef LIGI_LOG_CHECKPOINT_H
#define LIGI_LOG_CHECKPOINT_H

#include "backend/file/log/file_log.h"

typedef struct ligi_checkpoint_item { /* borrowed for the call */
    const uint8_t *key, *value;
    size_t key_bytes, value_bytes;
    uint64_t version; /* that put it */
    uint64_t offset;  /* of the value in the file */
} ligi_checkpoint_item;

typedef lig_status (*ligi_checkpoint_visit)(void *context, const ligi_checkpoint_item *item);

typedef struct ligi_checkpoint_writer ligi_checkpoint_writer;

/* Items come in ascending order of their keys. Complete, which finish implies, writes the last
 * bytes; finish makes it durable, then visible; abort (NULL is valid, also after finish) frees. */
lig_status ligi_checkpoint_create(ligi_file_log *log, const ligi_clog_position *at,
                                  ligi_checkpoint_writer **writer);
lig_status ligi_checkpoint_put(ligi_checkpoint_writer *writer, const ligi_checkpoint_item *item);
lig_status ligi_checkpoint_complete(ligi_checkpoint_writer *writer);
lig_status ligi_checkpoint_finish(ligi_checkpoint_writer *writer);
void ligi_checkpoint_abort(ligi_checkpoint_writer *writer);

typedef struct ligi_checkpoint_info {
    uint8_t id[16];
    uint64_t version, chain, items, bytes;
} ligi_checkpoint_info;

/* Reads header and trailer; LIG_E_NOTFOUND without an error text, LIG_E_CORRUPT. */
lig_status ligi_checkpoint_look(ligi_file_log *log, uint64_t version, ligi_checkpoint_info *info);
/* Visits all items; LIG_E_CORRUPT at the first that is damaged, and at the end when one is
 * missing. */
lig_status ligi_checkpoint_read(ligi_file_log *log, uint64_t version, ligi_checkpoint_visit visit,
                                void *context);
/* Visits the intact items; *skipped counts the places where some are damaged. LIG_E_CORRUPT when
 * header or trailer are damaged. */
lig_status ligi_checkpoint_salvage(ligi_file_log *log, uint64_t version,
                                   ligi_checkpoint_visit visit, void *context, size_t *skipped);
/* Fills value, its size and version for the key of *item; the value is for free(). LIG_E_NOTFOUND
 * without an error text. */
lig_status ligi_checkpoint_find(ligi_file_log *log, uint64_t version, ligi_checkpoint_item *item,
                                void **value);

#endif
