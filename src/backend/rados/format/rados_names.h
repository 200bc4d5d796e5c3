/* Names of RADOS objects and omap keys, and the bytes of omap values: pure.
 *
 * In the pool of the URI, in the namespace of its prefix:
 *   head                         the marker (data); omap: "v", "data", "log/<version>", "big/..."
 *   packs.<0-f>, checkpoints     omap: "draft/...", "sealed/...", "dead/..."; "published/<version>"
 *   lock.<name>                  a lock by name; its data is the holder
 *   record.<version>.<id>        a commit that is too large for omap
 * In the data pool, in the same namespace:
 *   pack.<id>.<stripe>, checkpoint.<version>.<token>.<stripe>
 *
 * Packs are listed from omap because RADOS lists a namespace only by reading all names of the pool.
 * The 16 objects correspond to the highest digit of the id, so their lists, concatenated, are in
 * order. */
#ifndef LIGI_RADOS_NAMES_H
#define LIGI_RADOS_NAMES_H

#include "backend/remote/storage_engine.h"

#define LIGI_RADOS_NAME_BYTES 96
#define LIGI_RADOS_TOKEN_BYTES 16
#define LIGI_RADOS_SHARDS 16 /* of the list of packs */
#define LIGI_RADOS_HEAD "head"

typedef struct ligi_rados_name {
    char text[LIGI_RADOS_NAME_BYTES];
} ligi_rados_name;

typedef struct ligi_rados_token { /* random: identifies its writer */
    uint8_t bytes[LIGI_RADOS_TOKEN_BYTES];
} ligi_rados_token;

/* An object of the store: bytes over stripes. */
typedef struct ligi_rados_body {
    ligi_object object;
    ligi_rados_token token;
    uint64_t bytes; /* of a sealed one */
    uint64_t stripe_bytes;
    uint32_t stripes_max; /* of a draft: all stripes have lower numbers */
} ligi_rados_body;

/* "big/<version>.<id>": the object of a large record, until it is committed or after it was
 * trimmed. */
ligi_rados_name ligi_rados_log_key(uint64_t version);
ligi_rados_name ligi_rados_record_name(uint64_t version, const void *id);
ligi_rados_name ligi_rados_record_key(uint64_t version, const void *id);

ligi_rados_name ligi_rados_list_name(ligi_object object);
ligi_rados_name ligi_rados_shard_name(ligi_object_kind kind, unsigned shard);
unsigned ligi_rados_shard_count(ligi_object_kind kind);
ligi_rados_name ligi_rados_sealed_key(uint64_t id);
ligi_rados_name ligi_rados_published_key(uint64_t version);
/* "draft/" or "dead/" (`state`) of a writer. */
ligi_rados_name ligi_rados_writer_key(const char *state, const ligi_rados_body *body);
ligi_rados_name ligi_rados_stripe_name(const ligi_rados_body *body, uint64_t stripe);
ligi_rados_name ligi_rados_token_text(const ligi_rados_token *token);
/* Letters, digits and "-_." as they are, others as %xx, at most 200 bytes before that. */
lig_status ligi_rados_lock_name(const char *name, char *text, size_t text_bytes);

/* The number after `begin` in a key: 0 if the key does not have this form. */
int ligi_rados_key_number(const char *key, size_t key_bytes, const char *begin, uint64_t *number);
/* The number and the token of a key of ligi_rados_writer_key or ligi_rados_record_key. */
int ligi_rados_key_writer(const char *key, size_t key_bytes, const char *begin, uint64_t *number,
                          ligi_rados_token *token);

#define LIGI_RADOS_BODY_BYTES 48
/* The value of a draft, sealed or dead key. */
void ligi_rados_body_encode(const ligi_rados_body *body, uint8_t value[LIGI_RADOS_BODY_BYTES]);
/* Fills all but `object`; 0 if the value is none. */
int ligi_rados_body_decode(const void *value, size_t bytes, ligi_rados_body *body);
uint64_t ligi_rados_stripe_count(const ligi_rados_body *body);

#endif
