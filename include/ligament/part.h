/* Ligament: one model from several processes. Part of store.h.
 *
 * Each process writes what it holds (whole tensors, or boxes of larger ones) as a part: a save with `part` set in its
 * options, by lig_store_save, lig_store_save_start or lig_save_begin, into the same place. A part is durable and
 * invisible. Its bytes, a few for each tensor and MiB, travel to one process, and lig_store_join makes the model of
 * all parts with one commit. Then, and when it is given up, each process closes its part. Whoever loads the model sees
 * whole tensors and nothing of the parts. */
#ifndef LIGAMENT_PART_H
#define LIGAMENT_PART_H

#include <ligament/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where a tensor of a part lies in the tensor of that name; it has as many dimensions. Several tensors of one part may
 * have one name. */
typedef struct lig_box {
    const int64_t *shape; /* of the whole; NULL: the tensor is the whole */
    const int64_t *start; /* the box begins here in every dimension and is as large as the part's tensor */
    uint64_t order;       /* the model's tensors are in ascending order of it; the same for all boxes of one */
} lig_box;

/* What `boxes` and `part` of lig_save_options are for: boxes[i] is that of tensor i (NULL: whole tensors, in order);
 * *part is set when the save has ended well, for an asynchronous one before its ticket is done. Of the other options
 * only `flags`, `parent` and `match` count for a part: what the model may refer to, and whether its name may be taken.
 * lig_part is **shared**. */
typedef struct lig_part lig_part;

/* What lig_store_join takes, borrowed from the part. */
LIG_API lig_status lig_part_bytes(const lig_part *part, const void **data, size_t *bytes);

/* Lets go of what the part holds. Bytes that no model has come to name are removed, through `store`, the one it was
 * written with; NULL when that is closed already, and whoever opens the place next removes them. NULL part is fine. */
LIG_API void lig_part_close(lig_part *part, lig_store *store);

typedef struct lig_part_data {
    const void *data;
    size_t bytes;
} lig_part_data;

/* Makes one model of the parts and commits it; the options are those of a save without `match`, `boxes` and `part`.
 * LIG_E_MISMATCH, with a sentence that names tensor and part, when boxes do not cover a tensor exactly once or parts
 * differ about it; LIG_E_NOTFOUND when a part's bytes are gone, because it was closed or its process has ended;
 * LIG_E_CORRUPT when `data` is not a part's. `data` is checked like a file: it may come from anywhere. */
LIG_API lig_status lig_store_join(lig_store *store, const char *model, const lig_part_data *parts, size_t count,
                                  const lig_save_options *options);

#ifdef __cplusplus
}
#endif
#endif
