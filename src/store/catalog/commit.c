#include "store/catalog/commit.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/catalog/catalog_wait.h"
#include "store/catalog/orphans.h"

#include <assert.h>
#include <stdlib.h>

/* Every refusal means that another process has committed: this many in a row, or for this long,
 * is not a coincidence. */
enum { COMMIT_TRIES = 1000 };
/* The number of retries of a slow edit before it takes the lock and delays others. */
enum { SLOW_TRIES = 3 };

/* A pack that has lost its last model is removed next, and a new one is an orphan until named:
 * those commits are not left pending. */
static lig_catalog_pending *pending_of(const ligi_commit *commit, const ligi_change *change)
{
    const lig_volume_ops *ops = commit->store->volume->ops;
    return ops->catalog_sync && change->count_count == 0 ? commit->pending : NULL;
}

/* *locked becomes 0 with the commit, which ends the lock. */
static lig_status commit_ops(const ligi_commit *commit, const ligi_change *change, uint64_t version,
                             int *locked)
{
    const ligi_volume *volume = commit->store->volume;
    lig_catalog_op *ops = NULL;
    lig_catalog_event *events = NULL;
    uint64_t *packs = NULL;
    size_t pack_count = 0;
    LIG_TRY(ligi_calloc(&ops, change->count, sizeof *ops, "a change of the catalog"));
    lig_status status =
        ligi_calloc(&events, change->event_count, sizeof *events, "a change of the catalog");
    if (status == LIG_OK)
        status = ligi_calloc(&packs, change->count_count, sizeof *packs, "a change of the catalog");
    for (size_t i = 0; i < change->count_count && status == LIG_OK; i++)
        if (change->counts[i].record.models)
            packs[pack_count++] = change->counts[i].pack;
    for (size_t i = 0; i < change->count; i++) {
        const ligi_change_op *op = &change->ops[i];
        ops[i].key = change->bytes.data + op->key;
        ops[i].key_bytes = op->key_bytes;
        if (op->value != SIZE_MAX) {
            ops[i].value = change->bytes.data + op->value;
            ops[i].value_bytes = op->value_bytes;
        }
    }
    for (size_t i = 0; i < change->event_count && status == LIG_OK; i++)
        events[i] =
            (lig_catalog_event){change->bytes.data + change->events[i].at, change->events[i].bytes};
    if (status == LIG_OK) {
        lig_catalog_edit edit = {.version = version,
                                 .ops = ops,
                                 .op_count = change->count,
                                 .events = events,
                                 .event_count = change->event_count,
                                 .flags = change->flags,
                                 .packs = packs,
                                 .pack_count = pack_count,
                                 .pending = pending_of(commit, change)};
        assert(change->view == NULL); /* no snapshot is held over a commit */
        *locked = 0;
        status = volume->ops->catalog_commit(volume->self, &edit);
    }
    free(packs);
    free(events);
    free(ops);
    return status;
}

static lig_status make_change(const ligi_commit *commit, ligi_change *change, uint64_t *version)
{
    ligi_catalog_view view;
    LIG_TRY(ligi_catalog_view_begin(commit->store, &view));
    assert(change->count == 0 && change->event_count == 0); /* each attempt begins anew */
    change->view = &view;
    *version = view.version;
    lig_status status = commit->edit(commit->context, &view, change);
    if (status == LIG_OK)
        status = ligi_change_finish(change);
    ligi_catalog_view_end(&view);
    change->view = NULL;
    return status;
}

/* A view that is begun under the lock may show a commit that another process is still syncing. A
 * result without a commit (LIG_E_NOTFOUND, nothing to change) must not depend on it: the sync may
 * fail, and a power cut may undo it. A view that is begun without the lock is durable. */
static lig_status confirm(lig_store *store, lig_status answer)
{
    ligi_catalog_view view;
    ligi_failure failure;
    ligi_failure_take(&failure, answer);
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    ligi_catalog_view_end(&view);
    return ligi_failure_publish(&failure);
}

/* `locked`: the catalog is, and no longer when this returns. */
static lig_status try_commit(const ligi_commit *commit, int locked)
{
    lig_store *store = commit->store;
    ligi_change change = {.store = store};
    uint64_t version;
    lig_status status = make_change(commit, &change, &version);
    assert(status != LIG_OK || change.count || change.event_count == 0);
    if (status == LIG_OK && change.count)
        status = commit_ops(commit, &change, version, &locked);
    if (locked) {
        store->volume->ops->catalog_unlock(store->volume->self);
        status = confirm(store, status);
    }
    if (status == LIG_OK)
        ligi_orphans_remove_dead(store, change.counts, change.count_count, commit->freed);
    ligi_change_fini(&change);
    return status;
}

lig_status ligi_change_commit_as(const ligi_commit *commit)
{
    lig_store *store = commit->store;
    const ligi_interrupt *interrupt = commit->interrupt ? commit->interrupt : &store->interrupt;
    lig_status status = LIG_E_BUSY;
    int64_t begin = ligi_now_ns(), end = begin + store->commit_ns;
    for (int i = 0; i < COMMIT_TRIES && status == LIG_E_BUSY && (i == 0 || ligi_now_ns() < end);
         i++) {
        int lock = store->volume->ops->catalog_lock != NULL && (!commit->slow || i >= SLOW_TRIES);
        status = lock ? ligi_catalog_lock(store, interrupt, end) : LIG_OK;
        assert(!lock || store->mode != 'r');
        if (status == LIG_OK)
            status = try_commit(commit, lock);
    }
    ligi_stamps_note(&store->stamps, LIGI_STAMP_COMMIT, begin);
    return status;
}

lig_status ligi_change_commit(lig_store *store, ligi_edit edit, void *context, uint64_t *freed)
{
    const ligi_commit commit = {.store = store, .edit = edit, .context = context, .freed = freed};
    return ligi_change_commit_as(&commit);
}
