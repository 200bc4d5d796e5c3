#include "store/quota.h"

#include "base/error.h"
#include "store/catalog/retired_models.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A model uses a pack. The pack counts for the first: the model that wrote it or, when that is
 * gone, the oldest of the others. Otherwise a model that shares all its tensors would keep them
 * free of charge once their first model is retired. */
typedef struct claim {
    uint64_t pack, order;
    int below, fresh; /* of a model below the prefix; of the model that is checked */
} claim;

typedef struct claims {
    claim *all;
    size_t count, capacity;
    uint64_t used, wanted;
} claims;

static int is_below(const char *model, const ligi_quota *quota)
{
    return strncmp(model, quota->prefix, strlen(quota->prefix)) == 0;
}

static lig_status add_record(const ligi_record *record, const ligi_quota *quota, int fresh,
                             claims *into)
{
    int below = is_below(record->about.name, quota);
    if (record->pack == 0 && below && !fresh)
        into->used += record->own_bytes;
    for (size_t i = 0; i < record->use_count; i++) {
        uint64_t pack = record->uses[i].pack;
        LIG_TRY(
            ligi_grow(&into->all, &into->capacity, into->count + 1, sizeof *into->all, "a quota"));
        into->all[into->count++] =
            (claim){pack, pack == record->pack ? 0 : record->about.id, below, fresh};
    }
    return LIG_OK;
}

/* All models except the checked one and the one that it replaces. */
static lig_status add_others(const ligi_catalog_view *view, const ligi_quota *quota,
                             const ligi_record *checked, claims *into)
{
    ligi_walk walk = {0}, hidden = {0};
    lig_catalog_item item;
    ligi_record record = {0};
    ligi_retired retired;
    lig_status status, added = LIG_OK;
    while (added == LIG_OK &&
           ligi_catalog_view_next(view, LIGI_TABLE_MODEL, &walk, &item, &status)) {
        if (ligi_record_get(&item, view->store->secret, &record) == LIG_OK &&
            record.about.id != checked->about.id &&
            strcmp(record.about.name, checked->about.name) != 0)
            added = add_record(&record, quota, 0, into);
        ligi_record_fini(&record);
        record = (ligi_record){0};
    }
    LIG_TRY(added);
    LIG_TRY(status);
    while (added == LIG_OK && ligi_retired_next(view, &hidden, &retired, &record, &status)) {
        if (record.about.id != checked->about.id)
            added = add_record(&record, quota, 0, into);
        ligi_record_fini(&record);
    }
    LIG_TRY(added);
    return status;
}

static int first_first(const void *a, const void *b)
{
    const claim *left = a, *right = b;
    if (left->pack != right->pack)
        return left->pack < right->pack ? -1 : 1;
    return left->order < right->order ? -1 : left->order > right->order;
}

/* A pack that is not in the catalog yet is the checked model's, whose own bytes are counted. */
static lig_status sum_up(const ligi_catalog_view *view, const ligi_record *checked, claims *self)
{
    int written = 0;
    if (self->count)
        qsort(self->all, self->count, sizeof *self->all, first_first);
    for (size_t i = 0; i < self->count; i++) {
        const claim *one = &self->all[i];
        ligi_pack_record pack = {0};
        if (!one->below || (i && self->all[i - 1].pack == one->pack))
            continue;
        lig_status status = ligi_catalog_view_pack(view, one->pack, &pack);
        if (status == LIG_E_NOTFOUND)
            continue;
        LIG_TRY(status);
        written |= one->fresh && one->pack == checked->pack;
        *(one->fresh ? &self->wanted : &self->used) += pack.bytes;
    }
    self->wanted += written ? 0 : checked->own_bytes;
    return LIG_OK;
}

static lig_status check(const ligi_catalog_view *view, const ligi_quota *quota,
                        const ligi_record *record)
{
    claims sum = {0};
    lig_status status = add_others(view, quota, record, &sum);
    if (status == LIG_OK)
        status = add_record(record, quota, 1, &sum);
    if (status == LIG_OK)
        status = sum_up(view, record, &sum);
    free(sum.all);
    LIG_TRY(status);
    if (sum.wanted == 0 || (sum.used <= quota->bytes && sum.wanted <= quota->bytes - sum.used))
        return LIG_OK;
    return ligi_fail_errno(
        EDQUOT,
        "no space for model '%s' of %llu bytes: the quota of '%s*' is %llu bytes, %llu are "
        "used (remove models with rm --now)",
        record->about.name, (unsigned long long)sum.wanted, quota->prefix,
        (unsigned long long)quota->bytes, (unsigned long long)sum.used);
}

lig_status ligi_quota_check(const ligi_catalog_view *view, const ligi_record *record,
                            const char *before)
{
    const lig_store *store = view->store;
    if (record->own_bytes == 0 && record->use_count == 0)
        return LIG_OK;
    for (size_t i = 0; i < store->quota_count; i++) {
        const ligi_quota *quota = &store->quotas[i];
        if (is_below(record->about.name, quota) && !(before && is_below(before, quota)))
            LIG_TRY(check(view, quota, record));
    }
    return LIG_OK;
}
