#include "backend/remote/remote_view.h"

#include "backend/remote/format/remote_checkpoint.h"
#include "backend/remote/remote_commit.h"
#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Entries are removed while they are read, and a newer checkpoint takes their place. */
enum { LOAD_TRIES = 5 };
/* So many numbers without an entry are skipped by a repair. */
enum { HOLES_MAX = 64 };

/* --- reading the log --- */

typedef struct replay {
    ligi_remote_volume *volume;
    ligi_remote_state *state;
    int lenient; /* go on after damage: a record with LIGI_REMOTE_RESTART ends it */
    ligi_failure damage;
    int lost;                    /* the last record of a repair: what follows it is not known */
    lig_catalog_problem problem; /* for a repair; NULL otherwise */
    void *context;
} replay;

static void note_named(ligi_remote_volume *volume, const ligi_remote_record *record)
{
    pthread_mutex_lock(&volume->lock);
    for (ligi_remote_claim *claim = volume->claims; claim != NULL; claim = claim->next)
        claim->named |= ligi_packed_list_has(&record->named, claim->id);
    pthread_mutex_unlock(&volume->lock);
}

/* Commits were not checked one by one. */
static void note_all_named(ligi_remote_volume *volume)
{
    pthread_mutex_lock(&volume->lock);
    for (ligi_remote_claim *claim = volume->claims; claim != NULL; claim = claim->next)
        claim->named = 1;
    pthread_mutex_unlock(&volume->lock);
}

static void set_damage(ligi_remote_volume *volume, lig_status status)
{
    pthread_mutex_lock(&volume->lock);
    ligi_failure_take(&volume->damage, status);
    pthread_mutex_unlock(&volume->lock);
}

void ligi_remote_repaired(ligi_remote_volume *volume)
{
    set_damage(volume, LIG_OK);
}

static lig_status apply(replay *self, uint64_t version, const void *bytes, size_t count)
{
    ligi_remote_record record;
    ligi_remote_state *next;

    LIG_TRY(ligi_remote_record_get(bytes, count, &record));
    if (self->damage.status != LIG_OK && !(record.flags & LIGI_REMOTE_RESTART))
        return LIG_OK; /* it follows what is lost */
    if (self->state->version != version - 1 && record.flags & LIGI_REMOTE_RESTART)
        self->state->version = version - 1; /* after damage, so nobody else has it */
    LIG_TRY(ligi_remote_state_apply(self->state, &record, &next));
    ligi_remote_state_release(self->state);
    self->state = next;
    self->damage.status = LIG_OK;
    if (record.flags & LIGI_REMOTE_RESTART)
        ligi_remote_repaired(self->volume);
    note_named(self->volume, &record);
    return LIG_OK;
}

static lig_status visit_record(void *context, uint64_t version, const void *bytes, size_t count)
{
    replay *self = context;
    lig_status status = apply(self, version, bytes, count);

    if (status != LIG_E_CORRUPT)
        return status;
    status = ligi_fail_again(LIG_E_CORRUPT, "commit %" PRIu64 " of %s: %s", version,
                             self->volume->name, lig_error_text());
    if (!self->lenient)
        return status;
    ligi_failure_take(&self->damage, status);
    return LIG_OK;
}

/* --- checkpoints --- */

static lig_status read_object(ligi_remote_volume *volume, ligi_object object, void *bytes,
                              uint64_t count)
{
    uint64_t step = volume->limits.range_bytes;
    size_t pieces = (size_t)((count + step - 1) / step);
    ligi_object_range *ranges;

    LIG_TRY(ligi_calloc(&ranges, pieces + 1, sizeof *ranges, "the parts of a checkpoint"));
    for (size_t i = 0; i < pieces; i++) {
        uint64_t at = i * step;
        ranges[i] =
            (ligi_object_range){(uint8_t *)bytes + at, at, count - at < step ? count - at : step};
    }
    lig_status status =
        volume->ops->object_read(volume->engine, object, ranges, pieces, NULL, NULL);
    free(ranges);
    return status;
}

