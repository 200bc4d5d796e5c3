#include "backend/file/index/recent.h"

#include "backend/file/log/log_numbers.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

struct ligi_recent_record { /* in one or several ligi_recent */
    atomic_uint users;
    ligi_clog_header header;
    uint8_t data[];
};

int ligi_recent_compare(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);

    return order != 0 ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static void drop_record(ligi_recent_record *record)
{
    if (atomic_fetch_sub(&record->users, 1) == 1)
        free(record);
}

lig_status ligi_recent_create(const ligi_clog_position *at, uint32_t epoch, ligi_recent **made)
{
    ligi_recent *self;

    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "the last commits"));
    atomic_init(&self->users, 1);
    self->after = at->version;
    self->at = *at;
    self->epoch = epoch;
    *made = self;
    return LIG_OK;
}

ligi_recent *ligi_recent_hold(ligi_recent *recent)
{
    atomic_fetch_add(&recent->users, 1);
    return recent;
}

void ligi_recent_drop(ligi_recent *recent)
{
    if (recent == NULL || atomic_fetch_sub(&recent->users, 1) != 1)
        return;
    for (size_t i = 0; i < recent->record_count; i++)
        drop_record(recent->records[i]);
    free(recent->records);
    free(recent->items);
    free(recent);
}

/* --- items --- */

/* The position of the first item whose key is not less. */
static size_t find(const ligi_recent *self, const void *key, size_t key_bytes)
{
    size_t low = 0, high = self->item_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const ligi_recent_item *item = &self->items[middle];
        if (ligi_recent_compare(item->key, item->key_bytes, key, key_bytes) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const ligi_recent_item *ligi_recent_seek(const ligi_recent *recent, const void *key,
                                         size_t key_bytes)
{
    size_t at = find(recent, key, key_bytes);

    return at < recent->item_count ? &recent->items[at] : NULL;
}

const ligi_recent_item *ligi_recent_get(const ligi_recent *recent, const void *key,
                                        size_t key_bytes)
{
    const ligi_recent_item *item = ligi_recent_seek(recent, key, key_bytes);

    return item != NULL && item->key_bytes == key_bytes && memcmp(item->key, key, key_bytes) == 0
               ? item
               : NULL;
}

/* There is room for it. */
static void put_item(ligi_recent *self, const ligi_recent_item *item)
{
    size_t at = find(self, item->key, item->key_bytes);

    if (at == self->item_count ||
        ligi_recent_compare(self->items[at].key, self->items[at].key_bytes, item->key,
                            item->key_bytes) != 0) {
        memmove(&self->items[at + 1], &self->items[at],
                (self->item_count - at) * sizeof *self->items);
        self->item_count++;
    }
    self->items[at] = *item;
}

/* --- records --- */

/* Takes over a reference to the record; changes nothing on failure. */
static lig_status put_record(ligi_recent *self, ligi_recent_record *record,
                             const ligi_clog_position *at)
{
    const ligi_clog_header *header = &record->header;
    size_t next = LIGI_CLOG_HEADER_BYTES;
    ligi_clog_item item;

    LIG_TRY(ligi_grow(&self->records, &self->record_capacity, self->record_count + 1,
                      sizeof *self->records, "the last commits"));
    LIG_TRY(ligi_grow(&self->items, &self->item_capacity, self->item_count + header->items,
                      sizeof *self->items, "the last commits"));
    while (ligi_clog_item_next(record->data, header->bytes, &next, &item))
        if (item.kind != LIGI_CLOG_EVENT)
            put_item(self, &(ligi_recent_item){
                               .key = item.key,
                               .key_bytes = item.key_bytes,
                               .value = item.kind == LIGI_CLOG_PUT ? item.value : NULL,
                               .value_bytes = item.kind == LIGI_CLOG_PUT ? item.value_bytes : 0});
    self->records[self->record_count++] = record;
    self->bytes += header->bytes;
    self->at = *at;
    ligi_clog_step(&self->at, header);
    return LIG_OK;
}

/* A copy that has the records from the `from`th on, and stands at the same place. */
static lig_status copy(const ligi_recent *self, size_t from, ligi_recent **out)
{
    ligi_recent *made;

    LIG_TRY(ligi_recent_create(&self->at, self->epoch, &made));
    lig_status status = LIG_OK;
    for (size_t i = from; i < self->record_count && status == LIG_OK; i++) {
        status = put_record(made, self->records[i], &self->at);
        if (status == LIG_OK)
            atomic_fetch_add(&self->records[i]->users, 1);
    }
    if (status != LIG_OK) {
        ligi_recent_drop(made);
        return status;
    }
    made->after = self->after + from;
    made->at = self->at;
    *out = made;
    return LIG_OK;
}

lig_status ligi_recent_add(ligi_recent **recent, const uint8_t *record,
                           const ligi_clog_header *header, const ligi_clog_position *at)
{
    ligi_recent_record *made;

    if (atomic_load(&(*recent)->users) > 1) {
        ligi_recent *sole;
        LIG_TRY(copy(*recent, 0, &sole));
        ligi_recent_drop(*recent);
        *recent = sole;
    }
    LIG_TRY(ligi_alloc(&made, sizeof *made + header->bytes, "the last commits"));
    atomic_init(&made->users, 1);
    made->header = *header;
    memcpy(made->data, record, header->bytes);
    lig_status status = put_record(*recent, made, at);
    if (status != LIG_OK)
        drop_record(made);
    return status;
}

int ligi_recent_fits(const ligi_recent *recent, const ligi_clog_position *index)
{
    if (index->version < recent->after || index->version > recent->at.version)
        return 0;
    size_t next = index->version - recent->after;
    uint64_t chain =
        next < recent->record_count ? recent->records[next]->header.previous : recent->at.chain;
    return chain == index->chain;
}

lig_status ligi_recent_trim(ligi_recent **recent, const ligi_clog_position *index)
{
    ligi_recent *made;

    LIG_TRY(copy(*recent, index->version - (*recent)->after, &made));
    ligi_recent_drop(*recent);
    *recent = made;
    return LIG_OK;
}
