#include "backend/remote/remote_commit.h"

#include "backend/remote/remote_keeper.h"
#include "backend/remote/remote_leases.h"
#include "backend/remote/remote_view.h"
#include "base/boot.h"
#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

_Static_assert(LIGI_REMOTE_ID_BYTES == LIGI_RECORD_ID_BYTES, "engines compare these bytes");

/* --- turns --- */

int ligi_remote_turn_mine(ligi_remote_volume *volume)
{
    pthread_mutex_lock(&volume->lock);
    int mine = volume->turn_taken && pthread_equal(volume->turn_owner, pthread_self());
    pthread_mutex_unlock(&volume->lock);
    return mine;
}

static void leave_queue(ligi_remote_volume *volume, const ligi_remote_turn *leaving)
{
    ligi_remote_turn **link = &volume->turns;

    while (*link != leaving)
        link = &(*link)->next;
    *link = leaving->next;
}

/* The lock is held, and it is another thread's turn. */
static int wait_turn(ligi_remote_volume *volume, int64_t timeout_ns)
{
    ligi_remote_turn me = {.thread = pthread_self()}, **link = &volume->turns;
    struct timespec deadline = ligi_deadline(timeout_ns < 0 ? 0 : timeout_ns);
    int over = 0;

    while (*link != NULL)
        link = &(*link)->next;
    *link = &me;
    while (!me.given && !over)
        over = timeout_ns == LIG_FOREVER ? pthread_cond_wait(&volume->changed, &volume->lock)
                                         : pthread_cond_timedwait(&volume->changed, &volume->lock,
                                                                  &deadline) == ETIMEDOUT;
    if (!me.given)
        leave_queue(volume, &me);
    return me.given;
}

lig_status ligi_remote_turn_take(ligi_remote_volume *volume, int64_t timeout_ns)
{
    lig_status status = LIG_OK;

    pthread_mutex_lock(&volume->lock);
    if (!volume->turn_taken) {
        volume->turn_taken = 1;
        volume->turn_owner = pthread_self();
    } else if (pthread_equal(volume->turn_owner, pthread_self())) {
        status = lig_fail(LIG_E_INVALID, "this thread has already locked the catalog");
    } else if (!wait_turn(volume, timeout_ns)) {
        status =
            lig_fail(LIG_E_TIMEOUT, "%s: another thread of this process is changing the catalog",
                     volume->name);
    }
    pthread_mutex_unlock(&volume->lock);
    return status;
}

void ligi_remote_turn_end(ligi_remote_volume *volume)
{
    pthread_mutex_lock(&volume->lock);
    ligi_remote_turn *next = volume->turns;
    if (next == NULL) {
        volume->turn_taken = 0;
    } else {
        volume->turns = next->next;
        volume->turn_owner = next->thread;
        next->given = 1;
        pthread_cond_broadcast(&volume->changed);
    }
    pthread_mutex_unlock(&volume->lock);
}

lig_status ligi_remote_catalog_lock(void *opaque, int64_t timeout_ns)
{
    ligi_remote *self = opaque;

    LIG_TRY(ligi_remote_writable(self));
    return ligi_remote_turn_take(self->volume, timeout_ns);
}

void ligi_remote_catalog_unlock(void *opaque)
{
    ligi_remote *self = opaque;

    if (self->pid == getpid() && ligi_remote_turn_mine(self->volume))
        ligi_remote_turn_end(self->volume);
}

/* --- records --- */

static lig_status fill_record(ligi_remote_volume *volume, const ligi_remote_state *base,
                              ligi_remote_edit *edit, ligi_writer *bytes)
{
    LIG_TRY(ligi_random(edit->id, sizeof edit->id));
    LIG_TRY(volume->ops->now(volume->engine, &edit->date_ns));
    edit->version = base->version + 1;
    edit->previous = base->chain;
    LIG_TRY(ligi_remote_record_put(bytes, edit));
    if (bytes->bytes > volume->limits.record_bytes_max)
        return lig_fail(LIG_E_LIMIT,
                        "a commit of %zu bytes is too large: the limit of %s is %" PRIu64,
                        bytes->bytes, volume->name, volume->limits.record_bytes_max);
    return LIG_OK;
}

static lig_status unknown(ligi_remote_volume *volume, uint64_t version)
{
    pthread_mutex_lock(&volume->lock);
    if (version > volume->unsettled)
        volume->unsettled = version;
    pthread_mutex_unlock(&volume->lock);
    return ligi_fail_again(
        LIG_E_IO,
        "the outcome of a commit to %s is unknown (the next read of the catalog shows it): %s",
        volume->name, lig_error_text());
}

static lig_status send_record(ligi_remote_volume *volume, const ligi_remote_state *base,
                              int64_t seen_ns, const ligi_writer *bytes)
{
    ligi_remote_record record;
    ligi_remote_state *next;
    ligi_log_end end = {base->version, seen_ns};
    int64_t now_ns = ligi_date_ns();

    /* Decoded as every reader does: nothing is sent that cannot be read. */
    LIG_TRY(ligi_remote_record_get(bytes->data, bytes->bytes, &record));
    LIG_TRY(ligi_remote_state_apply(base, &record, &next));
    lig_status status = volume->ops->log_append(volume->engine, &end, volume->windows.fresh_ns,
                                                bytes->data, bytes->bytes);
    if (status == LIG_OK)
        ligi_remote_publish(volume, next, now_ns);
    else
        ligi_remote_state_release(next);
    return status == LIG_E_IO ? unknown(volume, base->version + 1) : status;
}

