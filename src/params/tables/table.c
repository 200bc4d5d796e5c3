#include "params/rows/table_state.h"

#include "base/error.h"
#include "params/rows/row_init.h"
#include "params/tables/row_install.h"
#include "params/tables/table_info.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define REGION_BYTES_MAX (UINT64_C(1) << 46)
#define TABLES_WITHOUT_KINDS 8u

static uint64_t round_up(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

static const char *given_name(const lig_params_table *table)
{
    return table->name ? table->name : "values";
}

static lig_status check_lengths(const lig_params_table *table, const char *name, uint32_t flags)
{
    if (table->length > LIG_PARAMS_LENGTH_MAX)
        return lig_fail(LIG_E_LIMIT, "table '%s': rows of %u elements, but the limit is %u", name,
                        table->length, LIG_PARAMS_LENGTH_MAX);
    if (table->length)
        return LIG_OK;
    if (!table->lengths)
        return lig_fail(LIG_E_INVALID, "table '%s' has neither a length nor lengths", name);
    if (flags & LIG_PARAMS_HASHED)
        return lig_fail(LIG_E_INVALID, "table '%s': lengths per key need dense keys", name);
    for (uint64_t i = 0; i < table->key_count; i++)
        if (table->lengths[i] == 0 || table->lengths[i] > LIG_PARAMS_LENGTH_MAX)
            return lig_fail(LIG_E_INVALID, "table '%s': the length of row %llu is %u, not 1 .. %u",
                            name, (unsigned long long)i, table->lengths[i], LIG_PARAMS_LENGTH_MAX);
    return LIG_OK;
}

static lig_status check_table(const ligi_tables_options *options, uint32_t number)
{
    const lig_params_table *table = &options->tables[number];
    const char *name = given_name(table);

    if (*name == 0 || strlen(name) > LIG_NAME_BYTES_MAX / 2)
        return lig_fail(LIG_E_INVALID, "the name of table %u is empty or too long", number);
    for (uint32_t i = 0; i < number; i++)
        if (strcmp(name, given_name(&options->tables[i])) == 0)
            return lig_fail(LIG_E_EXISTS, "two tables have the name '%s'", name);
    if (table->key_count == 0 || table->key_count > UINT32_MAX - 1)
        return lig_fail(LIG_E_INVALID, "table '%s': key_count %llu is not in 1 .. %u", name,
                        (unsigned long long)table->key_count, UINT32_MAX - 1);
    LIG_TRY(check_lengths(table, name, options->flags));
    LIG_TRY(ligi_optimizer_check(&table->optimizer, options->dtype, name));
    return ligi_row_init_check(&table->init, options->dtype, name);
}

static lig_status check_options(const ligi_tables_options *options)
{
    uint64_t sum = 0;

    if (options->table_count == 0 || options->table_count > LIG_PARAMS_TABLES_MAX)
        return lig_fail(LIG_E_INVALID, "table_count %u is not in 1 .. %u", options->table_count,
                        LIG_PARAMS_TABLES_MAX);
    if (!ligi_row_kernels_pick(options->dtype))
        return lig_fail(LIG_E_INVALID,
                        "rows must be float32, float64, bfloat16, int32 or int64, not %s",
                        lig_dtype_name(options->dtype) ? lig_dtype_name(options->dtype) : "that");
    if (options->node_count == 0 || options->node_count > LIG_PARAMS_NODES_MAX ||
        options->rank >= options->node_count)
        return lig_fail(LIG_E_INVALID, "invalid node %u of %u", options->rank, options->node_count);
    for (uint32_t i = 0; i < options->table_count; i++) {
        LIG_TRY(check_table(options, i));
        sum += options->tables[i].key_count;
    }
    if (sum > UINT32_MAX - 1)
        return lig_fail(LIG_E_LIMIT, "%llu keys in all tables, but the limit is %u",
                        (unsigned long long)sum, UINT32_MAX - 1);
    return LIG_OK;
}

static lig_status fill_infos(ligi_tables *tables, const ligi_tables_options *options)
{
    int64_t offset = 0;

    for (uint32_t i = 0; i < options->table_count; i++) {
        const lig_params_table *given = &options->tables[i];
        ligi_table_info *info = &tables->infos[i];
        LIG_TRY(ligi_strdup(&info->name, given_name(given)));
        info->offset = tables->hashed ? (int64_t)i << LIG_PARAMS_HASHED_SHIFT : offset;
        info->key_count = given->key_count;
        info->optimizer = given->optimizer;
        info->init = given->init;
        ligi_tables_set_lr(tables, i, given->optimizer.lr);
        offset += (int64_t)given->key_count;
    }
    tables->entry_limit = (uint64_t)offset;
    return LIG_OK;
}

static lig_status add_slab(ligi_tables *tables, uint32_t table, uint32_t length, uint64_t capacity)
{
    ligi_slab *slab = &tables->slabs[tables->slab_count];

    if (tables->slab_count == LIGI_SLABS_MAX)
        return lig_fail(LIG_E_LIMIT, "rows have more than %u different lengths", LIGI_SLABS_MAX);
    if (capacity > LIGI_SLOTS_MAX - 1)
        return lig_fail(LIG_E_LIMIT, "table '%s': %llu rows of one length, but the limit is %llu",
                        tables->infos[table].name, (unsigned long long)capacity,
                        (unsigned long long)LIGI_SLOTS_MAX - 1);
    *slab = (ligi_slab){.table = table, .length = length, .capacity = capacity};
    slab->optimizer = tables->infos[table].optimizer.kind;
    ligi_slab_shape(slab, tables->dtype);
    tables->slab_count++;
    return LIG_OK;
}

static int by_length(const void *left, const void *right)
{
    const uint32_t *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}

/* The slab of rows of that length; slabs from `first` on are sorted by length. */
static uint32_t slab_of(const ligi_tables *tables, uint32_t first, uint32_t length)
{
    uint32_t low = first, high = tables->slab_count - 1;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (tables->slabs[middle].length < length)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* `sorted` has space for all lengths. */
static lig_status add_unequal(ligi_tables *tables, uint32_t table, const uint32_t *lengths,
                              uint32_t *sorted)
{
    const ligi_table_info *info = &tables->infos[table];
    uint32_t first = tables->slab_count, last = 0;

    memcpy(sorted, lengths, info->key_count * sizeof *sorted);
    qsort(sorted, info->key_count, sizeof *sorted, by_length);
    for (uint64_t i = 0, end; i < info->key_count; i = end) {
        for (end = i; end < info->key_count && sorted[end] == sorted[i];)
            end++;
        LIG_TRY(add_slab(tables, table, sorted[i], end - i));
    }
    for (uint64_t i = 0; i < info->key_count; i++) {
        if (i == 0 || lengths[i] != lengths[i - 1])
            last = slab_of(tables, first, lengths[i]);
        tables->kinds[info->offset + (int64_t)i] = (uint16_t)last;
    }
    return LIG_OK;
}

static lig_status add_slabs(ligi_tables *tables, uint32_t table, const lig_params_table *given)
{
    ligi_table_info *info = &tables->infos[table];
    uint32_t *sorted;

    if (given->length == 0) {
        LIG_TRY(ligi_alloc(&sorted, info->key_count * sizeof *sorted, "lengths"));
        lig_status status = add_unequal(tables, table, given->lengths, sorted);
        free(sorted);
        return status;
    }
    LIG_TRY(add_slab(tables, table, given->length, info->key_count));
    info->slab = &tables->slabs[tables->slab_count - 1];
    if (tables->kinds && !tables->hashed)
        for (uint64_t i = 0; i < info->key_count; i++)
            tables->kinds[info->offset + (int64_t)i] = (uint16_t)(tables->slab_count - 1);
    return LIG_OK;
}

static int needs_kinds(const ligi_tables_options *options)
{
    int unequal = 0;

    for (uint32_t i = 0; i < options->table_count; i++)
        unequal |= options->tables[i].length == 0;
    return unequal || options->table_count > TABLES_WITHOUT_KINDS ||
           (options->flags & LIG_PARAMS_HASHED && options->table_count > 1);
}

/* Entry infos, free lists, and slab numbers if needed: private to this node. */
static lig_status make_own(ligi_tables *tables, const ligi_tables_options *options)
{
    uint64_t entry_infos = round_up(tables->entry_limit * sizeof *tables->entry_infos, LIGI_LINE);
    uint64_t spare = round_up(tables->entry_limit * sizeof *tables->spare, LIGI_LINE);
    uint64_t kinds = needs_kinds(options) ? tables->entry_limit * sizeof *tables->kinds : 0;
    uint64_t bytes = round_up(entry_infos + spare + kinds, LIGI_HUGE_PAGE);
    void *memory;

    LIG_TRY(ligi_region_make(bytes, &memory));
    if (options->node_count > 1) /* otherwise rows do not move */
        ligi_region_populate(memory, entry_infos + spare + kinds);
    tables->own = memory;
    tables->own_bytes = bytes;
    tables->entry_infos = memory;
    tables->spare = (uint32_t *)(tables->own + entry_infos);
    tables->kinds = kinds ? (uint16_t *)(tables->own + entry_infos + spare) : NULL;
    return LIG_OK;
}

static uint64_t place_after(uint64_t at, uint64_t bytes)
{
    return round_up(at, bytes < LIGI_HUGE_PAGE ? 4096 : LIGI_HUGE_PAGE);
}

static lig_status too_large(void)
{
    return lig_fail(LIG_E_LIMIT, "the tables exceed %llu bytes",
                    (unsigned long long)REGION_BYTES_MAX);
}

static lig_status lay_out(ligi_tables *tables)
{
    uint64_t at = tables->entry_limit * sizeof *tables->words, deltas_at = 0;

    for (uint32_t i = 0; i < tables->slab_count; i++) {
        ligi_slab *slab = &tables->slabs[i];
        if (slab->capacity > REGION_BYTES_MAX / slab->stride ||
            slab->capacity > REGION_BYTES_MAX / slab->delta_stride)
            return too_large();
        slab->rows_at = place_after(at, ligi_slab_rows_bytes(slab));
        at = slab->rows_at + ligi_slab_rows_bytes(slab);
        slab->deltas_at = deltas_at;
        deltas_at += ligi_slab_deltas_bytes(slab);
        if (at > REGION_BYTES_MAX || deltas_at > REGION_BYTES_MAX)
            return too_large();
        if (slab->body_bytes > tables->body_bytes_max)
            tables->body_bytes_max = slab->body_bytes;
        size_t delta_bytes = (size_t)slab->delta_count * slab->delta_element_bytes;
        if (delta_bytes > tables->delta_bytes_max)
            tables->delta_bytes_max = delta_bytes;
    }
    tables->region_bytes = round_up(at, LIGI_HUGE_PAGE);
    tables->deltas_bytes = round_up(deltas_at, LIGI_HUGE_PAGE);
    return LIG_OK;
}

static lig_status own_region(void *context, uint64_t bytes, void **memory)
{
    (void)context;
    return ligi_region_make(bytes, memory);
}

static void own_region_destroy(void *context, void *memory, uint64_t bytes)
{
    (void)context;
    ligi_region_destroy(memory, bytes);
}

static lig_status make_regions(ligi_tables *tables, const ligi_region_source *source)
{
    const ligi_region_source own = {own_region, own_region_destroy, NULL};
    void *memory;

    tables->source = source ? *source : own;
    LIG_TRY(lay_out(tables));
    LIG_TRY(tables->source.make(tables->source.context, tables->region_bytes, &memory));
    tables->region = memory;
    if (tables->node_count > 1) { /* a single node has no replicas */
        LIG_TRY(ligi_region_make(tables->deltas_bytes, &memory));
        tables->deltas = memory;
    }
    madvise(tables->region, tables->region_bytes, MADV_DONTFORK); /* a forked child does not need
                                                                   * rows */
    if (tables->deltas)
        madvise(tables->deltas, tables->deltas_bytes, MADV_DONTFORK);
    tables->words = (ligi_word *)tables->region;
    uint32_t *spare = tables->spare;
    for (uint32_t i = 0; i < tables->slab_count; i++) {
        tables->slabs[i].spare = spare;
        spare += tables->slabs[i].capacity;
        tables->slabs[i].rows = tables->region + tables->slabs[i].rows_at;
        tables->slabs[i].deltas =
            tables->deltas ? tables->deltas + tables->slabs[i].deltas_at : NULL;
    }
    return LIG_OK;
}

static uint32_t uniform_length(const ligi_tables *tables)
{
    for (uint32_t i = 1; i < tables->slab_count; i++)
        if (tables->slabs[i].length != tables->slabs[0].length)
            return 0;
    return tables->slabs[0].length;
}

static lig_status begin_rows(ligi_tables *tables)
{
    lig_status status = LIG_OK;

    if (tables->hashed)
        return LIG_OK;
    pthread_mutex_lock(&tables->lock);
    for (uint64_t key = tables->rank; key < tables->entry_limit && !status;
         key += tables->node_count)
        status = ligi_tables_begin_row(tables, (ligi_entry)key);
    pthread_mutex_unlock(&tables->lock);
    return status;
}

static lig_status build(ligi_tables *tables, const ligi_tables_options *options)
{
    LIG_TRY(ligi_calloc(&tables->infos, options->table_count, sizeof *tables->infos, "tables"));
    tables->table_count = options->table_count;
    LIG_TRY(ligi_calloc(&tables->slabs, LIGI_SLABS_MAX, sizeof *tables->slabs, "slabs"));
    LIG_TRY(fill_infos(tables, options));
    LIG_TRY(make_own(tables, options));
    for (uint32_t i = 0; i < options->table_count; i++)
        LIG_TRY(add_slabs(tables, i, &options->tables[i]));
    tables->uniform = uniform_length(tables);
    if (tables->hashed)
        LIG_TRY(ligi_key_index_init(&tables->key_index, tables->entry_limit));
    LIG_TRY(make_regions(tables, options->source));
    if (tables->hashed) /* dense keys never begin in a slot that was used */
        LIG_TRY(ligi_calloc(&tables->scratch, 1, tables->body_bytes_max, "a row"));
    return begin_rows(tables);
}

lig_status ligi_tables_create(ligi_tables **out, const ligi_tables_options *options)
{
    ligi_tables *tables;

    LIG_TRY(check_options(options));
    LIG_TRY(ligi_calloc(&tables, 1, sizeof *tables, "the tables"));
    tables->dtype = options->dtype;
    tables->element_bytes = lig_dtype_bytes(options->dtype);
    tables->rank = options->rank;
    tables->node_count = options->node_count;
    tables->hashed = (options->flags & LIG_PARAMS_HASHED) != 0;
    tables->kernels = ligi_row_kernels_pick(options->dtype);
    pthread_mutex_init(&tables->lock, NULL);
    lig_status status = build(tables, options);
    if (status) {
        ligi_tables_destroy(tables);
        return status;
    }
    *out = tables;
    return LIG_OK;
}

void ligi_tables_destroy(ligi_tables *tables)
{
    if (!tables)
        return;
    if (tables->region)
        tables->source.destroy(tables->source.context, tables->region, tables->region_bytes);
    ligi_region_destroy(tables->own, tables->own_bytes);
    ligi_region_destroy(tables->deltas, tables->deltas_bytes);
    ligi_key_index_fini(&tables->key_index);
    ligi_tables_forget(tables);
}

void ligi_tables_forget(ligi_tables *tables)
{
    if (!tables)
        return;
    pthread_mutex_destroy(&tables->lock);
    for (uint32_t i = 0; i < tables->table_count; i++)
        free(tables->infos[i].name);
    free(tables->infos);
    free(tables->scratch);
    free(tables->slabs);
    free(tables);
}
