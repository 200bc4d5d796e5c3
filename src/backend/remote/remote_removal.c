#include "backend/remote/remote_removal.h"

#include "backend/remote/remote_commit.h"
#include "backend/remote/remote_keeper.h"
#include "backend/remote/remote_leases.h"
#include "backend/remote/remote_view.h"
#include "backend/remote/remote_write.h"
#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <string.h>

enum { SWEEP_BATCH = 64, DRAFT_ROUNDS = 16, FORGET_MAX = 16 };
#define SWEEP_PAUSE_NS INT64_C(1000000000)
/* Every refusal means that another process has committed. */
enum { CONDEMN_TRIES = 1000 };

static lig_status no_pack(const ligi_remote_volume *volume, uint64_t id)
{
    return lig_fail(LIG_E_NOTFOUND, "there is no pack %016" PRIx64 " at %s", id, volume->name);
}

/* --- condemning --- */

/* Condemned packs that were deleted so long ago that no commit can name them any more: a writer
 * that was suspended for so long has lost its claim. */
static size_t find_forgotten(ligi_remote_volume *volume, const ligi_remote_state *state,
                             int64_t now_ns, uint64_t *packs)
{
    int64_t until_ns = now_ns - volume->windows.grace_ns - volume->windows.keep_ns;
    size_t found = ligi_remote_due(state, 0, until_ns, packs, FORGET_MAX), kept = 0;

    for (size_t i = 0; i < found; i++) {
        uint64_t bytes;
        ligi_object object = {LIGI_OBJECT_PACK, packs[i]};
        if (volume->ops->object_size(volume->engine, object, &bytes) == LIG_E_NOTFOUND)
            packs[kept++] = packs[i];
    }
    return kept;
}

static lig_status condemn_once(ligi_remote_volume *volume, uint64_t id)
{
    const lig_catalog_edit nothing = {0};
    uint64_t forgotten[FORGET_MAX];
    int64_t seen_ns, now_ns;
    ligi_remote_state *state = ligi_remote_latest(volume, &seen_ns);
    lig_status status = volume->ops->now(volume->engine, &now_ns);

    if (status == LIG_OK && ligi_remote_condemned(state, id, NULL))
        status = no_pack(volume, id);
    if (status == LIG_OK && !ligi_remote_claim_sound(volume, id))
        status = lig_fail(LIG_E_LIMIT, "pack %016" PRIx64 " is in use again", id);
    if (status == LIG_OK) {
        ligi_remote_edit edit = {.edit = &nothing, .condemned = {&id, 1}};
        edit.forgotten.packs = forgotten;
        edit.forgotten.count = find_forgotten(volume, state, now_ns, forgotten);
        status = ligi_remote_append(volume, state, seen_ns, &edit);
    }
    ligi_remote_state_release(state);
    return status;
}

static lig_status condemn(ligi_remote_volume *volume, uint64_t id)
{
    int mine = ligi_remote_turn_mine(volume);
    lig_status status = mine ? LIG_OK : ligi_remote_turn_take(volume, LIG_FOREVER);

    LIG_TRY(status);
    status = LIG_E_BUSY;
    for (int i = 0; i < CONDEMN_TRIES && status == LIG_E_BUSY; i++) {
        status = condemn_once(volume, id);
        if (status == LIG_E_BUSY) {
            lig_status fresh = ligi_remote_refresh(volume);
            status = fresh == LIG_OK ? LIG_E_BUSY : fresh;
        }
    }
    if (!mine)
        ligi_remote_turn_end(volume);
    if (status == LIG_E_LIMIT)
        return lig_fail(LIG_E_BUSY, "pack %016" PRIx64 " is in use again", id);
    return status;
}

/* --- deleting --- */

/* Packs that were deleted stay in the state until they are forgotten. */
static void note_swept(ligi_remote_volume *volume, const uint64_t *packs, size_t count)
{
    lig_catalog_op ops[SWEEP_BATCH];
    uint8_t keys[SWEEP_BATCH][8];
    ligi_item_map *next;

    for (size_t i = 0; i < count; i++) {
        ligi_put_be64(keys[i], packs[i]);
        ops[i] = (lig_catalog_op){keys[i], 8, "", 0};
    }
    pthread_mutex_lock(&volume->lock);
    if (ligi_item_map_edit(volume->swept, ops, count, &next) == LIG_OK) {
        ligi_item_map_release(volume->swept);
        volume->swept = next;
    }
    pthread_mutex_unlock(&volume->lock);
}

static int is_swept(const ligi_item_map *swept, uint64_t pack)
{
    uint8_t key[8];
    lig_catalog_item item;

    ligi_put_be64(key, pack);
    return ligi_item_map_get(swept, key, 8, &item);
}

