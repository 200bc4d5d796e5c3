/* Rows of a unit, on the side of the node that processes it. */
#ifndef LIGI_SNAPSHOT_ROWS_H
#define LIGI_SNAPSHOT_ROWS_H

#include "params/snapshot/snapshot.h"

void ligi_params_snapshot_rows_fini(ligi_snapshot_rows *rows);
/* Allocates rows for a unit of the plan; fills the keys if they are dense. */
lig_status ligi_params_snapshot_rows_begin(ligi_snapshot_rows *rows, const ligi_snapshot_call *call,
                                           uint64_t unit);
uint8_t *ligi_params_snapshot_rows_body(const ligi_snapshot_rows *rows,
                                        uint32_t index); /* in the order of the model */
uint32_t ligi_params_snapshot_rows_length(const ligi_snapshot_rows *rows, uint32_t index);

/* Fetches all rows of the unit from their owners. */
lig_status ligi_params_snapshot_rows_gather(ligi_snapshot_rows *rows, ligi_snapshot_call *call);
/* Sends the rows to their owners; hashed keys without an owner go to their home. */
lig_status ligi_params_snapshot_rows_scatter(ligi_snapshot_rows *rows, ligi_snapshot_call *call);
lig_status ligi_params_snapshot_rows_arrived(lig_params *node, uint32_t rank,
                                             const ligi_snapshot_message *content);
lig_status ligi_params_snapshot_owned(lig_params *node, uint32_t rank,
                                      const ligi_snapshot_message *content);
lig_status ligi_params_snapshot_taken(lig_params *node, uint32_t rank,
                                      const ligi_snapshot_message *content);

#endif
