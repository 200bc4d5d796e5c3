/* Messages between members and coordinator: heads without payload. Untrusted until decoded. */
#ifndef LIGI_GROUP_MESSAGE_H
#define LIGI_GROUP_MESSAGE_H

#include "base/codec.h"
#include "group/roster/roster.h"

#define LIGI_GROUP_MESSAGE_VERSION 1
#define LIGI_GROUP_MESSAGE_TEXT_BYTES LIGI_ACT_TEXT_BYTES
/* A roster is sent in portions of about this size. */
#define LIGI_GROUP_MESSAGE_PORTION_BYTES 32768

/* Fixed: the numbers are part of the protocol. Up to 15 to the coordinator, 16 to 31 from it. */
typedef enum ligi_group_message_kind {
    LIGI_GROUP_MESSAGE_JOIN = 1,     /* join */
    LIGI_GROUP_MESSAGE_CONFIRM = 2,  /* number: the epoch */
    LIGI_GROUP_MESSAGE_ANSWER = 3,   /* number: of the probe */
    LIGI_GROUP_MESSAGE_ARRIVE = 4,   /* number: of the barrier in this member; mask, flags */
    LIGI_GROUP_MESSAGE_CANCEL = 5,   /* number: likewise; is answered by PASS or FAIL */
    LIGI_GROUP_MESSAGE_WAIT = 16,    /* text: who is awaited; number: liveness_ms */
    LIGI_GROUP_MESSAGE_REFUSE = 17,  /* status, text */
    LIGI_GROUP_MESSAGE_PROBE = 18,   /* number */
    LIGI_GROUP_MESSAGE_ROSTER = 19,  /* number: the epoch; welcome, entries */
    LIGI_GROUP_MESSAGE_CHANGE = 20,  /* number: the epoch; one entry */
    LIGI_GROUP_MESSAGE_RELEASE = 21, /* nothing */
    LIGI_GROUP_MESSAGE_EXPEL = 22,   /* number: the epoch; text */
    LIGI_GROUP_MESSAGE_PASS = 23,    /* number: of the barrier */
    LIGI_GROUP_MESSAGE_FAIL = 24,    /* number: likewise; status, text */
    LIGI_GROUP_MESSAGE_BEAT = 32,    /* nothing */
} ligi_group_message_kind;

typedef struct ligi_group_entry { /* pointers borrow the message, or the seat */
    ligi_member member;
    const char *why;
    const void *blob;
    size_t blob_bytes;
} ligi_group_entry;

typedef struct ligi_welcome { /* who the receiver is */
    uint64_t id;              /* of the group */
    ligi_role role;
    uint32_t rank, incarnation;
    int last; /* 0: more portions follow */
} ligi_welcome;

typedef struct ligi_group_message {
    ligi_group_message_kind kind;
    lig_status status;
    uint64_t number;
    uint32_t mask, flags;
    ligi_welcome welcome;
    size_t entry_count;  /* of ROSTER and CHANGE: read them with ligi_group_message_entry */
    ligi_reader entries; /* borrows the bytes */
    char text[LIGI_GROUP_MESSAGE_TEXT_BYTES];
} ligi_group_message;

/* All fields except the entries and the join. */
void ligi_group_message_put(ligi_writer *writer, const ligi_group_message *message);
void ligi_group_message_put_join(ligi_writer *writer, const ligi_join *join);
void ligi_group_message_put_entry(ligi_writer *writer, const ligi_group_entry *entry);

/* CORRUPT for an invalid message; all entries are checked here. `join` is filled for JOIN only. */
lig_status ligi_group_message_decode(const void *data, size_t bytes, ligi_group_message *message,
                                     ligi_join *join);
/* The next entry; 0 at the end. */
int ligi_group_message_entry(ligi_group_message *message, ligi_group_entry *entry);

#endif
