/* The volume calls that watches need: the version, the events after a version, and a wait for
 * more. */
#ifndef LIGI_CLIENT_WATCH_H
#define LIGI_CLIENT_WATCH_H

#include "store/serve/client/client.h"

/* Members of lig_volume_ops. A snapshot has a version and nothing else. */
lig_status ligi_client_version_begin(void *self, void **snapshot, uint64_t *version);
void ligi_client_version_end(void *snapshot);
lig_status ligi_client_events(void *self, uint64_t since, lig_catalog_visit visit, void *context);
lig_status ligi_client_wait(void *self, uint64_t since, int64_t timeout_ns);

#endif
