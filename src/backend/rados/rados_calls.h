/* The calls of librados in use: its headers are needed at build time, the library is loaded when
 * rados:// is first used. librados.so.2 is the same ABI since 2012; all of these calls exist since
 * Ceph 16. */
#ifndef LIGI_RADOS_CALLS_H
#define LIGI_RADOS_CALLS_H

#include <rados/librados.h>

#include "backend/remote/storage_engine.h"

#define LIGI_RADOS_CALLS(CALL)                                                                     \
    CALL(rados_version)                                                                            \
    CALL(rados_create2)                                                                            \
    CALL(rados_conf_read_file)                                                                     \
    CALL(rados_conf_set)                                                                           \
    CALL(rados_connect)                                                                            \
    CALL(rados_shutdown)                                                                           \
    CALL(rados_ioctx_create)                                                                       \
    CALL(rados_ioctx_destroy)                                                                      \
    CALL(rados_ioctx_set_namespace)                                                                \
    CALL(rados_set_pool_full_try)                                                                  \
    CALL(rados_create_write_op)                                                                    \
    CALL(rados_release_write_op)                                                                   \
    CALL(rados_write_op_assert_exists)                                                             \
    CALL(rados_write_op_create)                                                                    \
    CALL(rados_write_op_write_full)                                                                \
    CALL(rados_write_op_write)                                                                     \
    CALL(rados_write_op_remove)                                                                    \
    CALL(rados_write_op_exec)                                                                      \
    CALL(rados_write_op_omap_cmp2)                                                                 \
    CALL(rados_write_op_omap_set2)                                                                 \
    CALL(rados_write_op_omap_rm_keys2)                                                             \
    CALL(rados_write_op_omap_rm_range2)                                                            \
    CALL(rados_write_op_operate2)                                                                  \
    CALL(rados_aio_write_op_operate)                                                               \
    CALL(rados_create_read_op)                                                                     \
    CALL(rados_release_read_op)                                                                    \
    CALL(rados_read_op_read)                                                                       \
    CALL(rados_read_op_exec_user_buf)                                                              \
    CALL(rados_read_op_omap_get_vals2)                                                             \
    CALL(rados_read_op_omap_get_vals_by_keys2)                                                     \
    CALL(rados_read_op_operate)                                                                    \
    CALL(rados_aio_read_op_operate)                                                                \
    CALL(rados_omap_get_next2)                                                                     \
    CALL(rados_omap_get_end)                                                                       \
    CALL(rados_aio_create_completion2)                                                             \
    CALL(rados_aio_wait_for_complete)                                                              \
    CALL(rados_aio_is_complete)                                                                    \
    CALL(rados_aio_get_return_value)                                                               \
    CALL(rados_aio_release)                                                                        \
    CALL(rados_aio_read)                                                                           \
    CALL(rados_aio_remove)                                                                         \
    CALL(rados_aio_notify)                                                                         \
    CALL(rados_buffer_free)                                                                        \
    CALL(rados_watch3)                                                                             \
    CALL(rados_unwatch2)                                                                           \
    CALL(rados_notify_ack)                                                                         \
    CALL(rados_watch_flush)                                                                        \
    CALL(rados_remove)

#define LIGI_RADOS_MEMBER(name) __typeof__(name) *name;
typedef struct ligi_rados_calls {
    LIGI_RADOS_CALLS(LIGI_RADOS_MEMBER)
} ligi_rados_calls;

/* Loads librados: LIG_E_UNSUPPORTED with an error text if it is not installed. It stays loaded. */
lig_status ligi_rados_calls_load(const ligi_engine_host *host, ligi_rados_calls *calls);

#endif
