/* A roster and its barriers with members that send anything at any time. Invariants: a connection
 * has at most one seat, epochs only grow, and no member is released twice. */
#include "group/roster/barrier_release.h"
#include "group/roster/roster_liveness.h"

#include <assert.h>
#include <stdlib.h>

enum { GUESTS = 12, MS = 1000000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef struct hall {
    ligi_roster roster;
    ligi_barriers barriers;
    int64_t now_ns;
    uint64_t epoch;
    int asked[GUESTS + 1], released[GUESTS + 1];
} hall;

static void follow(hall *room)
{
    ligi_act said;
    (void)ligi_barriers_review(&room->barriers, &room->roster);
    while (ligi_roster_next(&room->roster, &said)) {
        assert(said.who <= GUESTS);
        if (said.kind == LIGI_ACT_RELEASE)
            assert(room->released[said.who]++ == 0);
    }
    assert(room->roster.epoch >= room->epoch);
    room->epoch = room->roster.epoch;
    for (size_t i = 0; i < room->roster.seat_count; i++)
        for (size_t j = 0; j < i; j++)
            assert(room->roster.seats[i].who == 0 ||
                   room->roster.seats[i].who != room->roster.seats[j].who);
}

static void do_join(hall *room, uint64_t who, uint8_t value)
{
    ligi_join join = {.role = (ligi_role)(value % 3),
                      .rank = value & 64 ? LIGI_RANK_ANY : (value >> 2) % 5,
                      .server_count = room->roster.server_count,
                      .worker_count = room->roster.worker_count + (value == 255),
                      .group_size = room->roster.group_size};
    if (!room->asked[who]++) /* the coordinator hears one JOIN a connection */
        (void)ligi_roster_join(&room->roster, who, &join, room->now_ns);
}

static void act(hall *room, uint8_t deed, uint64_t who, uint8_t value)
{
    ligi_waiter waiter = {.who = who, .number = value % 3, .mask = value % 16, .flags = value >> 4};
    switch (deed % 9) {
    case 0:
    case 1: do_join(room, who, value); break;
    case 2: (void)ligi_roster_end(&room->roster, who, "gone"); break;
    case 3: (void)ligi_roster_leave(&room->roster, who); break;
    case 4: (void)ligi_roster_confirm(&room->roster, who, value % 32); break;
    case 5: (void)ligi_roster_answer(&room->roster, who, value % 8); break;
    case 6: (void)ligi_barriers_arrive(&room->barriers, &room->roster, &waiter); break;
    case 7: (void)ligi_barriers_cancel(&room->barriers, &room->roster, who, value % 3); break;
    default:
        room->now_ns += (int64_t)value * MS;
        ligi_roster_hear(&room->roster, who, room->now_ns);
        (void)ligi_roster_tick(&room->roster, room->now_ns);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    hall room = {0};
    if (bytes < 1)
        return 0;
    ligi_group_options options = {
        .server_count = data[0] % 3 * (1 + data[0] / 128u),
        .worker_count = (1 + data[0] / 4 % 3) * (1 + data[0] / 128u),
        .group_size = 1 + data[0] / 128u,
        .liveness_ms = 300,
    };
    if (ligi_roster_init(&room.roster, &options) != LIG_OK)
        return 0;
    for (size_t i = 1; i + 2 < bytes; i += 3) {
        act(&room, data[i], 1 + data[i + 1] % GUESTS, data[i + 2]);
        follow(&room);
    }
    ligi_barriers_fini(&room.barriers);
    ligi_roster_fini(&room.roster);
    return 0;
}
