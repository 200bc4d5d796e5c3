/* Ligament: pipeline partitioning and schedule simulation.
 *
 * Pure functions over arrays: no handle, no I/O, no thread. Equal input (the seed included) gives equal output. The
 * result of each step can be inspected and passed back in:
 *
 *   lig_pipe_graph --lig_pipe_partition--> lig_pipe_plan --lig_pipe_fold--> lig_pipe_stages
 *                                                        --lig_pipe_simulate--> lig_pipe_timeline
 *
 * Times are milliseconds of one micro-batch on a device of speed 1. Bytes are doubles, because they
 * come from profiles and estimates and are added and scaled; whole numbers are exact up to 2^53. An
 * array that is NULL where a comment allows it means zero for every element.
 *
 * Terms: a *stage* is a set of nodes that runs as one unit; no value flows from a stage to a lower-numbered one. A
 * *device* runs one stage or several. The *load* of a stage is the sum of forward and backward over its nodes (with
 * `recompute` forward counts twice), divided by its device's speed. The *bottleneck* is the largest sum of loads on
 * one device. The *cut* counts the bytes of each (value, other stage that uses it) once. */
#ifndef LIGAMENT_PIPE_H
#define LIGAMENT_PIPE_H

#include <ligament/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LIG_PIPE_NODES_MAX 50000000u
#define LIG_PIPE_STAGES_MAX 4096u
#define LIG_PIPE_MICROBATCHES_MAX 65536u

/* The numbers are fixed. docs/pipe.md describes each method. */
typedef enum lig_pipe_method {
    /* the best simulated step time of those below; with `balance` the smallest cut */
    LIG_PIPE_AUTO = 0,
    LIG_PIPE_CONTIGUOUS = 1, /* intervals of the given topological order: the optimum among these */
    /* minimum-cut intervals of several orders, then moves of single nodes */
    LIG_PIPE_ACYCLIC = 2,
    LIG_PIPE_MULTILEVEL = 3, /* the same on coarsened graphs, refined level by level */
    LIG_PIPE_EXACT = 4,      /* branch and bound; LIG_E_LIMIT when the graph is too large for it */
    LIG_PIPE_METIS = 5,      /* bins by libmetis, repaired to stages; several stages per device */
    /* Mixed-Pipe: coarsen, bins, stages, refine; several stages per device */
    LIG_PIPE_MIXED = 6,
    LIG_PIPE_METHOD_COUNT = 7
} lig_pipe_method;

/* The values are fixed. */
typedef enum lig_pipe_schedule {
    LIG_PIPE_1F1B = 0,
    LIG_PIPE_GPIPE = 1,
    LIG_PIPE_INTERLEAVED = 2, /* stage s on device s % device_count */
    LIG_PIPE_ZB_H1 = 3,       /* backward split in two; one stage per device */
    LIG_PIPE_ZBV = 4,         /* the same, stages s and 2 * device_count - 1 - s on one device */
    LIG_PIPE_SCHEDULE_COUNT = 5
} lig_pipe_schedule;

/* The numbers are fixed. How a parameter that several nodes share is treated. */
typedef enum lig_pipe_ties {
    /* each device that uses it has a replica, and the gradients are summed after the step */
    LIG_PIPE_TIES_SUM = 0,
    /* its nodes, and every node on a path between them, form one stage */
    LIG_PIPE_TIES_TOGETHER = 1
} lig_pipe_ties;

/* The names ("auto", "1f1b", "zb-h1", ...), in static storage; NULL for an unknown number. */
LIG_API const char *lig_pipe_method_name(uint32_t method);
LIG_API const char *lig_pipe_schedule_name(uint32_t schedule);

/* Fills the number that belongs to a name of the two functions above; LIG_E_INVALID lists the names. */
LIG_API lig_status lig_pipe_method_parse(const char *name, uint32_t *method);
LIG_API lig_status lig_pipe_schedule_parse(const char *name, uint32_t *schedule);

/* --- the graph --- */

/* Everything is borrowed until the call returns. Every call checks its input: LIG_E_INVALID for a cycle (its
 * nodes are named), an edge to a node that does not exist, or a value that is negative, infinite or NaN.
 * Duplicate edges count once; unconnected parts and zeros are valid. */
