/* The protocol of a served store: the beginning of a session, and the head of every message. Pure.
 *
 * A session is a link of LIGI_SERVICE_STORE. The client's hello carries ligi_served_hello, the
 * server's reply ligi_served_welcome. After that the client sends requests and the server replies;
 * replies come in any order and carry the id of their request. A session from which the server has
 * received nothing for `lease_ns` ends: an idle client sends PING at least three times in that
 * time.
 *
 * A message is a head of LIGI_SERVED_HEAD_BYTES, a body and data. The body follows in the net
 * message's head when it is small, and otherwise is the first part of its payload
 * (LIGI_SERVED_BEHIND); the data are the rest of the payload. All numbers are little-endian.
 *
 *   operation      body of the request      reply: body and data
 *   PING           -                        -
 *   INFO           -                        ligi_served_info
 *   RESOLVE        ligi_served_selector     ligi_served_model; head.number: version
 *   RELEASE        number                   no reply: ends a ref, match, part or lock
 *   MODELS         ligi_served_query        ligi_served_list
 *   LINEAGE        ligi_served_selector     ligi_served_lineage
 *   STAT           -                        ligi_served_stats
 *   PACK_SIZE      pack                     bytes
 *   READ           ligi_served_read         data: the ranges, one after the other
 *   DESCRIPTOR     pack                     ligi_served_descriptor
 *   UPDATE    *    ligi_served_update       -
 *   ALIAS     *    ligi_served_alias        -
 *   ALIAS_AT       index                    ligi_served_alias
 *   RETIRE    *    text                     -
 *   RETIRE_NOW *   text                     -
 *   RESTORE   *    ligi_served_alias        -: the retired model, and its new name or NULL
 *   LOCK           text                     number of the lock
 *   CHECK          flags                    ligi_served_report; with LIGI_SERVED_TELL the server
 *                                           sends DONE meanwhile: so many bytes are checked
 *   COMPACT        -                        ligi_served_report
 *   FIND           ligi_served_find         ligi_served_matches
 *   WATCH          ligi_served_watch        ligi_served_events; head.number: version
 *   SAVE      *    ligi_served_save         ligi_served_saved
 *   JOIN      *    ligi_served_save         ligi_served_saved
 *   STAMPS         text                     ligi_served_stamps
 *   CLEAR_STAMPS   text ("": all)           -
 *   SHUTDOWN       -                        -
 *   CANCEL         id of a request          no reply: the request's own reply has the outcome
 *
 * and, while a save runs (head.id is that of the SAVE):
 *   NEED           server to client         ligi_served_need: the server asks for bytes or hashes
 *   DONE           server to client         number: this many tensors are no longer needed. The
 *                                           first, with 0, says that the save was accepted
 *   DATA           client to server         tag of the NEED; data: what it asks for, in its order
 *   COMMIT         client to server         -: all tensors of a save in parts have been offered
 *
 * "number", "pack", "index", "flags", "bytes", "id", "tag": ligi_served_number; "text":
 * ligi_served_text. A save whose data come with the SAVE (LIGI_SERVED_WHOLE) has no NEED and no
 * DONE. A request that changes the store (*) has a sequence number in head.number, which grows with
 * each of a client's: a request that is sent again with the same number, also in a later session of
 * the same client id, is not executed twice.
 *
 * LIG_E_BUSY: the server is at its limits; nothing was done, retry later. LIG_E_CLOSED: the server
 * is shutting down, the session is about to end.
 *
 * A failure has a status in the head and ligi_served_error as its body. */
#ifndef LIGI_SERVED_HEAD_H
#define LIGI_SERVED_HEAD_H

#include "base/codec.h"

#include <ligament/store.h>

