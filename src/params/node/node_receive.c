/* Letters, out and in: parcels, what is sent, and where what comes goes. */
#include "params/node/node_connect.h"
#include "params/rows/slab.h"

#include <stdlib.h>
#include <string.h>

/* --- parcels --- */

enum { ORDER_LEAST = 12 }; /* 4 KiB: less is not lent */
#define POPULATED_LEAST (UINT64_C(64) << 10)
#define POOL_MOST (UINT64_C(128) << 20) /* bytes that are kept for later */

static uint32_t order_of(uint64_t bytes)
{
    uint32_t order = ORDER_LEAST;
    while ((UINT64_C(1) << order) < bytes)
        order++;
    return order - ORDER_LEAST;
}

lig_status ligi_parcel_take(lig_params *node, uint64_t bytes, ligi_parcel **out)
{
    ligi_parcel *parcel;
    uint32_t order = order_of(bytes);
    if (order >= LIGI_PARCEL_ORDERS)
        return lig_fail(LIG_E_LIMIT, "a letter of %llu bytes is too large",
                        (unsigned long long)bytes);
    if (node->parcels[order]) {
        parcel = node->parcels[order];
        node->parcels[order] = parcel->next;
        node->parcel_bytes -= parcel->room;
    } else {
        LIG_TRY(ligi_calloc(&parcel, 1, sizeof *parcel, "a letter"));
        parcel->room = UINT64_C(1) << (order + ORDER_LEAST);
        lig_status status = ligi_net_alloc(node->net, parcel->room, (void **)&parcel->data);
        if (status != LIG_OK) {
            free(parcel);
            return status;
        }
        if (parcel->room >= POPULATED_LEAST) /* its pages at once: a fraction of one by one */
            ligi_region_populate(parcel->data, parcel->room);
    }
    parcel->next = parcel->with = NULL;
    parcel->bytes = 0;
    parcel->holds = 1;
    *out = parcel;
    return LIG_OK;
}

static void destroy_parcel(lig_params *node, ligi_parcel *parcel)
{
    ligi_net_free(node->net, parcel->data);
    free(parcel);
}

void ligi_parcel_drop(lig_params *node, ligi_parcel *parcel)
{
    if (parcel == NULL || --parcel->holds > 0)
        return;
    if (node->parcel_bytes + parcel->room > POOL_MOST) {
        destroy_parcel(node, parcel);
        return;
    }
    uint32_t order = order_of(parcel->room);
    parcel->next = node->parcels[order];
    node->parcels[order] = parcel;
    node->parcel_bytes += parcel->room;
}

void ligi_parcels_fini(lig_params *node)
{
    for (uint32_t i = 0; i < LIGI_PARCEL_ORDERS; i++)
        while (node->parcels[i]) {
            ligi_parcel *parcel = node->parcels[i];
            node->parcels[i] = parcel->next;
            destroy_parcel(node, parcel);
        }
}

/* --- out --- */

static lig_status send_post(ligi_peer *peer, const ligi_post *post, int *done)
{
    uint8_t head[LIGI_LETTER_HEAD_MAX];
    ligi_parcel *parcel = post->parcel;
    struct iovec piece = {parcel ? parcel->data : NULL, parcel ? parcel->bytes : 0};
    ligi_letter letter = post->letter;
    letter.version = LIGI_LETTER_VERSION;
    memcpy(head, &letter, sizeof letter);
    if (post->tail_bytes > 0)
        memcpy(head + sizeof letter, post->tail, post->tail_bytes);
    ligi_send send = {.head = head,
                      .head_bytes = sizeof letter + post->tail_bytes,
                      .iov = &piece,
                      .count = piece.iov_len > 0,
                      .flags = post->send_flags,
                      .token = parcel};
    if (peer->link == NULL)
        return lig_fail(LIG_E_PEER, "node %u is gone: %s", peer->rank, peer->why);
    return ligi_net_send(peer->link, &send, done);
}

lig_status ligi_peer_post(ligi_peer *peer, const ligi_post *post)
{
    lig_params *node = peer->node;
    int done = 1;
    lig_status status = send_post(peer, post, &done);
    if (status != LIG_OK || done)
        ligi_parcel_drop(node, post->parcel);
    /* All are leaving, and some are a step ahead: nothing that is still said matters to them. */
    if (status == LIG_OK || node->leaving)
        return LIG_OK;
    ligi_node_break(node, LIG_E_PEER, lig_error_text());
    return status;
}

void ligi_posts_sent(lig_params *node, void *token)
{
    ligi_parcel_drop(node, token);
}

/* --- in --- */

