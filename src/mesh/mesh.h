/* Internal state of a mesh. Guarded by the endpoint's lock (ligi_net_lock), which is held when
 * hooks are called. */
#ifndef LIGI_MESH_H
#define LIGI_MESH_H

#include "group/session/session.h"
#include "mesh/device/arena_offers.h"
#include "mesh/device/mesh_device.h"
#include "mesh/server_requests.h"
#include "mesh/trace/clock_offset.h"
#include "mesh/trace/stamp_clock.h"
#include "mesh/trace/trace_recorder.h"
#include "mesh/worker_requests.h"

typedef struct ligi_party { /* a member that this one communicates with: a server or a worker */
    ligi_session_peer peer; /* first; `index` is its group: the rank that callers see */
    lig_mesh *mesh;
    uint32_t pings; /* until its clock is known */
    ligi_clock_offset offset;
    ligi_arenas arenas;
} ligi_party;

struct lig_mesh {
    ligi_session session;
    uint32_t role, rank, lane; /* lane: position within the group; the same at both ends of a
                                * link */
    uint32_t worker_count, server_count, group_size;
    ligi_party *parties;
    uint32_t party_count;
    uint8_t boot_id[16];
    ligi_server_requests inbox;  /* servers */
    ligi_job **taken;            /* [worker_count], for get_batch */
    ligi_worker_requests outbox; /* workers */
    uint8_t *head;               /* LIGI_MESSAGE_BYTES_MAX, for one send at a time */
    uint32_t answering;          /* jobs whose responses are borrowed */
    int news;                    /* a worker is lost, and get_batch has not been called since */
    uint32_t mode;               /* of the last get_batch: what the event descriptor signals */
    int bell, rung;              /* an eventfd, or -1; whether it is readable */
    ligi_trace_recorder recorder;
    ligi_stamp_clock ticks; /* of the stamps */
    lig_mesh_stats stats;
    ligi_mesh_device *device; /* NULL: no tensor of a device has been seen yet */
    uint32_t receive_memory;  /* where a server receives the tensors of devices */
    int32_t receive_device;
};

/* ligi_session_usable, and locks. On failure it is unlocked. */
lig_status ligi_mesh_enter(lig_mesh *mesh);
void ligi_mesh_leave(lig_mesh *mesh);
/* Now, as a stamp. With the lock. */
uint64_t ligi_mesh_stamp(lig_mesh *mesh);
/* Makes the event descriptor readable if the caller has something to do, and unreadable
 * otherwise. */
void ligi_mesh_ring(lig_mesh *mesh);

/* Checks a tensor to be sent; `what` and index i are for error texts. In device memory it must be
 * contiguous. */
lig_status ligi_mesh_check_tensor(const lig_tensor *tensor, const char *what, size_t i);

#endif
