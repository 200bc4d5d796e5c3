#include "backend/remote/remote_catalog.h"

#include "backend/remote/remote_commit.h"
#include "backend/remote/remote_keeper.h"
#include "backend/remote/remote_view.h"
#include "base/clock.h"

#include <inttypes.h>
#include <stdlib.h>

/* An engine waits so long at a time: what this process commits itself is noticed meanwhile. */
#define WAIT_SLICE_NS INT64_C(1000000000)

lig_status ligi_remote_catalog_begin(void *opaque, void **snapshot, uint64_t *version)
{
    ligi_remote *self = opaque;
    ligi_remote_state *state;

    LIG_TRY(ligi_remote_usable(self));
    LIG_TRY(ligi_remote_view(self->volume, &state));
    *snapshot = state;
    *version = state->version;
    return LIG_OK;
}

void ligi_remote_catalog_end(void *snapshot)
{
    ligi_remote_state_release(snapshot);
}

/* A commit is one request that has been answered, or never will be shown as anything else. */
lig_status ligi_remote_catalog_settle(void *opaque)
{
    ligi_remote *self = opaque;

    LIG_TRY(ligi_remote_usable(self));
    return ligi_remote_refresh(self->volume);
}

/* --- events --- */

typedef struct event_walk {
    uint64_t last; /* version up to which there is something to visit */
    lig_catalog_visit visit;
    void *context;
    int ended;
} event_walk;

static lig_status visit_events(void *context, uint64_t version, const void *bytes, size_t count)
{
    event_walk *self = context;
    ligi_remote_record record;
    ligi_clog_item item;
    size_t at = LIGI_CLOG_HEADER_BYTES;

    if (self->ended || version > self->last)
        return LIG_OK;
    LIG_TRY(ligi_remote_record_get(bytes, count, &record));
    for (uint32_t i = 0; i < record.header.items && !self->ended; i++) {
        if (!ligi_clog_item_next(record.log, record.header.bytes, &at, &item))
            break;
        if (item.kind == LIGI_CLOG_EVENT)
            self->ended = self->visit(self->context, version, record.header.date_ns, item.value,
                                      item.value_bytes) != 0;
    }
    return LIG_OK;
}

lig_status ligi_remote_catalog_events(void *opaque, uint64_t since, lig_catalog_visit visit,
                                      void *context)
{
    ligi_remote *self = opaque;
    ligi_remote_volume *volume = self->volume;
    event_walk walk = {.visit = visit, .context = context};
    ligi_remote_state *state;
    ligi_log_end end = {.version = since};
    lig_status status = LIG_E_NOTFOUND;

    LIG_TRY(ligi_remote_usable(self));
    LIG_TRY(ligi_remote_view(volume, &state));
    uint64_t version = walk.last = state->version;
    ligi_remote_state_release(state);
    if (since == version)
        return LIG_OK;
    if (since < version)
        status = volume->ops->log_read(volume->engine, &end, volume->windows.fresh_ns, visit_events,
                                       &walk);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(LIG_E_NOTFOUND,
                        "version %" PRIu64 " is out of range: changes since then are no longer "
                        "kept, or the catalog, which is at version %" PRIu64 ", never had it",
                        since, version);
    return status;
}

lig_status ligi_remote_catalog_wait(void *opaque, uint64_t since, int64_t timeout_ns)
{
    ligi_remote *self = opaque;
    ligi_remote_volume *volume = self->volume;
    int64_t until_ns = ligi_time_until(timeout_ns);

    LIG_TRY(ligi_remote_usable(self));
    for (;;) {
        ligi_remote_state *state;
        LIG_TRY(ligi_remote_view(volume, &state));
        uint64_t version = state->version;
        ligi_remote_state_release(state);
        if (version > since)
            return LIG_OK;
        int64_t left_ns = ligi_time_left(until_ns);
        if (left_ns == 0)
            return lig_fail(LIG_E_TIMEOUT, "there was no commit after version %" PRIu64, since);
        if (left_ns < 0 || left_ns > WAIT_SLICE_NS)
            left_ns = WAIT_SLICE_NS;
        LIG_TRY(volume->ops->log_wait(volume->engine, version, left_ns));
    }
}

/* --- verify --- */

typedef struct restart {
    lig_catalog_op *ops;
    uint64_t *condemned;
    lig_catalog_edit edit;
    ligi_remote_edit made;
} restart;

static lig_status fill_restart(restart *self, const ligi_remote_state *state)
{
    size_t count = ligi_item_map_count(state->items), packs = ligi_item_map_count(state->condemned),
           at = 0;
    ligi_item_walk walk = {0};
    lig_catalog_item item;

    LIG_TRY(ligi_calloc(&self->ops, count + 1, sizeof *self->ops, "a repaired catalog"));
    LIG_TRY(ligi_calloc(&self->condemned, packs + 1, sizeof *self->condemned, "a list of packs"));
    while (ligi_item_map_next(state->items, &walk, &item))
        self->ops[at++] = (lig_catalog_op){item.key, item.key_bytes, item.value, item.value_bytes};
    self->edit.ops = self->ops;
    self->edit.op_count = count;
    self->made.flags = LIGI_REMOTE_RESTART;
    self->made.edit = &self->edit;
    self->made.condemned.packs = self->condemned;
    self->made.condemned.count = ligi_remote_due(state, 0, INT64_MAX, self->condemned, packs);
    return LIG_OK;
}

/* One record with the whole catalog, which may follow any other. */
static lig_status put_restart(ligi_remote_volume *volume, ligi_remote_state *state)
{
    restart self = {0};
    int64_t now_ns = ligi_date_ns();
    lig_status status = fill_restart(&self, state);

    if (status == LIG_OK)
        status = ligi_remote_append(volume, state, now_ns, &self.made);
    free(self.ops);
    free(self.condemned);
    if (status == LIG_E_BUSY)
        return lig_fail(LIG_E_BUSY, "%s: the catalog was changed during the repair (run it again)",
                        volume->name);
    LIG_TRY(status);
    LIG_TRY(ligi_remote_refresh(volume));
    return ligi_keeper_checkpoint(volume, 1);
}

typedef struct problem_count {
    lig_catalog_problem problem;
    void *context;
    size_t count;
} problem_count;

static lig_status count_problem(void *context, const char *text, const void *event, size_t bytes)
{
    problem_count *self = context;

    self->count++;
    return self->problem(self->context, text, event, bytes);
}

lig_status ligi_remote_catalog_verify(void *opaque, int repair, lig_catalog_problem problem,
                                      void *context)
{
    ligi_remote *self = opaque;
    problem_count counted = {.problem = problem, .context = context};
    ligi_remote_state *state;
    uint64_t end;

    LIG_TRY(repair ? ligi_remote_writable(self) : ligi_remote_usable(self));
    LIG_TRY(ligi_remote_salvage(self->volume, count_problem, &counted, &state, &end));
    lig_status status = ligi_remote_check_older(self->volume, repair, problem, context);
    if (status == LIG_OK && repair && counted.count > 0)
        status = put_restart(self->volume, state);
    ligi_remote_state_release(state);
    return status;
}
