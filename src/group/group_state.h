/* The inside of a group: what member.c, coordinator.c and group.c share. Everything is guarded by
 * the endpoint's lock and happens in its hooks. */
#ifndef LIGI_GROUP_STATE_H
#define LIGI_GROUP_STATE_H

#include "base/error.h"
#include "group/group_message.h"
#include "group/roster/group_barrier.h"

typedef enum ligi_phase {
    LIGI_PHASE_CONNECTING,
    LIGI_PHASE_ASKED,    /* the coordinator knows of this process */
    LIGI_PHASE_TOLD,     /* it has the roster */
    LIGI_PHASE_RELEASED, /* so have all the others */
    LIGI_PHASE_ENDED     /* `failure` says why */
} ligi_phase;

typedef struct ligi_told { /* what a member knows of a seat */
    ligi_member member;
    char why[128];
    size_t blob_bytes;
    uint8_t blob[LIGI_BLOB_BYTES_MAX];
} ligi_told;

typedef struct ligi_barrier { /* lies on the stack of the one who waits */
    struct ligi_barrier *next;
    uint64_t number;
    int settled;
    ligi_failure failure;
} ligi_barrier;

/* A note between the coordinator and the member that lives in the same process. */
typedef struct ligi_inner {
    struct ligi_inner *next;
    int to_coordinator;
    size_t bytes;
    uint8_t data[];
} ligi_inner;

typedef struct ligi_peer { /* a connection, as the coordinator has it */
    ligi_link *link;       /* NULL: this slot is free */
    uint64_t who;
    int asked;        /* it has said JOIN */
    int outcast;      /* refused or expelled: it is heard no more */
    int broken;       /* what it was sent did not go */
    int64_t until_ns; /* of a refused or silent one: then it is dropped */
} ligi_peer;

typedef struct ligi_coordinator {
    ligi_roster roster;
    ligi_muster muster;
    uint64_t id, generation;
    ligi_peer *peers;
    size_t peer_count, peer_capacity;
    size_t outcast_count;
    char waiting[LIGI_NOTE_TEXT_BYTES]; /* as all were last told */
    char refused[LIGI_NOTE_TEXT_BYTES]; /* why the last one was that was not let in */
} ligi_coordinator;

struct ligi_group {
    ligi_net *net;
    ligi_join join;
    int use_card;
    char card_host[LIGI_ADDRESS_BYTES_MAX];
    char address[LIGI_ADDRESS_BYTES_MAX];
    char displaced[256]; /* why this process could not hold the address itself; "" */
    ligi_welcome self;
    uint64_t epoch;
    ligi_phase phase;
    ligi_failure failure;
    ligi_told *seats;
    size_t seat_count;
    int64_t liveness_ns, tick_ns, beat_ns, awake_ns;
    int64_t begun_ns, word_ns, word_wait_ns; /* of start-up: when it last said whom it waits for */
    char waiting[LIGI_NOTE_TEXT_BYTES];
    ligi_link *link; /* to the coordinator; NULL when that is here */
    ligi_barrier *barriers;
    int (*patience)(void *context);
    void *patience_context;
    ligi_failure parted; /* no barrier begins any more */
    uint64_t barrier_number;
    ligi_group_hook hook;
    void *hook_context;
    ligi_coordinator *coordinator;
    ligi_inner *inner_first, *inner_last;
    int pumping;
};

/* --- member.c --- */

/* Says a note to the coordinator (NULL join: none). A failure ends the group, here or by `lost`. */
void ligi_member_say(ligi_group *group, const ligi_note *note, const ligi_join *join);
lig_status ligi_member_take(ligi_group *group, const void *data, size_t bytes);
/* Ends the group with this thread's sentence; the first end counts. */
void ligi_member_end(ligi_group *group, ligi_group_change change, lig_status status);
/* The link to the coordinator is up: asks to join. */
lig_status ligi_member_ask(ligi_group *group);
void ligi_member_tick(ligi_group *group, int64_t now_ns);
int64_t ligi_member_beat_ns(const ligi_group *group);
/* Ends the barriers that this process waits in. */
void ligi_member_settle(ligi_group *group, const ligi_failure *failure);
ligi_told *ligi_member_seat(const ligi_group *group, ligi_role role, uint32_t rank);

/* --- coordinator.c --- */

lig_status ligi_coordinator_create(ligi_group *group, const ligi_group_options *options);
void ligi_coordinator_destroy(ligi_coordinator *coordinator);
/* A note from this process's own member. */
lig_status ligi_coordinator_take_own(ligi_group *group, const void *data, size_t bytes);
/* The hooks of accepted links. */
lig_status ligi_coordinator_met(ligi_group *group, ligi_link *link);
lig_status ligi_coordinator_take(ligi_group *group, ligi_link *link, const void *data,
                                 size_t bytes);
void ligi_coordinator_lost(ligi_group *group, ligi_link *link, lig_status status,
                           const char *sentence);
lig_status ligi_coordinator_tick(ligi_group *group, int64_t now_ns);
/* Carries out one act, or ends one broken peer; 0 when there is nothing. */
int ligi_coordinator_work(ligi_group *group);
void ligi_coordinator_close(ligi_group *group, const char *reason);

/* --- group.c --- */

/* Queues a note within the process. */
void ligi_group_inner(ligi_group *group, int to_coordinator, const ligi_writer *writer);
/* ligi_net_wait as long as the caller has patience. */
lig_status ligi_group_wait(ligi_group *group, int (*until)(void *), void *context,
                           int64_t timeout_ns);
/* Does all that follows from what has been queued. */
void ligi_group_pump(ligi_group *group);

/* Listens at `address` and keeps the roster. */
lig_status ligi_group_coordinate(ligi_group *group, const ligi_group_options *options,
                                 const char *address);
/* Begins to connect to the one who does. */
lig_status ligi_group_follow(ligi_group *group, const char *address, int64_t timeout_ns);

/* --- rendezvous_exchange.c --- */

lig_status ligi_group_meet_by_exchange(ligi_group *group, const ligi_group_options *options,
                                       int64_t timeout_ns);
/* --- host_names.c --- */

/* The digits of an address's port; "" where it has none. */
void ligi_group_port_of(const char *address, char *port, size_t port_bytes);
/* "tcp://10.0.0.1:7000" -> "10.0.0.1"; "" where there is no host, or one that means all. */
void ligi_group_host_of(const char *address, char *host, size_t host_bytes);
int ligi_group_is_name(const char *host); /* of a host: no number, and not localhost */
int ligi_group_is_loopback(const char *host);
/* 1 and fills `wide` when the address has the name of this machine and the machine takes that for
 * its loopback, as many do: who listens there is not found by others. `wide` is all interfaces at
 * the same port. Asks the resolver. */
int ligi_group_widen(const char *address, char wide[LIGI_ADDRESS_BYTES_MAX]);

/* A number by which others reach this machine: what `name` ("": none) stands for, else that of the
 * way out, else of the first interface; "" when there is nothing but loopback. Cards have numbers.
 * Asks the resolver. */
void ligi_group_own_number(const char *name, char *host, size_t host_bytes);

#define LIGI_SELF 1u /* `who` of this process's own member */

#endif
