/* Keys and values of the catalog (docs/formats.md). Pure. */
#ifndef LIGI_RECORD_H
#define LIGI_RECORD_H

#include "store/format/manifest.h"

#include <ligament/backend.h>

enum ligi_table {
    LIGI_TABLE_HEADER = 1,
    LIGI_TABLE_MODEL = 2,
    LIGI_TABLE_NAME = 3,
    LIGI_TABLE_ALIAS = 4,
    LIGI_TABLE_PACK = 5,
    LIGI_TABLE_INLINE = 6,
    LIGI_TABLE_FINGERPRINT = 7,
    LIGI_TABLE_POSTING = 8,
    LIGI_TABLE_COLUMN = 9,
    LIGI_TABLE_GRAPH = 10,
    LIGI_TABLE_NOTICE = 11,
    LIGI_TABLE_REQUEST = 12,
    LIGI_TABLE_RETIRED = 13,
    LIGI_TABLE_END = 14
};

#define LIGI_UUID_BYTES 16

typedef struct ligi_catalog_key {
    uint8_t bytes[32];
    size_t size;
} ligi_catalog_key;

ligi_catalog_key ligi_catalog_key_header(void);
ligi_catalog_key ligi_catalog_key_id(enum ligi_table table, uint64_t id);
ligi_catalog_key ligi_catalog_key_text(enum ligi_table table, const void *secret, const char *text);

/* A value under its key: `begin` writes the version, `end` the hash over key and value. secret
 * NULL: a plain hash. */
void ligi_value_begin(ligi_writer *writer);
void ligi_value_end(ligi_writer *writer, const ligi_catalog_key *key, const void *secret);
/* Replaces the hash of a complete value by one with another secret. */
void ligi_value_seal_again(const ligi_catalog_key *key, void *value, size_t bytes,
                           const void *secret);
/* Checks version and hash, and returns a reader over the bytes between them. */
lig_status ligi_value_open(const lig_catalog_item *item, const void *secret, ligi_reader *reader);

typedef struct ligi_header {
    uint8_t uuid[LIGI_UUID_BYTES];
    uint8_t secret[LIG_SECRET_BYTES];
    uint64_t next_id;
} ligi_header;

void ligi_header_put(ligi_writer *writer, const ligi_header *header);
lig_status ligi_header_get(const lig_catalog_item *item, ligi_header *header);

typedef struct ligi_use {
    uint64_t pack, tensors;
} ligi_use;

/* A model in the catalog. Strings are borrowed from the item, the arrays are the record's own. */
typedef struct ligi_record {
    ligi_about about;
    uint64_t tensor_count, bytes, own_bytes;
    uint64_t pack, offset, manifest_bytes, manifest_hash; /* pack 0: inline */
    ligi_use *uses;
    size_t use_count;
} ligi_record;

void ligi_record_put(ligi_writer *writer, const ligi_record *record, const void *secret);
/* Fills a zeroed record; ligi_record_fini also after a failure. */
lig_status ligi_record_get(const lig_catalog_item *item, const void *secret, ligi_record *record);
void ligi_record_fini(ligi_record *record);
/* Fills a zeroed record from a manifest and its place: `about` is borrowed from the manifest (the
 * record must not be given to ligi_record_fini; free record->uses alone). */
lig_status ligi_record_of(const ligi_manifest *manifest, const ligi_record *place,
                          ligi_record *record);

/* Counts `tensors` more tensors in a pack; *capacity is that of record->uses, 0 at first. */
lig_status ligi_record_use(ligi_record *record, size_t *capacity, uint64_t pack, uint64_t tensors);

typedef struct ligi_pack_record {
    uint64_t models, tensors, bytes;
} ligi_pack_record;

void ligi_pack_record_put(ligi_writer *writer, uint64_t pack, const ligi_pack_record *record,
                          const void *secret);
lig_status ligi_pack_record_get(const lig_catalog_item *item, const void *secret,
                                ligi_pack_record *record);

void ligi_catalog_name_put(ligi_writer *writer, const ligi_catalog_key *key, uint64_t id,
                           const void *secret);
lig_status ligi_catalog_name_get(const lig_catalog_item *item, const void *secret, uint64_t *id);

void ligi_alias_put(ligi_writer *writer, const ligi_catalog_key *key, const char *alias,
                    uint64_t id, const void *secret);
/* *alias is borrowed from the item. */
lig_status ligi_alias_get(const lig_catalog_item *item, const void *secret, const char **alias,
                          uint64_t *id);

/* An inline model: manifest and data are borrowed from the item. */
typedef struct ligi_inline {
    const uint8_t *manifest, *data;
    size_t manifest_bytes, data_bytes;
} ligi_inline;

void ligi_inline_put(ligi_writer *writer, uint64_t id, const ligi_inline *inlined,
                     const void *secret);
lig_status ligi_inline_get(const lig_catalog_item *item, const void *secret, ligi_inline *inlined);

#endif
