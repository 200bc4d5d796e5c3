#include "mesh/mesh.h"

#include "base/clock.h"
#include "group/barrier_wait.h"
#include "group/group_info.h"
#include "group/listen_addresses.h"
#include "mesh/mesh_connect.h"
#include "net/progress.h"
#include "net/service.h"
#include "tensor/memory.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

uint64_t lig_mesh_nanosecond(void)
{
    return (uint64_t)ligi_now_ns();
}

/* --- checks at the start of every call --- */

lig_status ligi_mesh_check(lig_mesh *mesh)
{
    if (*(volatile uint8_t *)mesh->here != 1)
        return lig_fail(LIG_E_CLOSED, "the mesh belongs to the parent process (forked)");
    if (__atomic_load_n(&mesh->stopped, __ATOMIC_ACQUIRE))
        return lig_fail(LIG_E_CLOSED, "the mesh has been stopped");
    return LIG_OK;
}

lig_status ligi_mesh_usable(lig_mesh *mesh)
{
    LIG_TRY(ligi_mesh_check(mesh));
    return mesh->ended.status == LIG_OK ? LIG_OK : ligi_failure_publish(&mesh->ended);
}

/* The reason for a lost link is known within LIGI_LOSS_GRACE_NS. */
#define SETTLE_NS INT64_C(1000000000)

static int is_settled(void *context)
{
    const lig_mesh *mesh = context;
    return mesh->postponed == 0 || mesh->stopped;
}

lig_status ligi_mesh_enter(lig_mesh *mesh)
{
    LIG_TRY(ligi_mesh_check(mesh));
    ligi_net_lock(mesh->net);
    if (mesh->postponed > 0) {
        ligi_net_unlock(mesh->net);
        (void)ligi_net_wait(mesh->net, is_settled, mesh, SETTLE_NS);
        LIG_TRY(ligi_mesh_check(mesh));
        ligi_net_lock(mesh->net);
    }
    if (mesh->ended.status == LIG_OK)
        return LIG_OK;
    lig_status status = ligi_failure_publish(&mesh->ended);
    ligi_net_unlock(mesh->net);
    return status;
}

uint64_t ligi_mesh_stamp(lig_mesh *mesh)
{
    return (uint64_t)ligi_stamp_clock_ns(&mesh->ticks, ligi_stamp_clock_read(&mesh->ticks));
}

void ligi_mesh_leave(lig_mesh *mesh)
{
    ligi_net_unlock(mesh->net);
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
    if (tensor->memory != LIG_MEMORY_HOST)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "%s tensor %zu is in device memory: copy it to the host first", what, i);
    return LIG_OK;
}

const char *ligi_party_role(const ligi_party *party)
{
    return party->mesh->role == LIG_MESH_WORKER ? "server" : "worker";
}

lig_status ligi_party_fail(const ligi_party *party)
{
    if (party->state == LIG_MESH_STOPPED)
        return lig_fail(LIG_E_PEER, "%s %u has stopped", ligi_party_role(party), party->index);
    return lig_fail(LIG_E_PEER, "%s %u is lost: %s", ligi_party_role(party), party->index,
                    party->why);
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
    if (options->liveness_ns < 0 || options->liveness_ns / 1000000 > UINT32_MAX)
        return lig_fail(LIG_E_INVALID, "liveness_ms must be between 1 ms and 49 days");
    if (options->address == NULL && options->exchange == NULL)
        return lig_fail(LIG_E_INVALID, "no rendezvous address: pass \"host:port\"");
    if (options->transport && strlen(options->transport) > 15)
        return lig_fail(LIG_E_INVALID, "unknown transport '%s'", options->transport);
    return LIG_OK;
}

static lig_status make_page(lig_mesh *mesh)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return lig_fail(LIG_E_NOMEM, "out of memory for a mesh");
    mesh->here = page;
    if (madvise(page, PAGE, MADV_WIPEONFORK) != 0)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "kernel does not support MADV_WIPEONFORK (needs Linux 4.14)");
    mesh->here[0] = 1;
    return LIG_OK;
}