#define LIGI_SERVED_VERSION 2u
#define LIGI_SERVED_GROUP "store" /* ligi_net_options.group at both ends */
#define LIGI_SERVED_HEAD_BYTES 40
#define LIGI_SERVED_INSIDE_BYTES 16384 /* a longer body is sent in the payload */
#define LIGI_SERVED_BODY_BYTES_MAX (UINT64_C(1) << 30)
#define LIGI_SERVED_SMALL_SAVE_BYTES (UINT64_C(256) << 10) /* data of a complete SAVE */
#define LIGI_SERVED_CLIENT_BYTES 16
#define LIGI_SERVED_UUID_BYTES 16
#define LIGI_SERVED_HOST_BYTES_MAX 255
#define LIGI_SERVED_PASS_BYTES 32
#define LIGI_SERVED_CARD_BYTES_MAX 600 /* a longer card is left out of the welcome; see INFO */

typedef enum ligi_served_op {
    LIGI_SERVED_PING = 1,
    LIGI_SERVED_INFO = 2,
    LIGI_SERVED_RESOLVE = 3,
    LIGI_SERVED_RELEASE = 4,
    LIGI_SERVED_MODELS = 5,
    LIGI_SERVED_LINEAGE = 6,
    LIGI_SERVED_STAT = 7,
    LIGI_SERVED_PACK_SIZE = 8,
    LIGI_SERVED_READ = 9,
    LIGI_SERVED_DESCRIPTOR = 10,
    LIGI_SERVED_UPDATE = 11,
    LIGI_SERVED_ALIAS = 12,
    LIGI_SERVED_ALIAS_AT = 13,
    LIGI_SERVED_RETIRE = 14,
    LIGI_SERVED_LOCK = 15,
    LIGI_SERVED_CHECK = 16,
    LIGI_SERVED_COMPACT = 17,
    LIGI_SERVED_FIND = 18,
    LIGI_SERVED_WATCH = 19,
    LIGI_SERVED_SAVE = 20,
    LIGI_SERVED_JOIN = 21,
    LIGI_SERVED_STAMPS = 22,
    LIGI_SERVED_CLEAR_STAMPS = 23,
    LIGI_SERVED_SHUTDOWN = 24,
    LIGI_SERVED_CANCEL = 25,
    LIGI_SERVED_NEED = 26,
    LIGI_SERVED_DONE = 27,
    LIGI_SERVED_DATA = 28,
    LIGI_SERVED_COMMIT = 29,
    LIGI_SERVED_RETIRE_NOW = 30,
    LIGI_SERVED_RESTORE = 31,
    LIGI_SERVED_OP_END = 32
} ligi_served_op;

#define LIGI_SERVED_REPLY 1u  /* from the server; otherwise a request, or NEED and DONE */
#define LIGI_SERVED_BEHIND 2u /* the body is at the start of the payload */

#define LIGI_SERVED_TELL (UINT64_C(1) << 32) /* in the flags of CHECK, whose own have 32 bits */

typedef struct ligi_served_head {
    uint16_t op;          /* ligi_served_op; of a reply: that of the request */
    uint16_t flags;       /* LIGI_SERVED_* */
    uint32_t status;      /* of a reply: lig_status; otherwise 0 */
    uint64_t id;          /* of the request; not 0, chosen by the client, unique among its open
                      * requests */
    uint64_t number;      /* request: the sequence number, 0: none; reply: the store's version */
    uint64_t deadline_ns; /* request: how long the client waits, from now on; 0: no limit */
    uint64_t body_bytes;
    const uint8_t *body; /* NULL with LIGI_SERVED_BEHIND */
} ligi_served_head;

/* Fills the first LIGI_SERVED_HEAD_BYTES of a net message's head; without LIGI_SERVED_BEHIND the
 * caller appends the body. */
void ligi_served_head_put(const ligi_served_head *head, uint8_t out[LIGI_SERVED_HEAD_BYTES]);
/* Checks everything that does not need the body, before anything is allocated for it;
 * LIG_E_CORRUPT. The body is borrowed. */
lig_status ligi_served_head_get(const void *bytes, size_t size, uint64_t payload_bytes,
                                ligi_served_head *head);
