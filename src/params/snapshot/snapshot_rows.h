/* Rows of a unit, on the side of the node that deals with it. */
#ifndef LIGI_SNAPSHOT_ROWS_H
#define LIGI_SNAPSHOT_ROWS_H

#include "params/snapshot/snapshot.h"

void ligi_rows_fini(ligi_rows *rows);
/* Makes room for a unit of the plan; keys are filled where they are dense. */
lig_status ligi_rows_begin(ligi_rows *rows, const ligi_keep_call *call, uint64_t unit);
uint8_t *ligi_rows_body(const ligi_rows *rows, uint32_t index); /* in the order of the model */
uint32_t ligi_rows_length(const ligi_rows *rows, uint32_t index);

/* Fetches all rows of the unit from whoever has them. */
lig_status ligi_rows_gather(ligi_rows *rows, ligi_keep_call *call);
/* Gives them to their owners; hashed keys that nobody has, to their homes. */
lig_status ligi_rows_scatter(ligi_rows *rows, ligi_keep_call *call);
lig_status ligi_keep_rows(lig_params *node, uint32_t rank, const ligi_note *note);
lig_status ligi_keep_owned(lig_params *node, uint32_t rank, const ligi_note *note);
lig_status ligi_keep_taken(lig_params *node, uint32_t rank, const ligi_note *note);

#endif
