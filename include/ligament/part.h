/* Ligament: one model from several processes. Part of store.h. Each process writes its tensors (whole, or boxes of
 * larger ones) as a part: a save with `part` set in its options, by lig_store_save, lig_store_save_start or
 * lig_save_begin, into the same store. A part is durable and invisible. Its description, a few bytes per tensor and
 * MiB, is sent to one process, and lig_store_join creates the model from all parts with one commit. After that, or
 * if the save is abandoned, each process closes its part. Readers of the model see only whole tensors. */
#ifndef LIGAMENT_PART_H
#define LIGAMENT_PART_H

#include <ligament/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The position of a part's tensor in the whole tensor of that name; both have the same number of dimensions. Several
 * tensors of one part may have the same name. */
typedef struct lig_box {
    const int64_t *shape; /* of the whole tensor; NULL: this is the whole tensor */
    const int64_t *start; /* start of the box in every dimension; the box has the size of the part's tensor */
    uint64_t order;       /* order of the model's tensors, ascending; the same for all boxes of one tensor */
} lig_box;

/* For `boxes` and `part` of lig_save_options: boxes[i] is that of tensor i (NULL: whole tensors, in order);
 * *part is set when the save has succeeded, for an asynchronous one before its ticket completes. Of the other
 * options only `flags`, `parent` and `match` apply to a part: what the model may refer to, and whether its name
 * may exist. lig_part is **shared**. */
typedef struct lig_part lig_part;

/* The description that lig_store_join takes, borrowed from the part. */
LIG_API lig_status lig_part_bytes(const lig_part *part, const void **data, size_t *bytes);

/* Releases the part. Bytes that no model refers to are removed through `store`, the one it was written with;
 * pass NULL if that is closed, and the next process to open the store removes them. NULL part is valid. */
LIG_API void lig_part_close(lig_part *part, lig_store *store);

typedef struct lig_part_data {
    const void *data;
    size_t bytes;
} lig_part_data;

/* Creates one model from the parts and commits it; the options are those of a save without `match`, `boxes` and
 * `part`. LIG_E_MISMATCH, with tensor and part in the error text, if boxes do not cover a tensor exactly once
 * or parts differ about it; LIG_E_NOTFOUND if a part's bytes are gone, because it was closed or its process has
 * ended; LIG_E_CORRUPT if `data` is not a part's. `data` is untrusted and checked like a file. */
LIG_API lig_status lig_store_join(lig_store *store, const char *model, const lig_part_data *parts, size_t count,
                                  const lig_save_options *options);

#ifdef __cplusplus
}
#endif
#endif
