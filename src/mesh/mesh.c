#include "mesh/mesh.h"

#include "base/clock.h"
#include "group/group_info.h"
#include "group/session/session_meet.h"
#include "group/session/session_peer.h"
#include "mesh/device/device_flags.h"
#include "mesh/device/graph_slots.h"
#include "mesh/mesh_connect.h"
#include "net/progress.h"
#include "tensor/memory.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

uint64_t lig_mesh_nanosecond(void)
{
    return (uint64_t)ligi_now_ns();
}

/* --- checks at the start of every call --- */

/* The reason for a lost link is known within LIGI_LOSS_GRACE_NS. */
#define SETTLE_NS INT64_C(1000000000)

static int is_settled(void *context)
{
    const lig_mesh *mesh = context;
    return mesh->session.postponed == 0 || mesh->session.closed;
}

lig_status ligi_mesh_enter(lig_mesh *mesh)
{
    LIG_TRY(ligi_session_check(&mesh->session));
    ligi_net_lock(mesh->session.net);
    if (mesh->session.postponed > 0) {
        ligi_net_unlock(mesh->session.net);
        (void)ligi_net_wait(mesh->session.net, is_settled, mesh, SETTLE_NS);
        ligi_net_lock(mesh->session.net);
    }
    lig_status status = ligi_session_usable(&mesh->session);
    if (status != LIG_OK)
        ligi_net_unlock(mesh->session.net);
    return status;
}

uint64_t ligi_mesh_stamp(lig_mesh *mesh)
{
    return (uint64_t)ligi_stamp_clock_ns(&mesh->ticks, ligi_stamp_clock_read(&mesh->ticks));
}

void ligi_mesh_leave(lig_mesh *mesh)
{
    ligi_net_unlock(mesh->session.net);
}

void ligi_mesh_ring(lig_mesh *mesh)
{
    if (mesh->bell < 0)
        return;
    uint64_t number = 1;
    int want = mesh->outbox.unwaited > 0 || mesh->news ||
               (mesh->inbox.filled > 0 && ligi_server_requests_filled(&mesh->inbox, mesh->mode));
    if (want == mesh->rung)
        return;
    ssize_t done =
        want ? write(mesh->bell, &number, sizeof number) : read(mesh->bell, &number, sizeof number);
    if (done == (ssize_t)sizeof number)
        mesh->rung = want;
}

lig_status ligi_mesh_check_tensor(const lig_tensor *tensor, const char *what, size_t i)
{
    uint64_t bytes;
    if (tensor->ndim > LIG_MESH_NDIM_MAX)
        return lig_fail(LIG_E_LIMIT, "%s tensor %zu has %u dimensions, but the limit is %u", what,
                        i, tensor->ndim, LIG_MESH_NDIM_MAX);
    if (lig_dtype_bytes(tensor->dtype) == 0)
        return lig_fail(LIG_E_INVALID, "%s tensor %zu has unknown dtype %u", what, i,
                        tensor->dtype);
    LIG_TRY(ligi_shape_bytes(tensor->shape, tensor->ndim, tensor->dtype, &bytes));
    if (bytes != tensor->bytes || (bytes > 0 && tensor->data == NULL))
        return lig_fail(LIG_E_INVALID,
                        "%s tensor %zu: bytes is %llu, but its shape needs %llu, or data is NULL",
                        what, i, (unsigned long long)tensor->bytes, (unsigned long long)bytes);
    if (tensor->memory == LIG_MEMORY_HOST)
        return LIG_OK;
    if (!lig_tensor_contiguous(tensor))
        return lig_fail(LIG_E_UNSUPPORTED,
                        "%s tensor %zu is in device memory and not contiguous: pack it there", what,
                        i);
    return ligi_memory_check(tensor->data, tensor->bytes, tensor->memory, tensor->device);
}

/* --- opening --- */