typedef struct lig_pipe_graph {
    uint32_t node_count;
    uint32_t edge_count;
    /* [node_count], for error texts; NULL, or NULL elements: "node 17" */
    const char *const *name;
    const double *forward_ms;  /* [node_count] each, or NULL */
    const double *backward_ms; /* the whole backward */
    /* the part of backward_ms that only computes gradients of parameters; NULL = half */
    const double *weight_ms;
    const double *parameter_bytes;  /* without those of `tie_bytes` */
    const double *buffer_bytes;     /* kept, without gradient or optimizer state */
    const double *activation_bytes; /* kept from forward to backward, the node's inputs included */
    const double *output_bytes;     /* of the node's value */
    const uint32_t *edge_from;      /* [edge_count]; NULL only when there are none */
    const uint32_t *edge_to;
    /* [edge_count], or NULL: every edge carries its producer's one value, output_bytes */
    const double *edge_bytes;
    /* [edge_count], or NULL. With edge_bytes: edges of one producer with equal numbers carry the
     * same value (the bytes must be equal); NULL: each carries its own */
    const uint32_t *edge_value;
    /* [node_count], or NULL; equal numbers >= 0 stay in one stage, < 0 is free */
    const int32_t *group;
    uint32_t apart_count;        /* pairs of nodes that must be in different stages */
    uint32_t tie_count;          /* parameters that several nodes use */
    const uint32_t *apart_first; /* [apart_count] */
    const uint32_t *apart_second;
    const double *tie_bytes; /* [tie_count] */
    /* [tie_count + 1]: tie t is used by tie_node[tie_begin[t] .. tie_begin[t + 1]) */
    const uint32_t *tie_begin;
    const uint32_t *tie_node;
    uint64_t reserved[4]; /* 0 */
} lig_pipe_graph;

#define LIG_PIPE_GRAPH_INIT {0}

/* --- options --- */

/* Initialised by LIG_PIPE_OPTIONS_INIT, borrowed until the call returns. */
typedef struct lig_pipe_options {
    /* requested; for `metis` and `mixed` the number of bins, which may give more stages */
    uint32_t stages;
    uint32_t microbatches; /* per step */
    /* bytes of gradient and optimizer state per byte of parameter: 3 for Adam, 1 for plain SGD, 0 for
     * inference */
    double optimizer_factor;
    /* 0: (bottleneck, cut) in that order. x >= 1: the smallest cut whose bottleneck is at most x
     * times the lower bound */
    double balance;
    uint32_t method;   /* lig_pipe_method */
    uint32_t schedule; /* lig_pipe_schedule */
    uint32_t ties;     /* lig_pipe_ties */
    /* 1: a stage keeps only the inputs of a micro-batch in flight, and runs forward again */
    uint32_t recompute;
    /* 0: one per stage (bin); for ZBV one per two stages. Fewer than stages: stage s is on device s %
     * device_count */
    uint32_t device_count;
    /* 0: effort chosen from the graph's size; n: n times that. Effort is counted, not timed, so the result does
     * not depend on the machine */
    uint32_t effort;
    const double *speed; /* [device_count], or NULL: all 1 */
    /* [device_count] bytes, or NULL: no limit. 0 = no limit for this one */
    const double *memory;
    /* bytes per second between any two devices; 0: transfers are free */
    double bandwidth;
    /* [from * device_count + to], instead; 0 = free. The diagonal is not read */
    const double *bandwidth_matrix;
    double latency_ms; /* of one transfer between two devices */
    uint64_t seed;
    uint64_t reserved[4]; /* 0 */
} lig_pipe_options;

#define LIG_PIPE_OPTIONS_INIT {4, 8, 3.0, 0.0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0, 0.0, 0, {0, 0, 0, 0}}

/* The number of devices: device_count, or the default that 0 stands for. */
LIG_API uint32_t lig_pipe_device_count(const lig_pipe_options *options);

/* --- the plan --- */

/* The caller sets the pointers; a call fills what they point to and the figures. */
typedef struct lig_pipe_plan {
    uint32_t *stage;        /* [node_count] */
    uint32_t *device;       /* [node_count], or NULL: not requested */
    uint32_t *stage_device; /* [node_count], of which stage_count are filled */
    double *device_ms;      /* [device_count] or NULL: load of each device */
    double *device_bytes;   /* [device_count] or NULL: peak memory of each, as `memory` counts it */
    uint32_t stage_count;   /* stages are numbered in topological order and none is empty */
    uint32_t device_count;
    uint32_t method;  /* the method that produced it: never LIG_PIPE_AUTO */
    uint32_t optimal; /* 1: proven to be the best (bottleneck, cut), or cut within `balance` */
    double bottleneck_ms;
    /* no assignment has a smaller bottleneck: the heaviest inseparable node or group, or all work
     * spread evenly over the devices */
    double lower_bound_ms;
    double cut_bytes;
    /* bytes sent if a value that skips stages is relayed by each stage in between */
    double relay_bytes;
    double step_ms; /* simulated, with options->schedule */
    /* lower bound of any plan's step: critical path, or microbatches * lower_bound_ms */
    double step_bound_ms;
    double bubble; /* part of the devices' time that is idle in the step, 0..1 */
    uint64_t seed;
    uint64_t reserved[4];
} lig_pipe_plan;

#define LIG_PIPE_PLAN_INIT {0}

