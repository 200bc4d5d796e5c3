/* Steps of a save or load: every node reports to node 0, which decides for all. */
#ifndef LIGI_SNAPSHOT_AGREE_H
#define LIGI_SNAPSHOT_AGREE_H

#include "params/snapshot/snapshot.h"
#include "params/state/node.h"

/* LIG_E_BUSY while another call is in progress. */
lig_status ligi_params_snapshot_begin(ligi_snapshot_call *call, int64_t timeout_ns);
/* At the start: an earlier decision of node 0, or that a node is lost. No lock. */
lig_status ligi_params_snapshot_check(ligi_snapshot_call *call);
void ligi_params_snapshot_end(ligi_snapshot_call *call);

/* The first step: checks that all nodes make the same call. From here on units may be requested,
 * and with `writable` rows may be put. */
lig_status ligi_params_snapshot_agree_call(ligi_snapshot_call *call, lig_status status,
                                           int writable);

/* Ends a step; `status` is this node's result, with its error text. LIG_OK if all nodes succeeded;
 * snapshot->answer is then node 0's decision. Otherwise the call is over: returns the first
 * failure, which names its node. */
lig_status ligi_params_snapshot_agree(ligi_snapshot_call *call, lig_status status,
                                      const ligi_agreement *agreement);

/* Like ligi_node_wait, with the call as context and its deadline; polls `patience`, and returns
 * LIG_E_TIMEOUT with an error text when that ends the call (given_up). */
lig_status ligi_params_snapshot_wait(ligi_snapshot_call *call, int (*until)(void *context));

/* Under the lock: the call need not continue. */
int ligi_params_snapshot_interrupted(const lig_params *node);
/* Why, with an error text. No lock. */
lig_status ligi_params_snapshot_why(ligi_snapshot_call *call);

/* Sends a message with `count` pieces behind its front. Under the lock. */
lig_status ligi_params_snapshot_send(lig_params *node, uint32_t rank, ligi_snapshot_verb verb,
                                     const ligi_snapshot_front *front, const struct iovec *pieces,
                                     size_t count);

/* A node starts with `snapshot` NULL: it is created at first use, and never on a scheduler. */
lig_status ligi_params_snapshot_arrived(ligi_params_peer *peer, const ligi_params_message *message,
                                        const void *payload,
                                        uint64_t bytes); /* SNAPSHOT; on failure the peer is lost */
/* 1 for messages that matter even when a node is lost: they may say why. */
int ligi_params_snapshot_tells_why(const ligi_params_message *message);
void ligi_params_snapshot_fini(lig_params *node); /* after net is closed; no lock */

#endif
