/* What members and coordinator say to each other: the heads of messages, without payload. Notes
 * are hostile until decoded. */
#ifndef LIGI_GROUP_MESSAGE_H
#define LIGI_GROUP_MESSAGE_H

#include "base/codec.h"
#include "group/roster/roster.h"

#define LIGI_NOTE_VERSION 1
#define LIGI_NOTE_TEXT_BYTES LIGI_ACT_TEXT_BYTES
/* A roster goes in portions of about this. */
#define LIGI_NOTE_PORTION_BYTES 32768

typedef enum ligi_note_kind { /* pinned: they travel */
                              /* to the coordinator */
                              LIGI_NOTE_JOIN = 1,    /* join */
                              LIGI_NOTE_CONFIRM = 2, /* number: the epoch */
                              LIGI_NOTE_ANSWER = 3,  /* number: of the probe */
                              LIGI_NOTE_ARRIVE =
                                  4, /* number: of the barrier in this member; mask, flags */
                              LIGI_NOTE_CANCEL =
                                  5, /* number: likewise; is answered by PASS or FAIL */
                              /* from it */
                              LIGI_NOTE_WAIT = 16,   /* text: who is awaited; number: liveness_ms */
                              LIGI_NOTE_REFUSE = 17, /* status, text */
                              LIGI_NOTE_PROBE = 18,  /* number */
                              LIGI_NOTE_ROSTER = 19, /* number: the epoch; welcome, entries */
                              LIGI_NOTE_CHANGE = 20, /* number: the epoch; one entry */
                              LIGI_NOTE_RELEASE = 21, /* nothing */
                              LIGI_NOTE_EXPEL = 22,   /* number: the epoch; text */
                              LIGI_NOTE_PASS = 23,    /* number: of the barrier */
                              LIGI_NOTE_FAIL = 24,    /* number: likewise; status, text */
                              /* both ways */
                              LIGI_NOTE_BEAT = 32, /* nothing */
} ligi_note_kind;

typedef struct ligi_entry { /* pointers borrow the note, or the seat */
    ligi_member member;
    const char *why;
    const void *blob;
    size_t blob_bytes;
} ligi_entry;

typedef struct ligi_welcome { /* who the receiver is */
    uint64_t id;              /* of the group */
    ligi_role role;
    uint32_t rank, incarnation;
    int last; /* 0: more portions follow */
} ligi_welcome;

typedef struct ligi_note {
    ligi_note_kind kind;
    lig_status status;
    uint64_t number;
    uint32_t mask, flags;
    ligi_welcome welcome;
    size_t entry_count;  /* of ROSTER and CHANGE: read them with ligi_note_entry */
    ligi_reader entries; /* borrows the bytes */
    char text[LIGI_NOTE_TEXT_BYTES];
} ligi_note;

/* Everything but the entries and the join. */
void ligi_note_put(ligi_writer *writer, const ligi_note *note);
void ligi_note_put_join(ligi_writer *writer, const ligi_join *join);
void ligi_note_put_entry(ligi_writer *writer, const ligi_entry *entry);

/* CORRUPT for what is no note; entries are all checked here. `join` is filled for JOIN only. */
lig_status ligi_note_decode(const void *data, size_t bytes, ligi_note *note, ligi_join *join);
/* The next entry; 0 at the end. */
int ligi_note_entry(ligi_note *note, ligi_entry *entry);

#endif
