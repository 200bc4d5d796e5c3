#include "evo_stamps.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

ligi_evo_call ligi_evo_call_named(const char *name)
{
    static const char *const names[] = {"get_composition", "get_prefix", "read_layers",
                                        "store_layers",    "store_meta", "update_ref_counter"};
    int call = 0;
    while (name != NULL && call < EVO_CALLS && strcmp(names[call], name) != 0)
        call++;
    return name == NULL ? EVO_CALLS : (ligi_evo_call)call;
}

uint64_t ligi_evo_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static int grow(ligi_evo_stamps *stamps)
{
    size_t room = stamps->room ? stamps->room * 2 : 64;
    uint64_t *pairs = realloc(stamps->pairs, room * 2 * sizeof *pairs);
    if (pairs == NULL)
        return 0;
    stamps->pairs = pairs;
    stamps->room = room;
    return 1;
}

void ligi_evo_stamps_add(ligi_evo_stamps *stamps, uint64_t begin, uint64_t end)
{
    stamps->called = 1;
    if (stamps->count == stamps->room && stamps->room < EVO_PAIRS_MAX && !grow(stamps))
        return;
    size_t at = stamps->count < stamps->room ? stamps->count++ : stamps->next++ % EVO_PAIRS_MAX;
    stamps->pairs[2 * at] = begin;
    stamps->pairs[2 * at + 1] = end;
}

size_t ligi_evo_stamps_copy(const ligi_evo_stamps *stamps, uint64_t *out)
{
    size_t first = stamps->next % EVO_PAIRS_MAX;
    for (size_t i = 0; i < stamps->count; i++) {
        size_t at = (first + i) % stamps->count;
        memcpy(out + 2 * i, stamps->pairs + 2 * at, 2 * sizeof *out);
    }
    return 2 * stamps->count;
}
