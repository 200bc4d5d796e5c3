#include "store/search/longest_prefix.h"

#include "base/codec.h"
#include "base/error.h"
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

/* Choices tried before the search accepts the best mapping so far. Only similar branches lead to
 * choices. */
#define STEPS_MAX 20000

lig_status ligi_prefix_check(const ligi_layer_graph *graph)
{
    uint8_t *called = NULL;
    LIG_TRY(ligi_calloc(&called, graph->layer_count, 1, "a graph's layers"));
    lig_status status = LIG_OK;
    for (uint32_t i = 0; i < graph->call_count && status == LIG_OK; i++) {
        const ligi_call *call = &graph->calls[i];
        uint64_t last = (uint64_t)call->input_first + call->input_count;
        if (call->layer >= graph->layer_count || last > graph->input_count) {
            status =
                lig_fail(LIG_E_INVALID,
                         "call %u of a graph refers to a layer or inputs that do not exist", i);
            break;
        }
        called[call->layer] = 1;
        for (uint32_t j = call->input_first; j < last && status == LIG_OK; j++)
            if (graph->inputs[j].call >= i)
                status = lig_fail(LIG_E_INVALID, "call %u of a graph comes before its input", i);
    }
    for (uint32_t i = 0; i < graph->layer_count && status == LIG_OK; i++)
        if (!called[i])
            status = lig_fail(LIG_E_INVALID, "layer %u of a graph is never called", i);
    free(called);
    return status;
}

/* The position of the first input that is the same call: Add([x, x]) is not Add([x, y]), however
 * alike x and y are. */
static uint32_t first_use(const ligi_input *inputs, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (inputs[i].call == inputs[at].call)
            return i;
    return at;
}

lig_status ligi_prefix_keys(const ligi_layer_graph *graph, ligi_hash128 *keys)
{
    ligi_writer text = {0};
    for (uint32_t i = 0; i < graph->call_count; i++) {
        const ligi_call *call = &graph->calls[i];
        const ligi_input *inputs = graph->inputs + call->input_first;
        text.bytes = 0;
        ligi_put_bytes(&text, &graph->signatures[call->layer], sizeof(ligi_hash128));
        for (uint32_t j = 0; j < call->input_count; j++) {
            ligi_put_bytes(&text, &keys[inputs[j].call], sizeof(ligi_hash128));
            ligi_put_u32(&text, inputs[j].output);
            ligi_put_u32(&text, first_use(inputs, j));
        }
        if (text.status != LIG_OK)
            break;
        keys[i] = ligi_hash128_plain(text.data, text.bytes);
    }
    lig_status status = text.status;
    ligi_writer_fini(&text);
    return status;
}

typedef struct search {
    const ligi_layer_graph *asking, *stored;
    const ligi_hash128 *asking_keys, *stored_keys;
    uint64_t *asking_below,
        *stored_below; /* what depends on a call, for choosing among look-alikes */
    uint32_t *first,
        *next;           /* stored calls of equal key: first[asking call], then next[stored call] */
    uint32_t *head;      /* of the chain whose last member a stored call is */
    uint32_t *to, *turn; /* asking call -> stored call; its next choice */
    uint32_t *layer_to, *best; /* asking layer -> stored layer: of this mapping, of the best one */
    uint32_t *stored_calls,
        *mapped_calls; /* calls of a stored layer; those of them that are mapped */
    uint8_t *rival, *asking_common, *used, *stored_common;
    uint32_t steps, bound;
    ligi_prefix most;
} search;

/* --- from a mapping of calls to a set of layers --- */

static int ancestors_kept(const search *s, uint32_t call)
{
    const ligi_call *c = &s->asking->calls[call];
    for (uint32_t j = 0; j < c->input_count; j++) {
        uint32_t above = s->asking->inputs[c->input_first + j].call;
        if (s->layer_to[s->asking->calls[above].layer] == LIGI_NO_CALL)
            return 0;
    }
    return 1;
}

/* Maps each query layer to the one stored layer to which all its calls are mapped. */
static void propose_layers(search *s)
{
    const uint32_t undecided = LIGI_NO_CALL - 1;
    for (uint32_t i = 0; i < s->asking->layer_count; i++)
        s->layer_to[i] = undecided;
    memset(s->mapped_calls, 0, s->stored->layer_count * sizeof *s->mapped_calls);
    for (uint32_t i = 0; i < s->asking->call_count; i++) {
        uint32_t *layer = &s->layer_to[s->asking->calls[i].layer];
        uint32_t goes = s->to[i] == LIGI_NO_CALL ? LIGI_NO_CALL : s->stored->calls[s->to[i]].layer;
        *layer = *layer == undecided || *layer == goes ? goes : LIGI_NO_CALL;
        if (goes != LIGI_NO_CALL)
            s->mapped_calls[goes]++;
    }
    for (uint32_t i = 0; i < s->asking->layer_count; i++) {
        uint32_t goes = s->layer_to[i];
        if (goes != LIGI_NO_CALL && s->mapped_calls[goes] != s->stored_calls[goes])
            s->layer_to[i] = LIGI_NO_CALL;
    }
}

