/* What nodes send each other while they save and load: the payload of a SNAPSHOT message, with one
 * of these verbs. Pure; untrusted until ligi_params_snapshot_message_open accepts it.
 * Little-endian, with the layout in memory.
 *
 *   REPORT    to node 0: the steps this node has done   `text`: a piece of its data, or its error
 *   DECISION  from node 0: all nodes have done them     likewise
 *   GET       rows of a unit that the receiver owns, from `at` on
 *   ROWS      the answer                                keys, bodies; `at`: where to continue,
 *                                                       `more`: there are
 *   OWN       which of these do you own? keys
 *   OWNED     the answer                                a bit a key
 *   PUT       set these                                 keys, bodies
 *   TAKEN     the answer: those still owned here        a bit a key */
#ifndef LIGI_SNAPSHOT_MESSAGE_H
#define LIGI_SNAPSHOT_MESSAGE_H

#include <ligament/params.h>

/* Fixed: these numbers are part of the protocol. */
typedef enum ligi_snapshot_verb {
    LIGI_SNAPSHOT_REPORT = 1,
    LIGI_SNAPSHOT_DECISION = 2,
    LIGI_SNAPSHOT_GET = 3,
    LIGI_SNAPSHOT_ROWS = 4,
    LIGI_SNAPSHOT_OWN = 5,
    LIGI_SNAPSHOT_OWNED = 6,
    LIGI_SNAPSHOT_PUT = 7,
    LIGI_SNAPSHOT_TAKEN = 8,
} ligi_snapshot_verb;

#define LIGI_SNAPSHOT_TEXT_MAX (UINT64_C(4) << 20)
#define LIGI_SNAPSHOT_DATA_MAX (UINT64_C(1) << 30) /* of all pieces together */

typedef struct ligi_snapshot_front {
    uint32_t call; /* sequence number of the save or load, the same on all nodes */
    uint32_t step; /* REPORT, DECISION */
    uint64_t unit; /* GET, ROWS */
    uint64_t at;
    uint64_t total; /* REPORT, DECISION: of the data */
    uint32_t count; /* keys; REPORT, DECISION: bytes of text */
    uint16_t status;
    uint16_t more;
} ligi_snapshot_front;

_Static_assert(sizeof(ligi_snapshot_front) == 40, "it travels");

typedef struct ligi_snapshot_message {
    ligi_snapshot_front front;
    const uint8_t *text;
    const uint8_t
        *keys; /* int64, in memory that the peer may change: ligi_params_snapshot_message_key */
    const uint8_t *bits;
    const uint8_t *bodies;
    uint64_t body_bytes; /* of all keys: checked while walking them */
} ligi_snapshot_message;

lig_status ligi_params_snapshot_message_open(uint8_t verb, const void *payload, uint64_t bytes,
                                             ligi_snapshot_message *content);
int64_t ligi_params_snapshot_message_key(const ligi_snapshot_message *content, uint32_t index);
int ligi_params_snapshot_message_bit(const ligi_snapshot_message *content, uint32_t index);

#endif
