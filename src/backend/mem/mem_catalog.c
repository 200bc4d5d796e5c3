#include "backend/mem/mem_catalog.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/mem/mem_events.h"
#include "base/error.h"

#define KEY_BYTES_MAX 64

typedef struct item {
    atomic_size_t refs;
    size_t key_bytes, value_bytes;
    uint8_t bytes[]; /* the key in KEY_BYTES_MAX bytes, then the value */
} item;

/* Never changed once published: a snapshot is a reference to one of these. */
struct ligi_mem_catalog {
    atomic_size_t refs;
    uint64_t version;
    size_t count;
    item *items[]; /* by key in byte order, a prefix before what it is a prefix of */
};

static int compare(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    if (order != 0)
        return order;
    return a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

static void item_release(item *released)
{
    if (atomic_fetch_sub(&released->refs, 1) == 1)
        free(released);
}

static lig_status item_create(const lig_catalog_op *op, item **out)
{
    item *made;

    if (op->value_bytes > UINT32_MAX)
        return lig_fail(LIG_E_LIMIT, "a value of %zu bytes is too large for the catalog",
                        op->value_bytes);
    LIG_TRY(ligi_alloc(&made, sizeof *made + KEY_BYTES_MAX + op->value_bytes,
                       "an item of the catalog"));
    atomic_init(&made->refs, 1);
    made->key_bytes = op->key_bytes;
    made->value_bytes = op->value_bytes;
    memcpy(made->bytes, op->key, op->key_bytes);
    if (op->value_bytes != 0)
        memcpy(made->bytes + KEY_BYTES_MAX, op->value, op->value_bytes);
    *out = made;
    return LIG_OK;
}

void ligi_mem_catalog_release(ligi_mem_catalog *catalog)
{
    if (catalog == NULL || atomic_fetch_sub(&catalog->refs, 1) != 1)
        return;
    for (size_t i = 0; i < catalog->count; i++)
        item_release(catalog->items[i]);
    free(catalog);
}

uint64_t ligi_mem_catalog_version(const ligi_mem_catalog *catalog)
{
    return catalog == NULL ? 0 : catalog->version;
}

static lig_status catalog_create(size_t capacity, ligi_mem_catalog **out)
{
    LIG_TRY(ligi_alloc(out, sizeof **out + capacity * sizeof(item *), "the catalog"));
    atomic_init(&(*out)->refs, 1);
    (*out)->version = 0;
    (*out)->count = 0;
    return LIG_OK;
}

lig_status ligi_mem_catalog_begin(void *self, void **snapshot, uint64_t *version)
{
    ligi_mem *mem = self;
    ligi_mem_volume *volume = mem->volume;
    lig_status status = LIG_OK;

    LIG_TRY(ligi_mem_usable(mem));
    pthread_mutex_lock(&volume->lock);
    if (volume->catalog == NULL)
        status = catalog_create(0, &volume->catalog);
    if (status == LIG_OK) {
        atomic_fetch_add(&volume->catalog->refs, 1);
        *snapshot = volume->catalog;
        *version = volume->catalog->version;
    }
    pthread_mutex_unlock(&volume->lock);
    return status;
}

void ligi_mem_catalog_end(void *snapshot)
{
    ligi_mem_catalog_release(snapshot);
}

static lig_status check_key(const void *key, size_t key_bytes)
{
    if (key == NULL || key_bytes == 0 || key_bytes > KEY_BYTES_MAX)
        return lig_fail(LIG_E_INVALID, "a key of %zu bytes: 1 to %d are allowed", key_bytes,
                        KEY_BYTES_MAX);
    return LIG_OK;
}

static size_t lower_bound(const ligi_mem_catalog *catalog, const void *key, size_t key_bytes)
{
    size_t low = 0, high = catalog->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(catalog->items[middle]->bytes, catalog->items[middle]->key_bytes, key,
                    key_bytes) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void fill(const item *from, lig_catalog_item *out)
{
    out->key = from->bytes;
    out->key_bytes = from->key_bytes;
    out->value = from->bytes + KEY_BYTES_MAX;
    out->value_bytes = from->value_bytes;
}

lig_status ligi_mem_catalog_get(void *snapshot, const void *key, size_t key_bytes,
                                lig_catalog_item *out)
{
    const ligi_mem_catalog *catalog = snapshot;

    LIG_TRY(check_key(key, key_bytes));
    size_t at = lower_bound(catalog, key, key_bytes);
    if (at == catalog->count || catalog->items[at]->key_bytes != key_bytes ||
        memcmp(catalog->items[at]->bytes, key, key_bytes) != 0)
        return LIG_E_NOTFOUND;
    fill(catalog->items[at], out);
    return LIG_OK;
}

lig_status ligi_mem_catalog_seek(void *snapshot, const void *key, size_t key_bytes,
                                 lig_catalog_item *out)
{
    const ligi_mem_catalog *catalog = snapshot;

    LIG_TRY(check_key(key, key_bytes));
    size_t at = lower_bound(catalog, key, key_bytes);
    if (at == catalog->count)
        return LIG_E_NOTFOUND;
    fill(catalog->items[at], out);
    return LIG_OK;
}

/* Ops by key; of several with one key the last in the caller's order comes last. */
static int compare_ops(const void *a, const void *b)
{
    const lig_catalog_op *left = *(const lig_catalog_op *const *)a,
                         *right = *(const lig_catalog_op *const *)b;
    int order = compare(left->key, left->key_bytes, right->key, right->key_bytes);
    return order != 0 ? order : (left > right) - (left < right);
}

static lig_status sort_ops(const lig_catalog_op *ops, size_t count, const lig_catalog_op ***sorted)
{
    for (size_t i = 0; i < count; i++)
        LIG_TRY(check_key(ops[i].key, ops[i].key_bytes));
    LIG_TRY(ligi_alloc(sorted, count * sizeof **sorted + 1, "the changes of the catalog"));
    for (size_t i = 0; i < count; i++)
        (*sorted)[i] = &ops[i];
    qsort(*sorted, count, sizeof **sorted, compare_ops);
    return LIG_OK;
}

static void keep(ligi_mem_catalog *next, item *kept)
{
    atomic_fetch_add(&kept->refs, 1);
    next->items[next->count++] = kept;
}

/* Merges the old items with the changes into `next`. */
static lig_status merge(const ligi_mem_catalog *old, const lig_catalog_op *const *ops, size_t count,
                        ligi_mem_catalog *next)
{
    size_t at = 0;
    size_t old_count = old == NULL ? 0 : old->count;

    for (size_t i = 0; i < count; i++) {
        const lig_catalog_op *op = ops[i];
        if (i + 1 < count &&
            compare(op->key, op->key_bytes, ops[i + 1]->key, ops[i + 1]->key_bytes) == 0)
            continue;
        int order = -1;
        while (at < old_count && (order = compare(old->items[at]->bytes, old->items[at]->key_bytes,
                                                  op->key, op->key_bytes)) < 0)
            keep(next, old->items[at++]);
        if (at < old_count && order == 0)
            at++;
        if (op->value == NULL)
            continue;
        LIG_TRY(item_create(op, &next->items[next->count]));
        next->count++;
    }
    while (at < old_count)
        keep(next, old->items[at++]);
    return LIG_OK;
}

/* The lock is held. */
static lig_status apply(ligi_mem_volume *volume, uint64_t version, const lig_catalog_op *const *ops,
                        size_t count)
{
    ligi_mem_catalog *old = volume->catalog, *next;
    uint64_t current = ligi_mem_catalog_version(old);

    if (current != version)
        return lig_fail(LIG_E_BUSY,
                        "the catalog is at version %" PRIu64 ", the change was made for %" PRIu64,
                        current, version);
    LIG_TRY(catalog_create((old == NULL ? 0 : old->count) + count, &next));
    lig_status status = merge(old, ops, count, next);
    if (status != LIG_OK) {
        ligi_mem_catalog_release(next);
        return status;
    }
    next->version = version + 1;
    volume->catalog = next;
    ligi_mem_catalog_release(old);
    return LIG_OK;
}

lig_status ligi_mem_catalog_commit(void *self, const lig_catalog_edit *edit)
{
    ligi_mem *mem = self;
    const lig_catalog_op **sorted;
    ligi_mem_events *events;

    LIG_TRY(ligi_mem_writable(mem));
    LIG_TRY(ligi_mem_events_make(edit, &events));
    lig_status status = sort_ops(edit->ops, edit->op_count, &sorted);
    if (status != LIG_OK) {
        ligi_mem_events_release(events);
        return status;
    }
    pthread_mutex_lock(&mem->volume->lock);
    status = ligi_mem_events_reserve(mem->volume);
    if (status == LIG_OK)
        status = apply(mem->volume, edit->version, sorted, edit->op_count);
    if (status == LIG_OK)
        ligi_mem_events_add(mem->volume, events, edit->version + 1);
    else
        ligi_mem_events_release(events);
    pthread_mutex_unlock(&mem->volume->lock);
    free(sorted);
    return status;
}
