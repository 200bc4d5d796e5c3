#include "params/node/params_sums.h"

#include "params/rows/table_state.h"
#include "params/tables/row_access.h"
#include "params/tables/table_info.h"

#include <stdlib.h>
#include <string.h>

/* Sums are made and pushed in blocks that stay in the processor's cache. With several nodes there
 * is one block: its ticket completes when all rows are done. */
#define BLOCK_BYTES (UINT64_C(512) << 10)

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
    const lig_params_gradients *given;
    const ligi_key_groups *groups;
    ligi_row_push_fn add;
    uint32_t length;
    size_t row_bytes;
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

static size_t block_rows(const lig_params *node, size_t row_bytes, size_t count)
{
    size_t most = BLOCK_BYTES / row_bytes;

    /* A full table of hashed keys refuses a call as a whole. */
    if (!ligi_node_alone(node) || ligi_tables_hashed(node->tables) || most >= count)
        return count;
    return most > 0 ? most : 1;
}

lig_status lig_params_push_sums(lig_params_worker *worker, const lig_params_gradients *gradients,
                                int64_t *ticket)
{
    const ligi_tables *tables = worker->node->tables;
    ligi_key_groups *groups = &worker->groups;
    summing self = {.given = gradients, .groups = groups};

    if (gradients->count == 0) /* no row of values belongs to a key */
        return lig_params_push(worker, NULL, 0, NULL, 0, ticket);
    LIG_TRY(check(worker, gradients, &self.length));
    LIG_TRY(ligi_key_groups_find(groups, gradients->keys, gradients->count));
    self.add = tables->kernels->push[LIG_PARAMS_ADD];
    self.row_bytes = (size_t)self.length * tables->element_bytes;
    size_t most = block_rows(worker->node, self.row_bytes, groups->count);
    LIG_TRY(ligi_grow(&worker->sums, &worker->sums_room, most * self.row_bytes, 1, "rows"));
    for (size_t first = 0; first < groups->count; first += most) {
        size_t left = groups->count - first, count = left < most ? left : most;
        sum_groups(&self, first, count, worker->sums);
        LIG_TRY(lig_params_push(worker, groups->keys + first, count, worker->sums,
                                (uint64_t)count * self.length, ticket));
    }
    return LIG_OK;
}
