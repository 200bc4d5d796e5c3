/* Messages between the nodes of a parameter manager. Pure: no net, no tables beyond a key's length.
 * A message is untrusted until ligi_params_message_check accepts it.
 *
 * A message has a head of LIGI_PARAMS_HEAD_BYTES (`ligi_params_message`, little-endian, as it lies
 * in memory), in some kinds followed by a tail, and a payload of parts in this order, each padded
 * to 8 bytes:
 *
 *   kind      tail                  payload                                         order
 *   SHARE     -                     the region of words and rows, lent; or nothing  first of a link
 *   REQUEST   PUSH: f64 lr[tables]  i64 keys[], u32 positions[], PUSH/SET: rows     behind rows
 *   RESPONSE  failed: error text  POSITIONS: u32 [], MOVES: u64 [], VALUES: rows
 *   SYNC      -                     ligi_sync_item[], rows of items that have some  behind rows
 *   UPDATE    -                     ligi_sync_item[], rows of items that have some
 *   LOCATION  -                     ligi_sync_item[] (number: moves)
 *   SNAPSHOT  -                     as in snapshot_message.h; count 0
 *
 * Rows follow one another without gaps: in REQUEST and RESPONSE the values of the key, in items
 * with ROW its body or delta (table_info.h), each padded to 8 bytes. `position` is the index in the
 * caller's list of keys, so that several nodes can answer one request. A message has at most
 * LIGI_PARAMS_KEYS_MAX keys and LIGI_PARAMS_PAYLOAD_MAX bytes; senders split what is longer. A row
 * that is longer itself is alone in its message. */
#ifndef LIGI_PARAMS_MESSAGE_H
#define LIGI_PARAMS_MESSAGE_H

#include <ligament/params.h>

#define LIGI_PARAMS_MESSAGE_VERSION 1
#define LIGI_PARAMS_HEAD_BYTES 32
#define LIGI_PARAMS_KEYS_MAX 65536u
#define LIGI_PARAMS_PAYLOAD_MAX (UINT64_C(8) << 20)
#define LIGI_PARAMS_FRONT_MAX 64u                    /* bytes before the only row of a message */
#define LIGI_PARAMS_PAYLOAD_GOOD (UINT64_C(1) << 20) /* above this, senders begin a new message */
#define LIGI_PARAMS_SENTENCE_MAX 512
#define LIGI_PARAMS_HOPS_MAX 250
#define LIGI_PARAMS_HEAD_MAX                                                                       \
    (LIGI_PARAMS_HEAD_BYTES + 8 * LIG_PARAMS_TABLES_MAX) /* or an error text */

/* Fixed, like everything here: these numbers are part of the protocol. */
typedef enum ligi_params_message_kind {
    LIGI_PARAMS_SHARE = 1,
    LIGI_PARAMS_REQUEST = 2,
    LIGI_PARAMS_RESPONSE = 3,
    LIGI_PARAMS_SYNC = 4,     /* to the owner; forwarded like a REQUEST */
    LIGI_PARAMS_UPDATE = 5,   /* from the owner */
    LIGI_PARAMS_LOCATION = 6, /* from an owner to a row's home: the row is here, after this many
                               * moves */
    LIGI_PARAMS_SNAPSHOT =
        7, /* save and load: `verb` and payload as in snapshot_message.h; 8 bytes or more */
} ligi_params_message_kind;

typedef enum ligi_verb { LIGI_PULL = 0, LIGI_PUSH = 1, LIGI_SET = 2 } ligi_verb;

#define LIGI_PARAMS_POSITIONS 1u /* flags of RESPONSE */
#define LIGI_PARAMS_MOVES 2u  /* with POSITIONS: how often each row has moved; sender owns them */
#define LIGI_PARAMS_VALUES 4u /* with POSITIONS */
#define LIGI_PARAMS_FAILED 8u /* `number` is a lig_status, an error text follows the head */
#define LIGI_PARAMS_RATES 1u  /* flag of REQUEST: learning rates follow the head */
#define LIGI_PARAMS_LENT                                                                           \
    1u /* flag of SYNC, UPDATE: the receiver confirms when it no longer needs
                               * the payload */

