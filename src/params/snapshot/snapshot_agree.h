/* Steps of a save or load: every node reports to node 0, which decides for all. */
#ifndef LIGI_SNAPSHOT_AGREE_H
#define LIGI_SNAPSHOT_AGREE_H

#include "params/snapshot/snapshot.h"
#include "params/state/node_state.h"

/* LIG_E_BUSY while another is under way. */
lig_status ligi_params_snapshot_begin(ligi_snapshot_call *call, int64_t timeout_ns);
/* Begun: what node 0 said before this one came, or that a node is lost. No lock. */
lig_status ligi_params_snapshot_check(ligi_snapshot_call *call);
void ligi_params_snapshot_end(ligi_snapshot_call *call);

/* The first step: that all call the same. From here on units may be asked for, and with `writable`
 * rows may be put. */
lig_status ligi_params_snapshot_agree_call(ligi_snapshot_call *call, lig_status status,
                                           int writable);

/* Ends a step: `status` is this node's, with its sentence. OK when all nodes have come here well;
 * then snapshot->answer is what node 0 said. Otherwise the call is over: the first failure, with
 * the name of its node. */
lig_status ligi_params_snapshot_agree(ligi_snapshot_call *call, lig_status status,
                                      const ligi_agreement *agreement);

/* Like ligi_node_wait, with the call for context and its deadline; asks `patience` meanwhile, and
 * is LIG_E_TIMEOUT with a sentence when that has ended (given_up). */
lig_status ligi_params_snapshot_wait(ligi_snapshot_call *call, int (*until)(void *context));

/* Under the lock: the call need not go on. */
int ligi_params_snapshot_interrupted(const lig_params *node);
/* Why: with its sentence. No lock. */
lig_status ligi_params_snapshot_why(ligi_snapshot_call *call);

/* Sends a note with `count` pieces behind its front. Under the lock. */
lig_status ligi_params_snapshot_send(lig_params *node, uint32_t rank, ligi_snapshot_verb verb,
                                     const ligi_snapshot_front *front, const struct iovec *pieces,
                                     size_t count);
void ligi_params_snapshot_reported(lig_params *node, uint32_t rank,
                                   const ligi_snapshot_message *content);
void ligi_params_snapshot_decided(lig_params *node, const ligi_snapshot_message *content);

/* A node begins with `snapshot` NULL: it is made when first needed, also for a scheduler's
 * life never. */
lig_status
ligi_params_snapshot_arrived(ligi_params_peer *peer, const ligi_params_message *message,
                             const void *payload,
                             uint64_t bytes); /* SNAPSHOT; a failing status loses the peer */
/* 1 for what is of interest even when a node is lost: it may say why that left. */
int ligi_params_snapshot_tells_why(const ligi_params_message *message);
void ligi_params_snapshot_fini(lig_params *node); /* after net is closed; no lock */

#endif
