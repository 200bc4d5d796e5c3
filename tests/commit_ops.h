/* A commit without events, for tests of volumes. */
#ifndef COMMIT_OPS_H
#define COMMIT_OPS_H

#include <ligament/backend.h>

static inline lig_status commit_ops(const lig_volume_ops *volume, void *self, uint64_t version,
                                    const lig_catalog_op *ops, size_t count)
{
    const lig_catalog_edit edit = {.version = version, .ops = ops, .op_count = count};
    return volume->catalog_commit(self, &edit);
}

#endif
