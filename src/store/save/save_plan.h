/* The plan of a save: ties, locations, copies of the arguments. Pure. */
#ifndef LIGI_SAVE_PLAN_H
#define LIGI_SAVE_PLAN_H

#include "store/format/record.h"
#include "store/remote.h"

struct ligi_shares;

typedef struct ligi_plan {
    ligi_about
        about; /* id and created_ns are set by the save; the arrays are borrowed or in `memory` */
    const char *structure;
    lig_tensor
        *tensors; /* owned copies of the structs; what they point to is borrowed or in `memory` */
    ligi_slot *slots;
    ligi_box_position
        *places;      /* NULL: all tensors are whole; what they point to is like the tensors' */
    uint64_t *orders; /* of a part: lig_box.order */
    uint64_t *hashes;
    size_t count, hash_count;
    size_t shown_count;             /* tensors as users see them; 0: all are whole */
    uint64_t bytes;                 /* of all tensors, tied ones once */
    uint32_t flags;                 /* LIG_SAVE_*; LIG_COPY_NEWER with LIG_SAVE_REPLACE */
    ligi_writer graphs;             /* as ligi_graphs_put writes them; none: no bytes */
    char *memory;                   /* copies of names, shapes and options; NULL: all is borrowed */
    struct ligi_shares *shares;     /* stored tensors that may be referred to; NULL: none */
    lig_part **part;                /* not NULL: not a model, but a part of one */
    ligi_lease match;               /* of a remote store: the match to share with */
    uint64_t match_model;           /* and its model's id; 0: none */
    struct ligi_remote_save *begun; /* the server has accepted it; NULL: not yet, or local */
    lig_ref **ref;                  /* receives a ref to the saved model; NULL: not requested */
    lig_model **model;              /* receives its description; NULL: not requested */
    struct ligi_once *once;         /* the served request that saves; NULL: the handle's */
    int packed;                     /* a pack in any case */
    int copied;                     /* copied from another store: the parent need not be in this
                                     * one */
    char *parent_name;              /* a copy: about.parent_name once the parent was found */
} ligi_plan;

/* Fills a zeroed plan. The tensors have been checked. With `copy`, only the caller's tensor memory
 * is referenced. ligi_plan_fini also after a failure. */
typedef struct ligi_plan_input {
    const char *name;
    const lig_tensor *tensors;
    size_t count;
    const lig_save_options *options; /* NULL: none */
    int copy;
    const ligi_box_position *places; /* NULL: whole tensors; else names may repeat */
    size_t shown_count;              /* with `places` */
} ligi_plan_input;
lig_status ligi_plan_make(ligi_plan *plan, const ligi_plan_input *input);
void ligi_plan_fini(ligi_plan *plan);

/* Places tensor `index` at the first suitable offset from `at` on: multiples of 4096 for large ones
 * in a pack, of 64 for others. Returns the offset of its end. */
uint64_t ligi_plan_place(ligi_plan *plan, size_t index, uint64_t at, int in_pack);

/* Fills the fields of a model's record about its tensors: counts, bytes and uses. `pack` is the one
 * that was written, 0: none. The caller frees the uses. */
lig_status ligi_plan_record(const ligi_plan *plan, uint64_t pack, ligi_record *record);

#endif