static lig_status make_parts(lig_mesh *mesh, const lig_mesh_options *options)
{
    LIG_TRY(make_page(mesh));
    LIG_TRY(ligi_alloc(&mesh->head, LIGI_MESSAGE_BYTES_MAX, "a mesh"));
    if (mesh->role == LIG_MESH_SCHEDULER)
        return LIG_OK;
    uint32_t count = mesh->role == LIG_MESH_WORKER ? mesh->server_count : mesh->worker_count;
    LIG_TRY(ligi_calloc(&mesh->parties, count, sizeof *mesh->parties, "a mesh"));
    mesh->party_count = count;
    for (uint32_t i = 0; i < count; i++)
        mesh->parties[i] = (ligi_party){.mesh = mesh, .index = i};
    if (mesh->role == LIG_MESH_WORKER)
        return ligi_worker_requests_init(&mesh->outbox, count);
    LIG_TRY(ligi_calloc(&mesh->taken, count, sizeof *mesh->taken, "a mesh"));
    return ligi_server_requests_init(
        &mesh->inbox, count, options->receive_bytes ? options->receive_bytes : UINT64_C(4) << 30);
}

/* The position within the group decides who talks to whom; without a rank there is only one
 * position. */
static void set_lane(lig_mesh *mesh, uint32_t rank)
{
    mesh->rank = rank;
    mesh->lane = rank % mesh->group_size;
    for (uint32_t i = 0; i < mesh->party_count; i++)
        mesh->parties[i].rank = i * mesh->group_size + mesh->lane;
}

typedef struct thunk {
    const lig_mesh_options *options;
    size_t count;
} thunk;

static lig_status exchange(void *context, const void *mine, size_t bytes, void *all)
{
    const thunk *call = context;
    return call->options->exchange(call->options->exchange_context, mine, bytes, all, call->count);
}

static lig_status join_group(lig_mesh *mesh, const lig_mesh_options *options, int64_t timeout_ns)
{
    static const ligi_role roles[] = {LIGI_WORKER, LIGI_SERVER, LIGI_SCHEDULER};
    char address[LIGI_GROUP_URI_BYTES];
    LIG_TRY(ligi_group_uri(options->address ? options->address : "", address));
    uint32_t servers = mesh->server_count * mesh->group_size;
    uint32_t workers = mesh->worker_count * mesh->group_size;
    thunk call = {options, servers + workers};
    ligi_group_options group = {
        .role = roles[mesh->role],
        .rank = options->rank == LIG_MESH_ANY_RANK ? LIGI_RANK_ANY : options->rank,
        .worker_count = workers,
        .server_count = servers,
        .group_size = mesh->group_size,
        .coordinator = options->flags & LIG_MESH_HAS_SCHEDULER ? LIGI_COORDINATOR_BY_ROLE
                                                               : LIGI_COORDINATOR_FIRST,
        .host = options->host,
        .address = options->address ? address : NULL,
        .timeout_ns = timeout_ns,
        .liveness_ms = (uint32_t)(options->liveness_ns / 1000000),
        .exchange = options->exchange ? exchange : NULL,
        .exchange_context = &call,
        .exchange_index = options->rank + (mesh->role == LIG_MESH_WORKER ? servers : 0),
        .exchange_count = servers + workers,
        .patience = options->patience,
        .patience_context = options->patience_context};
    ligi_group *opened;
    LIG_TRY(ligi_group_open(&opened, mesh->net, &group));
    ligi_net_lock(mesh->net); /* hooks read it */
    mesh->group = opened;
    set_lane(mesh, ligi_group_rank(opened));
    ligi_net_unlock(mesh->net);
    return LIG_OK;
}

