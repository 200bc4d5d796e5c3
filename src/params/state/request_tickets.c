#include "params/state/request_tickets.h"

#include "base/error.h"

#include <assert.h>
#include <stdlib.h>

void ligi_params_tickets_init(ligi_request_tickets *tickets, int64_t first)
{
    *tickets = (ligi_request_tickets){.next = first, .inherited = first};
    atomic_init(&tickets->ended, first);
}

void ligi_params_tickets_fini(ligi_request_tickets *tickets)
{
    for (size_t i = 0; tickets->ring && i < LIGI_TICKETS_MAX; i++) {
        free(tickets->ring[i].wants);
        free(tickets->ring[i].sentence);
    }
    free(tickets->ring);
    tickets->ring = NULL;
    free(tickets->untold_sentence);
    tickets->untold_sentence = NULL;
}

static ligi_request_ticket *slot_of(const ligi_request_tickets *tickets, int64_t number)
{
    return &tickets->ring[(uint64_t)number % LIGI_TICKETS_MAX];
}

/* Of ended tickets, so that there are as many lists as open tickets, not 1024. */
static void inherit_wants(ligi_request_tickets *tickets, ligi_request_ticket *heir)
{
    int64_t ended = atomic_load_explicit(&tickets->ended, memory_order_relaxed);
    while (heir->wants == NULL && tickets->inherited < ended) {
        ligi_request_ticket *slot = slot_of(tickets, tickets->inherited++);
        if (slot == heir || slot->state == LIGI_TICKET_OPEN)
            continue;
        heir->wants = slot->wants;
        heir->want_room = slot->want_room;
        slot->wants = NULL;
        slot->want_room = 0;
    }
}

static void forget(ligi_request_tickets *tickets, ligi_request_ticket *slot)
{
    if (slot->status != LIG_OK && !slot->told && tickets->untold == LIG_OK) {
        tickets->untold = slot->status;
        tickets->untold_sentence = slot->sentence;
        slot->sentence = NULL;
    }
    free(slot->sentence);
    slot->sentence = NULL;
}

lig_status ligi_params_tickets_begin(ligi_request_tickets *tickets, uint8_t verb,
                                     ligi_request_ticket **ticket)
{
    if (tickets->ring == NULL)
        LIG_TRY(
            ligi_calloc(&tickets->ring, LIGI_TICKETS_MAX, sizeof *tickets->ring, "the tickets"));
    ligi_request_ticket *slot = slot_of(tickets, tickets->next);
    if (slot->state == LIGI_TICKET_OPEN)
        return LIG_E_BUSY;
    assert(slot->buffers == NULL && tickets->next >= atomic_load(&tickets->ended));
    forget(tickets, slot);
    *slot = (ligi_request_ticket){.number = tickets->next++,
                                  .state = LIGI_TICKET_OPEN,
                                  .verb = verb,
                                  .wants = slot->wants,
                                  .want_room = slot->want_room};
    inherit_wants(tickets, slot);
    *ticket = slot;
    return LIG_OK;
}

void ligi_params_tickets_undo(ligi_request_tickets *tickets, ligi_request_ticket *ticket)
{
    assert(ticket->number == tickets->next - 1 && ticket->state == LIGI_TICKET_OPEN);
    ticket->state = LIGI_TICKET_FREE;
    tickets->next--;
}

lig_status ligi_params_ticket_reserve(ligi_request_ticket *ticket, size_t wants)
{
    return ligi_grow(&ticket->wants, &ticket->want_room, wants, sizeof *ticket->wants, "a request");
}

ligi_request_ticket *ligi_params_tickets_find(const ligi_request_tickets *tickets, int64_t number)
{
    if (tickets->ring == NULL || number < 0 || number >= tickets->next)
        return NULL;
    ligi_request_ticket *slot = slot_of(tickets, number);
    return slot->number == number && slot->state != LIGI_TICKET_FREE ? slot : NULL;
}

int ligi_params_tickets_has_ended(const ligi_request_tickets *tickets, int64_t number)
{
    const ligi_request_ticket *ticket = ligi_params_tickets_find(tickets, number);
    return ticket == NULL || ticket->state == LIGI_TICKET_ENDED;
}

/* Tickets end in any order; `ended` advances over all that have. */
static void end(ligi_request_tickets *tickets, ligi_request_ticket *ticket)
{
    int64_t ended = atomic_load_explicit(&tickets->ended, memory_order_relaxed);
    assert(ticket->state == LIGI_TICKET_OPEN && ticket->number >= ended);
    ticket->state = LIGI_TICKET_ENDED;
    while (ended < tickets->next && slot_of(tickets, ended)->state != LIGI_TICKET_OPEN)
        ended++;
    atomic_store_explicit(&tickets->ended, ended, memory_order_release);
}

int ligi_params_ticket_answered(ligi_request_tickets *tickets, ligi_request_ticket *ticket,
                                uint32_t count)
{
    assert(count <= ticket->left);
    ticket->left -= count;
    if (ticket->left > 0 || ticket->state != LIGI_TICKET_OPEN)
        return 0;
    end(tickets, ticket);
    return 1;
}

void ligi_params_ticket_fail(ligi_request_tickets *tickets, ligi_request_ticket *ticket,
                             lig_status status, const char *sentence)
{
    if (ticket->state != LIGI_TICKET_OPEN)
        return;
    assert(ticket->sentence == NULL);
    ticket->status = status;
    if (ligi_strdup(&ticket->sentence, sentence) != LIG_OK)
        ticket->sentence = NULL; /* only the status then */
    ticket->values = NULL;
    end(tickets, ticket);
}

lig_status ligi_params_ticket_outcome(ligi_request_ticket *ticket)
{
    if (ticket->told)
        return LIG_OK;
    assert(ticket->state == LIGI_TICKET_ENDED);
    ticket->told = 1;
    if (ticket->status == LIG_OK)
        return LIG_OK;
    return lig_fail(ticket->status, "%s", ticket->sentence ? ticket->sentence : "it failed");
}

lig_status ligi_params_tickets_untold(ligi_request_tickets *tickets)
{
    lig_status status = tickets->untold;
    if (status == LIG_OK)
        return LIG_OK;
    (void)lig_fail(status, "%s", tickets->untold_sentence ? tickets->untold_sentence : "it failed");
    free(tickets->untold_sentence);
    tickets->untold_sentence = NULL;
    tickets->untold = LIG_OK;
    return status;
}