static lig_status read_checkpoint(ligi_remote_volume *volume, uint64_t version,
                                  ligi_remote_state **state)
{
    ligi_object object = {LIGI_OBJECT_CHECKPOINT, version};
    uint64_t count = 0;
    void *bytes;

    LIG_TRY(volume->ops->object_size(volume->engine, object, &count));
    LIG_TRY(ligi_alloc(&bytes, count + 1, "a checkpoint of the catalog"));
    lig_status status = read_object(volume, object, bytes, count);
    if (status == LIG_OK)
        status = ligi_remote_checkpoint_get(bytes, count, volume->id, state);
    free(bytes);
    if (status == LIG_OK && (*state)->version != version) {
        ligi_remote_state_release(*state);
        status = lig_fail(LIG_E_CORRUPT, "checkpoint %" PRIu64 " of %s has a different version",
                          version, volume->name);
    }
    return status;
}

static lig_status report(replay *self, const char *what, uint64_t version)
{
    char text[LIGI_ERROR_TEXT_BYTES];

    snprintf(text, sizeof text, "%s %" PRIu64 ": %s", what, version, lig_error_text());
    ligi_log(LIG_LOG_WARNING, "%s: %s", self->volume->name, text);
    return self->problem == NULL ? LIG_OK : self->problem(self->context, text, NULL, 0);
}

/* The newest checkpoint that can be read; version 0 without one. */
static lig_status begin_load(replay *self)
{
    ligi_remote_volume *volume = self->volume;
    uint64_t before = UINT64_MAX, version;

    for (;;) {
        lig_status status = volume->ops->checkpoint_newest(volume->engine, before, &version);
        if (status == LIG_E_NOTFOUND)
            return ligi_remote_state_create(volume->id, &self->state);
        LIG_TRY(status);
        status = read_checkpoint(volume, version, &self->state);
        if (status != LIG_E_CORRUPT && status != LIG_E_NOTFOUND)
            return status;
        if (status == LIG_E_CORRUPT)
            LIG_TRY(report(self, "checkpoint", version));
        before = version;
    }
}

static lig_status load_once(replay *self)
{
    ligi_remote_volume *volume = self->volume;

    LIG_TRY(begin_load(self));
    ligi_log_end end = {.version = self->state->version};
    lig_status status =
        volume->ops->log_read(volume->engine, &end, volume->windows.fresh_ns, visit_record, self);
    if (status == LIG_OK && self->damage.status != LIG_OK)
        status = ligi_failure_publish(&self->damage);
    if (status != LIG_OK) {
        ligi_remote_state_release(self->state);
        self->state = NULL;
        self->damage.status = LIG_OK;
    }
    return status;
}

static lig_status ignore_problem(void *context, const char *text, const void *event, size_t bytes)
{
    (void)context, (void)text, (void)event, (void)bytes;
    return LIG_OK;
}

/* Damaged parts are omitted; the rest can be read, and nothing is committed until a repair. */
static lig_status load_damaged(ligi_remote_volume *volume, ligi_remote_state **state)
{
    uint64_t end;

    set_damage(volume, ligi_fail_again(LIG_E_CORRUPT, "%s (run 'ligament check --repair')",
                                       lig_error_text()));
    return ligi_remote_salvage(volume, ignore_problem, NULL, state, &end);
}

static lig_status load(ligi_remote_volume *volume, ligi_remote_state **state)
{
    replay self = {.volume = volume, .lenient = 1};
    lig_status status = LIG_E_NOTFOUND;

    for (int i = 0; i < LOAD_TRIES && status == LIG_E_NOTFOUND; i++)
        status = load_once(&self);
    note_all_named(volume);
    if (status == LIG_E_NOTFOUND)
        status = lig_fail(LIG_E_CORRUPT,
                          "%s: the log of commits does not begin where the newest intact "
                          "checkpoint ends",
                          volume->name);
    if (status == LIG_E_CORRUPT)
        return load_damaged(volume, state);
    LIG_TRY(status);
    set_damage(volume, LIG_OK);
    *state = self.state;
    return LIG_OK;
}

/* --- refreshing --- */

