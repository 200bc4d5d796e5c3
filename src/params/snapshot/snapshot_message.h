/* What nodes say to each other while they save and load: the payload of a KEEP letter, whose verb
 * is one of these. Pure; hostile until ligi_note_open has said that it fits together. All of it is
 * little-endian, as it lies in memory.
 *
 *   SAY    to node 0: how far this node has come     `text`: a piece of its data, or its sentence
 *   HEAR   from node 0: all have come so far         likewise
 *   GET    rows of a unit that you own, from `at` on
 *   ROWS   they follow                               keys, bodies; `at`: where to go on,
 *                                                    `more`: there are
 *   OWN    which of these are yours?                 keys
 *   OWNED  those                                     a bit a key
 *   PUT    set these                                 keys, bodies
 *   TAKEN  those that are mine still                 a bit a key */
#ifndef LIGI_SNAPSHOT_MESSAGE_H
#define LIGI_SNAPSHOT_MESSAGE_H

#include <ligament/params.h>

/* Pinned: the numbers travel. */
typedef enum ligi_keep_verb {
    LIGI_KEEP_SAY = 1,
    LIGI_KEEP_HEAR = 2,
    LIGI_KEEP_GET = 3,
    LIGI_KEEP_ROWS = 4,
    LIGI_KEEP_OWN = 5,
    LIGI_KEEP_OWNED = 6,
    LIGI_KEEP_PUT = 7,
    LIGI_KEEP_TAKEN = 8,
} ligi_keep_verb;

#define LIGI_NOTE_TEXT_MAX (UINT64_C(4) << 20)
#define LIGI_NOTE_DATA_MAX (UINT64_C(1) << 30) /* of all pieces together */

typedef struct ligi_note_front {
    uint32_t call; /* which save or load, counted alike on all nodes */
    uint32_t step; /* SAY, HEAR */
    uint64_t unit; /* GET, ROWS */
    uint64_t at;
    uint64_t total; /* SAY, HEAR: of the data */
    uint32_t count; /* keys; SAY, HEAR: bytes of text */
    uint16_t status;
    uint16_t more;
} ligi_note_front;

_Static_assert(sizeof(ligi_note_front) == 40, "it travels");

typedef struct ligi_note {
    ligi_note_front front;
    const uint8_t *text;
    const uint8_t *keys; /* int64, perhaps in memory that the peer can change: ligi_note_key */
    const uint8_t *bits;
    const uint8_t *bodies;
    uint64_t body_bytes; /* of all: whoever walks the keys checks it */
} ligi_note;

lig_status ligi_note_open(uint8_t verb, const void *payload, uint64_t bytes, ligi_note *note);
int64_t ligi_note_key(const ligi_note *note, uint32_t index);
int ligi_note_bit(const ligi_note *note, uint32_t index);

#endif