/* Partitions the graph. Errors:
 * LIG_E_INVALID      invalid graph or option; more stages than nodes (or than groups)
 * LIG_E_LIMIT        memory, `balance` or the separated pairs cannot be satisfied: the error text
 *                    gives the nearest value that can; or the graph is too large for `exact`
 * LIG_E_UNSUPPORTED  `metis` without libmetis; a schedule that does not fit the devices
 * LIG_E_NOMEM
 * On failure the arrays' contents are unspecified and the scalars unchanged. */
LIG_API lig_status lig_pipe_partition(const lig_pipe_graph *graph, const lig_pipe_options *options,
                                      lig_pipe_plan *plan);

/* Evaluates an existing plan: reads plan->stage, plan->stage_count and plan->stage_device (its pointer NULL: stage s
 * is on device s % device_count), and fills the rest as lig_pipe_partition does. options->stages and method are used
 * only by lig_pipe_device_count. LIG_E_INVALID if a value flows to a lower stage, a stage is empty, or nodes that
 * belong together are separated; LIG_E_LIMIT if the memory of a device is exceeded. */
LIG_API lig_status lig_pipe_measure(const lig_pipe_graph *graph, const lig_pipe_options *options, lig_pipe_plan *plan);

/* Fills lower_bound_ms and step_bound_ms of a plan, without computing a plan. */
LIG_API lig_status lig_pipe_bound(const lig_pipe_graph *graph, const lig_pipe_options *options, double *lower_bound_ms,
                                  double *step_bound_ms);

/* --- stages and their timeline --- */

/* A pipeline as seen by a schedule: a chain, because values that skip stages are relayed. The caller sets the
 * arrays, [stage_count] each; lig_pipe_fold fills them, or the caller does from measurements. */
typedef struct lig_pipe_stages {
    uint32_t stage_count;
    uint32_t device_count;
    uint32_t *device;         /* of each stage */
    double *forward_ms;       /* on its device: includes the device's speed */
    double *backward_ms;      /* includes recomputation */
    double *weight_ms;        /* part of backward_ms that can wait (zero bubble) */
    double *forward_send_ms;  /* to the next stage; 0 for the last, and within one device */
    double *backward_send_ms; /* of its gradients to the stage before; 0 for the first */
    double *send_bytes;       /* to the next stage, relayed values included */
    double *fixed_bytes;      /* parameters, gradients, optimizer state, buffers */
    double *flight_bytes;     /* for each micro-batch between its forward and its backward */
    double *work_bytes;       /* once, while a backward runs (recomputation), else 0 */
    double tie_ms;            /* summing tied gradients after the last backward */
    uint64_t reserved[4];
} lig_pipe_stages;

#define LIG_PIPE_STAGES_INIT {0}

/* Fills `stages`, whose arrays hold plan->stage_count elements, from a plan that lig_pipe_partition
 * or lig_pipe_measure filled. */
LIG_API lig_status lig_pipe_fold(const lig_pipe_graph *graph, const lig_pipe_options *options,
                                 const lig_pipe_plan *plan, lig_pipe_stages *stages);

typedef enum lig_pipe_work {
    LIG_PIPE_FORWARD = 0,
    /* the whole backward, or the part that the previous stage waits for when it is split */
    LIG_PIPE_BACKWARD = 1,
    LIG_PIPE_WEIGHT = 2 /* the rest of a split backward */
} lig_pipe_work;

typedef struct lig_pipe_event {
    uint32_t device;
    uint32_t stage;
    uint32_t microbatch;
    uint32_t work; /* lig_pipe_work */
    double begin_ms;
    double end_ms;
} lig_pipe_event;

/* The caller sets the pointers and event_capacity. */
typedef struct lig_pipe_timeline {
    /* or NULL; device by device, each in execution order: a runtime can take its actions from here, regardless of
     * which devices the stages are on */
    lig_pipe_event *events;
    size_t event_capacity; /* 3 * stage_count * microbatches always suffices */
    /* total; if it exceeds the capacity only the first ones are filled */
    size_t event_count;
    double *device_busy_ms; /* [device_count] or NULL */
    double *device_bytes;   /* [device_count] or NULL: peak */
    double step_ms;
    double bubble;
    uint64_t reserved[4];
} lig_pipe_timeline;

#define LIG_PIPE_TIMELINE_INIT {0}

/* Simulates one step of `microbatches`. Transfers overlap computation; those of one border and direction are
 * sequential. 1F1B and GPipe on devices with several stages, in any order, follow these rules: backward before
 * forward, lower micro-batches first, and for 1F1B at most stage_count - s micro-batches in flight in stage s.
 * LIG_E_UNSUPPORTED if the schedule needs a different arrangement of stages on devices, or a different number of
 * micro-batches. */
LIG_API lig_status lig_pipe_simulate(const lig_pipe_stages *stages, uint32_t schedule, uint32_t microbatches,
                                     lig_pipe_timeline *timeline);

#ifdef __cplusplus
}
#endif
#endif