static lig_status check_damage(ligi_remote_volume *volume)
{
    pthread_mutex_lock(&volume->lock);
    ligi_failure damage = volume->damage;
    pthread_mutex_unlock(&volume->lock);
    return damage.status == LIG_OK ? LIG_OK : ligi_failure_publish(&damage);
}

lig_status ligi_remote_append(ligi_remote_volume *volume, ligi_remote_state *base, int64_t seen_ns,
                              ligi_remote_edit *edit)
{
    ligi_writer bytes = {0};

    if (!(edit->flags & LIGI_REMOTE_RESTART))
        LIG_TRY(check_damage(volume));
    lig_status status = fill_record(volume, base, edit, &bytes);

    if (status == LIG_OK)
        status = send_record(volume, base, seen_ns, &bytes);
    ligi_writer_fini(&bytes);
    if (status == LIG_OK && edit->flags & LIGI_REMOTE_RESTART)
        ligi_remote_repaired(volume);
    if (status == LIG_OK)
        ligi_keeper_committed(volume, edit->version);
    return status;
}

/* The commit may still be on its way: an empty record takes its number, so that it cannot arrive
 * any more, or is found there instead. Runs within a refresh. */
lig_status ligi_remote_settle_unknown(ligi_remote_volume *volume)
{
    const lig_catalog_edit nothing = {0};
    ligi_remote_edit edit = {.edit = &nothing};
    int64_t seen_ns;
    ligi_remote_state *base = ligi_remote_latest(volume, &seen_ns);

    if (volume->read_only) {
        ligi_remote_state_release(base);
        return LIG_OK;
    }
    lig_status status = ligi_remote_append(volume, base, seen_ns, &edit);
    ligi_remote_state_release(base);
    return status;
}

/* --- commit --- */

static lig_status busy(ligi_remote_volume *volume, uint64_t version)
{
    LIG_TRY(ligi_remote_refresh(volume));
    ligi_remote_state *state = ligi_remote_latest(volume, NULL);
    uint64_t now = state->version;
    ligi_remote_state_release(state);
    return lig_fail(LIG_E_BUSY,
                    "the catalog is at version %" PRIu64 ", but the change is based on %" PRIu64,
                    now, version);
}

static lig_status check_edit(const lig_catalog_edit *edit)
{
    for (size_t i = 0; i < edit->op_count; i++) {
        LIG_TRY(ligi_item_key_check(edit->ops[i].key, edit->ops[i].key_bytes));
        if (edit->ops[i].value != NULL && edit->ops[i].value_bytes > UINT32_MAX)
            return lig_fail(LIG_E_LIMIT, "a value of %zu bytes is too large for the catalog",
                            edit->ops[i].value_bytes);
    }
    return LIG_OK;
}

/* A process that was suspended for long may find that its packs were removed as those of a dead
 * process. */
static lig_status check_packs(ligi_remote_volume *volume, const ligi_remote_state *base,
                              const lig_catalog_edit *edit)
{
    size_t bad = ligi_remote_first_condemned(base, edit->packs, edit->pack_count);

    if (bad < edit->pack_count)
        return lig_fail(LIG_E_NOTFOUND,
                        "%s: pack %016" PRIx64 " was removed before the commit that uses it: "
                        "this process was stopped for too long, or the pack's last model was "
                        "retired (save again)",
                        volume->name, edit->packs[bad]);
    for (size_t i = 0; i < edit->pack_count; i++)
        LIG_TRY(ligi_remote_claim_check(volume, edit->packs[i]));
    return LIG_OK;
}

static lig_status commit(ligi_remote_volume *volume, const lig_catalog_edit *edit)
{
    int64_t seen_ns;
    ligi_remote_state *base = ligi_remote_latest(volume, &seen_ns);
    ligi_remote_edit made = {.edit = edit, .named = {edit->packs, edit->pack_count}};

    if (base == NULL || base->version < edit->version) {
        ligi_remote_state_release(base);
        LIG_TRY(ligi_remote_refresh(volume));
        base = ligi_remote_latest(volume, &seen_ns);
    }
    lig_status status = LIG_E_BUSY;
    if (base->version == edit->version) {
        status = check_packs(volume, base, edit);
        if (status == LIG_OK)
            status = ligi_remote_append(volume, base, seen_ns, &made);
    }
    ligi_remote_state_release(base);
    return status == LIG_E_BUSY ? busy(volume, edit->version) : status;
}

lig_status ligi_remote_catalog_commit(void *opaque, const lig_catalog_edit *edit)
{
    ligi_remote *self = opaque;
    ligi_remote_volume *volume = self->volume;

    LIG_TRY(ligi_remote_writable(self));
    int mine = ligi_remote_turn_mine(volume);
    lig_status status = check_edit(edit);
    if (status == LIG_OK && !mine) {
        status = ligi_remote_turn_take(volume, LIG_FOREVER);
        mine = status == LIG_OK;
    }
    if (status == LIG_OK)
        status = commit(volume, edit);
    if (mine)
        ligi_remote_turn_end(volume);
    return status;
}
