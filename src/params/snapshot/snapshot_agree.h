#ifndef LIGI_SNAPSHOT_AGREE_H
#define LIGI_SNAPSHOT_AGREE_H

#include "params/snapshot/snapshot.h"
#include "params/state/node_state.h"

/* LIG_E_BUSY while another is under way. */
lig_status ligi_keep_begin(ligi_keep_call *call, int64_t timeout_ns);
/* Begun: what node 0 said before this one came, or that a node is lost. No lock. */
lig_status ligi_keep_check(ligi_keep_call *call);
void ligi_keep_end(ligi_keep_call *call);

/* The first step: that all call the same. From here on units may be asked for, and with `writable`
 * rows may be put. */
lig_status ligi_keep_agree_call(ligi_keep_call *call, lig_status status, int writable);

/* Ends a step: `status` is this node's, with its sentence. OK when all nodes have come here well;
 * then keeping->answer is what node 0 said. Otherwise the call is over: the first failure, with the
 * name of its node. */
lig_status ligi_keep_agree(ligi_keep_call *call, lig_status status,
                           const ligi_agreement *agreement);

/* Like ligi_node_wait, with the call for context and its deadline; asks `patience` meanwhile, and
 * is LIG_E_TIMEOUT with a sentence when that has ended (given_up). */
lig_status ligi_keep_wait(ligi_keep_call *call, int (*until)(void *context));

/* Under the lock: the call need not go on. */
int ligi_keep_interrupted(const lig_params *node);
/* Why: with its sentence. No lock. */
lig_status ligi_keep_why(ligi_keep_call *call);

/* Sends a note with `count` pieces behind its front. Under the lock. */
lig_status ligi_keep_post(lig_params *node, uint32_t rank, ligi_keep_verb verb,
                          const ligi_note_front *front, const struct iovec *pieces, size_t count);
void ligi_keep_said(lig_params *node, uint32_t rank, const ligi_note *note);
void ligi_keep_heard(lig_params *node, const ligi_note *note);

/* A node begins with `keeping` NULL: it is made when first needed, also for a scheduler's
 * life never. */
lig_status ligi_keep_arrived(ligi_peer *peer, const ligi_letter *letter, const void *payload,
                             uint64_t bytes); /* KEEP; a failing status loses the peer */
/* 1 for what is of interest even when a node is lost: it may say why that left. */
int ligi_keep_tells_why(const ligi_letter *letter);
void ligi_keep_fini(lig_params *node); /* after net is closed; no lock */

#endif
