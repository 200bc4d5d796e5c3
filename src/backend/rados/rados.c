#include "backend/rados/rados.h"

#include "backend/rados/rados_body.h"
#include "backend/rados/rados_claim.h"
#include "backend/rados/rados_log.h"
#include "backend/rados/rados_pools.h"
#include "backend/rados/rados_remove.h"
#include "backend/rados/rados_watch.h"
#include "backend/rados/rados_writer.h"
#include "base/clock.h"

static const ligi_option options[] = {
    {"conf", LIGI_OPTION_TEXT, NULL, "Ceph configuration file (default: Ceph's own)",
     offsetof(ligi_rados_config, conf)},
    {"id", LIGI_OPTION_TEXT, "admin", "Ceph user, without 'client.'",
     offsetof(ligi_rados_config, id)},
    {"data", LIGI_OPTION_TEXT, NULL,
     "pool of the packs, which may be erasure-coded (default: the pool of the catalog)",
     offsetof(ligi_rados_config, data)},
    {"stripe", LIGI_OPTION_BYTES, "4MiB", "size of the objects that a pack is split into",
     offsetof(ligi_rados_config, stripe)},
};

static void limits(void *self, ligi_engine_limits *limits)
{
    (void)self;
    *limits = (ligi_engine_limits){.record_bytes_max = LIGI_RADOS_RECORD_MAX,
                                   .range_bytes = LIGI_RADOS_CHUNK_BYTES / 2,
                                   .reads = LIGI_RADOS_WINDOW,
                                   .log_entries_max = LIGI_RADOS_LOG_MAX};
}

/* RADOS has no clock to ask. Durations of locks are by the OSDs' clocks. */
static lig_status now(void *self, int64_t *now_ns)
{
    (void)self;
    *now_ns = ligi_date_ns();
    return LIG_OK;
}

__attribute__((visibility("default"))) extern const ligi_engine_ops lig_engine_entry;

const ligi_engine_ops lig_engine_entry = {
    .abi = LIGI_ENGINE_ABI,
    .size = sizeof(ligi_engine_ops),
    .scheme = "rados",
    .help = "a pool of a Ceph cluster: rados://pool/prefix",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .config_bytes = sizeof(ligi_rados_config),
    .open = ligi_rados_open,
    .close = ligi_rados_close,
    .limits = limits,
    .describe = ligi_rados_describe,
    .now = now,
    .marker_put = ligi_rados_marker_put,
    .marker_get = ligi_rados_marker_get,
    .log_append = ligi_rados_log_append,
    .log_read = ligi_rados_log_read,
    .log_wait = ligi_rados_log_wait,
    .log_trim = ligi_rados_log_trim,
    .checkpoint_publish = ligi_rados_checkpoint_publish,
    .checkpoint_newest = ligi_rados_checkpoint_newest,
    .object_create = ligi_rados_object_create,
    .object_room = ligi_rados_object_room,
    .object_push = ligi_rados_object_push,
    .object_seal = ligi_rados_object_seal,
    .object_renew = ligi_rados_object_renew,
    .object_close = ligi_rados_object_close,
    .object_size = ligi_rados_object_size,
    .object_read = ligi_rados_object_read,
    .object_list = ligi_rados_object_list,
    .object_remove = ligi_rados_object_remove,
    .pack_held = ligi_rados_pack_held,
    .drafts_remove = ligi_rados_drafts_remove,
    .pin = ligi_rados_pin,
    .pin_renew = ligi_rados_pin_renew,
    .unpin = ligi_rados_unpin,
    .pinned = ligi_rados_pinned,
    .lock = ligi_rados_lock,
    .lock_renew = ligi_rados_lock_renew,
    .unlock = ligi_rados_unlock,
};
