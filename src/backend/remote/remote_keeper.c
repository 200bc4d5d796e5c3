#include "backend/remote/remote_keeper.h"

#include "backend/remote/format/remote_checkpoint.h"
#include "backend/remote/remote_leases.h"
#include "backend/remote/remote_removal.h"
#include "backend/remote/remote_view.h"
#include "base/clock.h"
#include "base/log.h"

#include <signal.h>
#include <string.h>

/* Commits between two checks whether a checkpoint is due. The process that commits checks, so that
 * few do it at the same time. */
enum { CHECKPOINT_STEP = 64 };
/* The cost of a log entry to a process that opens the store, in bytes of a checkpoint: a request,
 * and for each byte of the entry as much as this many bytes of a checkpoint. */
enum { ENTRY_BYTES = 32768, REPLAY_COST = 4 };
enum { OLD_CHECKPOINTS_MAX = 16 };

/* --- checkpoints --- */

typedef struct object_sink {
    const ligi_engine_ops *ops;
    void *writer;
    uint8_t *room;
    uint64_t room_bytes, used;
} object_sink;

static lig_status sink_bytes(void *context, const void *bytes, size_t count)
{
    object_sink *self = context;
    const uint8_t *from = bytes;

    while (count > 0) {
        void *memory;
        if (self->room == NULL) {
            LIG_TRY(self->ops->object_room(self->writer, &memory, &self->room_bytes));
            self->room = memory;
            self->used = 0;
        }
        uint64_t left = self->room_bytes - self->used;
        size_t step = left < count ? (size_t)left : count;
        memcpy(self->room + self->used, from, step);
        self->used += step;
        from += step;
        count -= step;
        if (self->used == self->room_bytes) {
            LIG_TRY(self->ops->object_push(self->writer, self->used));
            self->room = NULL;
        }
    }
    return LIG_OK;
}

static lig_status write_checkpoint(ligi_remote_volume *volume, const ligi_remote_state *state)
{
    object_sink sink = {.ops = volume->ops};
    ligi_object object = {LIGI_OBJECT_CHECKPOINT, state->version};

    LIG_TRY(volume->ops->object_create(volume->engine, object, 0, volume->windows.ttl_ns,
                                       &sink.writer));
    lig_status status = ligi_remote_checkpoint_put(state, volume->id, sink_bytes, &sink);
    if (status == LIG_OK && sink.room != NULL)
        status = volume->ops->object_push(sink.writer, sink.used);
    if (status == LIG_OK)
        status = volume->ops->object_seal(sink.writer);
    volume->ops->object_close(sink.writer, 0);
    LIG_TRY(status);
    LIG_TRY(volume->ops->checkpoint_publish(volume->engine, state->version));
    pthread_mutex_lock(&volume->lock);
    volume->checkpointed_bytes = state->log_bytes;
    pthread_mutex_unlock(&volume->lock);
    return LIG_OK;
}

/* The checkpoint before the last, and the log since then, stay: the second line of defence. */
static lig_status remove_older(ligi_remote_volume *volume, uint64_t previous)
{
    LIG_TRY(volume->ops->log_trim(volume->engine, previous + 1, volume->windows.keep_ns));
    for (int i = 0; i < OLD_CHECKPOINTS_MAX; i++) {
        uint64_t old;
        lig_status result = LIG_OK;
        lig_status status = volume->ops->checkpoint_newest(volume->engine, previous, &old);
        if (status == LIG_E_NOTFOUND)
            return LIG_OK;
        LIG_TRY(status);
        LIG_TRY(
            volume->ops->object_remove(volume->engine, LIGI_OBJECT_CHECKPOINT, &old, 1, &result));
        LIG_TRY(result);
    }
    return LIG_OK;
}

/* When reading the log since the last costs as much as reading the checkpoint: what is written in
 * total, and what opening costs, are then proportional to the catalog. */
static int is_due(ligi_remote_volume *volume, const ligi_remote_state *state, uint64_t last)
{
    uint64_t since = state->version - last, most = volume->limits.log_entries_max / 2;

    if (since < CHECKPOINT_STEP)
        return 0;
    if (most != 0 && since >= most)
        return 1;
    pthread_mutex_lock(&volume->lock);
    uint64_t known = volume->checkpointed_bytes;
    pthread_mutex_unlock(&volume->lock);
    uint64_t bytes = state->log_bytes < known ? state->log_bytes : state->log_bytes - known;
    return since * ENTRY_BYTES + bytes * REPLAY_COST >= ligi_item_map_bytes(state->items);
}

