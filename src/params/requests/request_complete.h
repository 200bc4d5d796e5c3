/* What becomes of a worker's requests: answers, failures, and those who wait. */
#ifndef LIGI_REQUEST_COMPLETE_H
#define LIGI_REQUEST_COMPLETE_H

#include "params/state/node_state.h"

/* One of its requests fails now, unless it has ended. Under the lock. */
void ligi_ask_end(lig_params_worker *worker, ligi_ticket *ticket, lig_status status,
                  const char *sentence);
/* Its open requests fail; nothing writes to the caller's memory from now on. Under the lock. */
void ligi_ask_abandon(lig_params_worker *worker, lig_status status, const char *sentence);
/* What was lent and not answered goes back; after net is closed; no lock. */
void ligi_ask_forget(lig_params *node);
/* `rank` answers. Under the lock. */
lig_status ligi_ask_answered(lig_params *node, uint32_t rank, const ligi_letter *letter,
                             const ligi_parts *parts);

#endif
