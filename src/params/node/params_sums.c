#include "params/node/params_sums.h"

#include "params/node/params_batch.h"
#include "params/rows/table_state.h"
#include "params/tables/row_access.h"
#include "params/tables/table_info.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Sums are made and pushed in blocks that stay in the processor's cache. With several nodes, all
 * are pushed in one call: its ticket completes when all rows are done. A full table of hashed keys
 * refuses a call as a whole. */
#define BLOCK_BYTES ((size_t)256 << 10)

void ligi_params_sums_fini(lig_params_worker *worker)
{
    ligi_key_groups_fini(&worker->groups);
    free(worker->sums);
    worker->sums = NULL;
}

/* The number of elements of each row. */
static lig_status check_lengths(const ligi_tables *tables, const lig_params_gradients *given,
                                uint32_t *length)
{
    uint64_t sum;

    LIG_TRY(ligi_tables_lengths(tables, given->keys, given->count, &sum));
    *length = ligi_tables_length_of_key(tables, given->keys[0]);
    for (size_t i = 1; ligi_tables_uniform(tables) == 0 && i < given->count; i++) {
        uint32_t other = ligi_tables_length_of_key(tables, given->keys[i]);
        if (other != *length)
            return lig_fail(LIG_E_INVALID,
                            "the rows of keys %lld and %lld have %u and %u elements: sums need "
                            "rows of one length",
                            (long long)given->keys[0], (long long)given->keys[i], *length, other);
    }
    return LIG_OK;
}

static lig_status check_places(const lig_params_gradients *given, uint32_t length)
{
    uint64_t rows = given->elements / length;

    if (given->elements % length != 0 || (given->places == NULL && rows != given->count))
        return lig_fail(LIG_E_INVALID,
                        "the rows of %zu keys have %llu elements, but values has %llu",
                        given->count, (unsigned long long)given->count * length,
                        (unsigned long long)given->elements);
    for (size_t i = 0; given->places && i < given->count; i++)
        if ((uint64_t)given->places[i] >= rows)
            return lig_fail(LIG_E_INVALID, "place %lld is not in 0 .. %lld: values has %llu rows",
                            (long long)given->places[i], (long long)rows - 1,
                            (unsigned long long)rows);
    return LIG_OK;
}

static lig_status check(const lig_params_worker *worker, const lig_params_gradients *given,
                        uint32_t *length)
{
    LIG_TRY(ligi_session_check(&worker->node->session));
    if (given->keys == NULL || given->values == NULL)
        return lig_fail(LIG_E_INVALID, "keys or values is NULL (%zu keys)", given->count);
    if (given->count >= LIGI_KEY_LAST)
        return lig_fail(LIG_E_LIMIT, "%zu keys in one call: the limit is %u", given->count,
                        LIGI_KEY_LAST - 1);
    LIG_TRY(check_lengths(worker->node->tables, given, length));
    return check_places(given, *length);
}

typedef struct summing {
    lig_params_worker *worker;
    const lig_params_gradients *given;
    const ligi_key_groups *groups;
    ligi_row_push_fn add;
    uint32_t length;
    size_t row_bytes, block; /* block: rows of a part */
} summing;

static const uint8_t *gradient_at(const summing *self, uint32_t position)
{
    size_t row = self->given->places ? (size_t)self->given->places[position] : position;

    return (const uint8_t *)self->given->values + row * self->row_bytes;
}

static void sum_groups(const summing *self, size_t first, size_t count, uint8_t *to)
{
    for (size_t group = first; group < first + count; group++, to += self->row_bytes) {
        uint32_t at = self->groups->first[group];
        ligi_row_push push = {.values = to, .length = self->length};
        memcpy(to, gradient_at(self, at), self->row_bytes);
        while ((at = self->groups->next[at]) != LIGI_KEY_LAST) {
            push.gradient = gradient_at(self, at);
            self->add(&push);
        }
    }
}

/* Of a part. */
static size_t part_rows(const summing *self, size_t part)
{
    size_t left = self->groups->count - part * self->block;

    return left < self->block ? left : self->block;
}

static void sum_part(void *context, size_t part, unsigned member)
{
    const summing *self = context;
    size_t first = part * self->block;

    (void)member;
    sum_groups(self, first, part_rows(self, part), self->worker->sums + first * self->row_bytes);
}

/* The keys differ, so no two threads write to the same row; on a single node none is missed. */
static void push_part(void *context, size_t part, unsigned member)
{
    const summing *self = context;
    const ligi_batch *scratch = &self->worker->scratch;
    size_t first = part * self->block;
    ligi_batch batch = {.keys = self->groups->keys + first,
                        .count = part_rows(self, part),
                        .values = self->worker->sums + member * self->block * self->row_bytes,
                        .misses = scratch->misses + first,
                        .noted = scratch->noted + first};

    sum_groups(self, first, batch.count, batch.values);
    ligi_tables_write(self->worker->node->tables, LIGI_WRITE_PUSH, &batch);
    assert(batch.miss_count == 0 && batch.noted_count == 0);
}

static void count_local(_Atomic uint64_t *counter, uint64_t count)
{
    atomic_fetch_add_explicit(counter, count, memory_order_relaxed);
}

static lig_status push_parts(summing *self, size_t count)
{
    lig_params_worker *worker = self->worker;
    ligi_team *team = self->row_bytes <= BLOCK_BYTES ? worker->node->team : NULL;
    size_t rows = count > 1 ? self->block * ligi_team_size(team) : self->groups->count;

    LIG_TRY(ligi_params_batch_reserve(worker, self->groups->count));
    LIG_TRY(ligi_grow(&worker->sums, &worker->sums_room, rows * self->row_bytes, 1, "rows"));
    ligi_team_run(team, push_part, self, count);
    count_local(&worker->counts.pushes, self->groups->count);
    count_local(&worker->counts.local, self->groups->count);
    return LIG_OK;
}

static lig_status push_whole(summing *self, size_t count, int64_t *ticket)
{
    lig_params_worker *worker = self->worker;
    size_t rows = self->groups->count;

    LIG_TRY(ligi_grow(&worker->sums, &worker->sums_room, rows * self->row_bytes, 1, "rows"));
    ligi_team_run(worker->node->team, sum_part, self, count);
    worker->pushes_sums = 1;
    lig_status status = lig_params_push(worker, self->groups->keys, rows, worker->sums,
                                        (uint64_t)rows * self->length, ticket);
    worker->pushes_sums = 0;
    return status;
}

lig_status lig_params_push_sums(lig_params_worker *worker, const lig_params_gradients *gradients,
                                int64_t *ticket)
{
    const ligi_tables *tables = worker->node->tables;
    ligi_key_groups *groups = &worker->groups;
    summing self = {.worker = worker, .given = gradients, .groups = groups};

    if (gradients->count == 0) /* no row of values belongs to a key */
        return lig_params_push(worker, NULL, 0, NULL, 0, ticket);
    LIG_TRY(check(worker, gradients, &self.length));
    LIG_TRY(ligi_key_groups_find(groups, gradients->keys, gradients->count));
    self.add = tables->kernels->push[LIG_PARAMS_ADD];
    self.row_bytes = (size_t)self.length * tables->element_bytes;
    self.block = BLOCK_BYTES / self.row_bytes > 0 ? BLOCK_BYTES / self.row_bytes : 1;
    size_t count = (groups->count + self.block - 1) / self.block;
    if (!ligi_node_alone(worker->node) || ligi_tables_hashed(tables))
        return push_whole(&self, count, ticket);
    LIG_TRY(push_parts(&self, count));
    *ticket = LIG_PARAMS_LOCAL;
    return LIG_OK;
}
