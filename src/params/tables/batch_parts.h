/* Batches of many rows of one length, in parts that the threads of a team access. */
#ifndef LIGI_BATCH_PARTS_H
#define LIGI_BATCH_PARTS_H

#include "params/rows/row_kernels.h"

/* Like the kernels' gather and scatter, with the threads of batch->team. The order of the keys of a
 * scatter does not matter only if all keys differ (batch->distinct); otherwise it has one part. */
void ligi_batch_gather(const ligi_row_sweep *sweep);
void ligi_batch_scatter(const ligi_row_sweep *sweep);

#endif
