/* The device side of a worker's request: the location of its tensors in device memory while servers
 * use them, and the copies in and out.
 *
 * A server on this host that has opened the worker's arenas reads pushed tensors and writes pulled
 * ones there; other servers exchange payloads in pinned memory. Tensors that are in an arena
 * already (lig_mesh_empty_on) are not copied. The chunk in the arena is returned when every server
 * that knows it has answered; if a server is lost, the chunk is abandoned, since the server may
 * only be frozen and write to it later. */
#ifndef LIGI_EXCHANGE_H
#define LIGI_EXCHANGE_H

#include "mesh/device/mesh_device.h"
#include "mesh/mesh_message.h"
#include "mesh/worker_requests.h"

typedef struct ligi_exchange {
    ligi_courier_task pushed, filled; /* the copies of either direction */
    ligi_mesh_device *device;
    struct ligi_exchange *next;
    ligi_request *request;            /* NULL: it has ended, and its slot may have been reused */
    struct ligi_captured_slot *graph; /* that waits for it, or NULL */
    uint64_t serial;
    ligi_arena_chunk *shared, *staged;
    uint8_t *lent;       /* [server_count] 1: the server may use `shared` */
    uint32_t lent_count; /* of those */
    uint8_t pushing, filling;
    uint8_t has_stream;   /* the messages wait for a stream */
    uint8_t at_once;      /* nothing to wait for: `start` sends them */
    uint8_t is_filled;    /* all pull tensors have their values, or never will */
    uint8_t *heads;       /* messages that wait for the copies, one after another */
    uint32_t *head_bytes; /* [server_count] */
    size_t head_room;
    uint32_t push_entries; /* of the request's iov: payload for servers without the arena */
    uint32_t host_entries; /* of iov_host: for servers that have it */
    struct iovec *iov_host;
    size_t iov_host_room;
    ligi_place *places; /* while the request is made: pushed, then pulled ones */
    size_t place_room;
    ligi_cuda_move *moves; /* of pushed tensors, while the request is made */
    size_t move_count, move_room;
    ligi_cuda_move *pulls; /* pull tensors that are filled by copies */
    size_t pull_count, pull_room;
    uint64_t *ack; /* a word that a stream waits for; NULL: none does */
    uint64_t ack_least;
} ligi_exchange;

/* Creates the exchange of a request that has begun: memory, copies queued on the stream, messages.
 * Checks the caller's tensors. On failure nothing remains. Otherwise `start` follows. */
lig_status ligi_exchange_begin(ligi_mesh_device *device, const lig_mesh_request *asked,
                               ligi_on_stream on, ligi_request *request);

void ligi_exchange_start(ligi_exchange *exchange);

/* The server has answered or refused the request, or the answer was discarded. */
void ligi_exchange_answered(lig_mesh *mesh, uint64_t serial, uint32_t server);
/* The server is lost; `orderly`: it has stopped normally, and none of its work is running. */
void ligi_exchange_lost(lig_mesh *mesh, uint32_t server, int orderly);

/* The request has ended: streams that wait for it continue. */
void ligi_exchange_ended(ligi_request *request);
/* Queues the copies into the pull tensors on the stream, once. If the request has not ended, the
 * stream waits for its end first. */
lig_status ligi_exchange_fill(ligi_exchange *exchange, ligi_on_stream on);
/* Detaches the exchange from its request. */
void ligi_exchange_detach(ligi_exchange *exchange);

/* The heaps decide whether the memory stays. */
void ligi_exchange_free_all(ligi_mesh_device *device);

#endif
