/* Searching a served store. Pure. */
#ifndef LIGI_SERVED_FIND_H
#define LIGI_SERVED_FIND_H

#include "store/serve/message/served_models.h"

typedef struct ligi_served_find {
    const char *like;   /* a stored model whose first graph is searched for; NULL: `layers` */
    const void *layers; /* as ligi_layers_put writes them */
    size_t layer_bytes;
    lig_find_options options; /* the arrays of a decoded one are freed by fini */
} ligi_served_find;

#define LIGI_SERVED_EXCLUDED_MAX 1000000

void ligi_served_find_put(ligi_writer *writer, const ligi_served_find *find);
lig_status ligi_served_find_get(const void *body, size_t bytes, ligi_served_find *find);
void ligi_served_find_fini(ligi_served_find *find);

typedef struct ligi_served_match {
    ligi_served_model model; /* its `ref` is the number of the match, for RELEASE and SAVE */
    int64_t expires_ns;
    uint64_t bytes;
    const uint32_t *layers;
    size_t layer_count;
    const lig_matched_tensor *tensors; /* `stored` is not compared with the model here */
    size_t tensor_count;
} ligi_served_match;

typedef struct ligi_served_matches {
    ligi_served_match *matches; /* this and the arrays in it: freed by fini */
    size_t count;
} ligi_served_matches;

void ligi_served_matches_put(ligi_writer *writer, const ligi_served_matches *matches);
lig_status ligi_served_matches_get(const void *body, size_t bytes, ligi_served_matches *matches);
void ligi_served_matches_fini(ligi_served_matches *matches);

#endif
