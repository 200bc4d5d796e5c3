#include "mesh/mesh.h"

#include "group/group_info.h"
#include "net/link/link.h"
#include "net/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

uint32_t lig_mesh_rank(const lig_mesh *mesh)
{
    return mesh->rank;
}

uint32_t lig_mesh_role_of(const lig_mesh *mesh)
{
    return mesh->role;
}

lig_status lig_mesh_barrier(lig_mesh *mesh, uint32_t with, int64_t timeout_ns)
{
    if (with == 0 || (with & ~(LIG_MESH_WITH_SERVERS | LIG_MESH_WITH_WORKERS)) != 0)
        return lig_fail(LIG_E_INVALID, "invalid barrier mask: expected servers, workers, or both");
    uint32_t mask = ((with & LIG_MESH_WITH_SERVERS) ? LIGI_SERVERS : 0) |
                    ((with & LIG_MESH_WITH_WORKERS) ? LIGI_WORKERS : 0);
    return ligi_session_barrier(&mesh->session, mask, 0, timeout_ns);
}

static void describe(lig_mesh *mesh, const ligi_member *from, lig_mesh_member *member)
{
    static const uint32_t roles[] = {LIG_MESH_SERVER, LIG_MESH_WORKER, LIG_MESH_SCHEDULER};
    *member = (lig_mesh_member){.role = roles[from->role],
                                .rank = from->rank,
                                .state = from->state,
                                .incarnation = from->incarnation};
    snprintf(member->host, sizeof member->host, "%s", from->host);
    uint32_t index = from->rank / mesh->group_size;
    if (member->role == LIG_MESH_SCHEDULER || member->role == mesh->role ||
        index >= mesh->party_count || mesh->parties[index].peer.rank != from->rank)
        return;
    const ligi_session_peer *peer = &mesh->parties[index].peer;
    if (peer->link)
        snprintf(member->transport, sizeof member->transport, "%s%s", ligi_link_scheme(peer->link),
                 mesh->parties[index].arenas.opened ? "+cuda" : "");
    if (member->state == LIG_MESH_ALIVE && peer->state != LIGI_PRESENT &&
        peer->incarnation == from->incarnation)
        member->state = peer->state; /* the link reports it before the group does */
}

lig_status lig_mesh_members(lig_mesh *mesh, lig_mesh_member *members, size_t room, size_t *count)
{
    ligi_group *group = ligi_session_hold(&mesh->session);
    if (group == NULL)
        return LIG_E_CLOSED;
    ligi_member *found = NULL;
    ligi_net_lock(mesh->session.net);
    size_t most = ligi_group_members(group, NULL, 0);
    lig_status status = ligi_calloc(&found, most, sizeof *found, "the members");
    if (status == LIG_OK) {
        *count = ligi_group_members(group, found, most);
        for (size_t i = 0; i < most && i < room; i++)
            describe(mesh, &found[i], &members[i]);
    }
    ligi_net_unlock(mesh->session.net);
    ligi_session_release(&mesh->session);
    free(found);
    return status;
}

lig_status lig_mesh_empty(lig_mesh *mesh, uint64_t bytes, void **data)
{
    LIG_TRY(ligi_session_check(&mesh->session));
    return ligi_net_alloc(mesh->session.net, bytes, data);
}

lig_status lig_mesh_empty_on(lig_mesh *mesh, int32_t number, uint64_t bytes, void **data,
                             lig_mesh_hold **hold)
{
    ligi_mesh_device *device;
    ligi_block *block;
    ligi_arena_chunk *chunk = NULL;
    LIG_TRY(ligi_mesh_enter(mesh));
    lig_status status = ligi_mesh_device_open(mesh, number, &device);
    if (status == LIG_OK)
        status = ligi_arena_heap_take(device->memory, bytes, &chunk);
    if (status == LIG_OK)
        status = ligi_block_pool_take(device->holds, 0, &block);
    ligi_mesh_leave(mesh);
    if (status != LIG_OK) {
        ligi_arena_chunk_drop(chunk);
        return status;
    }
    ligi_block_keep(block, chunk, (void (*)(void *))ligi_arena_chunk_drop);
    *data = chunk->data;
    *hold = (lig_mesh_hold *)block;
    return LIG_OK;
}

void lig_mesh_free(lig_mesh *mesh, void *data)
{
    ligi_net_free(mesh ? mesh->session.net : NULL, data);
}

int lig_mesh_fileno(lig_mesh *mesh)
{
    if (ligi_mesh_enter(mesh) != LIG_OK)
        return -1;
    if (mesh->bell < 0) {
        mesh->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (mesh->bell < 0)
            ligi_fail_errno(errno, "eventfd failed");
        ligi_mesh_ring(mesh);
    }
    int bell = mesh->bell;
    ligi_mesh_leave(mesh);
    return bell;
}

static uint64_t offset_max(const lig_mesh *mesh)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < mesh->party_count; i++) {
        int64_t offset = ligi_clock_offset_get(&mesh->parties[i].offset);
        uint64_t size = (uint64_t)(offset < 0 ? -offset : offset);
        most = size > most ? size : most;
    }
    return most;
}

lig_status lig_mesh_stats_get(lig_mesh *mesh, lig_mesh_stats *stats)
{
    LIG_TRY(ligi_mesh_enter(mesh));
    ligi_net_stats net;
    ligi_net_stats_get(mesh->session.net, &net);
    *stats = mesh->stats;
    stats->bytes_shared += net.lent_bytes;
    stats->in_flight = mesh->outbox.open;
    for (size_t i = 0; i < mesh->inbox.job_count; i++)
        stats->in_flight += mesh->inbox.jobs[i]->state != LIGI_JOB_FREE;
    for (uint32_t i = 0; i < mesh->inbox.worker_count; i++)
        stats->buffer_bytes += ligi_block_pool_bytes(mesh->inbox.queues[i].pool);
    stats->clock_offset_ns_max = offset_max(mesh);
    ligi_mesh_leave(mesh);
    return LIG_OK;
}

lig_status lig_mesh_trace_to(lig_mesh *mesh, const char *folder)
{
    LIG_TRY(ligi_mesh_enter(mesh));
    lig_status status = LIG_OK;
    if (folder)
        status = ligi_trace_recorder_open(
            &mesh->recorder, folder,
            &(ligi_recorded){mesh->role, mesh->rank, ligi_group_id(mesh->session.group)});
    else
        ligi_trace_recorder_close(&mesh->recorder);
    ligi_mesh_leave(mesh);
    return status;
}
