#include "params/requests/request_complete.h"

#include "net/progress.h"
#include "params/state/node.h"
#include "params/state/node_wait.h"
#include "params/state/send_buffer.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"

#include <assert.h>
#include <string.h>

static void drop_buffers(lig_params *node, ligi_send_buffer *buffer)
{
    while (buffer) {
        ligi_send_buffer *next = buffer->with;
        ligi_send_buffer_drop(node, buffer);
        buffer = next;
    }
}

/* The request has ended: its buffers are free, except those that peers may still read. */
static void release(lig_params_worker *worker, ligi_request_ticket *ticket)
{
    lig_params *node = worker->node;
    ligi_send_buffer *first = ticket->buffers;
    assert(ticket->state == LIGI_TICKET_ENDED && worker->staged >= ticket->bytes);
    ticket->buffers = NULL;
    worker->staged -= ticket->bytes;
    if (first == NULL || ticket->left == 0) {
        drop_buffers(node, first);
        return;
    }
    first->worker = worker->id;
    first->ticket = (uint64_t)ticket->number;
    first->left = ticket->left;
    first->next = node->given_up;
    node->given_up = first;
}

/* A response that no worker waits for. */
static void answered_late(lig_params *node, const ligi_params_message *message)
{
    ligi_send_buffer **at = &node->given_up;
    while (*at && ((*at)->worker != message->worker || (*at)->ticket != message->ticket))
        at = &(*at)->next;
    ligi_send_buffer *first = *at;
    if (first == NULL)
        return;
    assert(first->left > 0); /* otherwise its buffers were dropped with the ticket */
    first->left -= message->count < first->left ? message->count : first->left;
    if (first->left > 0)
        return;
    *at = first->next;
    drop_buffers(node, first);
}

void ligi_params_request_forget(lig_params *node)
{
    while (node->given_up) {
        ligi_send_buffer *first = node->given_up;
        node->given_up = first->next;
        drop_buffers(node, first);
    }
}

void ligi_params_request_end(lig_params_worker *worker, ligi_request_ticket *ticket,
                             lig_status status, const char *sentence)
{
    if (ticket->state != LIGI_TICKET_OPEN)
        return;
    ligi_params_ticket_fail(&worker->tickets, ticket, status, sentence);
    release(worker, ticket);
}

void ligi_params_request_abandon(lig_params_worker *worker, lig_status status, const char *sentence)
{
    ligi_request_tickets *tickets = &worker->tickets;
    for (int64_t i = atomic_load(&tickets->ended); i < tickets->next; i++) {
        ligi_request_ticket *ticket = ligi_params_tickets_find(tickets, i);
        if (ticket)
            ligi_params_request_end(worker, ticket, status, sentence);
    }
}

static lig_status corrupt(uint32_t rank, const char *what)
{
    return lig_fail(LIG_E_CORRUPT, "invalid response from node %u: %s", rank, what);
}

/* All positions and sizes are checked before the first byte is written. */
static lig_status check_answer(uint32_t rank, const ligi_params_message *message,
                               const ligi_params_parts *parts, const ligi_request_ticket *ticket)
{
    uint64_t bytes = 0;
    if (message->count > ticket->left || message->verb != ticket->verb)
        return corrupt(rank, "more keys than were requested");
    if (ticket->verb == LIGI_PULL && !(message->flags & LIGI_PARAMS_VALUES))
        return corrupt(rank, "no values");
    if (!(message->flags & LIGI_PARAMS_POSITIONS))
        return LIG_OK;
    for (uint32_t i = 0; i < message->count; i++) {
        if (parts->positions[i] >= ticket->want_count)
            return corrupt(rank, "a key that was not requested");
        bytes += ticket->wants[parts->positions[i]].bytes;
    }
    if ((message->flags & LIGI_PARAMS_VALUES) && bytes != parts->rows_bytes)
        return corrupt(rank, "wrong row length");
    return LIG_OK;
}

static void take_values(const ligi_params_message *message, const ligi_params_parts *parts,
                        const ligi_request_ticket *ticket)
{
    const uint8_t *row = parts->rows;
    for (uint32_t i = 0; i < message->count; i++) {
        const ligi_want *want = &ticket->wants[parts->positions[i]];
        memcpy(ticket->values + want->at, row, want->bytes);
        row += want->bytes;
    }
}

/* The sender of the response owns the rows. */
static void take_places(lig_params *node, uint32_t rank, const ligi_params_message *message,
                        const ligi_params_parts *parts, const ligi_request_ticket *ticket)
{
    for (uint32_t i = 0; i < message->count; i++) {
        ligi_entry entry;
        int64_t key = ticket->wants[parts->positions[i]].key;
        if (ligi_tables_known(node->tables, key, &entry))
            (void)ligi_tables_location_update(node->tables, entry,
                                              (ligi_row_location){rank, parts->moves[i]});
    }
}

