/* What nodes of a parameter manager say to each other. Pure: no net, no tables beyond a key's
 * length. All of it is hostile until ligi_letter_check has said that it fits together.
 *
 * A message is a head of LIGI_LETTER_BYTES (`ligi_letter`, little-endian, as it lies in memory),
 * sometimes with more behind it, and a payload of parts in this order, each padded to 8 bytes:
 *
 *   kind    head's tail           payload                                            order
 *   SHARE   -                     the region of words and rows, lent; or nothing     first of link
 *   ASK     PUSH: f64 lr[tables]  i64 keys[], u32 positions[], PUSH/SET: rows        behind rows
 *   ANSWER  failed: a sentence    POSITIONS: u32 [], MOVES: u64 [], VALUES: rows
 *   SYNC    -                     ligi_item[], rows of items that have some          behind rows
 *   NEWS    -                     ligi_item[], rows of items that have some
 *   NOTE    -                     ligi_item[] (number: moves)
 *   KEEP    -                     snapshot_message.h's; count 0
 *
 * Rows stand one behind another without gaps: in ASK and ANSWER the key's values, in items with ROW
 * its body or delta (table.h), each padded to 8 bytes. `position` is the index
 * in the caller's list of keys, so that several nodes can answer one request. No message has more
 * than LIGI_LETTER_KEYS_MAX keys or LIGI_LETTER_PAYLOAD_MAX bytes; whoever has more to say, says it
 * in several. */
#ifndef LIGI_PARAMS_MESSAGE_H
#define LIGI_PARAMS_MESSAGE_H

#include <ligament/params.h>

#define LIGI_LETTER_VERSION 1
#define LIGI_LETTER_BYTES 32
#define LIGI_LETTER_KEYS_MAX 65536u
#define LIGI_LETTER_PAYLOAD_MAX (UINT64_C(8) << 20)
#define LIGI_LETTER_PAYLOAD_GOOD (UINT64_C(1) << 20) /* where writers begin a new one */
#define LIGI_LETTER_SENTENCE_MAX 512
#define LIGI_LETTER_HOPS_MAX 250
#define LIGI_LETTER_HEAD_MAX (LIGI_LETTER_BYTES + 8 * LIG_PARAMS_TABLES_MAX) /* or a sentence */

/* Pinned, like everything here: the numbers travel. */
typedef enum ligi_letter_kind {
    LIGI_LETTER_SHARE = 1,
    LIGI_LETTER_ASK = 2,
    LIGI_LETTER_ANSWER = 3,
    LIGI_LETTER_SYNC = 4, /* to the owner, or to who may know it: passed on like an ASK */
    LIGI_LETTER_NEWS = 5, /* from the owner */
    LIGI_LETTER_NOTE = 6, /* from an owner to a row's home: it is here, after so many moves */
    LIGI_LETTER_KEEP =
        7, /* save and load: `verb` and payload as in snapshot_message.h; 8 bytes or more */
} ligi_letter_kind;

typedef enum ligi_verb { LIGI_PULL = 0, LIGI_PUSH = 1, LIGI_SET = 2 } ligi_verb;

#define LIGI_LETTER_POSITIONS 1u /* flags of ANSWER */
#define LIGI_LETTER_MOVES 2u  /* with POSITIONS: how often each row has moved; sender owns them */
#define LIGI_LETTER_VALUES 4u /* with POSITIONS */
#define LIGI_LETTER_FAILED 8u /* `number` is a lig_status, a sentence follows the head */
#define LIGI_LETTER_RATES 1u  /* flag of ASK: learning rates follow the head */
#define LIGI_LETTER_LENT 1u   /* flag of SYNC, NEWS: the receiver says when it has done with it */

typedef struct ligi_letter {
    uint8_t version, kind;
    uint8_t verb; /* ASK, ANSWER */
    uint8_t hops; /* ASK, SYNC: how often it was passed on */
    uint32_t flags;
    uint32_t origin; /* ASK, ANSWER, SYNC: node it began at */
    uint32_t count;  /* keys, or items */
    uint32_t worker; /* ASK, ANSWER: of the origin */
    uint32_t number; /* ANSWER: lig_status; SYNC, NEWS: as sync_round.h says */
    uint64_t ticket; /* ASK, ANSWER; SYNC, NEWS: as sync_round.h says */
} ligi_letter;

