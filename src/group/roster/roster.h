/* The roster: who has which seat, in which epoch, and what must be sent to whom. Pure: no I/O, no
 * locks, no clock. Inputs are calls, outputs are acts, which the caller takes with ligi_roster_next
 * after each call and carries out in order. */
#ifndef LIGI_ROSTER_H
#define LIGI_ROSTER_H

#include "group/group.h"

typedef enum ligi_act_kind {
    LIGI_ACT_REFUSE,  /* who, status, text: refuse and end its connection */
    LIGI_ACT_PROBE,   /* who, number: ask it to answer with that number */
    LIGI_ACT_ROSTER,  /* who: send it the whole roster, which it confirms */
    LIGI_ACT_CHANGE,  /* seat, member, epoch, text: send it to those whose told_epoch is not 0 and
                      * lower */
    LIGI_ACT_RELEASE, /* who: all others know it, it is released */
    LIGI_ACT_EXPEL,   /* who, text: it is expelled; its connection stays open so that it learns
                       * this */
    LIGI_ACT_PASS,    /* who, number: its barrier is complete */
    LIGI_ACT_FAIL,    /* who, number, status, text: its barrier has failed */
} ligi_act_kind;

#define LIGI_ACT_TEXT_BYTES 512

typedef struct ligi_act {
    ligi_act_kind kind;
    lig_status status;
    uint64_t who, number, epoch;
    size_t seat;
    ligi_member member;
    char text[LIGI_ACT_TEXT_BYTES];
} ligi_act;

/* A request to join. */
typedef struct ligi_join {
    ligi_role role;
    uint32_t rank; /* or LIGI_RANK_ANY */
    uint32_t server_count, worker_count, group_size;
    uint32_t pid;
    char host[LIGI_HOST_BYTES];
    uint8_t blob[LIGI_BLOB_BYTES_MAX];
    size_t blob_bytes;
} ligi_join;

typedef struct ligi_seat {
    ligi_member member;
    uint64_t who; /* its connection; 0 if the seat is free */
    uint32_t sat_count;
    int released;
    uint64_t since;      /* the epoch in which it joined */
    uint64_t told_epoch; /* of the roster it was given, 0 before */
    uint64_t confirmed;
    int64_t heard_ns;
    char why[128]; /* it is lost or has left */
    size_t blob_bytes;
    uint8_t blob[LIGI_BLOB_BYTES_MAX];
} ligi_seat;

typedef struct ligi_pending ligi_pending; /* one that wants to join: any rank, or a taken one */

typedef struct ligi_roster { /* embedded; read directly, change through the calls */
    uint32_t server_count, worker_count, group_size;
    int64_t liveness_ns, tick_ns;
    int formed; /* all have been present once */
    uint64_t epoch;
    uint64_t probe_number;
    ligi_seat *seats;
    size_t seat_count;
    ligi_pending *pending;
    size_t pending_count, pending_capacity;
    ligi_act *acts;
    size_t act_count, act_capacity, act_at;
} ligi_roster;

/* LIMIT for more than LIGI_MEMBERS_MAX, INVALID for none or for counts that are no multiple of
 * group_size. */
lig_status ligi_roster_init(ligi_roster *roster, const ligi_group_options *options);
void ligi_roster_fini(ligi_roster *roster);

/* The order of seats: servers, workers, one scheduler. SIZE_MAX for a seat that does not exist. */
size_t ligi_roster_index(uint32_t servers, uint32_t workers, ligi_role role, uint32_t rank);

/* `who` identifies a connection; 0 is none. Only NOMEM fails: a refusal is an act. */
lig_status ligi_roster_join(ligi_roster *roster, uint64_t who, const ligi_join *join,
                            int64_t now_ns);
/* A connection ended: its seat is lost at once, its request to join dropped. */
lig_status ligi_roster_end(ligi_roster *roster, uint64_t who, const char *why);
/* The seat becomes free because its holder is lost; see roster_liveness.h. */
lig_status ligi_roster_lose(ligi_roster *roster, ligi_seat *seat, const char *why);
/* It has left in order. */
lig_status ligi_roster_leave(ligi_roster *roster, uint64_t who);
lig_status ligi_roster_confirm(ligi_roster *roster, uint64_t who, uint64_t epoch);
/* The answer to a probe. */
lig_status ligi_roster_answer(ligi_roster *roster, uint64_t who, uint64_t number);
/* The next act, 0 if there is none; it is copied. */
int ligi_roster_next(ligi_roster *roster, ligi_act *act);

/* NULL for a peer without a seat. */
ligi_seat *ligi_roster_find(const ligi_roster *roster, uint64_t who);
/* How many others than `who` are present. */
size_t ligi_roster_others(const ligi_roster *roster, uint64_t who);
/* "worker 1, worker 3 (6 of 8 have joined)", truncated to the buffer; "" if nobody is awaited. */
void ligi_roster_awaited(const ligi_roster *roster, char *text, size_t text_bytes);

/* For barrier_release.c: appends an act. Fills *act with a pointer that is valid until the next
 * call. */
lig_status ligi_roster_act(ligi_roster *roster, ligi_act_kind kind, uint64_t who, ligi_act **act);

#endif
