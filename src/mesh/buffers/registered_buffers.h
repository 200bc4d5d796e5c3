/* Buffers that the user registered for the tensors of a key (lig_mesh_register_recv_buffer), of one
 * worker. */
#ifndef LIGI_REGISTERED_BUFFERS_H
#define LIGI_REGISTERED_BUFFERS_H

#include "base/map.h"

typedef struct ligi_registered_buffer {
    uint64_t key;
    uint8_t *data;
    uint64_t bytes;
    uint16_t memory;    /* lig_memory */
    const void *holder; /* the request that uses it, until it is answered */
    uint64_t claim;     /* number of the last request that was assigned it */
    uint32_t parked;    /* requests waiting in blocks until it is free */
} ligi_registered_buffer;

typedef struct ligi_registered { /* of one worker; zero-initialised is valid */
    ligi_map map;
    ligi_registered_buffer **all;
    size_t count, room;
} ligi_registered;

#define LIGI_REGISTERED_MAX 65536

/* NULL if nothing is registered for the key. */
ligi_registered_buffer *ligi_registered_find(const ligi_registered *places, uint64_t key);
/* LIG_E_LIMIT if a tensor of that many bytes is too large for the buffer; NULL accepts any size. */
lig_status ligi_registered_fits(const ligi_registered_buffer *buffer, uint64_t tensor_bytes);
/* Registers, or replaces the registration; BUSY while a request uses the old buffer. */
lig_status ligi_registered_set(ligi_registered *places, uint64_t key, void *data, uint64_t bytes,
                               uint16_t memory);
void ligi_registered_fini(ligi_registered *places);

#endif