/* A layer without its ancestors is not a prefix; dropping one may drop another that shares a
 * layer with it, so this is repeated until nothing changes. */
static void close_under_ancestors(search *s)
{
    for (int moved = 1; moved;) {
        moved = 0;
        for (uint32_t i = 0; i < s->asking->call_count; i++) {
            uint32_t *layer = &s->layer_to[s->asking->calls[i].layer];
            if (*layer != LIGI_NO_CALL && !ancestors_kept(s, i)) {
                *layer = LIGI_NO_CALL;
                moved = 1;
            }
        }
    }
}

static void weigh(search *s)
{
    propose_layers(s);
    close_under_ancestors(s);
    ligi_prefix found = {0, 0};
    for (uint32_t i = 0; i < s->asking->layer_count; i++) {
        if (s->layer_to[i] == LIGI_NO_CALL)
            continue;
        found.layers++;
        found.bytes += s->stored->layer_bytes[s->layer_to[i]];
    }
    if (found.layers > s->most.layers ||
        (found.layers == s->most.layers && found.bytes > s->most.bytes)) {
        s->most = found;
        memcpy(s->best, s->layer_to, s->asking->layer_count * sizeof *s->best);
    }
}

/* --- the mapping --- */

static int inputs_agree(const search *s, uint32_t asking, uint32_t stored)
{
    const ligi_call *a = &s->asking->calls[asking], *b = &s->stored->calls[stored];
    for (uint32_t j = 0; j < a->input_count; j++) {
        const ligi_input *x = &s->asking->inputs[a->input_first + j],
                         *y = &s->stored->inputs[b->input_first + j];
        if (s->to[x->call] != y->call || x->output != y->output)
            return 0;
    }
    return 1;
}

/* The `turn`-th partner to try: those with similar dependants come first. LIGI_NO_CALL if there
 * are no more. */
static uint32_t partner(const search *s, uint32_t call, uint32_t turn)
{
    for (int alike = 1; alike >= 0; alike--)
        for (uint32_t w = s->first[call]; w != LIGI_NO_CALL; w = s->next[w]) {
            if (s->used[w] || (s->stored_below[w] == s->asking_below[call]) != alike ||
                !inputs_agree(s, call, w))
                continue;
            if (turn-- == 0)
                return w;
        }
    return LIGI_NO_CALL;
}

static void assign(search *s, uint32_t call, uint32_t stored)
{
    if (s->to[call] != LIGI_NO_CALL)
        s->used[s->to[call]] = 0;
    s->to[call] = stored;
    if (stored != LIGI_NO_CALL)
        s->used[stored] = 1;
}

/* Makes the next choice for `call`: each partner in turn, then none, which can only help if
 * there is no partner or a later call wants the same ones. Returns 0 if there is nothing left to
 * try. */
static int choose(search *s, uint32_t call)
{
    assign(s, call, LIGI_NO_CALL);
    uint32_t turn = s->turn[call]++;
    uint32_t stored = turn == LIGI_NO_CALL ? LIGI_NO_CALL : partner(s, call, turn);
    if (stored != LIGI_NO_CALL) {
        assign(s, call, stored);
        return 1;
    }
    if (turn == LIGI_NO_CALL)
        return 0;
    s->turn[call] = LIGI_NO_CALL;
    return turn == 0 || s->rival[call];
}

/* Depth first over the calls in order; the first descent is the greedy mapping, which is nearly
 * always optimal. */
static void descend(search *s)
{
    uint32_t count = s->asking->call_count, at = 0;
    s->turn[0] = 0;
    for (;;) {
        if (at == count) {
            weigh(s);
            if (s->most.layers >= s->bound || s->steps > STEPS_MAX)
                return;
            at--;
        }
        s->steps++;
        if (choose(s, at)) {
            if (++at < count)
                s->turn[at] = 0;
        } else if (at-- == 0) {
            return;
        }
    }
}

/* --- preparation --- */

/* Chains stored calls of equal key in order, and finds for each asking call its chain and whether
 * another wants it too. */