lig_status ligi_keeper_checkpoint(ligi_remote_volume *volume, int force)
{
    ligi_remote_state *state = ligi_remote_latest(volume, NULL);
    uint64_t last = 0;

    if (state == NULL)
        return LIG_OK;
    lig_status status = volume->ops->checkpoint_newest(volume->engine, UINT64_MAX, &last);
    if (status == LIG_E_NOTFOUND)
        status = LIG_OK;
    if (status == LIG_OK && last < state->version && (force || is_due(volume, state, last))) {
        status = write_checkpoint(volume, state);
        if (status == LIG_OK)
            status = remove_older(volume, last);
    }
    ligi_remote_state_release(state);
    return status;
}

/* --- the thread --- */

static void work(ligi_remote_volume *volume, lig_status (*job)(ligi_remote_volume *),
                 const char *what)
{
    pthread_mutex_unlock(&volume->lock);
    if (job(volume) != LIG_OK)
        ligi_log(LIG_LOG_WARNING, "%s: %s failed and will be retried: %s", volume->name, what,
                 lig_error_text());
    pthread_mutex_lock(&volume->lock);
}

static lig_status checkpoint_job(ligi_remote_volume *volume)
{
    return ligi_keeper_checkpoint(volume, 0);
}

static lig_status sweep_job(ligi_remote_volume *volume)
{
    LIG_TRY(ligi_remote_refresh(volume));
    return ligi_remote_sweep(volume);
}

/* The lock is held. One thing at a time; 1 if there was one. */
static int do_job(ligi_remote_volume *volume)
{
    if (volume->checkpoint_wanted) {
        volume->checkpoint_wanted = 0;
        work(volume, checkpoint_job, "a checkpoint of the catalog");
        return 1;
    }
    if (volume->sweep_wanted || (volume->sweep_ns != 0 && volume->sweep_ns <= ligi_now_ns())) {
        volume->sweep_wanted = 0;
        volume->sweep_ns = 0;
        work(volume, sweep_job, "the removal of packs");
        return 1;
    }
    return 0;
}

static void *keeper_main(void *context)
{
    ligi_remote_volume *volume = context;

    pthread_mutex_lock(&volume->lock);
    while (!volume->keeper_stop) {
        int64_t next_ns = ligi_remote_leases_renew(volume);
        if (volume->keeper_stop || do_job(volume))
            continue;
        if (volume->sweep_ns != 0 && volume->sweep_ns < next_ns)
            next_ns = volume->sweep_ns;
        if (next_ns == INT64_MAX) {
            pthread_cond_wait(&volume->changed, &volume->lock);
        } else {
            struct timespec deadline = ligi_deadline(ligi_time_left(next_ns));
            pthread_cond_timedwait(&volume->changed, &volume->lock, &deadline);
        }
    }
    if (volume->checkpoint_wanted)
        (void)do_job(volume);
    pthread_mutex_unlock(&volume->lock);
    return NULL;
}

lig_status ligi_keeper_start(ligi_remote_volume *volume)
{
    sigset_t all, before;
    int number = 0;

    pthread_mutex_lock(&volume->lock);
    if (!volume->keeper_started) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        number = pthread_create(&volume->keeper, NULL, keeper_main, volume);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        volume->keeper_started = number == 0;
    }
    pthread_mutex_unlock(&volume->lock);
    if (number != 0)
        return ligi_fail_errno(number, "%s: pthread_create failed", volume->name);
    return LIG_OK;
}

void ligi_keeper_stop(ligi_remote_volume *volume)
{
    pthread_mutex_lock(&volume->lock);
    int started = volume->keeper_started;
    volume->keeper_stop = 1;
    pthread_cond_broadcast(&volume->changed);
    pthread_mutex_unlock(&volume->lock);
    if (started)
        pthread_join(volume->keeper, NULL);
    pthread_mutex_lock(&volume->lock);
    volume->keeper_started = volume->keeper_stop = 0;
    volume->sweep_wanted = volume->checkpoint_wanted = 0;
    volume->sweep_ns = 0;
    pthread_mutex_unlock(&volume->lock);
}

static void want(ligi_remote_volume *volume, int *what)
{
    if (ligi_keeper_start(volume) != LIG_OK)
        return;
    pthread_mutex_lock(&volume->lock);
    *what = 1;
    pthread_cond_broadcast(&volume->changed);
    pthread_mutex_unlock(&volume->lock);
}

void ligi_keeper_committed(ligi_remote_volume *volume, uint64_t version)
{
    if (version % CHECKPOINT_STEP == 0)
        want(volume, &volume->checkpoint_wanted);
}

void ligi_keeper_sweep(ligi_remote_volume *volume)
{
    want(volume, &volume->sweep_wanted);
}
