/* The log of commits: omap of one object, compared and set in one operation. */
#ifndef LIGI_RADOS_LOG_H
#define LIGI_RADOS_LOG_H

#include "backend/rados/rados.h"

#define LIGI_RADOS_LOG_MAX 8192 /* entries of 64 KiB: half the omap that Ceph warns of */
#define LIGI_RADOS_LOG_KEPT 256 /* at least, for readers that follow the log */
#define LIGI_RADOS_LOG_PAGE 512 /* entries of a request; an OSD returns at most 1024 keys */
#define LIGI_RADOS_RECORD_MAX (UINT64_C(64) << 20) /* one object; OSDs refuse 128 MiB */

lig_status ligi_rados_marker_put(void *self, const void *marker, size_t bytes);
/* Also opens the data pool that the store was created with. */
lig_status ligi_rados_marker_get(void *self, void *marker, size_t *bytes);

lig_status ligi_rados_log_append(void *self, const ligi_log_end *end, int64_t fresh_ns,
                                 const void *record, size_t bytes);
lig_status ligi_rados_log_read(void *self, const ligi_log_end *end, int64_t fresh_ns,
                               ligi_log_visit visit, void *context);
lig_status ligi_rados_log_trim(void *self, uint64_t before, int64_t keep_ns);
lig_status ligi_rados_checkpoint_publish(void *self, uint64_t version);
lig_status ligi_rados_checkpoint_newest(void *self, uint64_t before, uint64_t *version);

#endif
