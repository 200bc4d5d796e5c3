/* Opening and closing: the connection and the pools of a store. */
#ifndef LIGI_RADOS_POOLS_H
#define LIGI_RADOS_POOLS_H

#include "backend/rados/rados.h"

lig_status ligi_rados_open(const ligi_engine_host *host, const ligi_engine_place *place,
                           void **self);
void ligi_rados_close(void *self, int forked);
void ligi_rados_describe(void *self, char *text, size_t text_bytes);
/* Sets the pool of the packs: the one that the store was created with. Not while others use the
 * engine. */
lig_status ligi_rados_data_pool_use(ligi_rados *e, const char *pool);

#endif