static lig_status open_parts(lig_mesh *mesh, const lig_mesh_options *options)
{
    int64_t began = ligi_now_ns();
    int64_t most = options->timeout_ns > 0    ? options->timeout_ns
                   : options->timeout_ns == 0 ? INT64_C(60000000000)
                                              : INT64_MAX / 4;
    ligi_net_options net = {.secret = options->secret,
                            .secret_bytes = options->secret_bytes,
                            .group = "mesh",
                            .spin_ns = options->spin_ns,
                            .fabric = ligi_group_fabric(mesh->transport,
                                                        options->flags & LIG_MESH_TRUSTED_FABRIC,
                                                        options->flags & LIG_MESH_ANY_DEVICE),
                            .background = 1};
    LIG_TRY(make_parts(mesh, options));
    LIG_TRY(ligi_net_open(&mesh->net, &net));
    LIG_TRY(ligi_net_serve(mesh->net, LIGI_SERVICE_MESH, &ligi_mesh_hooks, mesh));
    set_lane(mesh, options->rank == LIG_MESH_ANY_RANK ? 0 : options->rank);
    LIG_TRY(ligi_mesh_listen(mesh, options));
    LIG_TRY(join_group(mesh, options, most));
    int64_t left = most - (ligi_now_ns() - began);
    return ligi_mesh_connect(mesh, left > 0 ? left : 0);
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
    snprintf(mesh->transport, sizeof mesh->transport, "%s",
             options->transport ? options->transport : "auto");
    ligi_trace_recorder_init(&mesh->recorder);
    ligi_stamp_clock_init(&mesh->ticks);
    pthread_rwlock_init(&mesh->group_lock, NULL);
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

/* From here on no call begins, and waiting ones end. A thread that reads `stopped` without the lock
 * may assume that no tensor is in use any more. */
static void end_links(lig_mesh *mesh, const char *reason)
{
    ligi_net_lock(mesh->net);
    ligi_mesh_disconnect(mesh, reason);
    ligi_trace_recorder_close(&mesh->recorder);
    if (mesh->group)
        ligi_group_part(mesh->group, "the mesh has been stopped");
    __atomic_store_n(&mesh->stopped, 1, __ATOMIC_RELEASE);
    ligi_net_unlock(mesh->net);
    ligi_net_wake(mesh->net);
}

static void end_group(lig_mesh *mesh)
{
    ligi_group *group = mesh->group;
    if (group == NULL)
        return;
    ligi_net_lock(mesh->net);
    ligi_group_watch(group, NULL, NULL);
    mesh->group = NULL;
    ligi_net_unlock(mesh->net);
    ligi_group_close(group, 0);
}

lig_status lig_mesh_linger(lig_mesh *mesh, int64_t timeout_ns)
{
    if (*(volatile uint8_t *)mesh->here != 1)
        return ligi_mesh_check(mesh);
    if (!__atomic_load_n(&mesh->stopped, __ATOMIC_ACQUIRE))
        end_links(mesh, "it has stopped");
    pthread_rwlock_rdlock(&mesh->group_lock);
    lig_status status = mesh->group ? ligi_group_linger(mesh->group, timeout_ns) : LIG_OK;
    pthread_rwlock_unlock(&mesh->group_lock);
    return status;
}

lig_status lig_mesh_stop(lig_mesh *mesh, int64_t timeout_ns)
{
    LIG_TRY(ligi_mesh_check(mesh));
    int64_t began = ligi_now_ns();
    lig_status status = lig_mesh_settle(mesh, timeout_ns);
    if (status == LIG_E_TIMEOUT)
        status = lig_fail(status, "requests were outstanding when the mesh was stopped");
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    int64_t left = timeout_ns < 0 ? LIG_FOREVER : timeout_ns - (ligi_now_ns() - began);
    (void)lig_mesh_linger(mesh, timeout_ns >= 0 && left < 0 ? 0 : left);
    pthread_rwlock_wrlock(&mesh->group_lock); /* barriers have ended with the links */
    end_group(mesh);
    pthread_rwlock_unlock(&mesh->group_lock);
    return failure.status == LIG_OK ? LIG_OK : ligi_failure_publish(&failure);
}

void lig_mesh_close(lig_mesh *mesh)
{
    if (mesh == NULL)
        return;
    int here = mesh->here && *(volatile uint8_t *)mesh->here == 1;
    if (here && mesh->net) {
        end_links(mesh, "it has left");
        end_group(mesh);
    }
    ligi_net_close(mesh->net);
    if (here || mesh->net == NULL) { /* in a forked child another thread may have held the lock */
        pthread_rwlock_destroy(&mesh->group_lock);
        ligi_server_requests_fini(&mesh->inbox);
        ligi_worker_requests_fini(&mesh->outbox);
        ligi_trace_recorder_close(&mesh->recorder);
    }
    if (mesh->bell >= 0)
        close(mesh->bell);
    free(mesh->taken);
    free(mesh->parties);
    free(mesh->head);
    if (mesh->here)
        munmap(mesh->here, PAGE);
    free(mesh);
}
