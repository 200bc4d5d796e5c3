/* Internal state of a group, shared by member.c, coordinator.c and group.c. Everything is guarded
 * by the endpoint's lock and happens in its hooks. */
#ifndef LIGI_GROUP_STATE_H
#define LIGI_GROUP_STATE_H

#include "base/error.h"
#include "group/roster/barrier_release.h"
#include "group/roster/group_message.h"

typedef enum ligi_phase {
    LIGI_PHASE_CONNECTING,
    LIGI_PHASE_ASKED,    /* the coordinator knows about this process */
    LIGI_PHASE_TOLD,     /* it has the roster */
    LIGI_PHASE_RELEASED, /* all the others have it too */
    LIGI_PHASE_ENDED     /* `failure` says why */
} ligi_phase;

typedef struct ligi_told { /* what a member knows about a seat */
    ligi_member member;
    char why[128];
    size_t blob_bytes;
    uint8_t blob[LIGI_BLOB_BYTES_MAX];
} ligi_told;

typedef struct ligi_barrier { /* on the stack of the waiting thread */
    struct ligi_barrier *next;
    uint64_t number;
    int settled;
    ligi_failure failure;
} ligi_barrier;

/* A message between the coordinator and the member in the same process. */
typedef struct ligi_inner {
    struct ligi_inner *next;
    int to_coordinator;
    size_t bytes;
    uint8_t data[];
} ligi_inner;

typedef struct ligi_peer { /* a connection of the coordinator */
    ligi_link *link;       /* NULL: this slot is free */
    uint64_t who;
    int asked;        /* it has sent JOIN */
    int outcast;      /* refused or expelled: its messages are ignored */
    int broken;       /* a message to it could not be sent */
    int64_t until_ns; /* of a refused or silent one: it is dropped then */
} ligi_peer;

typedef struct ligi_coordinator {
    ligi_roster roster;
    ligi_barriers barriers;
    uint64_t id, generation;
    ligi_peer *peers;
    size_t peer_count, peer_capacity;
    size_t outcast_count;
    char waiting[LIGI_GROUP_MESSAGE_TEXT_BYTES]; /* as last sent to all */
    char refused[LIGI_GROUP_MESSAGE_TEXT_BYTES]; /* why the last refused peer was refused */
} ligi_coordinator;

struct ligi_group {
    ligi_net *net;
    ligi_join join;
    char card_host[LIGI_ADDRESS_BYTES_MAX];
    char address[LIGI_ADDRESS_BYTES_MAX];
    char displaced[256]; /* why this process could not listen at the address; "" */
    ligi_welcome self;
    uint64_t epoch;
    ligi_phase phase;
    ligi_failure failure;
    ligi_told *seats;
    size_t seat_count;
    int64_t liveness_ns, tick_ns, beat_ns, awake_ns;
    int64_t begun_ns, word_ns, word_wait_ns; /* during start-up: when it last logged whom it waits
                                              * for */
    char waiting[LIGI_GROUP_MESSAGE_TEXT_BYTES];
    ligi_link *link; /* to the coordinator; NULL in the coordinator's process */
    ligi_barrier *barriers;
    int (*patience)(void *context);
    void *patience_context;
    ligi_failure parted; /* no barrier can begin any more */
    uint64_t barrier_number;
    ligi_group_hook hook;
    void *hook_context;
    ligi_coordinator *coordinator;
    ligi_inner *inner_first, *inner_last;
    int pumping;
};

#define LIGI_SELF 1u /* `who` of this process's own member */

#endif
