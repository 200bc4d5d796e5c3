/* Reading the catalog of a remote volume: the volume's members. */
#ifndef LIGI_REMOTE_CATALOG_H
#define LIGI_REMOTE_CATALOG_H

#include "backend/remote/remote_volume.h"

lig_status ligi_remote_catalog_begin(void *self, void **snapshot, uint64_t *version);
void ligi_remote_catalog_end(void *snapshot);
lig_status ligi_remote_catalog_settle(void *self);
lig_status ligi_remote_catalog_events(void *self, uint64_t since, lig_catalog_visit visit,
                                      void *context);
lig_status ligi_remote_catalog_wait(void *self, uint64_t since, int64_t timeout_ns);
lig_status ligi_remote_catalog_verify(void *self, int repair, lig_catalog_problem problem,
                                      void *context);

#endif
