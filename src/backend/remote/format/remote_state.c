#include "backend/remote/format/remote_state.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>

lig_status ligi_remote_state_create(const uint8_t id[16], ligi_remote_state **out)
{
    ligi_remote_state *made;

    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a version of the catalog"));
    atomic_init(&made->refs, 1);
    made->chain = ligi_clog_chain_start(id);
    *out = made;
    return LIG_OK;
}

ligi_remote_state *ligi_remote_state_hold(ligi_remote_state *state)
{
    atomic_fetch_add(&state->refs, 1);
    return state;
}

void ligi_remote_state_release(ligi_remote_state *state)
{
    if (state == NULL || atomic_fetch_sub(&state->refs, 1) != 1)
        return;
    ligi_item_map_release(state->items);
    ligi_item_map_release(state->condemned);
    free(state);
}

/* --- applying a record --- */

typedef struct change_list {
    lig_catalog_op *ops;
    size_t count;
} change_list;

/* Borrows from the record. */
static lig_status read_items(const ligi_remote_record *record, change_list *list)
{
    size_t at = LIGI_CLOG_HEADER_BYTES, bytes = record->header.bytes;
    ligi_clog_item item;

    LIG_TRY(ligi_calloc(&list->ops, (size_t)record->header.items + 1, sizeof *list->ops,
                        "the changes of a commit"));
    while (at < bytes && list->count < record->header.items) {
        if (!ligi_clog_item_next(record->log, bytes, &at, &item)) {
            if (!ligi_clog_item_skip(record->log, bytes, &at))
                break;
            continue;
        }
        if (item.kind == LIGI_CLOG_EVENT)
            continue;
        list->ops[list->count++] =
            (lig_catalog_op){item.key, item.key_bytes,
                             item.kind == LIGI_CLOG_PUT ? item.value : NULL, item.value_bytes};
    }
    return LIG_OK;
}

typedef struct packed_ops { /* the changes of the condemned packs, with their keys and values */
    lig_catalog_op *ops;
    uint8_t (*keys)[8];
    uint8_t date[8];
    size_t count;
} packed_ops;

static void put_packs(packed_ops *self, const ligi_packed_list *list, int condemned)
{
    for (size_t i = 0; i < list->count; i++, self->count++) {
        ligi_put_be64(self->keys[self->count], ligi_packed_list_at(list, i));
        self->ops[self->count] = (lig_catalog_op){self->keys[self->count], 8,
                                                  condemned ? self->date : NULL, condemned ? 8 : 0};
    }
}

static lig_status edit_condemned(const ligi_item_map *old, const ligi_remote_record *record,
                                 ligi_item_map **next)
{
    size_t count = record->condemned.count + record->forgotten.count;
    packed_ops packed = {0};

    LIG_TRY(ligi_calloc(&packed.ops, count + 1, sizeof *packed.ops, "a list of packs"));
    lig_status status = ligi_calloc(&packed.keys, count + 1, 8, "a list of packs");
    if (status == LIG_OK) {
        ligi_put_be64(packed.date, (uint64_t)record->header.date_ns);
        put_packs(&packed, &record->forgotten, 0);
        put_packs(&packed, &record->condemned, 1);
        status = ligi_item_map_edit(old, packed.ops, packed.count, next);
    }
    free(packed.keys);
    free(packed.ops);
    return status;
}

static lig_status fill_next(const ligi_remote_state *old, const ligi_remote_record *record,
                            ligi_remote_state *next)
{
    change_list list = {0};
    lig_status status = read_items(record, &list);

    if (status == LIG_OK)
        status = ligi_item_map_edit(record->flags & LIGI_REMOTE_RESTART ? NULL : old->items,
                                    list.ops, list.count, &next->items);
    free(list.ops);
    LIG_TRY(status);
    if (record->condemned.count + record->forgotten.count == 0) {
        next->condemned = ligi_item_map_hold(old->condemned);
        return LIG_OK;
    }
    return edit_condemned(old->condemned, record, &next->condemned);
}

lig_status ligi_remote_state_apply(const ligi_remote_state *state, const ligi_remote_record *record,
                                   ligi_remote_state **out)
{
    ligi_remote_state *next;

    if (record->header.version != state->version + 1)
        return lig_fail(LIG_E_CORRUPT, "the commit after version %" PRIu64 " has version %" PRIu64,
                        state->version, record->header.version);
    if (record->header.previous != state->chain && !(record->flags & LIGI_REMOTE_RESTART))
        return lig_fail(LIG_E_CORRUPT,
                        "commit %" PRIu64 " does not follow the commit before it: the log was "
                        "changed, or belongs to another store",
                        record->header.version);
    LIG_TRY(ligi_calloc(&next, 1, sizeof *next, "a version of the catalog"));
    atomic_init(&next->refs, 1);
    next->version = record->header.version;
    next->chain = ligi_clog_chain(&record->header);
    next->log_bytes = state->log_bytes + record->header.bytes;
    lig_status status = fill_next(state, record, next);
    if (status == LIG_OK)
        *out = next;
    else
        ligi_remote_state_release(next);
    return status;
}

/* --- removal --- */

int ligi_remote_condemned(const ligi_remote_state *state, uint64_t pack, int64_t *when_ns)
{
    uint8_t key[8];
    lig_catalog_item item;

    ligi_put_be64(key, pack);
    if (!ligi_item_map_get(state->condemned, key, 8, &item) || item.value_bytes != 8)
        return 0;
    if (when_ns != NULL)
        *when_ns = (int64_t)ligi_get_be64(item.value);
    return 1;
}

size_t ligi_remote_first_condemned(const ligi_remote_state *state, const uint64_t *packs,
                                   size_t count)
{
    size_t i = 0;

    while (i < count && !ligi_remote_condemned(state, packs[i], NULL))
        i++;
    return i;
}

size_t ligi_remote_due(const ligi_remote_state *state, uint64_t after, int64_t until_ns,
                       uint64_t *packs, size_t capacity)
{
    size_t count = 0;
    uint8_t key[8];
    lig_catalog_item item;

    while (count < capacity && after != UINT64_MAX) {
        ligi_put_be64(key, after + 1);
        if (!ligi_item_map_seek(state->condemned, key, 8, &item) || item.key_bytes != 8 ||
            item.value_bytes != 8)
            break;
        after = ligi_get_be64(item.key);
        if ((int64_t)ligi_get_be64(item.value) <= until_ns)
            packs[count++] = after;
    }
    return count;
}