ligi_remote_state *ligi_remote_latest(ligi_remote_volume *volume, int64_t *seen_ns)
{
    pthread_mutex_lock(&volume->lock);
    ligi_remote_state *state = volume->state;
    if (state != NULL)
        (void)ligi_remote_state_hold(state);
    if (seen_ns != NULL)
        *seen_ns = volume->seen_ns;
    pthread_mutex_unlock(&volume->lock);
    return state;
}

static void replace(ligi_remote_volume *volume, ligi_remote_state *state, int64_t seen_ns)
{
    ligi_remote_state *old = volume->state;

    volume->state = state;
    volume->seen_ns = seen_ns;
    if (volume->unsettled != 0 && state->version >= volume->unsettled)
        volume->unsettled = 0;
    ligi_remote_state_release(old);
    pthread_cond_broadcast(&volume->changed);
}

void ligi_remote_publish(ligi_remote_volume *volume, ligi_remote_state *state, int64_t seen_ns)
{
    pthread_mutex_lock(&volume->lock);
    uint64_t known = volume->state == NULL ? 0 : volume->state->version;
    if (volume->state == NULL || state->version > known ||
        (state->version == known && seen_ns > volume->seen_ns))
        replace(volume, state, seen_ns);
    else
        ligi_remote_state_release(state);
    pthread_mutex_unlock(&volume->lock);
}

/* The store was created anew or repaired by another process: the latest state is no longer
 * valid. */
static void publish_anyway(ligi_remote_volume *volume, ligi_remote_state *state, int64_t seen_ns)
{
    pthread_mutex_lock(&volume->lock);
    replace(volume, state, seen_ns);
    pthread_mutex_unlock(&volume->lock);
}

static lig_status read_log(ligi_remote_volume *volume)
{
    replay self = {.volume = volume};
    ligi_log_end end = {0};
    int64_t now_ns = ligi_date_ns();

    self.state = ligi_remote_latest(volume, &end.seen_ns);
    lig_status status = LIG_E_NOTFOUND;
    if (self.state != NULL) {
        end.version = self.state->version;
        status = volume->ops->log_read(volume->engine, &end, volume->windows.fresh_ns, visit_record,
                                       &self);
        if (status == LIG_OK)
            ligi_remote_publish(volume, self.state, now_ns);
        else
            ligi_remote_state_release(self.state);
    }
    if (status != LIG_E_NOTFOUND && status != LIG_E_CORRUPT)
        return status;
    LIG_TRY(load(volume, &self.state));
    publish_anyway(volume, self.state, now_ns);
    return LIG_OK;
}

static lig_status refresh_now(ligi_remote_volume *volume)
{
    LIG_TRY(read_log(volume));
    pthread_mutex_lock(&volume->lock);
    int unsettled = volume->unsettled > volume->state->version;
    pthread_mutex_unlock(&volume->lock);
    lig_status status = unsettled ? ligi_remote_settle_unknown(volume) : LIG_OK;
    return status == LIG_E_BUSY ? read_log(volume) : status; /* it has arrived since */
}

lig_status ligi_remote_refresh(ligi_remote_volume *volume)
{
    pthread_mutex_lock(&volume->lock);
    uint64_t wanted = volume->refresh_begun + 1;
    while (volume->refresh_ended < wanted && volume->refreshing)
        pthread_cond_wait(&volume->changed, &volume->lock);
    if (volume->refresh_ended < wanted) {
        ligi_failure failure;
        uint64_t mine = ++volume->refresh_begun;
        volume->refreshing = 1;
        pthread_mutex_unlock(&volume->lock);
        ligi_failure_take(&failure, refresh_now(volume));
        pthread_mutex_lock(&volume->lock);
        volume->refresh_failure = failure;
        volume->refresh_ended = mine;
        volume->refreshing = 0;
        pthread_cond_broadcast(&volume->changed);
    }
    ligi_failure outcome = volume->refresh_failure;
    pthread_mutex_unlock(&volume->lock);
    return outcome.status == LIG_OK ? LIG_OK : ligi_failure_publish(&outcome);
}

