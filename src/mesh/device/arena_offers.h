/* Memory of a device that a worker and a server on one host share: the worker offers its arenas,
 * and the server opens them, once each. A server on the same device that has opened an arena reads
 * and writes it directly; where that fails (another device, user or container, no device), all data
 * goes through host memory. */
#ifndef LIGI_ARENA_OFFERS_H
#define LIGI_ARENA_OFFERS_H

#include "mesh/mesh_message.h"

#include <stdatomic.h>

struct ligi_party;
struct ligi_mesh_device;

/* The arenas of a worker that a server has opened. They stay open while a tensor in them is held,
 * even if the worker is lost. */
typedef struct ligi_imports {
    atomic_uint refs;
    int32_t device;
    struct {
        uint8_t *data; /* NULL: not opened */
        uint64_t bytes;
        int same_process; /* not opened: memory of this process */
    } arenas[LIGI_MESSAGE_ARENAS];
} ligi_imports;

void ligi_imports_hold(ligi_imports *imports);
void ligi_imports_drop(ligi_imports *imports); /* any thread */

typedef struct ligi_arenas {  /* the arenas shared by a peer and this member */
    uint64_t offered, opened; /* of the worker's: bits by arena; a server has opened them */
    ligi_imports *imports;    /* a server's; NULL: none */
} ligi_arenas;

/* Offers the arenas that have not been offered yet, if the server is on this host. */
void ligi_arena_offer(struct ligi_mesh_device *device, struct ligi_party *party);
/* A server's: opens, and answers. */
lig_status ligi_arena_on_offer(struct ligi_party *party, const void *head, size_t bytes);
/* A worker's: the answer. */
void ligi_arena_on_opened(struct ligi_party *party, const ligi_message *message);
/* The peer has left or is lost. */
void ligi_arenas_reset(ligi_arenas *arenas);

/* The address of a place in a worker's arena; NULL if it is not in an arena that was opened. */
uint8_t *ligi_arenas_find(const ligi_arenas *arenas, const ligi_place *place, uint64_t bytes);

#endif
