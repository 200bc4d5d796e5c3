/* The names below a store's folder, all of them. Nothing else there is ever opened or removed. */
#ifndef LIGI_FILE_NAMES_H
#define LIGI_FILE_NAMES_H

#include <stdint.h>

#define LIGI_NAME_MARKER "ligament"
#define LIGI_NAME_CATALOG "catalog.mdb"           /* of format 1 */
#define LIGI_NAME_CATALOG_LOCK "catalog.mdb-lock" /* LMDB makes it of the catalog's name */
#define LIGI_NAME_INDEX "index.mdb"
#define LIGI_NAME_INDEX_LOCK "index.mdb-lock" /* LMDB makes it of the index's name */
#define LIGI_NAME_LOG "log"
#define LIGI_NAME_HEAD "head"
#define LIGI_NAME_NUMBERED "numbered" /* the log is one of several hosts */
#define LIGI_NAME_SEGMENT_START "segment-"
#define LIGI_NAME_CHECKPOINT_START "checkpoint-"
#define LIGI_NAME_PACKS "packs"
#define LIGI_NAME_LEASES "leases"
#define LIGI_NAME_WRITER "writer" /* of format 1: the writer's lock */
#define LIGI_NAME_WRITER_BREAK "writer.break"
#define LIGI_NAME_TEMPORARY "tmp-"
#define LIGI_NAME_RUN "run-"

typedef enum ligi_name_kind {
    LIGI_NAME_FOREIGN,
    LIGI_NAME_IN_STORE,        /* of the store's folder */
    LIGI_NAME_PACK,            /* packs/<id>.pack */
    LIGI_NAME_PACK_TEMPORARY,  /* packs/tmp-<id> */
    LIGI_NAME_LEASE,           /* leases/<id> */
    LIGI_NAME_LEASE_TEMPORARY, /* leases/tmp-<id> */
    LIGI_NAME_LOCK,            /* leases/run-<id> */
    LIGI_NAME_IN_LOG,          /* of the log's folder */
    LIGI_NAME_SEGMENT,         /* log/segment-<first version> */
    LIGI_NAME_CHECKPOINT,      /* log/checkpoint-<version> */
    LIGI_NAME_LOG_TEMPORARY,   /* log/tmp-<id> */
} ligi_name_kind;

typedef enum ligi_name_folder {
    LIGI_FOLDER_STORE,
    LIGI_FOLDER_PACKS,
    LIGI_FOLDER_LEASES,
    LIGI_FOLDER_LOG
} ligi_name_folder;

/* The meaning of the name in that folder. `id` (may be NULL) is filled with its 16 hexadecimal
 * digits, which are never all 0; with 0 if it has none. */
ligi_name_kind ligi_name_read(ligi_name_folder folder, const char *name, uint64_t *id);

#endif
