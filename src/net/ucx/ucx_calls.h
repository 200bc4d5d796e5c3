/* The calls of UCX in use: its headers are needed at build time (1.13, the oldest supported
 * version), the library is loaded when the transport is first used. All later versions have the
 * same ABI number, libucp.so.0: the loader uses the one that is already in the process, else the
 * first on its path. */
#ifndef LIGI_UCX_CALLS_H
#define LIGI_UCX_CALLS_H

#include <ucp/api/ucp.h>

#include "net/transport.h"

#define LIGI_UCX_CALLS(CALL)                                                                       \
    CALL(ucp, ucp_get_version)                                                                     \
    CALL(ucp, ucp_init_version)                                                                    \
    CALL(ucp, ucp_cleanup)                                                                         \
    CALL(ucp, ucp_context_print_info)                                                              \
    CALL(ucp, ucp_config_read)                                                                     \
    CALL(ucp, ucp_config_modify)                                                                   \
    CALL(ucp, ucp_config_release)                                                                  \
    CALL(ucp, ucp_worker_create)                                                                   \
    CALL(ucp, ucp_worker_destroy)                                                                  \
    CALL(ucp, ucp_worker_query)                                                                    \
    CALL(ucp, ucp_worker_progress)                                                                 \
    CALL(ucp, ucp_worker_get_efd)                                                                  \
    CALL(ucp, ucp_worker_arm)                                                                      \
    CALL(ucp, ucp_worker_set_am_recv_handler)                                                      \
    CALL(ucp, ucp_listener_create)                                                                 \
    CALL(ucp, ucp_listener_destroy)                                                                \
    CALL(ucp, ucp_listener_query)                                                                  \
    CALL(ucp, ucp_listener_reject)                                                                 \
    CALL(ucp, ucp_conn_request_query)                                                              \
    CALL(ucp, ucp_ep_create)                                                                       \
    CALL(ucp, ucp_ep_close_nbx)                                                                    \
    CALL(ucp, ucp_am_send_nbx)                                                                     \
    CALL(ucp, ucp_am_recv_data_nbx)                                                                \
    CALL(ucp, ucp_am_data_release)                                                                 \
    CALL(ucp, ucp_request_free)                                                                    \
    CALL(ucs, ucs_status_string)                                                                   \
    CALL(ucs, ucs_debug_disable_signals)

/* Exported by libucs, declared in a header that is not installed. */
void ucs_debug_disable_signals(void);

#define LIGI_UCX_MEMBER(library, name) __typeof__(name) *name;
typedef struct ligi_ucx_calls {
    LIGI_UCX_CALLS(LIGI_UCX_MEMBER)
} ligi_ucx_calls;

#endif
