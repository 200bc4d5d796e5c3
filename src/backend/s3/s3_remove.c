#include "backend/s3/s3_remove.h"

#include <stdlib.h>
#include <string.h>

#include "backend/s3/client/s3_requests.h"
#include "backend/s3/leases/s3_lease.h"
#include "backend/s3/leases/s3_pins.h"
#include "backend/s3/s3_names.h"
#include "backend/s3/s3_upload.h"

#define DRAFTS_MAX 512 /* claims that one call looks at */
#define LOOSE_UPLOAD_S 3600

/* --- lists ---------------------------------------------------------------------------------- */

typedef struct id_list {
    const char *folder;
    uint64_t *ids;
    size_t capacity, count;
} id_list;

static int take_id(void *context, const ligi_s3_list_item *item)
{
    id_list *list = context;

    if (ligi_s3_name_number(item->key, list->folder, &list->ids[list->count]))
        list->count++;
    return list->count == list->capacity;
}

lig_status ligi_s3_object_list(void *self, ligi_object_kind kind, uint64_t after, uint64_t *ids,
                               size_t capacity, size_t *count)
{
    ligi_s3 *s3 = self;
    id_list list = {.folder = ligi_s3_name_folder(kind), .ids = ids, .capacity = capacity};
    char key[LIGI_S3_SHORT_KEY_BYTES];

    *count = 0;
    if (capacity == 0)
        return LIG_OK;
    ligi_s3_name_object((ligi_object){kind, after}, key);
    LIG_TRY(ligi_s3_list(s3->client,
                         &(ligi_s3_listing){.folder = list.folder,
                                            .after = key,
                                            .page = capacity < 1000 ? (unsigned)capacity : 1000,
                                            .visit = take_id,
                                            .context = &list},
                         s3->timeout_ns));
    *count = list.count;
    return LIG_OK;
}

/* --- removal -------------------------------------------------------------------------------- */

typedef struct removal {
    ligi_s3 *s3;
    ligi_object_kind kind;
    const uint64_t *ids;
    lig_status *results;
    int holds; /* the claims, instead of the objects */
} removal;

static void prepare_removal(void *context, ligi_s3_slot *slot)
{
    removal *all = context;
    uint64_t id = all->ids[slot->index];

    if (all->holds)
        ligi_s3_name_hold(id, slot->key);
    else
        ligi_s3_name_object((ligi_object){all->kind, id}, slot->key);
    /* A pinned pack is only looked at: every index has its request. */
    slot->transfer = ligi_s3_request(all->results[slot->index] == LIG_OK ? "DELETE" : "HEAD",
                                     slot->key, all->s3->timeout_ns);
}

static lig_status take_removal(void *context, ligi_s3_slot *slot)
{
    removal *all = context;
    lig_status *result = &all->results[slot->index];

    if (*result != LIG_OK)
        return LIG_OK;
    lig_status status = ligi_s3_result(all->s3->client, &slot->transfer, "cannot remove");
    *result = status == LIG_E_NOTFOUND && slot->transfer.answer.http == 404 ? LIG_OK : status;
    return LIG_OK;
}

static lig_status remove_all(removal *all, size_t count)
{
    return ligi_s3_parallel(all->s3->client, &(ligi_s3_work){.count = count,
                                                             .window = LIGI_S3_WINDOW,
                                                             .prepare = prepare_removal,
                                                             .ended = take_removal,
                                                             .context = all});
}

lig_status ligi_s3_object_remove(void *self, ligi_object_kind kind, const uint64_t *ids,
                                 size_t count, lig_status *results)
{
    ligi_s3 *s3 = self;
    removal all = {.s3 = s3, .kind = kind, .ids = ids, .results = results};

    for (size_t i = 0; i < count; i++)
        results[i] = LIG_OK;
    if (count == 0)
        return LIG_OK;
    if (kind != LIGI_OBJECT_PACK)
        return remove_all(&all, count);
    uint8_t *pinned = calloc(count, 1);
    if (pinned == NULL)
        return s3->host->fail(LIG_E_NOMEM, "s3: out of memory");
    lig_status status = ligi_s3_pinned(s3, ids, count, pinned);
    for (size_t i = 0; i < count; i++)
        results[i] = pinned[i] ? LIG_E_BUSY : LIG_OK;
    free(pinned);
    LIG_TRY(status);
    LIG_TRY(remove_all(&all, count));
    all.holds = 1;
    return remove_all(&all, count);
}

/* --- claims of writers ---------------------------------------------------------------------- */

