/* Checksums of blocks that were read into device memory, compared there after they have landed. */
#ifndef LIGI_DEVICE_VERIFY_H
#define LIGI_DEVICE_VERIFY_H

#include <ligament/backend.h>

/* Which blocks a device can hash, remembered for the device of the last question. Begins as {0}. */
typedef struct ligi_device_verify {
    int known;
    int32_t device;
    uint64_t least; /* bytes of a block */
} ligi_device_verify;

/* 1 when a block of the range is verified by ligi_device_verify_run. */
int ligi_device_verify_later(ligi_device_verify *self, const lig_range *range, uint64_t bytes);

/* Verifies all such blocks of the ranges. LIG_E_CORRUPT without an error text: range *bad differs
 * from its checksums, in the block at *offset of the pack. */
lig_status ligi_device_verify_run(const void *secret, const lig_range *ranges, size_t count,
                                  size_t *bad, uint64_t *offset);

#endif
