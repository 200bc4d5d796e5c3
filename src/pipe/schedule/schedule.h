/* The order in which a device runs the forwards and backwards of its stages. */
#ifndef LIGI_SCHEDULE_H
#define LIGI_SCHEDULE_H

#include <ligament/pipe.h>

#include "pipe/graph/scratch.h"

typedef struct ligi_schedule {
    uint32_t kind; /* lig_pipe_schedule */
    uint32_t stage_count;
    uint32_t device_count;
    uint32_t microbatches;
    const uint32_t *stage_device;
} ligi_schedule;

typedef struct ligi_work {
    uint32_t stage;
    uint32_t microbatch;
    uint32_t kind; /* lig_pipe_work */
} ligi_work;

/* LIG_E_UNSUPPORTED if the stages are not placed as the schedule requires, or the micro-batches do
 * not divide. */
lig_status ligi_schedule_check(const ligi_schedule *schedule);

/* 1 if the order is fixed in advance; 0 if it depends on the times (simulate.c). */
int ligi_schedule_fixed(const ligi_schedule *schedule);

/* 1 if the backward is split in two. */
int ligi_schedule_split(const ligi_schedule *schedule);

/* Fills the works of `device` in order and returns how many; fixed schedules only. `list` has room
 * for 3 * stages of the device * microbatches. */
size_t ligi_schedule_list(const ligi_schedule *schedule, uint32_t device, ligi_work *list);

/* Fills, for each stage, the largest number of micro-batches in flight. */
lig_status ligi_schedule_flight(const ligi_schedule *schedule, double *flight);

#endif