lig_status ligi_remote_view(ligi_remote_volume *volume, ligi_remote_state **state)
{
    LIG_TRY(ligi_remote_refresh(volume));
    *state = ligi_remote_latest(volume, NULL);
    return LIG_OK;
}

/* --- salvage --- */

/* LIG_E_CORRUPT if a record, which is whole, is not the one that belongs here. */
static lig_status check_place(const replay *self, uint64_t version,
                              const ligi_remote_record *record)
{
    if (record->header.version != version)
        return lig_fail(LIG_E_CORRUPT, "it is a copy of commit %" PRIu64, record->header.version);
    if (!self->lost && record->header.previous != self->state->chain &&
        !(record->flags & LIGI_REMOTE_RESTART))
        return lig_fail(LIG_E_CORRUPT, "it does not follow the commit before it: the log was "
                                       "changed, or belongs to another store");
    return LIG_OK;
}

static lig_status salvage_record(void *context, uint64_t version, const void *bytes, size_t count)
{
    replay *self = context;
    ligi_remote_record record;
    ligi_remote_state *next;
    lig_status status = ligi_remote_record_get(bytes, count, &record);

    if (status == LIG_OK)
        status = check_place(self, version, &record);
    if (status == LIG_E_CORRUPT) {
        LIG_TRY(report(self, "commit", version));
        status = ligi_remote_record_salvage(bytes, count, &record);
    }
    self->state->version = version - 1;
    if (status == LIG_OK) { /* the order of numbers counts, not the chain */
        self->state->chain = record.header.previous;
        status = ligi_remote_state_apply(self->state, &record, &next);
    }
    if (status == LIG_OK) {
        ligi_remote_state_release(self->state);
        self->state = next;
    }
    self->lost = status != LIG_OK;
    self->state->version = version;
    return status == LIG_E_CORRUPT ? LIG_OK : status;
}

lig_status ligi_remote_salvage(ligi_remote_volume *volume, lig_catalog_problem problem,
                               void *context, ligi_remote_state **state, uint64_t *end)
{
    replay self = {.volume = volume, .problem = problem, .context = context};
    lig_status status = begin_load(&self);
    int holes = 0;

    while (status == LIG_OK) {
        ligi_log_end from = {.version = self.state->version};
        status = volume->ops->log_read(volume->engine, &from, volume->windows.fresh_ns,
                                       salvage_record, &self);
        if (status != LIG_E_NOTFOUND || holes++ == HOLES_MAX)
            break;
        lig_fail(LIG_E_CORRUPT, "it is missing");
        status = report(&self, "commit", self.state->version + 1);
        self.state->version++;
        self.lost = 1;
    }
    if (status == LIG_OK) {
        *state = self.state;
        *end = self.state->version;
    } else {
        ligi_remote_state_release(self.state);
    }
    return status;
}

static lig_status remove_checkpoint(ligi_remote_volume *volume, uint64_t version)
{
    lig_status result = LIG_OK;

    LIG_TRY(
        volume->ops->object_remove(volume->engine, LIGI_OBJECT_CHECKPOINT, &version, 1, &result));
    return result;
}

lig_status ligi_remote_check_older(ligi_remote_volume *volume, int repair,
                                   lig_catalog_problem problem, void *context)
{
    replay self = {.volume = volume, .problem = problem, .context = context};
    uint64_t version = UINT64_MAX;
    int in_use = 0; /* one was intact: salvage has read none of those before it */

    for (;;) {
        lig_status status = volume->ops->checkpoint_newest(volume->engine, version, &version);
        if (status == LIG_E_NOTFOUND)
            return LIG_OK;
        LIG_TRY(status);
        status = read_checkpoint(volume, version, &self.state);
        if (status == LIG_OK) {
            ligi_remote_state_release(self.state);
            in_use = 1;
        } else if (status == LIG_E_CORRUPT) {
            LIG_TRY(in_use ? report(&self, "checkpoint", version) : LIG_OK);
            LIG_TRY(repair ? remove_checkpoint(volume, version) : LIG_OK);
        } else if (status != LIG_E_NOTFOUND) {
            return status;
        }
    }
}