static lig_status check_options(const lig_mesh_options *options)
{
    uint64_t groups = (uint64_t)options->worker_count + options->server_count;
    const uint32_t known = LIG_MESH_HAS_SCHEDULER | LIG_MESH_TRUSTED_FABRIC | LIG_MESH_ANY_DEVICE;
    if (options->role > LIG_MESH_SCHEDULER || (options->flags & ~known) != 0)
        return lig_fail(LIG_E_INVALID, "invalid role %u, or an unknown flag", options->role);
    if (options->worker_count == 0 || options->server_count == 0 || options->group_size == 0 ||
        groups * options->group_size > LIG_MESH_MEMBERS_MAX)
        return lig_fail(LIG_E_INVALID,
                        "%u workers and %u servers in groups of %u: at least one of each is "
                        "needed, and at most %u in all",
                        options->worker_count, options->server_count, options->group_size,
                        LIG_MESH_MEMBERS_MAX);
    uint32_t count = options->role == LIG_MESH_WORKER   ? options->worker_count
                     : options->role == LIG_MESH_SERVER ? options->server_count
                                                        : 1;
    if (options->rank != LIG_MESH_ANY_RANK && options->rank >= count * options->group_size)
        return lig_fail(LIG_E_INVALID, "rank %u must be less than %u", options->rank,
                        count * options->group_size);
    if (options->rank == LIG_MESH_ANY_RANK && (options->group_size > 1 || options->exchange))
        return lig_fail(LIG_E_INVALID,
                        "with groups or an exchange function every process must pass its rank");
    if (options->receive_memory > LIG_MEMORY_CUDA)
        return lig_fail(LIG_E_INVALID, "unknown memory kind %u", options->receive_memory);
    if (options->address == NULL && options->exchange == NULL)
        return lig_fail(LIG_E_INVALID, "no rendezvous address: pass \"host:port\"");
    return LIG_OK;
}

static lig_status make_parts(lig_mesh *mesh, const lig_mesh_options *options)
{
    LIG_TRY(ligi_session_init(&mesh->session, &ligi_mesh_session, mesh));
    LIG_TRY(ligi_alloc(&mesh->head, LIGI_MESSAGE_BYTES_MAX, "a mesh"));
    if (mesh->role == LIG_MESH_SCHEDULER)
        return LIG_OK;
    uint32_t count = mesh->role == LIG_MESH_WORKER ? mesh->server_count : mesh->worker_count;
    LIG_TRY(ligi_calloc(&mesh->parties, count, sizeof *mesh->parties, "a mesh"));
    mesh->party_count = count;
    int worker = mesh->role == LIG_MESH_WORKER;
    for (uint32_t i = count; i-- > 0;) { /* the first one added is the last one met */
        ligi_party *party = &mesh->parties[i];
        party->mesh = mesh;
        party->peer = (ligi_session_peer){.session = &mesh->session,
                                          .noun = worker ? "server" : "worker",
                                          .index = i,
                                          .role = worker ? LIGI_SERVER : LIGI_WORKER,
                                          .rank = i * mesh->group_size + mesh->lane};
        ligi_session_add(&party->peer);
    }
    if (worker)
        return ligi_worker_requests_init(&mesh->outbox, count);
    LIG_TRY(ligi_calloc(&mesh->taken, count, sizeof *mesh->taken, "a mesh"));
    return ligi_server_requests_init(
        &mesh->inbox, count, options->receive_bytes ? options->receive_bytes : UINT64_C(4) << 30);
}

static lig_status open_parts(lig_mesh *mesh, const lig_mesh_options *options)
{
    static const ligi_role roles[] = {LIGI_WORKER, LIGI_SERVER, LIGI_SCHEDULER};
    uint32_t servers = mesh->server_count * mesh->group_size;
    uint32_t workers = mesh->worker_count * mesh->group_size;
    ligi_session_options session = {
        .net = {.secret = options->secret,
                .secret_bytes = options->secret_bytes,
                .spin_ns = options->spin_ns},
        .group = {.role = roles[mesh->role],
                  .rank = options->rank == LIG_MESH_ANY_RANK ? LIGI_RANK_ANY : options->rank,
                  .worker_count = workers,
                  .server_count = servers,
                  .group_size = mesh->group_size,
                  .coordinator = options->flags & LIG_MESH_HAS_SCHEDULER ? LIGI_COORDINATOR_BY_ROLE
                                                                         : LIGI_COORDINATOR_FIRST,
                  .host = options->host,
                  .address = options->address,
                  .exchange = options->exchange,
                  .exchange_context = options->exchange_context,
                  .exchange_index = options->rank + (mesh->role == LIG_MESH_WORKER ? servers : 0),
                  .exchange_count = servers + workers,
                  .patience = options->patience,
                  .patience_context = options->patience_context},
        .timeout_ns = options->timeout_ns,
        .liveness_ns = options->liveness_ns,
        .transport = options->transport,
        .trusted_fabric = (options->flags & LIG_MESH_TRUSTED_FABRIC) != 0,
        .any_device = (options->flags & LIG_MESH_ANY_DEVICE) != 0,
        .listens = mesh->role == LIG_MESH_SERVER};
    LIG_TRY(make_parts(mesh, options));
    LIG_TRY(ligi_session_open(&mesh->session, &session));
    ligi_net_lock(mesh->session.net); /* hooks read it */
    mesh->rank = ligi_group_rank(mesh->session.group);
    ligi_net_unlock(mesh->session.net);
    return ligi_session_meet(&mesh->session);
}

