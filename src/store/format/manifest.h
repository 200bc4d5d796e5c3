/* The encoding of a model (docs/formats.md): the fields that records share, and its tensors.
 * Pure. */
#ifndef LIGI_MANIFEST_H
#define LIGI_MANIFEST_H

#include "base/codec.h"

#include <ligament/store.h>

#define LIGI_FORMAT_VERSION 1
#define LIGI_MANIFEST_VERSION                                                                      \
    2 /* of manifests with boxes and of parts; others are written as 1                             \
       */
#define LIGI_TEXT_BYTES_MAX (UINT64_C(1) << 30) /* of meta and structure */
#define LIGI_LABELS_MAX 65536                   /* metrics or tags of a model */
#define LIGI_ALIGN_SMALL UINT64_C(64)

/* Strings are borrowed from the decoded bytes; the struct owns the arrays. */
typedef struct ligi_about {
    uint64_t id, parent;
    int64_t created_ns;
    const char *name, *parent_name, *meta;
    lig_metric *metrics;
    lig_tag *tags;
    size_t metric_count, tag_count;
} ligi_about;

void ligi_about_put(ligi_writer *writer, const ligi_about *about);
/* Fills a zeroed `about`; ligi_about_fini also after a failure. */
lig_status ligi_about_get(ligi_reader *reader, ligi_about *about);
void ligi_about_fini(ligi_about *about);

/* The location of a tensor's bytes. */
typedef struct ligi_slot {
    uint64_t owner, pack; /* 0: this model, this pack (or inline) */
    uint64_t offset;
    size_t first_hash;
    size_t tied; /* SIZE_MAX: not tied */
} ligi_slot;

/* The position of a stored tensor in the tensor that users see; whole NULL: it is that tensor. */
typedef struct ligi_box_position {
    const int64_t *whole, *start;
} ligi_box_position;

typedef struct ligi_body { /* borrows */
    const char *structure;
    const lig_tensor *tensors;
    const ligi_slot *slots;
    const uint64_t *hashes;
    size_t count;
    const void *graphs; /* as ligi_graphs_put writes them */
    size_t graph_bytes;
    const ligi_box_position *places; /* NULL: all tensors are whole */
    int part;                        /* not a model but a part of one (part.h) */
} ligi_body;

void ligi_manifest_put(ligi_writer *writer, const ligi_about *about, const ligi_body *body);

/* A tensor as users see it: `count` stored tensors from `first` on. */
typedef struct ligi_whole {
    size_t first, count;
} ligi_whole;

/* `tensors` are the stored ones, each a run of bytes; if some are boxes of a larger tensor, `shown`
 * has the larger tensor. */
typedef struct ligi_manifest {
    ligi_about about;
    const char *structure;
    lig_stored_tensor *tensors; /* fingerprints are 0 until ligi_manifest_fingerprints */
    const uint64_t **hashes;    /* hashes[i]: those of tensor i; of a tied one, its target's */
    ligi_box_position *places;  /* NULL: all tensors are whole */
    size_t tensor_count;
    lig_stored_tensor *shown; /* the same as `tensors` when all are whole, and in a part */
    ligi_whole *wholes;       /* of `shown`; NULL: one each */
    size_t shown_count;
    int part;
    const uint8_t *graphs; /* borrowed, not yet read: ligi_graphs_get */
    size_t graph_bytes;
    int64_t *shapes;
    uint64_t *hash_pool;
} ligi_manifest;

/* Fills a zeroed `manifest`, whose strings are borrowed from `bytes`. `here` is the pack that
 * contains it (0: inline). LIG_E_CORRUPT or LIG_E_UNSUPPORTED with an error text; call
 * ligi_manifest_fini also after a failure. */
lig_status ligi_manifest_get(const void *bytes, size_t size, uint64_t here,
                             ligi_manifest *manifest);
void ligi_manifest_fingerprints(ligi_manifest *manifest, const void *secret);
void ligi_manifest_fini(ligi_manifest *manifest);
uint64_t ligi_manifest_block_count(uint64_t bytes);

#endif
