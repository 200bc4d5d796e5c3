/* Saving into a served store. Pure.
 *
 * A small save carries the bytes of its tensors (LIGI_SERVED_WHOLE). For any other the server
 * checks the description, accepts it (DONE 0), and requests with NEED block hashes of tensors that
 * may already be stored and the bytes of those that are not. The client answers each NEED with one
 * DATA, in any order; for tensors of a save in parts, after they have been offered. */
#ifndef LIGI_SERVED_SAVE_H
#define LIGI_SERVED_SAVE_H

#include "store/format/manifest.h"
#include "store/serve/message/served_models.h"

#define LIGI_SERVED_WANT_REF 1u   /* reply with the model, held until RELEASE */
#define LIGI_SERVED_WANT_MODEL 2u /* reply with the model, not held */
#define LIGI_SERVED_PART 4u       /* a part of a model (part.h), held until RELEASE */
#define LIGI_SERVED_IN_PARTS 8u   /* tensors are offered one by one; ends with COMMIT */
#define LIGI_SERVED_COPY 16u      /* the parent need not be in the store */
#define LIGI_SERVED_PACKED 32u    /* a pack in any case */
#define LIGI_SERVED_WHOLE 64u     /* the tensors' bytes follow as data, tied ones once */

#define LIGI_SERVED_NOT_TIED UINT64_MAX

/* The description of a SAVE or a JOIN. In a decoded one all arrays are freed by fini, and strings
 * are borrowed. */
typedef struct ligi_served_save {
    const char *name;
    uint32_t flags;       /* LIG_SAVE_* */
    uint32_t wants;       /* LIGI_SERVED_* */
    int64_t created_ns;   /* 0: now */
    const char *parent;   /* a name or an alias; NULL: none, or that of the match */
    uint64_t match;       /* number of the match to share with; 0: none */
    uint64_t match_model; /* and its model's id, if the session no longer has the match */
    const lig_metric *metrics;
    size_t metric_count;
    const lig_tag *tags;
    size_t tag_count;
    const char *meta, *structure; /* "" for none */
    const void *graphs;           /* as ligi_graphs_put writes them; JOIN: layers without bytes */
    size_t graph_bytes;

    /* SAVE */
    const lig_tensor *tensors; /* name, dtype, shape and bytes alone */
    size_t count;
    const uint64_t *tied; /* index of an earlier tensor, LIGI_SERVED_NOT_TIED; NULL: none is tied */
    const ligi_box_position *places; /* NULL: all are whole */
    const uint64_t *orders;          /* PART: lig_box.order; otherwise NULL */
    size_t shown_count;              /* with places that are not a part's */
    uint64_t bytes;                  /* filled by get: of the tensors, tied ones once */

    /* JOIN */
    const lig_part_data *parts;
    size_t part_count;

    void *shapes; /* of the decoded tensors */
} ligi_served_save;

#define LIGI_SERVED_PARTS_MAX 65536

void ligi_served_save_put(ligi_writer *writer, const ligi_served_save *save);
lig_status ligi_served_save_get(const void *body, size_t bytes, ligi_served_save *save);
void ligi_served_save_fini(ligi_served_save *save);

typedef struct ligi_served_saved {
    uint64_t id;   /* of the model; 0 for a part */
    int has_model; /* if it was requested. A repeated save has none if the model was replaced
                    * since */
    ligi_served_model model; /* its `ref` is set if LIGI_SERVED_WANT_REF was */
    uint64_t part;           /* number of the part, for RELEASE; 0: none */
    const uint8_t *part_data;
    size_t part_bytes;
} ligi_served_saved;

void ligi_served_saved_put(ligi_writer *writer, const ligi_served_saved *saved);
lig_status ligi_served_saved_get(const void *body, size_t bytes, ligi_served_saved *saved);

#define LIGI_SERVED_NEED_BYTES 0u /* data: the bytes of the stretches */
#define LIGI_SERVED_NEED_HASHES                                                                    \
    1u /* data: a u64 (lig_hash_block) for each block of the stretches,
                                    * which begin at a block */
#define LIGI_SERVED_NEED_BYTES_MAX (UINT64_C(16) << 20) /* data of one DATA */
#define LIGI_SERVED_STRETCHES_MAX 4096

typedef struct ligi_served_stretch {
    uint64_t tensor, offset, bytes;
} ligi_served_stretch;

typedef struct ligi_served_need {
    uint64_t tag; /* for the DATA */
    uint32_t kind;
    const ligi_served_stretch *stretches; /* at least one, none empty; freed by fini */
    size_t count;
    uint64_t data_bytes; /* filled by get: of the DATA */
} ligi_served_need;

void ligi_served_need_put(ligi_writer *writer, const ligi_served_need *need);
/* The caller compares the stretches with its tensors. */
lig_status ligi_served_need_get(const void *body, size_t bytes, ligi_served_need *need);
void ligi_served_need_fini(ligi_served_need *need);

#endif