static lig_status delete_batch(ligi_remote_volume *volume, uint64_t *packs, size_t count,
                               size_t *left)
{
    lig_status results[SWEEP_BATCH] = {LIG_OK};
    size_t gone = 0;

    if (count == 0)
        return LIG_OK;
    LIG_TRY(volume->ops->object_remove(volume->engine, LIGI_OBJECT_PACK, packs, count, results));
    for (size_t i = 0; i < count; i++)
        if (results[i] == LIG_OK)
            packs[gone++] = packs[i];
    note_swept(volume, packs, gone);
    *left += count - gone;
    return LIG_OK;
}

typedef struct sweep_walk {
    ligi_remote_volume *volume;
    const ligi_remote_state *state;
    const ligi_item_map *swept;
    int64_t until_ns;
    uint64_t packs[SWEEP_BATCH];
    size_t count, left;
} sweep_walk;

static lig_status sweep_pack(sweep_walk *self, uint64_t pack)
{
    if (is_swept(self->swept, pack))
        return LIG_OK;
    self->packs[self->count++] = pack;
    if (self->count < SWEEP_BATCH)
        return LIG_OK;
    self->count = 0;
    return delete_batch(self->volume, self->packs, SWEEP_BATCH, &self->left);
}

/* Few: deleting objects that may already be deleted costs less than a listing. */
static lig_status delete_due(sweep_walk *self)
{
    uint64_t found[SWEEP_BATCH], after = 0;
    size_t count;

    while ((count = ligi_remote_due(self->state, after, self->until_ns, found, SWEEP_BATCH)) > 0) {
        for (size_t i = 0; i < count; i++)
            LIG_TRY(sweep_pack(self, found[i]));
        after = found[count - 1];
    }
    return delete_batch(self->volume, self->packs, self->count, &self->left);
}

/* Many: most of them are gone, and those that are not are in the listing. */
static lig_status delete_listed(sweep_walk *self)
{
    uint64_t found[SWEEP_BATCH], after = 0;
    size_t count = SWEEP_BATCH;
    ligi_remote_volume *volume = self->volume;

    while (count == SWEEP_BATCH) {
        LIG_TRY(volume->ops->object_list(volume->engine, LIGI_OBJECT_PACK, after, found,
                                         SWEEP_BATCH, &count));
        for (size_t i = 0; i < count; i++) {
            int64_t when_ns;
            after = found[i];
            if (ligi_remote_condemned(self->state, after, &when_ns) && when_ns <= self->until_ns)
                LIG_TRY(sweep_pack(self, after));
        }
    }
    return delete_batch(volume, self->packs, self->count, &self->left);
}

static lig_status remove_drafts(ligi_remote_volume *volume)
{
    int more = 1;
    int64_t now_ns = ligi_now_ns();

    pthread_mutex_lock(&volume->lock);
    int due = volume->drafts_ns == 0 || now_ns - volume->drafts_ns > volume->windows.ttl_ns;
    if (due)
        volume->drafts_ns = now_ns;
    pthread_mutex_unlock(&volume->lock);
    for (int i = 0; i < DRAFT_ROUNDS && more && due; i++) {
        more = 0;
        LIG_TRY(volume->ops->drafts_remove(volume->engine, &more));
    }
    return LIG_OK;
}

static lig_status sweep(ligi_remote_volume *volume, const ligi_remote_state *state, int *later)
{
    sweep_walk walk = {.volume = volume, .state = state};
    uint64_t some[SWEEP_BATCH];
    int64_t now_ns;

    LIG_TRY(volume->ops->now(volume->engine, &now_ns));
    walk.until_ns = now_ns - volume->windows.grace_ns;
    pthread_mutex_lock(&volume->lock);
    ligi_item_map *swept = ligi_item_map_hold(volume->swept);
    pthread_mutex_unlock(&volume->lock);
    walk.swept = swept;
    size_t due = ligi_remote_due(state, 0, walk.until_ns, some, SWEEP_BATCH);
    lig_status status = due == SWEEP_BATCH ? delete_listed(&walk) : delete_due(&walk);
    ligi_item_map_release(swept);
    /* Some were pinned, or are not due yet. */
    *later = walk.left > 0 || due < ligi_item_map_count(state->condemned);
    LIG_TRY(status);
    return remove_drafts(volume);
}

lig_status ligi_remote_sweep(ligi_remote_volume *volume)
{
    int later = 1;
    ligi_remote_state *state = ligi_remote_latest(volume, NULL);

    if (state == NULL || volume->read_only) {
        ligi_remote_state_release(state);
        return LIG_OK;
    }
    lig_status status = sweep(volume, state, &later);
    ligi_remote_state_release(state);
    pthread_mutex_lock(&volume->lock);
    if (later)
        volume->sweep_ns = ligi_now_ns() + volume->windows.grace_ns / 2 + SWEEP_PAUSE_NS;
    pthread_mutex_unlock(&volume->lock);
    return status;
}

/* --- the volume's members --- */

