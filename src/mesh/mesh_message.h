/* The heads of the mesh's messages, as bytes. Pure. A message from a peer is fully validated before
 * memory is allocated for it or it is processed.
 *
 *   kind      payload
 *   REQUEST   the pushed tensors, one after the other, as the head describes them
 *   REPLY     the tensors that one server was asked for, in that order
 *   REFUSAL   none: a status and an error text
 *   PING      none: asks for the other's clock
 *   PONG      none
 *   OFFER     none: an arena of the worker's device, which a server on its host may open
 *   OPENED    none: whether the server has opened the arena (`serial`) of an offer */
#ifndef LIGI_MESH_MESSAGE_H
#define LIGI_MESH_MESSAGE_H

#include <ligament/mesh.h>

typedef enum ligi_message_kind {
    LIGI_MESSAGE_REQUEST = 1,
    LIGI_MESSAGE_REPLY = 2,
    LIGI_MESSAGE_REFUSAL = 3,
    LIGI_MESSAGE_PING = 4,
    LIGI_MESSAGE_PONG = 5,
    LIGI_MESSAGE_OFFER = 6,
    LIGI_MESSAGE_OPENED = 7,
} ligi_message_kind;

#define LIGI_MESSAGE_VERSION 2
#define LIGI_MESSAGE_BYTES_MAX 65536
#define LIGI_MESSAGE_SMALL_BYTES 48 /* of every kind but REQUEST, REFUSAL and OFFER */
#define LIGI_MESSAGE_STAMPS 4

/* The location of a tensor at its worker, and how it is transferred. */
typedef enum ligi_place_kind {
    LIGI_PLACE_HOST = 0,   /* in host memory: in the payload */
    LIGI_PLACE_DEVICE = 1, /* in device memory: in the payload */
    LIGI_PLACE_ARENA = 2   /* in an arena that the server has opened, and not in the payload */
} ligi_place_kind;

typedef struct ligi_place {
    uint32_t kind;  /* ligi_place_kind */
    uint32_t arena; /* only with LIGI_PLACE_ARENA, like the offset */
    uint64_t offset;
} ligi_place;

/* An arena of device memory. */
typedef struct ligi_offer {
    uint64_t arena;
    uint8_t process[16];     /* its identity (ligi_cuda_process) */
    uint64_t address, bytes; /* in that process */
    uint8_t device[16];      /* its identity */
    uint8_t handle[64];
} ligi_offer;

#define LIGI_MESSAGE_OFFER_BYTES (LIGI_MESSAGE_SMALL_BYTES + 120)
#define LIGI_MESSAGE_ARENAS 64u /* of one worker */

/* Descriptions of tensors, with room for their shapes. Zero-initialised is valid; grows and is
 * reused. */
typedef struct ligi_pieces {
    lig_tensor *tensors;
    ligi_place *places;
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
    uint64_t payload_bytes; /* of push_bytes */
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

/* An OFFER, which decode rejects. */
lig_status ligi_message_decode_offer(const void *head, size_t bytes, ligi_offer *offer);
/* Fills `head` (LIGI_MESSAGE_OFFER_BYTES). */
size_t ligi_message_offer(const ligi_offer *offer, void *head);

/* Bytes that one tensor takes in the head of a request, at most. */
size_t ligi_message_piece_bytes(const lig_tensor *tensor);

/* The contents of a request to one server; the tensors are already checked. */
typedef struct ligi_request_parts {
    uint64_t serial;
    const lig_tensor *push, *pull;
    const uint64_t *push_keys, *pull_keys;
    const ligi_place *push_places, *pull_places; /* NULL: all in host memory */
    uint32_t push_count, pull_count;
} ligi_request_parts;

/* Fills `head`, which has room for all its pieces and LIGI_MESSAGE_SMALL_BYTES; returns its bytes.
 */
size_t ligi_message_request(const ligi_request_parts *parts, void *head);

/* Fills `head` (LIGI_MESSAGE_SMALL_BYTES) for the kinds without tensors or text; OPENED has its
 * status from ligi_message_opened. */
size_t ligi_message_small(ligi_message_kind kind, uint64_t serial, const uint64_t *stamps,
                          void *head);

size_t ligi_message_opened(uint32_t arena, lig_status status, void *head);

/* Fills `head` (LIGI_MESSAGE_REFUSAL_BYTES); a long text is truncated. */
#define LIGI_MESSAGE_REFUSAL_BYTES (LIGI_MESSAGE_SMALL_BYTES + 1024)
size_t ligi_message_refusal(uint64_t serial, lig_status status, const char *sentence, void *head);

#endif
