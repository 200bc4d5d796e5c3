#include "store/quota.h"

#include "base/error.h"
#include "store/catalog/retired_models.h"

#include <errno.h>
#include <string.h>

static int is_below(const char *model, const ligi_quota *quota)
{
    return strncmp(model, quota->prefix, strlen(quota->prefix)) == 0;
}

/* What the models below the prefix have written. */
static lig_status sum_up(const ligi_catalog_view *view, const ligi_quota *quota, const char *taken,
                         uint64_t *used)
{
    ligi_walk walk = {0}, hidden = {0};
    lig_catalog_item item;
    ligi_record record = {0};
    ligi_retired retired;
    lig_status status;
    *used = 0;
    while (ligi_catalog_view_next(view, LIGI_TABLE_MODEL, &walk, &item, &status)) {
        if (ligi_record_get(&item, view->store->secret, &record) == LIG_OK &&
            is_below(record.about.name, quota) && strcmp(record.about.name, taken) != 0)
            *used += record.own_bytes;
        ligi_record_fini(&record);
        record = (ligi_record){0};
    }
    LIG_TRY(status);
    while (ligi_retired_next(view, &hidden, &retired, &record, &status)) {
        if (is_below(record.about.name, quota))
            *used += record.own_bytes;
        ligi_record_fini(&record);
    }
    return status;
}

lig_status ligi_quota_check(const ligi_catalog_view *view, const char *model, uint64_t bytes)
{
    const lig_store *store = view->store;
    for (size_t i = 0; i < store->quota_count && bytes; i++) {
        const ligi_quota *quota = &store->quotas[i];
        uint64_t used;
        if (!is_below(model, quota))
            continue;
        LIG_TRY(sum_up(view, quota, model, &used));
        if (used > quota->bytes || bytes > quota->bytes - used)
            return ligi_fail_errno(
                EDQUOT,
                "no space for model '%s' of %llu bytes: the quota of '%s*' is %llu bytes, %llu are "
                "used (remove models with rm --now)",
                model, (unsigned long long)bytes, quota->prefix, (unsigned long long)quota->bytes,
                (unsigned long long)used);
    }
    return LIG_OK;
}
