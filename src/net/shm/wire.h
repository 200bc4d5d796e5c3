/* One connection of the shm transport: a Unix socket (set-up, lent memory, wake-ups, and detection
 * of the peer's end) and two rings (everything else). */
#ifndef LIGI_WIRE_H
#define LIGI_WIRE_H

#include "net/shm/ring.h"
#include "net/shm/segment.h"
#include "net/shm/shm_frame.h"

#define LIGI_SHM_CHUNK (UINT64_C(128) << 10)    /* shown to the peer at a time */
#define LIGI_SHM_PORTION (UINT64_C(1) << 20)    /* moved for one link before the next is served */
#define LIGI_SHM_SEGMENTS_MAX 4096              /* of one peer, mapped at a time */
#define LIGI_SHM_MAPPED_MAX (UINT64_C(1) << 42) /* bytes of them */

typedef struct ligi_wire ligi_wire;

/* The transport in one endpoint. */
typedef struct ligi_shm {
    ligi_net *net;
    ligi_segments *segments;
    ligi_wire *wires;
    struct ligi_shm_listener *listeners;
    int spare; /* a spare descriptor for accepting and closing when descriptors run out */
    pid_t pid;
} ligi_shm;

/* A segment of the peer's that is mapped here. */
typedef struct ligi_shm_view {
    ligi_mapping mapping;
    uint8_t *memory;
    uint64_t bytes;
    uint32_t segment;
    int read_only;
} ligi_shm_view;

typedef enum ligi_shm_step { LIGI_SHM_HEADER, LIGI_SHM_FRONT, LIGI_SHM_PAYLOAD } ligi_shm_step;

/* The message being received. */
typedef struct ligi_shm_inbox {
    ligi_shm_step step;
    ligi_shm_header header;
    uint8_t *front; /* copied out of the ring; grows */
    size_t front_capacity;
    ligi_shm_piece *lent; /* header.piece_count */
    ligi_piece *pieces;
    size_t piece_capacity, lent_capacity;
    size_t piece;      /* the piece being moved */
    uint64_t piece_at; /* bytes of it that were moved */
    uint64_t bytes;    /* still to be moved */
    struct iovec *iov; /* destination; NULL: discarded */
    size_t iov_count, iov_at;
} ligi_shm_inbox;

struct ligi_wire {
    ligi_wire *next, **at; /* in shm->wires */
    ligi_shm *shm;
    ligi_link *link;
    int socket;
    ligi_watch watch; /* of the socket */
    void *memory;     /* both rings; NULL before they are mapped */
    int connecting;   /* this side initiated the connection */
    ligi_ring out, in;
    int ended;         /* the socket has ended: the ring holds the last messages */
    uint64_t ended_at; /* the ring's position at that time */
    int sleeping;      /* the rings' flags are set */
    int drained;       /* idle until the peer publishes more */

    size_t want;           /* room that the queue's first message waits for; 0: nothing waits */
    size_t iov_at;         /* of that message, when it has begun */
    ligi_shm_piece *table; /* its pieces; kept */
    size_t table_capacity;
    uint32_t *known; /* our segments that were shared with the peer */
    size_t known_count, known_capacity;
    uint64_t known_epoch;

    ligi_shm_inbox inbox;
    ligi_shm_view **views; /* the peer's segments */
    size_t view_count, view_capacity;
    uint64_t view_bytes;
};

#define LIGI_SHM_MEMORY_BYTES (2 * ligi_ring_bytes(ligi_shm_shape))
extern const ligi_ring_shape ligi_shm_shape;

/* Takes a connected socket (closed by drop, and when this fails). */
lig_status ligi_wire_create(ligi_shm *shm, int fd, ligi_wire **wire);
/* Creates the rings and shares them with the peer: the connecting side. */
lig_status ligi_wire_offer(ligi_wire *wire);
lig_status ligi_wire_watch(ligi_wire *wire);
void ligi_wire_drop(void *wire, int graceful);
/* Reads up to `most` packets of the socket; marks the wire `ended` at its end. */
lig_status ligi_wire_listen(ligi_wire *wire, int most);
void ligi_wire_bell(ligi_wire *wire);
/* 1 if the segment has been shared with the peer (now or before). */
int ligi_wire_show(ligi_wire *wire, const ligi_segment_place *place);

#define LIGI_SHM_OPTION_COUNT 2
extern const ligi_option ligi_shm_options[LIGI_SHM_OPTION_COUNT];
extern const ligi_transport_ops ligi_transport_shm;

#endif
