/* Ranges of a pack, read from the server into place. */
#ifndef LIGI_CLIENT_READ_H
#define LIGI_CLIENT_READ_H

#include "store/serve/client/client.h"

/* Implements lig_volume_ops.pack_read. Several requests are in flight at a time; blocks are
 * verified as they arrive. */
lig_status ligi_client_read(void *self, uint64_t pack, const void *secret, const lig_range *ranges,
                            size_t count, size_t *bad);

#endif