typedef struct ligi_params_message {
    uint8_t version, kind;
    uint8_t verb; /* REQUEST, RESPONSE */
    uint8_t hops; /* REQUEST, SYNC: how often it was forwarded */
    uint32_t flags;
    uint32_t origin; /* REQUEST, RESPONSE, SYNC: node it began at */
    uint32_t count;  /* keys, or items */
    uint32_t worker; /* REQUEST, RESPONSE: of the origin */
    uint32_t number; /* RESPONSE: lig_status; SYNC, UPDATE: as sync_round.h says */
    uint64_t ticket; /* REQUEST, RESPONSE; SYNC, UPDATE: as sync_round.h says */
} ligi_params_message;

_Static_assert(sizeof(ligi_params_message) == LIGI_PARAMS_HEAD_BYTES, "the head is sent as it is");

/* Of SYNC, UPDATE and LOCATION. */
typedef enum ligi_sync_item_kind {
    LIGI_ITEM_WANT = 1,      /* SYNC: this node is interested */
    LIGI_ITEM_DROP = 2,      /* SYNC: no longer interested; a replica is dropped */
    LIGI_ITEM_DELTA = 3,     /* SYNC: rows; `number` counts the deltas of a replica */
    LIGI_ITEM_RELOCATED = 4, /* UPDATE: wide rows; `number`: moves */
    LIGI_ITEM_REPLICA = 5,   /* UPDATE: rows; `number`: the last delta that is in it */
    LIGI_ITEM_FRESH = 6,     /* UPDATE: rows; likewise */
    LIGI_ITEM_TAKEN = 7,     /* UPDATE: the same without a row: the delta is applied */
    LIGI_ITEM_HERE = 8,      /* LOCATION */
} ligi_sync_item_kind;

/* A flag: its body (RELOCATED, REPLICA, FRESH) or delta (DELTA) is in the payload. */
#define LIGI_ITEM_ROW 1u

typedef struct ligi_sync_item {
    int64_t key;
    uint64_t number;
    uint16_t kind, flags;
    uint32_t extra; /* as sync_round.h says */
} ligi_sync_item;

_Static_assert(sizeof(ligi_sync_item) == 24, "items travel");

/* Parts of a payload; NULL where the kind has none. They point into the payload. */
typedef struct ligi_params_parts {
    const int64_t *keys;
    const uint32_t *positions;
    const uint64_t *moves;
    const ligi_sync_item *items;
    const uint8_t *rows;
    uint64_t rows_bytes;  /* bytes left for rows: checked while walking the keys */
    const double *rates;  /* of the head's tail */
    const char *sentence; /* not terminated */
    uint32_t sentence_bytes;
} ligi_params_parts;

#define LIGI_PAD8(bytes) (((uint64_t)(bytes) + 7) & ~UINT64_C(7))

/* --- hello --- */

typedef struct ligi_table_digest {
    uint32_t shape, optimizer, init; /* name, keys and lengths; the rest */
} ligi_table_digest;

typedef struct ligi_params_hello {
    char magic[8];
    uint64_t group_id; /* 0 from a node that the group has not released yet */
    uint64_t key_count;
    uint32_t rank, incarnation;
    uint32_t node_count, worker_count;
    uint32_t dtype, techniques, flags, table_count;
    ligi_table_digest tables[LIG_PARAMS_TABLES_MAX];
} ligi_params_hello;

_Static_assert(sizeof(ligi_params_hello) <= 1024, "a hello has no more room");

/* Checks a head, before the payload has arrived: LIG_OK if kind, flags, count and sizes are
 * possible with the nodes and tables of `own`, and the payload has at most `payload_max` bytes. */
lig_status ligi_params_message_check(const void *head, size_t bytes, uint64_t payload_bytes,
                                     uint64_t payload_max, const ligi_params_hello *own,
                                     ligi_params_message *message);
/* The largest payload if the longest row, as a whole or as a delta, has that many bytes. */
uint64_t ligi_params_payload_max(uint64_t row_bytes);
/* Fills *parts for a payload of that many bytes, 8-aligned, whose head passed the check. Pointers
 * into `head` as well. */
void ligi_params_message_open(const ligi_params_message *message, const void *head,
                              size_t head_bytes, const void *payload, uint64_t payload_bytes,
                              ligi_params_parts *parts);

/* Bytes of the parts before the rows. */
uint64_t ligi_params_message_front(const ligi_params_message *message);

/* Fills everything that follows from the options; the caller sets rank, incarnation and
 * group_id. */
void ligi_params_hello_make(const lig_params_options *options, ligi_params_hello *hello);
/* MISMATCH names the first difference; `bytes` come from the peer. */
lig_status ligi_params_hello_check(const ligi_params_hello *own, const void *data, size_t bytes,
                                   ligi_params_hello *other);

#endif