_Static_assert(sizeof(ligi_letter) == LIGI_LETTER_BYTES, "the head travels");

/* Of SYNC, NEWS and NOTE. */
typedef enum ligi_item_kind {
    LIGI_ITEM_WANT = 1,   /* SYNC: this node is interested */
    LIGI_ITEM_DROP = 2,   /* SYNC: and is no more; a copy is given up */
    LIGI_ITEM_DELTA = 3,  /* SYNC: rows; `number` counts the deltas of a copy */
    LIGI_ITEM_MOVED = 4,  /* NEWS: wide rows; `number`: moves */
    LIGI_ITEM_COPIED = 5, /* NEWS: rows; `number`: the last delta that is in it */
    LIGI_ITEM_FRESH = 6,  /* NEWS: rows; likewise */
    LIGI_ITEM_TAKEN = 7,  /* NEWS: likewise without a row: the delta is in */
    LIGI_ITEM_HERE = 8,   /* NOTE */
} ligi_item_kind;

/* Flags. ROW: its body (MOVED, COPIED, FRESH) or delta (DELTA) is in the payload; WIDE: it has an
 * optimizer's state. */
#define LIGI_ITEM_ROW 1u
#define LIGI_ITEM_WIDE 2u

typedef struct ligi_item {
    int64_t key;
    uint64_t number;
    uint16_t kind, flags;
    uint32_t extra; /* as sync_round.h says */
} ligi_item;

_Static_assert(sizeof(ligi_item) == 24, "items travel");

/* Parts of a payload; NULL where the kind has none. They point into the payload. */
typedef struct ligi_parts {
    const int64_t *keys;
    const uint32_t *positions;
    const uint64_t *moves;
    const ligi_item *items;
    const uint8_t *rows;
    uint64_t rows_bytes;  /* what is left for rows: whoever walks the keys checks it */
    const double *rates;  /* of the head's tail */
    const char *sentence; /* not terminated */
    uint32_t sentence_bytes;
} ligi_parts;

#define LIGI_PAD8(bytes) (((uint64_t)(bytes) + 7) & ~UINT64_C(7))

/* --- what both ends say first --- */

typedef struct ligi_table_digest {
    uint32_t shape, optimizer, init; /* name, keys and lengths; the rest */
} ligi_table_digest;

typedef struct ligi_greeting {
    char magic[8];
    uint64_t group_id; /* 0 from a node that the group has not released yet */
    uint64_t key_count;
    uint32_t rank, incarnation;
    uint32_t node_count, worker_count;
    uint32_t dtype, techniques, flags, table_count;
    ligi_table_digest tables[LIG_PARAMS_TABLES_MAX];
} ligi_greeting;

_Static_assert(sizeof(ligi_greeting) <= 1024, "a hello has no more room");

/* What a head promises: OK when kind, flags, count and sizes can be among the nodes and tables that
 * `own` says. Before the payload has come. */
lig_status ligi_letter_check(const void *head, size_t bytes, uint64_t payload_bytes,
                             const ligi_greeting *own, ligi_letter *letter);
/* Fills *parts for a payload of as many bytes, 8-aligned, that the check was passed with. `head` as
 * well: it is pointed into. */
void ligi_letter_open(const ligi_letter *letter, const void *head, size_t head_bytes,
                      const void *payload, uint64_t payload_bytes, ligi_parts *parts);

/* Bytes of the parts before the rows. */
uint64_t ligi_letter_front(const ligi_letter *letter);

/* Fills what follows from the options alone; rank, incarnation and group_id are the caller's. */
void ligi_greeting_make(const lig_params_options *options, ligi_greeting *greeting);
/* MISMATCH names the first difference; `bytes` come from the peer. */
lig_status ligi_greeting_check(const ligi_greeting *own, const void *data, size_t bytes,
                               ligi_greeting *other);

#endif
