/* The source of the bytes of a save's tensors. */
#ifndef LIGI_SAVE_SOURCE_H
#define LIGI_SAVE_SOURCE_H

#include "store/save/save_plan.h"

/* Hashes of blocks [first, first + count) of a tensor, to be filled. */
typedef struct ligi_hash_ask {
    size_t index;
    uint64_t first, count;
    uint64_t *hashes;
} ligi_hash_ask;

/* The source of the bytes, and callbacks. All members may be NULL. */
typedef struct ligi_source {
    /* Waits until tensor `index` may be read, and may set its data and strides; also called before
     * the commit, with the number of tensors. A failure undoes the save. */
    lig_status (*wait)(void *context, size_t index);
    /* Fills bytes [offset, offset + bytes) of a tensor; default: from its memory. */
    lig_status (*fill)(void *context, size_t index, uint64_t offset, uint64_t bytes, void *out);
    /* Lends the same bytes, unchanged until the second next call of `view` or `fill`: for a source
     * with `fill` that holds them in private memory. */
    lig_status (*view)(void *context, size_t index, uint64_t offset, uint64_t bytes,
                       const void **data);
    /* Fills block hashes without transferring the bytes: a tensor that is already stored is
     * never transferred. Default: the bytes are hashed. Bytes are hashed again as they are
     * written, so that a wrong answer damages only the model that is being saved. */
    lig_status (*hash)(void *context, const ligi_hash_ask *asks, size_t count);
    /* The tensor's memory is no longer needed. */
    void (*done)(void *context, size_t index);
    /* Set if the save runs on a thread of the library: called while it waits for other processes,
     * in place of the store's hook. */
    int (*cancelled)(void *context);
    void *context;
    int in_parts; /* tensors arrive one by one: those that have not arrived must not be accessed */
} ligi_source;

typedef struct ligi_stretch {
    uint64_t offset, bytes;
    void *out;
} ligi_stretch;

/* 1 if the tensor's bytes are contiguous in host memory. */
int ligi_source_flat(const ligi_source *source, const lig_tensor *tensor);
/* Fills stretch->out with bytes of a tensor, regardless of its layout. */
lig_status ligi_source_fill(const ligi_source *source, const ligi_plan *plan, size_t index,
                            const ligi_stretch *stretch);

#endif