lig_status lig_mesh_open(lig_mesh **out, const lig_mesh_options *options)
{
    LIG_TRY(check_options(options));
    lig_mesh *mesh;
    LIG_TRY(ligi_calloc(&mesh, 1, sizeof *mesh, "a mesh"));
    mesh->role = options->role;
    mesh->worker_count = options->worker_count;
    mesh->server_count = options->server_count;
    mesh->group_size = options->group_size;
    mesh->bell = -1;
    mesh->mode = LIG_MESH_ANY;
    mesh->rank = options->rank == LIG_MESH_ANY_RANK ? 0 : options->rank;
    mesh->lane = mesh->rank % mesh->group_size; /* 0 without a rank: groups have one */
    ligi_mesh_clock_id(mesh->boot_id);
    mesh->receive_memory = options->receive_memory;
    mesh->receive_device = options->receive_device;
    ligi_trace_recorder_init(&mesh->recorder);
    ligi_stamp_clock_init(&mesh->ticks);
    lig_status status = open_parts(mesh, options);
    if (status == LIG_OK) {
        *out = mesh;
        return LIG_OK;
    }
    ligi_failure failure; /* close may overwrite the error text */
    ligi_failure_take(&failure, status);
    lig_mesh_close(mesh);
    return ligi_failure_publish(&failure);
}

/* --- closing --- */

/* From here on no call begins, and waiting ones end. A thread that reads `closed` without the lock
 * may assume that no tensor is in use any more. */
static void end_links(lig_mesh *mesh)
{
    ligi_net_lock(mesh->session.net);
    if (mesh->device) { /* copies that are waited for may be queued behind such waits */
        ligi_flags_close(mesh->device);
        ligi_captured_close(mesh->device);
    }
    ligi_session_disconnect(&mesh->session, "it has stopped");
    ligi_trace_recorder_close(&mesh->recorder);
    atomic_store_explicit(&mesh->session.closed, 1, memory_order_release);
    ligi_net_unlock(mesh->session.net);
    ligi_net_wake(mesh->session.net);
}

lig_status lig_mesh_linger(lig_mesh *mesh, int64_t timeout_ns)
{
    LIG_TRY(ligi_session_mine(&mesh->session));
    if (!atomic_load_explicit(&mesh->session.closed, memory_order_acquire))
        end_links(mesh);
    return ligi_session_linger(&mesh->session, timeout_ns);
}

lig_status lig_mesh_stop(lig_mesh *mesh, int64_t timeout_ns)
{
    LIG_TRY(ligi_session_check(&mesh->session));
    int64_t deadline = ligi_time_until(timeout_ns);
    lig_status status = lig_mesh_settle(mesh, timeout_ns);
    if (status == LIG_E_TIMEOUT)
        status = lig_fail(status, "requests were outstanding when the mesh was stopped");
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    (void)lig_mesh_linger(mesh, ligi_time_left(deadline));
    ligi_session_leave(&mesh->session);
    return ligi_failure_publish(&failure);
}

static void end_device(lig_mesh *mesh)
{
    if (mesh->device == NULL)
        return;
    if (!atomic_load_explicit(&mesh->session.closed, memory_order_acquire))
        end_links(mesh);
    ligi_mesh_device_stop(mesh);
}

void lig_mesh_close(lig_mesh *mesh)
{
    if (mesh == NULL)
        return;
    int mine = mesh->session.here && ligi_session_mine(&mesh->session) == LIG_OK;
    if (mine) /* streams that wait for requests continue, and copies end, while there are links */
        end_device(mesh);
    if (ligi_session_fini(&mesh->session)) {
        for (uint32_t i = 0; i < mesh->party_count; i++)
            ligi_arenas_reset(&mesh->parties[i].arenas);
        ligi_server_requests_fini(&mesh->inbox);
        ligi_worker_requests_fini(&mesh->outbox);
        ligi_mesh_device_fini(mesh);
        ligi_trace_recorder_close(&mesh->recorder);
    }
    if (mesh->bell >= 0)
        close(mesh->bell);
    free(mesh->taken);
    free(mesh->parties);
    free(mesh->head);
    free(mesh);
}
