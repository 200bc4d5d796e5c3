/* Rows of a unit, on the side of the node that deals with it. */
#ifndef LIGI_SNAPSHOT_ROWS_H
#define LIGI_SNAPSHOT_ROWS_H

#include "params/snapshot/snapshot.h"

void ligi_params_snapshot_rows_fini(ligi_snapshot_rows *rows);
/* Makes room for a unit of the plan; keys are filled where they are dense. */
lig_status ligi_params_snapshot_rows_begin(ligi_snapshot_rows *rows, const ligi_snapshot_call *call,
                                           uint64_t unit);
uint8_t *ligi_params_snapshot_rows_body(const ligi_snapshot_rows *rows,
                                        uint32_t index); /* in the order of the model */
uint32_t ligi_params_snapshot_rows_length(const ligi_snapshot_rows *rows, uint32_t index);

/* Fetches all rows of the unit from whoever has them. */
lig_status ligi_params_snapshot_rows_gather(ligi_snapshot_rows *rows, ligi_snapshot_call *call);
/* Gives them to their owners; hashed keys that nobody has, to their homes. */
lig_status ligi_params_snapshot_rows_scatter(ligi_snapshot_rows *rows, ligi_snapshot_call *call);
lig_status ligi_params_snapshot_rows_arrived(lig_params *node, uint32_t rank,
                                             const ligi_snapshot_message *content);
lig_status ligi_params_snapshot_owned(lig_params *node, uint32_t rank,
                                      const ligi_snapshot_message *content);
lig_status ligi_params_snapshot_taken(lig_params *node, uint32_t rank,
                                      const ligi_snapshot_message *content);

#endif