lig_status ligi_s3_pack_held(void *self, uint64_t id)
{
    ligi_s3 *s3 = self;
    char key[LIGI_S3_SHORT_KEY_BYTES];
    ligi_s3_small object;
    ligi_s3_lease lease;
    uint64_t bytes;

    ligi_s3_remove_wait(s3);
    ligi_s3_name_hold(id, key);
    lig_status status =
        ligi_s3_get(s3->client, key, LIGI_S3_LEASE_BYTES_MAX, s3->timeout_ns, &object);
    if (status == LIG_OK) {
        int lives = ligi_s3_lease_decode(&object, &lease) && ligi_s3_lease_lives(&lease);
        free(object.data);
        if (lives)
            return s3->host->fail(LIG_E_BUSY, "s3: pack %016llx is being written",
                                  (unsigned long long)id);
    } else if (status != LIG_E_NOTFOUND) {
        return status;
    }
    ligi_s3_name_object((ligi_object){LIGI_OBJECT_PACK, id}, key);
    status = ligi_s3_head(s3->client, key, s3->timeout_ns, &bytes);
    return status == LIG_E_NOTFOUND ? s3->host->fail(LIG_E_NOTFOUND, "s3: there is no pack %016llx",
                                                     (unsigned long long)id)
                                    : status;
}

typedef struct upload_list {
    ligi_s3 *s3;
    uint64_t pack; /* of this one; 0: of packs without a claim */
    lig_status status;
} upload_list;

/* 1 if the pack of an upload is not claimed and cannot be claimed soon: the claim is written
 * first. */
static int is_loose(ligi_s3 *s3, const ligi_s3_list_item *item, uint64_t id)
{
    char key[LIGI_S3_SHORT_KEY_BYTES];
    uint64_t bytes;
    int64_t age_s = ligi_s3_client_now_ns(s3->client) / 1000000000 - item->date_s;

    if (item->date_s == 0 || age_s < LOOSE_UPLOAD_S)
        return 0;
    ligi_s3_name_hold(id, key);
    return ligi_s3_head(s3->client, key, s3->timeout_ns, &bytes) == LIG_E_NOTFOUND;
}

static int abort_upload(void *context, const ligi_s3_list_item *item)
{
    upload_list *list = context;
    uint64_t id;

    if (!ligi_s3_name_number(item->key, "pack/", &id))
        return 0;
    if (list->pack != 0 ? id == list->pack : is_loose(list->s3, item, id))
        list->status = ligi_s3_upload_discard(list->s3, item->key, item->upload);
    return list->status != LIG_OK;
}

static lig_status abort_uploads(ligi_s3 *s3, uint64_t pack)
{
    upload_list list = {.s3 = s3, .pack = pack};
    char folder[LIGI_S3_SHORT_KEY_BYTES] = "pack/";

    if (pack != 0)
        ligi_s3_name_object((ligi_object){LIGI_OBJECT_PACK, pack}, folder);
    LIG_TRY(ligi_s3_list(
        s3->client,
        &(ligi_s3_listing){
            .folder = folder, .page = 1000, .uploads = 1, .visit = abort_upload, .context = &list},
        s3->timeout_ns));
    return list.status;
}

/* The claim goes last: a claim without an upload is found again, an upload without a claim only
 * after an hour. A writer that completes its upload just before the abort looks for its claim
 * afterwards, and removes the pack (ligi_s3_object_seal). */
static lig_status remove_draft(ligi_s3 *s3, uint64_t id)
{
    char hold[LIGI_S3_SHORT_KEY_BYTES];
    ligi_s3_small object;
    ligi_s3_lease lease;

    ligi_s3_name_hold(id, hold);
    lig_status status =
        ligi_s3_get(s3->client, hold, LIGI_S3_LEASE_BYTES_MAX, s3->timeout_ns, &object);
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    int stale = ligi_s3_lease_decode(&object, &lease) && ligi_s3_lease_stale(&lease);
    free(object.data);
    if (!stale)
        return LIG_OK;
    LIG_TRY(abort_uploads(s3, id));
    return ligi_s3_delete(s3->client, hold, s3->timeout_ns);
}

lig_status ligi_s3_drafts_remove(void *self, int *more)
{
    ligi_s3 *s3 = self;
    uint64_t ids[DRAFTS_MAX];
    id_list list = {.folder = "hold/", .ids = ids, .capacity = DRAFTS_MAX};

    ligi_s3_remove_wait(s3);
    LIG_TRY(
        ligi_s3_list(s3->client,
                     &(ligi_s3_listing){
                         .folder = "hold/", .page = DRAFTS_MAX, .visit = take_id, .context = &list},
                     s3->timeout_ns));
    *more = 0; /* that many concurrent writers are not expected */
    for (size_t i = 0; i < list.count; i++)
        LIG_TRY(remove_draft(s3, ids[i]));
    LIG_TRY(abort_uploads(s3, 0));
    return ligi_s3_pins_sweep(s3);
}
