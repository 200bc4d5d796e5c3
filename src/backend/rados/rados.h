/* A connection to a Ceph cluster and the two pools of a store. */
#ifndef LIGI_RADOS_H
#define LIGI_RADOS_H

#include <pthread.h>

#include "backend/rados/format/rados_names.h"
#include "backend/rados/rados_calls.h"

#define LIGI_RADOS_WINDOW 16 /* operations in flight: enough for one client to fill the OSDs */
#define LIGI_RADOS_CHUNK_BYTES (UINT64_C(8) << 20) /* of one read or write; an OSD refuses 90 MiB */
#define LIGI_RADOS_CACHE 4096                      /* sealed objects whose sizes are remembered */
#define LIGI_RADOS_NOTICES 8

typedef struct ligi_rados_config { /* options */
    char *conf, *id, *data;
    uint64_t stripe;
} ligi_rados_config;

typedef struct ligi_rados_cached {
    ligi_rados_body body;
    int valid;
} ligi_rados_cached;

typedef struct ligi_rados_notice {
    rados_completion_t done; /* NULL: free */
    char *answer;            /* the watchers that acknowledged it, and those that did not in time */
    size_t answer_bytes;
} ligi_rados_notice;

typedef struct ligi_rados {
    ligi_rados_calls api;
    const ligi_engine_host *host;
    rados_t cluster;
    rados_ioctx_t meta, data;
    char *pool, *prefix, *client;
    char *data_pool; /* the pool's own name if it also holds the packs */
    int64_t timeout_ns;
    uint64_t stripe_bytes;
    int read_only;

    pthread_mutex_t cache_lock; /* guards: */
    ligi_rados_cached *cache;

    pthread_mutex_t news_lock; /* guards: */
    pthread_cond_t news_changed;
    uint64_t news; /* the highest version received */
    int watching, watch_lost;
    uint64_t watch;
    ligi_rados_notice notices[LIGI_RADOS_NOTICES];
    int64_t alone_ns; /* until then no notices are sent, because nobody watched */
} ligi_rados;

#endif
