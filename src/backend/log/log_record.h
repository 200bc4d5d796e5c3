/* Records of the log of commits (docs/formats.md). Pure.
 *
 * A record is a header and items. Each item has a separate check, and the header's check covers all
 * of them, so that the other items of a record with a damaged item can be salvaged. */
#ifndef LIGI_CLOG_RECORD_H
#define LIGI_CLOG_RECORD_H

#include "base/codec.h"

#include <ligament/backend.h>

#define LIGI_CLOG_HEADER_BYTES 64

typedef struct ligi_clog_header {
    uint32_t items;
    uint64_t bytes; /* of the whole record, a multiple of 8 */
    uint64_t version;
    uint64_t previous; /* chain up to the record before */
    uint64_t synced;   /* all versions up to this one were durable when it was written */
    int64_t date_ns;
    uint64_t sum; /* over the checks of all items */
    uint64_t check;
} ligi_clog_header;

typedef enum ligi_clog_kind { LIGI_CLOG_ERASE, LIGI_CLOG_PUT, LIGI_CLOG_EVENT } ligi_clog_kind;

typedef struct ligi_clog_item { /* borrowed from the record */
    ligi_clog_kind kind;
    const uint8_t *key, *value;
    size_t key_bytes, value_bytes;
    size_t at;      /* of the value, from the record's start */
    uint64_t check; /* over kind, sizes, key and value */
} ligi_clog_item;

/* Writes the record of an edit; version, previous, synced and date come from `header`, whose other
 * members are filled. */
lig_status ligi_clog_record_put(ligi_writer *writer, const lig_catalog_edit *edit,
                                ligi_clog_header *header);

/* 1 if the 64 bytes are a valid header; does not examine the items. */
int ligi_clog_header_get(const uint8_t bytes[LIGI_CLOG_HEADER_BYTES], ligi_clog_header *header);

/* 1 if all items are valid and belong to the header. */
int ligi_clog_record_whole(const uint8_t *record, const ligi_clog_header *header);

/* The item at *at (LIGI_CLOG_HEADER_BYTES at first) of the first `bytes` bytes of a record: 1, and
 * *at is advanced; 0 at the end, and at an invalid item. */
int ligi_clog_item_next(const uint8_t *record, size_t bytes, size_t *at, ligi_clog_item *item);

/* Moves *at past an invalid item, by its sizes; 0 if they do not fit. */
int ligi_clog_item_skip(const uint8_t *record, size_t bytes, size_t *at);

/* The chain up to and including this record. The first record follows ligi_clog_chain_start. */
uint64_t ligi_clog_chain(const ligi_clog_header *header);
uint64_t ligi_clog_chain_start(const uint8_t id[16]);

#endif