void ligi_peer_accept(ligi_peer *peer)
{
    const lig_params *node = peer->node;
    if (node->region_bytes > 0 && peer->offered_bytes == node->region_bytes)
        peer->region = peer->offered;
}

/* The region of a peer on this host: mapped for good, read-only. It may come before this node has
 * its own, and knows how large one is. */
static lig_status take_region(ligi_peer *peer, const ligi_arrival *arrival)
{
    if (peer->state != LIGI_PEER_MET)
        return lig_fail(LIG_E_CORRUPT, "node %u shares its rows twice", peer->rank);
    if (arrival->piece_count == 1 && arrival->pieces[0].shared &&
        (uintptr_t)arrival->pieces[0].shared % 64 == 0) {
        ligi_piece *piece = &arrival->pieces[0];
        piece->taken = 1;
        ligi_mapping_keep(piece->mapping);
        peer->mapping = piece->mapping;
        peer->offered = piece->shared;
        peer->offered_bytes = arrival->payload_bytes;
        ligi_peer_accept(peer);
    }
    peer->state = LIGI_PEER_HERE;
    return LIG_OK;
}

static int may_take(const ligi_letter *letter)
{
    int of_sync = letter->kind == LIGI_LETTER_SYNC || letter->kind == LIGI_LETTER_NEWS;
    return letter->kind == LIGI_LETTER_ASK || (of_sync && (letter->flags & LIGI_LETTER_LENT));
}

/* Writes and rows of sync are done from where they lie; what else comes is moved into the inbox. */
static lig_status place_payload(ligi_peer *peer, const ligi_arrival *arrival, ligi_landing *landing)
{
    ligi_piece *piece = arrival->piece_count == 1 ? &arrival->pieces[0] : NULL;
    peer->lent = NULL;
    if (may_take(&peer->letter) && piece && piece->shared && (uintptr_t)piece->shared % 8 == 0) {
        piece->taken = 1;
        ligi_mapping_keep(piece->mapping);
        peer->lent = piece->shared;
        peer->lent_mapping = piece->mapping;
        return LIG_OK;
    }
    LIG_TRY(ligi_grow(&peer->inbox, &peer->inbox_room, arrival->payload_bytes + 8, 1, "a letter"));
    peer->landing = (struct iovec){peer->inbox, arrival->payload_bytes};
    landing->iov = &peer->landing;
    landing->count = arrival->payload_bytes > 0;
    return LIG_OK;
}

lig_status ligi_posts_head(ligi_peer *peer, const ligi_arrival *arrival, ligi_landing *landing)
{
    lig_params *node = peer->node;
    LIG_TRY(ligi_letter_check(arrival->head, arrival->head_bytes, arrival->payload_bytes,
                              &node->greeting, &peer->letter));
    if (peer->letter.kind == LIGI_LETTER_SHARE)
        return take_region(peer, arrival);
    if (!node->made)
        return lig_fail(LIG_E_CORRUPT, "node %u asks before this node is there", peer->rank);
    memcpy(peer->head, arrival->head, arrival->head_bytes);
    peer->head_bytes = arrival->head_bytes;
    peer->payload_bytes = arrival->payload_bytes;
    landing->token = peer;
    return place_payload(peer, arrival, landing);
}

static lig_status take_letter(ligi_peer *peer)
{
    lig_params *node = peer->node;
    const ligi_letter *letter = &peer->letter;
    const void *payload = peer->lent ? peer->lent : peer->inbox;
    ligi_parts parts;
    ligi_letter_open(letter, peer->head, peer->head_bytes, payload, peer->payload_bytes, &parts);
    switch (letter->kind) {
    case LIGI_LETTER_ASK: return ligi_answer_ask(peer, letter, &parts);
    case LIGI_LETTER_ANSWER: return ligi_ask_answered(node, peer->rank, letter, &parts);
    case LIGI_LETTER_KEEP: return ligi_keep_arrived(peer, letter, payload, peer->payload_bytes);
    default: return ligi_sync_arrived(peer, letter, &parts);
    }
}

void ligi_posts_arrived(ligi_peer *peer)
{
    lig_params *node = peer->node;
    lig_status status = LIG_OK;
    if (!atomic_load(&node->broken) || ligi_keep_tells_why(&peer->letter))
        status = take_letter(peer);
    if (peer->lent) {
        ligi_mapping_drop(peer->lent_mapping);
        peer->lent = NULL;
    }
    if (status == LIG_OK)
        return;
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    lig_fail(status, "node %u and this one cannot go on: %s", peer->rank, failure.text);
    ligi_node_break(node, LIG_E_PEER, lig_error_text());
}
