/* When the functions were called, by their names. */
#ifndef LIGI_EVO_STAMPS_H
#define LIGI_EVO_STAMPS_H

#include <stddef.h>
#include <stdint.h>

/* In the order of their names, which is the order of all time stamps. */
typedef enum ligi_evo_call {
    EVO_GET_COMPOSITION,
    EVO_GET_PREFIX,
    EVO_READ_LAYERS,
    EVO_STORE_LAYERS,
    EVO_STORE_META,
    EVO_UPDATE_REF_COUNTER,
    EVO_CALLS
} ligi_evo_call;

typedef struct ligi_evo_stamps {
    uint64_t *pairs; /* a ring of EVO_PAIRS_MAX begin-end pairs once it is full */
    size_t count, room, next;
    int called;
} ligi_evo_stamps;

#define EVO_PAIRS_MAX 65536u

/* EVO_CALLS for an unknown name. */
ligi_evo_call ligi_evo_call_named(const char *name);
uint64_t ligi_evo_now_us(void);
/* Without memory for it the pair is left out. */
void ligi_evo_stamps_add(ligi_evo_stamps *stamps, uint64_t begin, uint64_t end);
/* Copies 2 * count numbers, the oldest pair first; returns that number. */
size_t ligi_evo_stamps_copy(const ligi_evo_stamps *stamps, uint64_t *out);

#endif
