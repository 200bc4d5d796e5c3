/* Rendezvous by the caller's all-gather (MPI, PMIx) instead of a known address. */
#ifndef LIGI_RENDEZVOUS_EXCHANGE_H
#define LIGI_RENDEZVOUS_EXCHANGE_H

#include "group/group_state.h"

lig_status ligi_group_rendezvous_by_exchange(ligi_group *group, const ligi_group_options *options,
                                             int64_t timeout_ns);

#endif
