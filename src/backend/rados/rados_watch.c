#include "backend/rados/rados_watch.h"

#include "backend/rados/rados_error.h"
#include "backend/rados/rados_ops.h"
#include "base/clock.h"
#include "base/codec.h"

#include <errno.h>

enum {
    WATCH_S = 30,         /* a watcher that is silent for so long is forgotten */
    NOTICE_MS = 3000,     /* how long to wait for a stopped watcher */
    LOOK_NS = 1000000000, /* if a notice is late by more than this, poll */
    ALONE_NS = 100000000, /* if nobody watches, notices only delay commits */
    EMPTY_BYTES = 8       /* the answer if nobody watches: two empty lists */
};

static void heard(ligi_rados *e, uint64_t version)
{
    pthread_mutex_lock(&e->news_lock);
    if (version > e->news)
        e->news = version;
    pthread_cond_broadcast(&e->news_changed);
    pthread_mutex_unlock(&e->news_lock);
}

/* Both are called by threads of librados. */
static void on_notice(void *context, uint64_t notice, uint64_t watch, uint64_t sender, void *data,
                      size_t bytes)
{
    ligi_rados *e = context;

    (void)sender;
    if (bytes == 8)
        heard(e, ligi_load_le(data, 8));
    e->api.rados_notify_ack(e->meta, LIGI_RADOS_HEAD, notice, watch, NULL, 0);
}

static void on_watch_lost(void *context, uint64_t watch, int error)
{
    ligi_rados *e = context;

    (void)watch, (void)error;
    pthread_mutex_lock(&e->news_lock);
    e->watch_lost = 1;
    pthread_cond_broadcast(&e->news_changed);
    pthread_mutex_unlock(&e->news_lock);
}

lig_status ligi_rados_news_init(ligi_rados *e)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&e->news_lock, NULL);
    pthread_cond_init(&e->news_changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return LIG_OK;
}

/* It has completed, or was never sent. */
static void notice_end(ligi_rados *e, ligi_rados_notice *notice)
{
    e->api.rados_aio_release(notice->done);
    if (notice->answer != NULL) {
        if (notice->answer_bytes <= EMPTY_BYTES)
            e->alone_ns = ligi_now_ns() + ALONE_NS;
        e->api.rados_buffer_free(notice->answer);
    }
    *notice = (ligi_rados_notice){0};
}

void ligi_rados_news_fini(ligi_rados *e, int forked)
{
    for (size_t i = 0; i < LIGI_RADOS_NOTICES && !forked; i++)
        if (e->notices[i].done != NULL) {
            e->api.rados_aio_wait_for_complete(e->notices[i].done);
            notice_end(e, &e->notices[i]);
        }
    if (e->watching && !forked) {
        e->api.rados_unwatch2(e->meta, e->watch);
        e->api.rados_watch_flush(e->cluster);
    }
    if (forked) /* a thread of the parent may have held them */
        return;
    pthread_cond_destroy(&e->news_changed);
    pthread_mutex_destroy(&e->news_lock);
}

/* A free place, releasing notices that have arrived. NULL: all are in flight, or nobody watches;
 * watchers also poll. */
static ligi_rados_notice *free_notice(ligi_rados *e)
{
    ligi_rados_notice *found = NULL;

    for (int i = 0; i < LIGI_RADOS_NOTICES; i++) {
        ligi_rados_notice *notice = &e->notices[i];
        if (notice->done != NULL && e->api.rados_aio_is_complete(notice->done))
            notice_end(e, notice);
        if (notice->done == NULL)
            found = notice;
    }
    return ligi_now_ns() < e->alone_ns ? NULL : found;
}

void ligi_rados_notify(ligi_rados *e, uint64_t version)
{
    uint8_t text[8];
    rados_completion_t done = NULL;

    ligi_store_le(text, version, 8);
    pthread_mutex_lock(&e->news_lock);
    if (version > e->news)
        e->news = version;
    pthread_cond_broadcast(&e->news_changed);
    ligi_rados_notice *notice = free_notice(e);
    if (notice != NULL && e->api.rados_aio_create_completion2(NULL, NULL, &done) == 0)
        notice->done = done;
    pthread_mutex_unlock(&e->news_lock);
    /* Without the lock: when a notice arrives, librados's own locks are taken before it. */
    if (done == NULL ||
        e->api.rados_aio_notify(e->meta, LIGI_RADOS_HEAD, done, (const char *)text, sizeof text,
                                NOTICE_MS, &notice->answer, &notice->answer_bytes) == 0)
        return;
    pthread_mutex_lock(&e->news_lock);
    notice_end(e, notice);
    pthread_mutex_unlock(&e->news_lock);
}

/* The lock is not held while the OSD is asked: a notice may come first. */
static void watch_again(ligi_rados *e)
{
    uint64_t watch = 0, old = 0;
    int lost;

    pthread_mutex_lock(&e->news_lock);
    lost = e->watching && e->watch_lost;
    int needed = !e->watching || lost;
    if (needed) { /* one thread does it */
        old = e->watch;
        e->watching = 1;
        e->watch_lost = 0;
    }
    pthread_mutex_unlock(&e->news_lock);
    if (!needed)
        return;
    if (lost)
        e->api.rados_unwatch2(e->meta, old);
    int result =
        e->api.rados_watch3(e->meta, LIGI_RADOS_HEAD, &watch, on_notice, on_watch_lost, WATCH_S, e);
    pthread_mutex_lock(&e->news_lock);
    e->watch = watch;
    e->watching = result == 0;
    pthread_mutex_unlock(&e->news_lock);
}

static lig_status look(ligi_rados *e)
{
    uint8_t version[8];
    size_t bytes = 0;
    int result = ligi_rados_key_read(e, LIGI_RADOS_HEAD, "v", version, sizeof version, &bytes);

    if (result != 0)
        return ligi_rados_fail(e, result, "waiting for commits");
    if (bytes == sizeof version)
        heard(e, ligi_load_le(version, 8));
    return LIG_OK;
}

lig_status ligi_rados_log_wait(void *self, uint64_t since, int64_t timeout_ns)
{
    ligi_rados *e = self;
    const int64_t deadline = ligi_time_until(timeout_ns);

    for (;;) {
        watch_again(e);
        LIG_TRY(look(e));
        int64_t left = ligi_time_left(deadline);
        struct timespec until =
            ligi_deadline(deadline != INT64_MAX && left < LOOK_NS ? left : LOOK_NS);
        pthread_mutex_lock(&e->news_lock);
        while (e->news <= since && !e->watch_lost &&
               pthread_cond_timedwait(&e->news_changed, &e->news_lock, &until) == 0)
            ;
        int news = e->news > since;
        pthread_mutex_unlock(&e->news_lock);
        if (news || ligi_time_left(deadline) == 0)
            return LIG_OK;
    }
}
