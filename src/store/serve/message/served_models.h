/* Models as sent by a served store: one, or a list. Pure. */
#ifndef LIGI_SERVED_MODELS_H
#define LIGI_SERVED_MODELS_H

#include "store/serve/message/served_head.h"

/* RESOLVE holds the model's bytes until RELEASE or the end of the session. */
#define LIGI_SERVED_HOLD 1u

/* Selects a model. */
typedef struct ligi_served_selector {
    const char *name; /* a name or an alias; NULL: by id */
    uint64_t id;
    uint64_t parent; /* LINEAGE by id: the model's parent, for a model that may have been removed;
                      * 0: none */
    uint32_t flags;  /* RESOLVE: LIGI_SERVED_HOLD */
} ligi_served_selector;

void ligi_served_selector_put(ligi_writer *writer, const ligi_served_selector *selector);
lig_status ligi_served_selector_get(const void *body, size_t bytes, ligi_served_selector *selector);

/* A model in the form that ligi_model_list and ligi_model_adopt accept. All bytes are borrowed. */
typedef struct ligi_served_model {
    uint64_t ref;            /* number in the session, for RELEASE; 0: not held */
    uint64_t id;             /* the key of its record is LIGI_TABLE_MODEL and this */
    const uint8_t *record;   /* the value of its record in the catalog */
    const uint8_t *manifest; /* NULL in a list */
    const uint8_t *inlined;  /* data of an inline model */
    size_t record_bytes, manifest_bytes, inline_bytes;
} ligi_served_model;

void ligi_served_model_put(ligi_writer *writer, const ligi_served_model *model);
lig_status ligi_served_model_get(const void *body, size_t bytes, ligi_served_model *model);
/* For bodies that contain models. */
void ligi_served_model_read(ligi_reader *reader, ligi_served_model *model);

/* Models without their tensors. Zeroed is empty. */
typedef struct ligi_served_list {
    ligi_served_model *models; /* the array is the struct's own */
    size_t count;
} ligi_served_list;

void ligi_served_list_put(ligi_writer *writer, const ligi_served_list *list);
lig_status ligi_served_list_get(const void *body, size_t bytes, ligi_served_list *list);
void ligi_served_list_fini(ligi_served_list *list);

typedef struct ligi_served_lineage {
    ligi_served_list ancestors, children;
} ligi_served_lineage;

void ligi_served_lineage_put(ligi_writer *writer, const ligi_served_lineage *lineage);
lig_status ligi_served_lineage_get(const void *body, size_t bytes, ligi_served_lineage *lineage);
void ligi_served_lineage_fini(ligi_served_lineage *lineage);

/* lig_query. `tags` of the decoded query are freed by fini. */
void ligi_served_query_put(ligi_writer *writer, const lig_query *query);
lig_status ligi_served_query_get(const void *body, size_t bytes, lig_query *query);
void ligi_served_query_fini(lig_query *query);

#endif