static void refused(lig_params_worker *worker, uint32_t rank, const ligi_params_message *message,
                    const ligi_params_parts *parts)
{
    ligi_request_ticket *ticket =
        ligi_params_tickets_find(&worker->tickets, (int64_t)message->ticket);
    assert(ticket != NULL && ticket->state == LIGI_TICKET_OPEN); /* the caller has checked it */
    ticket->left -= message->count < ticket->left ? message->count : ticket->left;
    lig_fail((lig_status)message->number, "node %u: %.*s", rank, (int)parts->sentence_bytes,
             parts->sentence);
    ligi_params_request_end(worker, ticket, (lig_status)message->number, lig_error_text());
}

lig_status ligi_params_request_answered(lig_params *node, uint32_t rank,
                                        const ligi_params_message *message,
                                        const ligi_params_parts *parts)
{
    lig_params_worker *worker =
        message->worker < node->worker_count ? node->workers[message->worker] : NULL;
    ligi_request_ticket *ticket =
        worker ? ligi_params_tickets_find(&worker->tickets, (int64_t)message->ticket) : NULL;
    if (message->worker >= node->worker_count || message->origin != node->rank)
        return corrupt(rank, "unknown worker");
    if (ticket == NULL || ticket->state != LIGI_TICKET_OPEN) {
        answered_late(node, message);
        return LIG_OK;
    }
    if (message->flags & LIGI_PARAMS_FAILED) {
        refused(worker, rank, message, parts);
        return LIG_OK;
    }
    LIG_TRY(check_answer(rank, message, parts, ticket));
    if (message->flags & LIGI_PARAMS_VALUES)
        take_values(message, parts, ticket);
    if (message->flags & LIGI_PARAMS_MOVES)
        take_places(node, rank, message, parts, ticket);
    if (ligi_params_ticket_answered(&worker->tickets, ticket, message->count))
        release(worker, ticket);
    return LIG_OK;
}

/* --- waiting --- */

typedef struct await {
    const ligi_request_tickets *tickets;
    int64_t number;
} await;

static int has_ended(void *context)
{
    const await *what = context;
    return ligi_params_tickets_has_ended(what->tickets, what->number);
}

/* The worker's own thread: each failure is reported once. */
static lig_status outcome(lig_params_worker *worker, int64_t number)
{
    ligi_node_lock(worker->node);
    ligi_request_ticket *ticket = ligi_params_tickets_find(&worker->tickets, number);
    lig_status status = ticket ? ligi_params_ticket_outcome(ticket) : LIG_OK;
    ligi_node_unlock(worker->node);
    return status;
}

lig_status lig_params_wait(lig_params_worker *worker, int64_t ticket, int64_t timeout_ns)
{
    if (ticket == LIG_PARAMS_LOCAL)
        return LIG_OK;
    LIG_TRY(ligi_session_check(&worker->node->session));
    if (ticket < 0 || ticket >= worker->tickets.next)
        return lig_fail(LIG_E_INVALID, "ticket %lld was not issued by this worker",
                        (long long)ticket);
    await what = {&worker->tickets, ticket};
    lig_status status = ligi_node_wait(worker->node, has_ended, &what, timeout_ns);
    if (status == LIG_E_TIMEOUT)
        return lig_fail(LIG_E_TIMEOUT, "request %lld of worker %u timed out", (long long)ticket,
                        worker->id);
    LIG_TRY(status);
    return outcome(worker, ticket);
}

static int all_have_ended(void *context)
{
    const await *what = context;
    return atomic_load_explicit(&what->tickets->ended, memory_order_relaxed) >= what->number;
}

/* Nothing is reported before all have ended, because a failure is reported only once. */
lig_status lig_params_wait_all(lig_params_worker *worker, int64_t timeout_ns)
{
    int64_t next = worker->tickets.next;
    int64_t from = next > LIGI_TICKETS_MAX ? next - LIGI_TICKETS_MAX : 0;
    await what = {&worker->tickets, next};
    ligi_failure first = {0};
    LIG_TRY(ligi_session_check(&worker->node->session));
    if (worker->waited == next)
        return LIG_OK;
    lig_status status = ligi_node_wait(worker->node, all_have_ended, &what, timeout_ns);
    if (status == LIG_E_TIMEOUT)
        return lig_fail(LIG_E_TIMEOUT, "request %lld of worker %u timed out",
                        (long long)atomic_load(&worker->tickets.ended), worker->id);
    LIG_TRY(status);
    ligi_node_lock(worker->node);
    ligi_failure_take(&first, ligi_params_tickets_untold(&worker->tickets));
    ligi_node_unlock(worker->node);
    for (int64_t i = worker->waited > from ? worker->waited : from; i < next; i++) {
        status = outcome(worker, i);
        if (status != LIG_OK && first.status == LIG_OK)
            ligi_failure_take(&first, status);
    }
    worker->waited = next;
    return ligi_failure_publish(&first);
}

int lig_params_done(lig_params_worker *worker, int64_t ticket)
{
    if (ticket == LIG_PARAMS_LOCAL || ligi_session_check(&worker->node->session) != LIG_OK ||
        ticket < atomic_load_explicit(&worker->tickets.ended, memory_order_acquire))
        return 1;
    if (worker->node->session.net)
        (void)ligi_net_poll(worker->node->session.net);
    ligi_node_lock(worker->node);
    int ended = ligi_params_tickets_has_ended(&worker->tickets, ticket);
    ligi_node_unlock(worker->node);
    return ended;
}