const char *ligi_served_op_name(uint32_t op); /* "?" for an unknown one */
int ligi_served_op_mutates(uint32_t op);      /* needs a sequence number */
int ligi_served_op_silent(uint32_t op);       /* a request without a reply */
int ligi_served_op_brief(uint32_t op);        /* usually takes microseconds */

/* --- the beginning --- */

typedef struct ligi_served_hello {
    uint8_t client[LIGI_SERVED_CLIENT_BYTES]; /* random, one per handle; kept over reconnects */
    uint32_t pid;
    const char *host; /* for error texts */
    /* Over shared memory, which does not prove a secret: the token of the welcome over TCP; else
     * zeros. */
    uint8_t pass[LIGI_SERVED_PASS_BYTES];
} ligi_served_hello;

#define LIGI_SERVED_READ_ONLY 1u   /* nothing can be changed through this server */
#define LIGI_SERVED_DESCRIPTORS 2u /* DESCRIPTOR works on this host */
#define LIGI_SERVED_LIMITED                                                                        \
    4u /* the role sees only some models: the server keeps the key of the hashes, and verifies the
        * blocks that it sends */

typedef struct ligi_served_welcome {
    uint32_t flags;
    uint32_t volume_flags; /* of the store's volume */
    uint8_t uuid[LIGI_SERVED_UUID_BYTES];
    uint8_t secret[LIG_SECRET_BYTES];     /* keys the store's hashes; zeros with LIMITED */
    uint8_t pass[LIGI_SERVED_PASS_BYTES]; /* works once, while this session lasts */
    uint64_t session;
    uint64_t lease_ns;
    uint64_t flight_bytes_max; /* of requests and replies of this session at a time */
    uint64_t read_bytes_max;   /* of one READ */
    uint32_t request_max;      /* requests at a time */
    const uint8_t *card;       /* of the server's endpoint, borrowed; 0 bytes: see INFO */
    size_t card_bytes;
} ligi_served_welcome;

void ligi_served_hello_put(ligi_writer *writer, const ligi_served_hello *hello);
/* Strings are borrowed. LIG_E_UNSUPPORTED names both versions, LIG_E_CORRUPT. */
lig_status ligi_served_hello_get(const void *bytes, size_t size, ligi_served_hello *hello);
void ligi_served_welcome_put(ligi_writer *writer, const ligi_served_welcome *welcome);
lig_status ligi_served_welcome_get(const void *bytes, size_t size, ligi_served_welcome *welcome);

/* --- bodies that several operations share --- */

/* The decoders of all bodies: strings and bytes are borrowed from the body; what has arrays fills a
 * zeroed struct and is freed by its _fini, also after a failure. LIG_E_CORRUPT for an invalid body;
 * a count is used only after checking that its bytes are present. */

void ligi_served_number_put(ligi_writer *writer, uint64_t number);
lig_status ligi_served_number_get(const void *body, size_t bytes, uint64_t *number);

void ligi_served_text_put(ligi_writer *writer, const char *text);
lig_status ligi_served_text_get(const void *body, size_t bytes, const char **text);

typedef struct ligi_served_error {
    int32_t number; /* errno, 0: none */
    const char *text;
} ligi_served_error;

void ligi_served_error_put(ligi_writer *writer, const ligi_served_error *error);
lig_status ligi_served_error_get(const void *body, size_t bytes, ligi_served_error *error);

/* For the other decoders: LIG_E_CORRUPT unless everything was read, and nothing is left. */
lig_status ligi_served_end(const ligi_reader *reader, const char *what);
/* A text that may be NULL. */
void ligi_served_maybe_put(ligi_writer *writer, const char *text);
const char *ligi_served_maybe_get(ligi_reader *reader, size_t max_bytes);
/* Bytes preceded by their length; borrowed. */
void ligi_served_blob_put(ligi_writer *writer, const void *data, size_t bytes);
const uint8_t *ligi_served_blob_get(ligi_reader *reader, size_t *bytes);

#endif
