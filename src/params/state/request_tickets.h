/* A worker's requests that were not done at once: the last 1024, in a ring by number. Pure; the
 * caller guards it. `ended` alone may be read without the lock, by the worker's own thread. */
#ifndef LIGI_REQUEST_TICKETS_H
#define LIGI_REQUEST_TICKETS_H

#include <ligament/params.h>

#include <stdatomic.h>

#define LIGI_TICKETS_MAX 1024u

/* A key of a request that was not at hand. A message's positions are indexes of these. */
typedef struct ligi_want {
    int64_t key;
    uint64_t at;    /* of its row in the caller's values, in bytes */
    uint32_t bytes; /* of its row */
    uint32_t node;  /* asked first */
} ligi_want;

typedef enum ligi_request_ticket_state {
    LIGI_TICKET_FREE = 0,
    LIGI_TICKET_OPEN,
    LIGI_TICKET_ENDED, /* remembered until its slot is needed */
} ligi_request_ticket_state;

typedef struct ligi_request_ticket {
    int64_t number;
    uint8_t state, verb, told; /* told: wait has said how it ended */
    uint32_t want_count, left; /* left: not answered */
    ligi_want *wants;
    size_t want_room;
    uint8_t *values;   /* of a pull: the caller's memory; NULL when it is given up */
    uint64_t bytes;    /* of the rows that are wanted */
    void *buffers;     /* a list of the owner's, dropped when it ends */
    lig_status status; /* the first failure, with its sentence */
    char *sentence;
} ligi_request_ticket;

typedef struct ligi_request_tickets { /* zero-initialised is valid */
    ligi_request_ticket *ring;        /* made when first used */
    int64_t next;                     /* the number of the next */
    int64_t inherited;                /* tickets before this one have given up their lists */
    _Atomic int64_t ended;            /* all with smaller numbers have ended */
    lig_status untold; /* the first failure of a slot that was needed before it was told */
    char *untold_sentence;
} ligi_request_tickets;

/* `first` is the number of the first. */
void ligi_params_tickets_init(ligi_request_tickets *tickets, int64_t first);
void ligi_params_tickets_fini(ligi_request_tickets *tickets);

/* The next ticket, open with nothing wanted. LIG_E_BUSY, without a sentence, when the one 1024
 * before it is open. */
lig_status ligi_params_tickets_begin(ligi_request_tickets *tickets, uint8_t verb,
                                     ligi_request_ticket **ticket);
/* Takes back the youngest, of which nothing was asked. */
void ligi_params_tickets_undo(ligi_request_tickets *tickets, ligi_request_ticket *ticket);
lig_status ligi_params_ticket_reserve(ligi_request_ticket *ticket, size_t wants);

/* NULL: it was never given out, or is forgotten. */
ligi_request_ticket *ligi_params_tickets_find(const ligi_request_tickets *tickets, int64_t number);
/* 1 when it has ended, is forgotten, or is LIG_PARAMS_LOCAL. */
int ligi_params_tickets_has_ended(const ligi_request_tickets *tickets, int64_t number);

/* `count` of its keys are answered; 1 when that was the last. */
int ligi_params_ticket_answered(ligi_request_tickets *tickets, ligi_request_ticket *ticket,
                                uint32_t count);
/* It ends now, with a failure; no-op unless it is open. */
void ligi_params_ticket_fail(ligi_request_tickets *tickets, ligi_request_ticket *ticket,
                             lig_status status, const char *sentence);
/* How an ended one ended; a failure is told once. */
lig_status ligi_params_ticket_outcome(ligi_request_ticket *ticket);
/* How one ended that failed, and was forgotten before anybody asked; once. */
lig_status ligi_params_tickets_untold(ligi_request_tickets *tickets);

#endif
