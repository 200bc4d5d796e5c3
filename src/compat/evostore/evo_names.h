/* Encodes a composition in the names of a model's tensors: "LAYER/INDEX@OWNER", with '!' at the end
 * for a tensor without bytes. Pure. */
#ifndef LIGI_EVO_NAMES_H
#define LIGI_EVO_NAMES_H

#include <ligament/store.h>

#define EVO_NAME_BYTES 80

typedef struct ligi_evo_entry {
    uint64_t lid, owner;
    size_t tensor; /* index in the model */
    int stored;    /* 0: announced, never saved */
    int covered;   /* 0: a lease does not hold its bytes */
} ligi_evo_entry;

typedef struct ligi_evo_composition { /* ascending by lid */
    ligi_evo_entry *entries;
    size_t count;
} ligi_evo_composition;

/* Fills EVO_NAME_BYTES. */
void ligi_evo_name_write(char *text, uint64_t layer, uint64_t lid, uint64_t owner, int stored);

/* A model's number; 0 if the name is not a number. */
int ligi_evo_model_read(const char *name, uint64_t *id);

/* Tensors of one layer have consecutive numbers: the layer of lids[i] is the first of its run. */
void ligi_evo_layers_of(const uint64_t *lids, size_t count, uint64_t *layers);

lig_status ligi_evo_composition_of(const lig_model *model, ligi_evo_composition *out);
void ligi_evo_composition_fini(ligi_evo_composition *composition);
const ligi_evo_entry *ligi_evo_composition_find(const ligi_evo_composition *composition,
                                                uint64_t lid);

#endif
