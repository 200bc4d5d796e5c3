/* Which bytes a client with a limited role may read: those of the tensors of the models that its
 * session holds. */
#ifndef LIGI_SERVER_GRANTS_H
#define LIGI_SERVER_GRANTS_H

#include "store/serve/message/served_reads.h"
#include "store/serve/server/server_state.h"

/* LIG_E_DENIED unless each range lies inside one tensor of a model that the session holds. Sets the
 * hashes of those of `ranges` (as many as the request has) that consist of whole blocks, so that
 * they are verified here, where their key is. *hashes is the caller's to free. Does nothing for a
 * role that sees all models: its clients verify. */
lig_status ligi_served_grant_read(ligi_served_call *call, const ligi_served_read *read,
                                  lig_range *ranges, uint64_t **hashes);
/* The end of the last tensor in the pack that the session may read, in place of the pack's size:
 * that would tell of others' tensors. */
lig_status ligi_served_grant_size(ligi_served_call *call, uint64_t pack, uint64_t *bytes);

#endif
