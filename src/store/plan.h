/* What a save is going to write: ties, places, copies of what it was given. Pure. */
#ifndef LIGI_PLAN_H
#define LIGI_PLAN_H

#include "store/manifest.h"

typedef struct ligi_plan {
    ligi_about
        about; /* id and created_ns are set by the save; the arrays are borrowed or in `memory` */
    const char *structure;
    lig_tensor
        *tensors; /* owned copies of the structs; what they point to is borrowed or in `memory` */
    ligi_slot *slots;
    uint64_t *hashes;
    size_t count, hash_count;
    uint64_t bytes;      /* of all tensors, tied ones once */
    uint64_t data_bytes; /* of the data as it lies in the pack, gaps included: where it ends, minus
                            where it begins */
    uint32_t flags;      /* LIG_SAVE_* */
    ligi_writer graphs;  /* as ligi_graphs_put writes them; none: no bytes */
    char *memory;        /* copies of names, shapes and options; NULL: all is borrowed */
    char *parent_name;   /* a copy: about.parent_name once the parent was found */
} ligi_plan;

/* Fills a zeroed plan. The tensors have been checked. With `copy` nothing of the caller's is kept
 * but tensor memory. ligi_plan_fini also after a failure. */
typedef struct ligi_plan_input {
    const char *name;
    const lig_tensor *tensors;
    size_t count;
    const lig_save_options *options; /* NULL: none */
    int copy;
} ligi_plan_input;
lig_status ligi_plan_make(ligi_plan *plan, const ligi_plan_input *input);
void ligi_plan_fini(ligi_plan *plan);

/* Gives every tensor its place, from `start` on: big ones at multiples of 4096 in a pack
 * (`big_align`), others of 64. */
void ligi_plan_place(ligi_plan *plan, uint64_t start, uint64_t big_align);

#endif
