#include "params/sampling/draw.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 64, SEEN_LEAST = 16 };

/* --- random numbers --- */

static uint64_t scatter(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Node and worker are mixed in one after the other: their sum would make (0, 1) and (1, 0)
 * equal. */
void ligi_rng_init(ligi_rng *rng, uint64_t seed, uint32_t node, uint32_t worker)
{
    uint64_t state = seed;
    state = scatter(&state) ^ node;
    state = scatter(&state) ^ worker;
    for (int i = 0; i < 4; i++)
        rng->s[i] = scatter(&state);
}

/* --- distributions --- */

lig_status ligi_draw_init(ligi_draw *draw, uint32_t kind, uint32_t count, const double *weights)
{
    if (count == 0 || count == UINT32_MAX)
        return lig_fail(LIG_E_INVALID, "cannot sample from a range of %u keys", count);
    if (kind > LIG_PARAMS_SAMPLE_WEIGHTS)
        return lig_fail(
            LIG_E_INVALID,
            "unknown distribution %u; expected 0 (uniform), 1 (log-uniform) or 2 (weights)", kind);
    *draw = (ligi_draw){.kind = kind, .count = count, .available = count};
    draw->log_count = log((double)count + 1);
    if (kind != LIG_PARAMS_SAMPLE_WEIGHTS)
        return LIG_OK;
    if (weights == NULL)
        return lig_fail(LIG_E_INVALID, "sampling by weights needs %u weights, but weights is NULL",
                        count);
    LIG_TRY(ligi_params_alias_table_init(&draw->alias, weights, count));
    draw->available = draw->alias.positive_count;
    lig_status status =
        ligi_alloc(&draw->weights, (size_t)count * sizeof *weights, "sampling weights");
    if (status == LIG_OK)
        memcpy(draw->weights, weights, (size_t)count * sizeof *weights);
    else
        ligi_draw_fini(draw);
    return status;
}

void ligi_draw_fini(ligi_draw *draw)
{
    ligi_params_alias_table_fini(&draw->alias);
    free(draw->weights);
    *draw = (ligi_draw){0};
}

/* The probabilities of 0 .. i sum to log(i + 2) / log(count + 1). */
uint32_t ligi_draw_log(const ligi_draw *draw, double unit)
{
    double item = floor(exp(unit * draw->log_count)) - 1;
    if (!(item > 0))
        return 0;
    return item < draw->count ? (uint32_t)item : draw->count - 1;
}

double ligi_draw_weight(const ligi_draw *draw, uint32_t item)
{
    if (draw->kind == LIG_PARAMS_SAMPLE_UNIFORM)
        return 1;
    if (draw->kind == LIG_PARAMS_SAMPLE_LOG_UNIFORM)
        return log1p(1 / ((double)item + 1));
    return draw->weights[item];
}

/* --- without replacement --- */

void ligi_seen_fini(ligi_seen *seen)
{
    free(seen->cells);
    *seen = (ligi_seen){0};
}

static uint32_t first_cell(const ligi_seen *seen, uint32_t item)
{
    return (uint32_t)((item * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (seen->capacity - 1);
}

static uint32_t cell_of(const ligi_seen *seen, uint32_t item)
{
    uint32_t at = first_cell(seen, item);
    while (seen->cells[at] && seen->cells[at] != item + 1)
        at = (at + 1) & (seen->capacity - 1);
    return at;
}

lig_status ligi_seen_reserve(ligi_seen *seen, uint64_t more)
{
    uint64_t need = (seen->count + more) * 2, capacity = SEEN_LEAST;
    if (need <= seen->capacity)
        return LIG_OK;
    while (capacity < need)
        capacity *= 2;
    if (capacity > UINT32_C(1) << 31)
        return lig_fail(LIG_E_LIMIT, "a sample without replacement has at most 2^30 keys");
    ligi_seen grown = {.capacity = (uint32_t)capacity, .count = seen->count};
    LIG_TRY(ligi_calloc(&grown.cells, capacity, sizeof *grown.cells, "a sample"));
    for (uint32_t i = 0; i < seen->capacity; i++)
        if (seen->cells[i])
            grown.cells[cell_of(&grown, seen->cells[i] - 1)] = seen->cells[i];
    free(seen->cells);
    *seen = grown;
    return LIG_OK;
}

int ligi_seen_add(ligi_seen *seen, uint32_t item)
{
    uint32_t at = cell_of(seen, item);
    if (seen->cells[at])
        return 0;
    seen->cells[at] = item + 1;
    seen->count++;
    return 1;
}

int ligi_seen_has(const ligi_seen *seen, uint32_t item)
{
    return seen->capacity != 0 && seen->cells[cell_of(seen, item)] != 0;
}

/* Later entries that the gap would make unreachable move into it. */
void ligi_seen_remove(ligi_seen *seen, uint32_t item)
{
    uint32_t mask = seen->capacity - 1, gap = cell_of(seen, item);
    for (uint32_t at = (gap + 1) & mask; seen->cells[at]; at = (at + 1) & mask) {
        uint32_t first = first_cell(seen, seen->cells[at] - 1);
        if (((at - first) & mask) >= ((at - gap) & mask)) {
            seen->cells[gap] = seen->cells[at];
            gap = at;
        }
    }
    seen->cells[gap] = 0;
    seen->count--;
}

void ligi_seen_remove_all(ligi_seen *seen, const uint32_t *items, uint32_t count)
{
    for (uint32_t i = 0; i < count && seen; i++)
        ligi_seen_remove(seen, items[i]);
}

/* --- restricted to some items --- */

static uint32_t item_at(const ligi_among *among, uint32_t index)
{
    return among->items ? among->items[index] : index;
}

/* sums[i]: of the weights of items 0 .. i. */
static uint32_t find_sum(const double *sums, uint32_t count, double value)
{
    uint32_t low = 0, high = count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (value < sums[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static lig_status among_again(const ligi_draw *draw, ligi_rng *rng, const ligi_among *among,
                              uint32_t count, uint32_t *out, uint32_t *got)
{
    double *sums, sum = 0;
    uint32_t last = 0;
    LIG_TRY(ligi_calloc(&sums, among->item_count, sizeof *sums, "a sample"));
    for (uint32_t i = 0; i < among->item_count; i++) {
        double weight = ligi_draw_weight(draw, item_at(among, i));
        last = weight > 0 ? i : last;
        sums[i] = sum += weight;
    }
    for (uint32_t i = 0; i < count && sum > 0; i++) {
        uint32_t at = find_sum(sums, last + 1, ligi_rng_unit(rng) * sum);
        out[i] = item_at(among, at);
    }
    *got = sum > 0 ? count : 0;
    free(sums);
    return LIG_OK;
}

typedef struct lot {
    double at;
    uint32_t item;
} lot;

static int by_lot(const void *left, const void *right)
{
    const lot *a = left, *b = right;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

/* Each item waits for a time that is exponential with its weight. The order of arrival has exactly
 * the distribution of drawing one after the other from the remaining items. */
static lig_status among_once(const ligi_draw *draw, ligi_rng *rng, const ligi_among *among,
                             uint32_t count, uint32_t *out, uint32_t *got)
{
    lot *lots;
    uint32_t lot_count = 0;
    LIG_TRY(ligi_calloc(&lots, among->item_count, sizeof *lots, "a sample"));
    for (uint32_t i = 0; i < among->item_count; i++) {
        uint32_t item = item_at(among, i);
        double weight = ligi_draw_weight(draw, item);
        if (weight > 0 && !ligi_seen_has(among->seen, item))
            lots[lot_count++] = (lot){-log1p(-ligi_rng_unit(rng)) / weight, item};
    }
    if (lot_count)
        qsort(lots, lot_count, sizeof *lots, by_lot);
    *got = lot_count < count ? lot_count : count;
    lig_status status = ligi_seen_reserve(among->seen, *got);
    for (uint32_t i = 0; i < *got && status == LIG_OK; i++) {
        out[i] = lots[i].item;
        ligi_seen_add(among->seen, out[i]);
    }
    free(lots);
    return status;
}

lig_status ligi_draw_among(const ligi_draw *draw, ligi_rng *rng, const ligi_among *among,
                           uint32_t count, uint32_t *out, uint32_t *got)
{
    *got = 0;
    if (among->item_count == 0 || count == 0)
        return LIG_OK;
    if (among->seen)
        return among_once(draw, rng, among, count, out, got);
    return among_again(draw, rng, among, count, out, got);
}

/* --- several --- */

static int draw_unseen(const ligi_draw *draw, ligi_rng *rng, ligi_seen *seen, uint32_t *out)
{
    for (int i = 0; i < TRIES; i++) {
        *out = ligi_draw_one(draw, rng);
        if (ligi_seen_add(seen, *out))
            return 1;
    }
    return 0;
}

lig_status ligi_draw_many(const ligi_draw *draw, ligi_rng *rng, ligi_seen *seen, uint32_t count,
                          uint32_t *out)
{
    uint32_t at = 0, got = 0;
    if (seen == NULL) {
        for (; at < count; at++)
            out[at] = ligi_draw_one(draw, rng);
        return LIG_OK;
    }
    uint32_t left = draw->available > seen->count ? draw->available - seen->count : 0;
    if (count > left)
        return lig_fail(LIG_E_LIMIT,
                        "%u samples without replacement requested, but only %u of %u keys are "
                        "left; request fewer, or sample with replacement",
                        count, left, draw->available);
    LIG_TRY(ligi_seen_reserve(seen, count));
    while (at < count && draw_unseen(draw, rng, seen, &out[at]))
        at++;
    if (at == count)
        return LIG_OK;
    ligi_among all = {NULL, draw->count, seen};
    lig_status status = ligi_draw_among(draw, rng, &all, count - at, out + at, &got);
    if (status != LIG_OK)
        ligi_seen_remove_all(seen, out, at);
    return status;
}