static lig_status pair_keys(search *s)
{
    ligi_map stored = {0}, asking = {0};
    lig_status status = LIG_OK;
    uint64_t other;
    for (uint32_t i = s->stored->call_count; i-- > 0 && status == LIG_OK;) {
        s->next[i] = LIGI_NO_CALL;
        status = ligi_map_insert(&stored, &s->stored_keys[i], sizeof(ligi_hash128), i, &other);
        if (status ==
            LIG_E_EXISTS) { /* keep the chain in order: behind the last one seen comes the head */
            s->next[i] = s->head[other];
            s->head[other] = i;
            status = LIG_OK;
        } else {
            s->head[i] = i;
        }
    }
    for (uint32_t i = s->asking->call_count; i-- > 0 && status == LIG_OK;) {
        s->first[i] = ligi_map_find(&stored, &s->asking_keys[i], sizeof(ligi_hash128), &other)
                          ? s->head[other]
                          : LIGI_NO_CALL;
        status = ligi_map_insert(&asking, &s->asking_keys[i], sizeof(ligi_hash128), i, NULL);
        s->rival[i] = status == LIG_E_EXISTS;
        if (status == LIG_E_EXISTS)
            status = LIG_OK;
    }
    for (uint32_t i = 0; i < s->stored->call_count; i++)
        s->stored_common[i] =
            (uint8_t)ligi_map_find(&asking, &s->stored_keys[i], sizeof(ligi_hash128), NULL);
    ligi_map_fini(&stored);
    ligi_map_fini(&asking);
    return status;
}

/* A sum over what both graphs have below each call: a commutative hash, so that the order of
 * dependants does not matter. */
static void sum_below(const ligi_layer_graph *graph, const ligi_hash128 *keys,
                      const uint8_t *common, uint64_t *below)
{
    for (uint32_t i = graph->call_count; i-- > 0;) {
        if (!common[i])
            continue;
        const ligi_call *call = &graph->calls[i];
        for (uint32_t j = 0; j < call->input_count; j++) {
            uint64_t mix[3] = {keys[i].low, below[i], j};
            below[graph->inputs[call->input_first + j].call] += ligi_hash64_plain(mix, sizeof mix);
        }
    }
}

/* No prefix has more layers than there are calls with a partner, counting look-alikes as often as
 * both have them. */
static uint32_t most_layers(const search *s)
{
    uint32_t bound = 0;
    memset(s->used, 0, s->stored->call_count);
    for (uint32_t i = 0; i < s->asking->call_count; i++) {
        uint32_t w = s->first[i];
        while (w != LIGI_NO_CALL && s->used[w])
            w = s->next[w];
        if (w == LIGI_NO_CALL)
            continue;
        s->used[w] = 1;
        bound++;
    }
    memset(s->used, 0, s->stored->call_count);
    return bound < s->asking->layer_count ? bound : s->asking->layer_count;
}

static lig_status prepare(search *s)
{
    LIG_TRY(pair_keys(s));
    for (uint32_t i = 0; i < s->asking->call_count; i++) {
        s->asking_common[i] = s->first[i] != LIGI_NO_CALL;
        s->to[i] = LIGI_NO_CALL;
    }
    for (uint32_t i = 0; i < s->stored->call_count; i++)
        s->stored_calls[s->stored->calls[i].layer]++;
    sum_below(s->asking, s->asking_keys, s->asking_common, s->asking_below);
    sum_below(s->stored, s->stored_keys, s->stored_common, s->stored_below);
    s->bound = most_layers(s);
    return LIG_OK;
}

/* All arrays of a search in one block of zeros. */
static lig_status allocate(search *s, void **block)
{
    size_t a = s->asking->call_count, b = s->stored->call_count;
    size_t la = s->asking->layer_count, lb = s->stored->layer_count;
    size_t bytes = (a + b) * sizeof(uint64_t) +
                   (3 * a + 2 * b + 2 * la + 2 * lb) * sizeof(uint32_t) + 2 * a + 2 * b;
    LIG_TRY(ligi_calloc(block, 1, bytes, "a prefix search"));
    s->asking_below = *block;
    s->stored_below = s->asking_below + a;
    s->first = (uint32_t *)(s->stored_below + b);
    s->to = s->first + a;
    s->turn = s->to + a;
    s->next = s->turn + a;
    s->head = s->next + b;
    s->layer_to = s->head + b;
    s->best = s->layer_to + la;
    s->stored_calls = s->best + la;
    s->mapped_calls = s->stored_calls + lb;
    s->rival = (uint8_t *)(s->mapped_calls + lb);
    s->asking_common = s->rival + a;
    s->used = s->asking_common + a;
    s->stored_common = s->used + b;
    return LIG_OK;
}

lig_status ligi_prefix_match(const ligi_layer_graph *asking, const ligi_hash128 *asking_keys,
                             const ligi_layer_graph *stored, const ligi_hash128 *stored_keys,
                             uint32_t *map, ligi_prefix *prefix)
{
    search s = {
        .asking = asking, .stored = stored, .asking_keys = asking_keys, .stored_keys = stored_keys};
    void *block = NULL;
    LIG_TRY(allocate(&s, &block));
    memset(s.best, 0xff, asking->layer_count * sizeof *s.best);
    lig_status status = prepare(&s);
    if (status == LIG_OK && s.bound > 0)
        descend(&s);
    if (status == LIG_OK) {
        memcpy(map, s.best, asking->layer_count * sizeof *map);
        *prefix = s.most;
    }
    free(block);
    return status;
}
