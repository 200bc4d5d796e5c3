/* The peer's segments as they are mapped here. */
#ifndef LIGI_SHM_VIEW_H
#define LIGI_SHM_VIEW_H

#include "net/shm/wire.h"

lig_status ligi_views_add(ligi_wire *wire, int fd, uint32_t segment, uint64_t bytes);
ligi_shm_view *ligi_views_find(const ligi_wire *wire, uint32_t segment);
void ligi_views_forget(ligi_wire *wire, uint32_t segment);
void ligi_views_fini(ligi_wire *wire);

#endif
