/* A worker's requests that were not completed at once: the last 1024, in a ring by number. Pure;
 * the caller guards it. Only `ended` may be read without the lock, by the worker's own thread. */
#ifndef LIGI_REQUEST_TICKETS_H
#define LIGI_REQUEST_TICKETS_H

#include <ligament/params.h>

#include <stdatomic.h>

#define LIGI_TICKETS_MAX 1024u

/* A key of a request that was not local. Positions in messages are indexes of these. */
typedef struct ligi_want {
    int64_t key;
    uint64_t at;    /* of its row in the caller's values, in bytes */
    uint64_t bytes; /* of its row */
} ligi_want;

typedef enum ligi_request_ticket_state {
    LIGI_TICKET_FREE = 0,
    LIGI_TICKET_OPEN,
    LIGI_TICKET_ENDED, /* kept until its slot is needed */
} ligi_request_ticket_state;

typedef struct ligi_request_ticket {
    int64_t number;
    uint8_t state, verb, told; /* told: wait has returned its result */
    uint32_t want_count, left; /* left: keys without a response */
    ligi_want *wants;
    size_t want_room;
    uint8_t *values;   /* pull: the caller's memory; NULL after the ticket was abandoned */
    uint64_t bytes;    /* of the requested rows */
    void *buffers;     /* a list owned by the caller, released when the ticket ends */
    lig_status status; /* the first failure, with its message */
    char *sentence;
} ligi_request_ticket;

typedef struct ligi_request_tickets { /* zero-initialised is valid */
    ligi_request_ticket *ring;        /* allocated at first use */
    int64_t next;                     /* the number of the next */
    int64_t inherited;                /* tickets before this one have released their lists */
    _Atomic int64_t ended;            /* all smaller numbers have ended */
    lig_status untold;                /* the first unreported failure whose slot was reused */
    char *untold_sentence;
} ligi_request_tickets;

/* `first` is the number of the first ticket. */
void ligi_params_tickets_init(ligi_request_tickets *tickets, int64_t first);
void ligi_params_tickets_fini(ligi_request_tickets *tickets);

/* The next ticket, open with no keys. LIG_E_BUSY, without a message, if the one 1024 before it is
 * open. */
lig_status ligi_params_tickets_begin(ligi_request_tickets *tickets, uint8_t verb,
                                     ligi_request_ticket **ticket);
/* Removes the latest ticket, for which nothing was sent. */
void ligi_params_tickets_undo(ligi_request_tickets *tickets, ligi_request_ticket *ticket);
lig_status ligi_params_ticket_reserve(ligi_request_ticket *ticket, size_t wants);

/* NULL: never issued, or no longer remembered. */
ligi_request_ticket *ligi_params_tickets_find(const ligi_request_tickets *tickets, int64_t number);
/* 1 if it has ended, is no longer remembered, or is LIG_PARAMS_LOCAL. */
int ligi_params_tickets_has_ended(const ligi_request_tickets *tickets, int64_t number);

/* `count` of its keys have a response; 1 if that was the last. */
int ligi_params_ticket_answered(ligi_request_tickets *tickets, ligi_request_ticket *ticket,
                                uint32_t count);
/* Ends the ticket with a failure; no-op unless it is open. */
void ligi_params_ticket_fail(ligi_request_tickets *tickets, ligi_request_ticket *ticket,
                             lig_status status, const char *sentence);
/* The result of an ended ticket; a failure is reported once. */
lig_status ligi_params_ticket_outcome(ligi_request_ticket *ticket);
/* The failure of a ticket that was discarded before it was waited for; returned once. */
lig_status ligi_params_tickets_untold(ligi_request_tickets *tickets);

#endif
