/* A file descriptor from another process of this host, and reading a pack through it. */
#ifndef LIGI_DESCRIPTOR_RECEIVE_H
#define LIGI_DESCRIPTOR_RECEIVE_H

#include "store/serve/message/served_reads.h"

#include <ligament/backend.h>

/* Connects, sends the token, and receives the descriptor of a regular file of the announced size.
 * LIG_E_UNSUPPORTED if that is impossible, for instance from inside a container. */
lig_status ligi_descriptor_receive(const ligi_served_descriptor *from, int *fd);

typedef struct ligi_descriptor_pack {
    int fd;
    uint64_t id, bytes;
    const void *secret;
} ligi_descriptor_pack;

/* Implements lig_volume_ops.pack_read. Large reads use several threads. */
lig_status ligi_descriptor_read(const ligi_descriptor_pack *pack, const lig_range *ranges,
                                size_t count, size_t *bad);

#endif
