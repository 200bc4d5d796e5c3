#include "mesh/mesh_loss.h"

#include "base/clock.h"
#include "base/log.h"
#include "group/group_info.h"
#include "group/roster/local_pause.h"
#include "group/roster/loss_grace.h"
#include "mesh/mesh_connect.h"
#include "mesh/mesh_server.h"
#include "mesh/mesh_worker.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/service.h"

#include <stdio.h>
#include <string.h>

/* The text already names the peer: of "worker 1 is gone: ..." only the reason is kept. */
static void note_why(ligi_party *party, const char *why)
{
    static const char *const words[] = {"gone", "lost"};
    char start[64], kept[LIGI_WHY_BYTES];
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        int bytes = snprintf(start, sizeof start, "%s %u is %s: ", ligi_party_role(party),
                             party->index, words[i]);
        if (strncmp(why, start, (size_t)bytes) == 0)
            why += bytes;
    }
    snprintf(kept, sizeof kept, "%s", why);
    snprintf(party->why, sizeof party->why, "%s", kept);
}

void ligi_mesh_peer_gone(ligi_party *party, uint32_t state, const char *why)
{
    lig_mesh *mesh = party->mesh;
    mesh->stats.peers_lost += party->state == LIG_MESH_ALIVE && state == LIG_MESH_LOST;
    party->state = state;
    party->pings = 0;
    party->doubt_ns = 0;
    mesh->postponed -= party->postponed != 0;
    party->postponed = 0;
    mesh->news = mesh->role == LIG_MESH_SERVER; /* workers learn of it by their requests */
    note_why(party, why);
    if (mesh->role == LIG_MESH_SERVER)
        ligi_server_requests_lose(&mesh->inbox, party->index, state, party->why);
    else
        ligi_worker_lost(party);
    ligi_mesh_ring(mesh);
}

/* Closes the link from this side. Its messages are returned before the peer counts as lost. */
void ligi_mesh_peer_drop(ligi_party *party, uint32_t state, const char *why)
{
    ligi_link *link = party->link;
    if (link) {
        ligi_link_close(link, why);
        party->link = NULL;
    }
    ligi_mesh_peer_gone(party, state, why);
}

/* A process that was stopped and expelled finds its links closed: the group's verdict comes first.
 * The dead link is kept until then. */
static int postpone(ligi_party *party, uint32_t state, const char *sentence)
{
    lig_mesh *mesh = party->mesh;
    if (mesh->stopped || mesh->group == NULL || party->state != LIG_MESH_ALIVE ||
        !ligi_group_waking(mesh->group))
        return 0;
    mesh->postponed += !party->postponed;
    party->postponed = 1;
    party->doubt_state = state;
    party->doubt_ns = ligi_grace_end_ns(ligi_now_ns());
    note_why(party, sentence);
    ligi_net_hurry(mesh->net, LIGI_SERVICE_MESH);
    return 1;
}

void ligi_mesh_link_lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    (void)context;
    ligi_party *party = ligi_link_owner(link);
    int current = party && party->link == link;
    uint32_t state = status == LIG_E_CLOSED ? LIG_MESH_STOPPED : LIG_MESH_LOST;
    if (current && postpone(party, state, sentence))
        return;
    if (current)
        party->link = NULL;
    ligi_link_close(link, NULL);
    if (current)
        ligi_mesh_peer_gone(party, state, sentence);
}

void ligi_mesh_expelled(lig_mesh *mesh, const char *sentence)
{
    lig_fail(LIG_E_PEER, "%s", sentence);
    ligi_failure_take(&mesh->ended, LIG_E_PEER);
    for (uint32_t i = 0; i < mesh->party_count; i++)
        ligi_mesh_peer_drop(&mesh->parties[i], LIG_MESH_LOST, sentence);
}

/* The link knows better than the group whether a peer left in order, and what it sent before: wait
 * for it a moment. The link of a stopped peer says nothing. */
void ligi_mesh_peer_suspect(ligi_party *party, const char *sentence)
{
    if (party->state != LIG_MESH_ALIVE || party->doubt_ns != 0)
        return;
    party->doubt_ns = ligi_grace_end_ns(ligi_now_ns());
    party->doubt_state = LIG_MESH_LOST;
    note_why(party, sentence ? sentence : "reported by the group");
    ligi_net_hurry(party->mesh->net, LIGI_SERVICE_MESH);
}

/* A process that was stopped first reads what has arrived meanwhile, as in the group. */
static int64_t judge_silence(lig_mesh *mesh, int64_t now_ns)
{
    int64_t beat = mesh->liveness_ns / 5 > 1000000 ? mesh->liveness_ns / 5 : 1000000;
    int due = now_ns - mesh->pinged_ns >= beat;
    if (ligi_pause_detect(mesh->judged_ns, now_ns, mesh->liveness_ns))
        mesh->orphan_ns = now_ns;
    mesh->judged_ns = now_ns;
    if (due)
        mesh->pinged_ns = now_ns;
    for (uint32_t i = 0; i < mesh->party_count; i++) {
        ligi_party *party = &mesh->parties[i];
        if (party->link == NULL || party->state != LIG_MESH_ALIVE)
            continue;
        int64_t silent =
            ligi_pause_silence_ns(ligi_link_heard_ns(party->link), mesh->orphan_ns, now_ns);
        char why[LIGI_WHY_BYTES];
        snprintf(why, sizeof why, "it has been silent for %lld ms", (long long)(silent / 1000000));
        if (silent > mesh->liveness_ns)
            ligi_mesh_peer_drop(party, LIG_MESH_LOST, why);
        else if (due && ligi_link_queued(party->link) < 16)
            ligi_mesh_ping(party);
    }
    return now_ns + beat / 2;
}

int64_t ligi_mesh_loss_tick(void *context, int64_t now_ns)
{
    lig_mesh *mesh = context;
    int64_t next = mesh->orphan_ns != 0 ? judge_silence(mesh, now_ns) : INT64_MAX;
    for (uint32_t i = 0; i < mesh->party_count; i++) {
        ligi_party *party = &mesh->parties[i];
        if (ligi_grace_is_over(party->doubt_ns, now_ns))
            ligi_mesh_peer_drop(party, party->doubt_state, party->why);
        else
            next = ligi_grace_next_ns(party->doubt_ns, next);
    }
    return next;
}

void ligi_mesh_orphaned(lig_mesh *mesh, const char *sentence)
{
    ligi_log(LIG_LOG_INFO, "the mesh continues without its rendezvous: %s", sentence);
    mesh->liveness_ns = ligi_group_liveness_ns(mesh->group);
    mesh->orphan_ns = mesh->judged_ns = ligi_now_ns();
    ligi_net_hurry(mesh->net, LIGI_SERVICE_MESH);
}
