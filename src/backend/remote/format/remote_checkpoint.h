/* Checkpoints: the whole catalog at one version, so that the log before it is not needed. Pure. */
#ifndef LIGI_REMOTE_CHECKPOINT_H
#define LIGI_REMOTE_CHECKPOINT_H

#include "backend/remote/format/remote_state.h"

typedef lig_status (*ligi_remote_sink)(void *context, const void *bytes, size_t count);

/* The bytes of a checkpoint, in pieces. Equal states give equal bytes. */
lig_status ligi_remote_checkpoint_put(const ligi_remote_state *state, const uint8_t id[16],
                                      ligi_remote_sink sink, void *context);
/* LIG_E_CORRUPT unless it is complete and belongs to the store with this id. */
lig_status ligi_remote_checkpoint_get(const void *bytes, size_t count, const uint8_t id[16],
                                      ligi_remote_state **state);

#endif
