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
    struct ligi_shares *shares;     /* what may be referred to; NULL: nothing */
    lig_part **part;                /* not NULL: not a model, but a part of one */
    ligi_lease match;               /* of a remote store: the match to share with */
    uint64_t match_model;           /* and its model's id; 0: none */
    struct ligi_remote_save *begun; /* the server has accepted it; NULL: not yet, or local */
    lig_ref **ref;                  /* where to put what was saved; NULL: nowhere */
    lig_model **model;              /* where to put its description; NULL: nowhere */
    struct ligi_once *once;         /* the served request that saves; NULL: the handle's */
    int packed;                     /* a pack in any case */
    int copied;                     /* of another store: the parent need not be in this one */
    char *parent_name;              /* a copy: about.parent_name once the parent was found */
} ligi_plan;

/* Fills a zeroed plan. The tensors have been checked. With `copy` nothing of the caller's is kept
 * but tensor memory. ligi_plan_fini also after a failure. */
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

/* Gives tensor `index` the first place at or behind `at` that suits it: big ones at multiples of
 * 4096 in a pack, others of 64. Returns where it ends. */
uint64_t ligi_plan_place(ligi_plan *plan, size_t index, uint64_t at, int in_pack);

/* Fills what a model's record says of its tensors: counts, bytes and uses. `pack` is the one that
 * was written, 0: none. The uses are the caller's to free. */
lig_status ligi_plan_record(const ligi_plan *plan, uint64_t pack, ligi_record *record);

#endif