static lig_status check_pins(ligi_remote_volume *volume, uint64_t id)
{
    uint8_t pinned = 0;

    LIG_TRY(volume->ops->pinned(volume->engine, &id, 1, &pinned));
    if (pinned)
        return lig_fail(LIG_E_BUSY, "pack %016" PRIx64 " is pinned by a match in use", id);
    return LIG_OK;
}

lig_status ligi_remote_pack_remove(void *opaque, uint64_t id)
{
    ligi_remote *self = opaque;
    ligi_remote_volume *volume = self->volume;
    ligi_object object = {LIGI_OBJECT_PACK, id};
    uint64_t bytes;
    size_t left = 0;

    LIG_TRY(ligi_remote_writable(self));
    LIG_TRY(ligi_remote_refresh(volume));
    lig_status status = volume->ops->object_size(volume->engine, object, &bytes);
    if (status == LIG_E_NOTFOUND)
        return no_pack(volume, id);
    LIG_TRY(status);
    LIG_TRY(check_pins(volume, id));
    LIG_TRY(condemn(volume, id));
    if (volume->windows.grace_ns == 0)
        (void)delete_batch(volume, &id, 1, &left); /* a sweep tries again */
    ligi_keeper_sweep(volume);
    return LIG_OK;
}

lig_status ligi_remote_pack_claim(void *opaque, uint64_t id, void **pack)
{
    ligi_remote *self = opaque;
    ligi_remote_volume *volume = self->volume;
    ligi_remote_claim *claim;
    ligi_remote_state *state;
    void *made;

    LIG_TRY(ligi_remote_writable(self));
    LIG_TRY(ligi_remote_writer_create(volume, &made, &claim));
    lig_status status = ligi_remote_claim_begin(volume, claim, id);
    /* From here on, commits that name the pack are noticed. */
    if (status == LIG_OK)
        status = ligi_remote_view(volume, &state);
    if (status == LIG_OK) {
        if (ligi_remote_condemned(state, id, NULL))
            status = no_pack(volume, id);
        ligi_remote_state_release(state);
    }
    if (status == LIG_OK) {
        status = volume->ops->pack_held(volume->engine, id);
        if (status == LIG_E_BUSY)
            status = lig_fail(LIG_E_BUSY, "pack %016" PRIx64 " is held by its writer", id);
        else if (status == LIG_E_NOTFOUND)
            status = no_pack(volume, id);
    }
    if (status != LIG_OK) {
        ligi_remote_pack_close(made);
        return status;
    }
    *pack = made;
    return LIG_OK;
}

/* The next of the listing after `after`, if it is the place where the walk stopped. */
static int next_listed(ligi_remote_volume *volume, uint64_t after, uint64_t *id)
{
    int found = 0;

    pthread_mutex_lock(&volume->lock);
    size_t at = volume->listing.at;
    if (after != 0 && at > 0 && at < volume->listing.count &&
        volume->listing.ids[at - 1] == after) {
        *id = volume->listing.ids[volume->listing.at++];
        found = 1;
    }
    pthread_mutex_unlock(&volume->lock);
    return found;
}

static lig_status list_packs(ligi_remote_volume *volume, uint64_t after, uint64_t *id)
{
    uint64_t ids[LIGI_REMOTE_LIST_MAX];
    size_t count = 0;

    LIG_TRY(volume->ops->object_list(volume->engine, LIGI_OBJECT_PACK, after, ids,
                                     LIGI_REMOTE_LIST_MAX, &count));
    if (count == 0)
        return LIG_E_NOTFOUND;
    pthread_mutex_lock(&volume->lock);
    memcpy(volume->listing.ids, ids, count * sizeof ids[0]);
    volume->listing.count = count;
    volume->listing.at = 1;
    pthread_mutex_unlock(&volume->lock);
    *id = ids[0];
    return LIG_OK;
}

lig_status ligi_remote_pack_next(void *opaque, uint64_t after, uint64_t *id)
{
    ligi_remote *self = opaque;
    ligi_remote_volume *volume = self->volume;
    lig_status status;

    LIG_TRY(ligi_remote_usable(self));
    /* A search for leftovers begins here. Nothing may be condemned, so no sweep may follow. */
    if (after == 0 && !self->read_only && remove_drafts(volume) != LIG_OK)
        ligi_log(LIG_LOG_WARNING, "%s: leftovers of dead writers could not be removed: %s",
                 volume->name, lig_error_text());
    ligi_remote_state *state = ligi_remote_latest(volume, NULL);
    do {
        status = LIG_E_NOTFOUND;
        if (after != UINT64_MAX)
            status = next_listed(volume, after, id) ? LIG_OK : list_packs(volume, after, id);
        after = *id;
    } while (status == LIG_OK && state != NULL && ligi_remote_condemned(state, after, NULL));
    ligi_remote_state_release(state);
    return status;
}
