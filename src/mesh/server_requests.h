/* A server's requests: one queue per worker, which workers are present, and the table of handlers.
 * No I/O, no locks; the caller guards it. */
#ifndef LIGI_SERVER_REQUESTS_H
#define LIGI_SERVER_REQUESTS_H

#include "mesh/buffers/bounded_pool.h"
#include "mesh/buffers/registered_buffers.h"
#include "mesh/mesh_message.h"

typedef enum ligi_job_state {
    LIGI_JOB_FREE = 0,
    LIGI_JOB_LANDING, /* its tensors are being received */
    LIGI_JOB_QUEUED,
    LIGI_JOB_TAKEN,   /* the caller has its handler */
    LIGI_JOB_SENDING, /* answered; the response's tensors are borrowed */
    LIGI_JOB_ORPHAN,  /* taken, but the worker is lost; lives until it is answered */
} ligi_job_state;

struct ligi_job_copies;

typedef struct ligi_job { /* one request */
    struct ligi_job *next;
    ligi_job_state state;
    uint32_t slot, worker, incarnation;
    uint64_t handler; /* 0: not taken yet */
    uint64_t serial;  /* the worker's serial number */
    uint64_t number;  /* this server's */
    uint32_t push_count, pull_count;
    uint64_t push_bytes, pull_bytes;
    ligi_pieces pieces;              /* pushed, then pulled */
    size_t room;                     /* of the next two: as pieces.room */
    ligi_registered_buffer **places; /* registered buffers, or NULL */
    struct iovec *iov;
    ligi_block *block;   /* where the other tensors are */
    ligi_block *staging; /* a packed response */
    uint32_t parked;     /* tensors whose registered buffer was in use when they arrived */
    uint64_t stamps[LIGI_MESSAGE_STAMPS];
    size_t entries;                 /* of iov: the payload of the response */
    struct ligi_job_copies *copies; /* of tensors in device memory; NULL: none so far */
    uint8_t copying;                /* they are in progress: the job remains */
    uint8_t dropped;                /* its worker was lost meanwhile: it ends with them */
} ligi_job;

#define LIGI_WHY_BYTES 256

typedef struct ligi_queue { /* of one worker */
    ligi_job *first, *last;
    uint32_t jobs; /* in use, including orphans */
    uint32_t incarnation;
    uint32_t state;           /* lig_mesh_state */
    char why[LIGI_WHY_BYTES]; /* it is lost or has stopped */
    ligi_registered places;
    ligi_block_pool *pool;
    uint64_t device_bytes;             /* of its requests that have not ended */
    struct ligi_courier_order *raised; /* its requests whose tensors are being copied; NULL: none */
} ligi_queue;

typedef struct ligi_server_requests {
    uint32_t worker_count;
    ligi_queue *queues;
    uint32_t filled; /* workers that have a request in their queue */
    uint32_t absent; /* workers that are not present */
    uint32_t parked; /* requests in queues with parked tensors */
    uint32_t turn;   /* the worker whose request LIG_MESH_ANY takes first */
    uint64_t taken_count;
    uint64_t begun_count;
    ligi_job **jobs;
    size_t job_count, job_room;
    ligi_job *free;
    /* For jobs with `copies`: the job ends; its struct is freed; a parked tensor is copied to its
     * registered buffer (0: it could not be). */
    void (*end_copies)(ligi_queue *queue, ligi_job *job);
    void (*free_copies)(struct ligi_job_copies *copies);
    int (*copy)(void *context, void *to, const void *from, uint64_t bytes);
    void *context;
    int32_t device; /* of registered buffers in device memory */
} ligi_server_requests;

lig_status ligi_server_requests_init(ligi_server_requests *inbox, uint32_t worker_count,
                                     uint64_t receive_bytes);
void ligi_server_requests_fini(ligi_server_requests *inbox);

/* A job for a request that starts to arrive. LIG_E_LIMIT if the worker has too many. */
lig_status ligi_server_requests_begin(ligi_server_requests *inbox, uint32_t worker, ligi_job **job);
/* Grows its other arrays to the capacity of its pieces. */
lig_status ligi_job_reserve(ligi_job *job);
/* It has arrived completely. */
void ligi_server_requests_queue(ligi_server_requests *inbox, ligi_job *job);
/* Releases the job. Not for a queued one. */
void ligi_server_requests_end(ligi_server_requests *inbox, ligi_job *job);

/* 1 if there is something to take. */
int ligi_server_requests_filled(ligi_server_requests *inbox, uint32_t mode);
/* 1 if ligi_server_requests_take would take something or fail. */
int ligi_server_requests_ready(ligi_server_requests *inbox, uint32_t mode);
/* Takes; *count is 0 if there is nothing to take yet. PEER, CLOSED: see lig_mesh_get_batch. */
lig_status ligi_server_requests_take(ligi_server_requests *inbox, uint32_t mode, ligi_job **jobs,
                                     size_t room, size_t *count);
/* The job of a handler that can be answered (TAKEN or ORPHAN); NOTFOUND otherwise. */
lig_status ligi_server_requests_find(ligi_server_requests *inbox, uint64_t handler, ligi_job **job);
/* The handler of the worker's oldest request that can be answered; NOTFOUND if there is none. */
lig_status ligi_server_requests_oldest(const ligi_server_requests *inbox, uint32_t worker,
                                       uint64_t *handler);
/* 1 while its response borrows tensors. */
int ligi_server_requests_sending(const ligi_server_requests *inbox, uint64_t handler);

/* The worker is lost or has stopped (LIG_MESH_LOST, LIG_MESH_STOPPED): queued and arriving requests
 * are dropped, taken ones become orphans. */
void ligi_server_requests_lose(ligi_server_requests *inbox, uint32_t worker, uint32_t state,
                               const char *why);
/* The worker is present, for the first time or again. Orphans remain until they are answered, and
 * count. */
void ligi_server_requests_join(ligi_server_requests *inbox, uint32_t worker, uint32_t incarnation);

#endif
