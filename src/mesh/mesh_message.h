/* The heads of the mesh's messages, as bytes. Pure. A message from a peer is fully validated before
 * anything is allocated for it or done with it.
 *
 *   kind      payload
 *   REQUEST   the pushed tensors, one after the other, as the head describes them
 *   REPLY     the tensors that one server was asked for, in that order
 *   REFUSAL   none: a status and an error text
 *   PING      none: asks for the other's clock
 *   PONG      none */
#ifndef LIGI_MESH_MESSAGE_H
#define LIGI_MESH_MESSAGE_H

#include <ligament/mesh.h>

typedef enum ligi_message_kind {
    LIGI_MESSAGE_REQUEST = 1,
    LIGI_MESSAGE_REPLY = 2,
    LIGI_MESSAGE_REFUSAL = 3,
    LIGI_MESSAGE_PING = 4,
    LIGI_MESSAGE_PONG = 5,
} ligi_message_kind;

#define LIGI_MESSAGE_VERSION 1
#define LIGI_MESSAGE_BYTES_MAX 65536
#define LIGI_MESSAGE_SMALL_BYTES 48 /* of every kind but REQUEST and REFUSAL */
#define LIGI_MESSAGE_STAMPS 4

/* Descriptions of tensors, with room for their shapes. Zero-initialised is valid; grows and is used
 * again. */
typedef struct ligi_pieces {
    lig_tensor *tensors;
    uint64_t *keys;
    int64_t *shapes;
    size_t room;
} ligi_pieces;

lig_status ligi_pieces_reserve(ligi_pieces *pieces, size_t count);
void ligi_pieces_fini(ligi_pieces *pieces);

typedef struct ligi_message {
    ligi_message_kind kind;
    uint64_t serial; /* of the request, given by its worker */
    uint32_t push_count, pull_count;
    uint64_t push_bytes, pull_bytes;
    uint64_t
        stamps[LIGI_MESSAGE_STAMPS]; /* REPLY: 2..5; PING: [0]; PONG: [0] again, [1] the answer */
    lig_status status;
    const char *sentence; /* REFUSAL: borrowed from the head, not terminated */
    uint32_t sentence_bytes;
} ligi_message;

/* Parses a head of `bytes` bytes into *message, and a REQUEST's tensors (pushed ones first) into
 * `pieces`, without data; with `pieces` NULL a REQUEST is rejected. CORRUPT for an invalid
 * message. */
lig_status ligi_message_decode(const void *head, size_t bytes, ligi_pieces *pieces,
                               ligi_message *message);

/* Bytes that one tensor takes in the head of a request. */
size_t ligi_message_piece_bytes(const lig_tensor *tensor);

/* The contents of a request to one server; the tensors are already checked. */
typedef struct ligi_request_parts {
    uint64_t serial;
    const lig_tensor *push, *pull;
    const uint64_t *push_keys, *pull_keys;
    uint32_t push_count, pull_count;
} ligi_request_parts;

/* Fills `head`, which has room for all its pieces and LIGI_MESSAGE_SMALL_BYTES; returns its bytes.
 */
size_t ligi_message_request(const ligi_request_parts *parts, void *head);

/* Fills `head` (LIGI_MESSAGE_SMALL_BYTES) for the kinds without tensors or text. */
size_t ligi_message_small(ligi_message_kind kind, uint64_t serial, const uint64_t *stamps,
                          void *head);

/* Fills `head` (LIGI_MESSAGE_REFUSAL_BYTES); a long text is truncated. */
#define LIGI_MESSAGE_REFUSAL_BYTES (LIGI_MESSAGE_SMALL_BYTES + 1024)
size_t ligi_message_refusal(uint64_t serial, lig_status status, const char *sentence, void *head);

#endif
