/* A worker's requests: the last LIG_MESH_REQUESTS_MAX, in a ring by their serial numbers. No I/O,
 * no locks; the caller guards it. */
#ifndef LIGI_WORKER_REQUESTS_H
#define LIGI_WORKER_REQUESTS_H

#include "mesh/buffers/bounded_pool.h"
#include "mesh/mesh_message.h"

typedef enum ligi_request_state {
    LIGI_REQUEST_FREE = 0,
    LIGI_REQUEST_OPEN,  /* not answered by all servers, or its memory is still in use */
    LIGI_REQUEST_ENDED, /* completed or failed; remembered until its slot is needed */
} ligi_request_state;

struct ligi_request;
struct ligi_exchange;

#define LIGI_DIVERTED 2

typedef struct ligi_share { /* of a request: one server's */
    struct ligi_request *request;
    uint32_t server;
    uint8_t open;    /* no answer yet */
    uint8_t sending; /* the pushed tensors are borrowed */
    uint8_t landing; /* the response is being received; LIGI_DIVERTED: and discarded */
    uint32_t iov_count;
    struct iovec *iov;                /* where the answer goes */
    uint64_t bytes;                   /* of the answer */
    uint64_t stamps[LIG_MESH_STAMPS]; /* 2..6 */
} ligi_share;

typedef struct ligi_request {
    ligi_request_state state;
    int waited; /* a wait has returned its result */
    uint64_t serial, handler;
    uint32_t handler_count;
    uint32_t open, busy; /* shares without a response; sends and receives in progress */
    uint32_t diverted;   /* receives that net still references: the slot is not free yet */
    uint32_t last;       /* the server that answered last */
    uint32_t pull_count; /* of one server */
    uint64_t push_bytes;
    lig_status status; /* the first failure, with its error text */
    char *sentence;
    ligi_share *shares; /* [server_count] */
    struct iovec *iov;  /* [iov_room]: pushed tensors, then the shares' */
    size_t iov_room;
    lig_tensor *strided; /* [server_count * pull_count] when a pulled tensor has gaps */
    int64_t *numbers;    /* their shapes and strides */
    size_t strided_room, strided_count;
    ligi_block *staging;            /* packed tensors of both directions */
    struct ligi_exchange *exchange; /* its tensors in device memory; NULL: none */
    uint64_t stamps[LIG_MESH_STAMPS];
} ligi_request;

typedef struct ligi_worker_requests {
    uint32_t server_count;
    ligi_request *ring[LIG_MESH_REQUESTS_MAX]; /* made when first used */
    uint64_t next_serial, next_handler;
    uint32_t open;         /* requests */
    uint32_t unwaited;     /* completed requests that have not been waited for */
    ligi_block_pool *pool; /* for packing */
    void (*drop_exchange)(struct ligi_exchange *exchange); /* of a request whose slot is reused */
} ligi_worker_requests;

lig_status ligi_worker_requests_init(ligi_worker_requests *outbox, uint32_t server_count);
void ligi_worker_requests_fini(ligi_worker_requests *outbox);

/* A request with `pull_count` responses per server and room for `push_count` iov entries before
 * theirs; all shares are open. It takes `handler_count` handlers. LIG_E_LIMIT if the oldest has not
 * ended. */
lig_status ligi_worker_requests_begin(ligi_worker_requests *outbox, uint32_t push_count,
                                      uint32_t pull_count, ligi_request **request);
/* Removes the latest request, for which nothing was sent. */
void ligi_worker_requests_undo(ligi_worker_requests *outbox, ligi_request *request);

/* The request that has the handler, one of those of its tensors: NOTFOUND for one that was never
 * returned, or is no longer remembered. */
lig_status ligi_worker_requests_with(const ligi_worker_requests *outbox, uint64_t handler,
                                     ligi_request **request);
/* The request whose first handler it is, which is its name; NOTFOUND for its other handlers too. */
lig_status ligi_worker_requests_find(const ligi_worker_requests *outbox, uint64_t handler,
                                     ligi_request **request);
/* By serial number; NULL if it is not open. */
ligi_request *ligi_worker_requests_open(const ligi_worker_requests *outbox, uint64_t serial);

/* Marks the request failed unless it already is; its open shares are closed. */
void ligi_request_fail(ligi_request *request, lig_status status, const char *sentence);
/* Ends it if no share is open and no memory in use; 1 if this call ended it. */
int ligi_worker_requests_settle(ligi_worker_requests *outbox, ligi_request *request);

#endif
