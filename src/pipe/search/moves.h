/* An assignment of units to stages that changes one unit at a time, with its figures kept up to
 * date.
 *
 * Every value always flows to the same or a later stage: a unit may move to any stage between the
 * last of its producers' and the first of its users'. Only a few units at the borders can move at
 * all; they are kept in a list, so that a step costs the same in a graph of a thousand units and of
 * a million. */
#ifndef LIGI_MOVES_H
#define LIGI_MOVES_H

#include "pipe/search/constraints.h"

/* Users of a net, and sources of a unit, are counted by stage if there are more than these; below,
 * scanning is quicker. */
#define LIGI_NARROW_PINS 6
#define LIGI_NARROW_NETS 24

typedef struct ligi_moves {
    const ligi_graph *graph;
    const ligi_goal *goal;
    uint32_t stage_count;
    uint32_t *stage;       /* [unit_count] */
    uint32_t *stage_units; /* [stage_count] */
    double *device_load;   /* [device_count] */
    double *device_bytes;
    double *limit; /* [device_count]: load that each may carry */
    double cut;
    uint32_t *open;    /* units that can move to another stage */
    uint32_t *open_at; /* [unit_count]: index in `open`, or LIGI_NONE */
    uint32_t open_count;
    uint32_t *wide_row; /* [net_count]: row in `wide`, or LIGI_NONE; NULL if no net is wide */
    uint32_t *wide;     /* [row * stage_count + stage]: users */
    uint32_t
        *fan_row;  /* [unit_count]: row in `fan`, or LIGI_NONE; NULL if no unit has many sources */
    uint32_t *fan; /* [row * stage_count + stage]: nets whose source is there */
} ligi_moves;

#define LIGI_NONE UINT32_MAX

/* Allocates from `scratch`; `load` then sets an assignment. */
lig_status ligi_moves_init(ligi_moves *moves, const ligi_graph *graph, const ligi_goal *goal,
                           ligi_scratch *scratch);
void ligi_moves_load(ligi_moves *moves, const uint32_t *stage);

/* Rereads goal->cap_ms. */
void ligi_moves_set_limits(ligi_moves *moves);

/* Moves a unit; `delta` is the result of ligi_moves_delta. */
void ligi_moves_apply(ligi_moves *moves, uint32_t unit, uint32_t to, double delta);

/* The busiest device's time. */
double ligi_moves_bottleneck(const ligi_moves *moves);

/* How far the devices exceed their limits, as fractions of the cap; 0 if none does. */
double ligi_moves_overload(const ligi_moves *moves);

/* Returns 1 if all devices are within their memory and no separated pair shares a stage. */
int ligi_moves_sound(const ligi_moves *moves);

/* --- the best assignment so far, without copying it each time
 * ------------------------------------------- */

typedef struct ligi_best {
    uint32_t *stage;   /* [unit_count] */
    uint32_t *changed; /* units that differ, or have differed, since then */
    uint8_t *marked;
    uint32_t changed_count;
} ligi_best;

lig_status ligi_best_init(ligi_best *best, const ligi_moves *moves, ligi_scratch *scratch);
void ligi_best_note(ligi_best *best, uint32_t unit);
void ligi_best_keep(ligi_best *best, const ligi_moves *moves);
/* Moves back to the best one; the figures are recomputed, so that no rounding remains. */
void ligi_best_restore(ligi_best *best, ligi_moves *moves);

#endif
