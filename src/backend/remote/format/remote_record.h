/* One commit in the log of a remote volume, as bytes. Pure.
 *
 * A record is an id, the commit's lists of packs, and the log record of the edit. The lists are
 * part of it because the removal of a pack is decided from the log alone (docs/decisions/0011). */
#ifndef LIGI_REMOTE_RECORD_H
#define LIGI_REMOTE_RECORD_H

#include "backend/log/log_record.h"

#define LIGI_REMOTE_ID_BYTES 16

/* The record replaces the whole catalog: after a repair. */
#define LIGI_REMOTE_RESTART 1u

typedef struct ligi_pack_list {
    const uint64_t *packs;
    size_t count;
} ligi_pack_list;

/* A commit before it is encoded. Borrows. */
typedef struct ligi_remote_edit {
    uint8_t id[LIGI_REMOTE_ID_BYTES]; /* random: recognises the record after a lost reply */
    uint32_t flags;
    const lig_catalog_edit *edit;
    uint64_t version;  /* that the commit makes */
    uint64_t previous; /* chain up to the commit before */
    int64_t date_ns;
    ligi_pack_list named;     /* packs that the catalog uses after the commit */
    ligi_pack_list condemned; /* never used again, and removed after the grace period */
    ligi_pack_list forgotten; /* condemned before, and removed long ago */
} ligi_remote_edit;

lig_status ligi_remote_record_put(ligi_writer *writer, const ligi_remote_edit *edit);

typedef struct ligi_packed_list { /* as stored in the record: 8 bytes each */
    const uint8_t *bytes;
    size_t count;
} ligi_packed_list;

typedef struct ligi_remote_record { /* borrowed from the bytes */
    const uint8_t *id;
    uint32_t flags;
    ligi_packed_list named, condemned, forgotten;
    ligi_clog_header header;
    const uint8_t *log; /* header.bytes; ligi_clog_item_next */
} ligi_remote_record;

/* LIG_E_CORRUPT unless all of it is valid. */
lig_status ligi_remote_record_get(const void *bytes, size_t count, ligi_remote_record *record);
/* The same, but damaged items of the log record are allowed: for repairs. */
lig_status ligi_remote_record_salvage(const void *bytes, size_t count, ligi_remote_record *record);

uint64_t ligi_packed_list_at(const ligi_packed_list *list, size_t index);
int ligi_packed_list_has(const ligi_packed_list *list, uint64_t pack);

#endif
