#include "base/test.h"
#include "store/search/longest_prefix.h"

#include <stdlib.h>

#define CALLS_MAX 64

/* A small graph with its own memory. */
typedef struct sample {
    ligi_layer_graph graph;
    ligi_hash128 signatures[CALLS_MAX], keys[CALLS_MAX];
    uint64_t layer_bytes[CALLS_MAX];
    ligi_call calls[CALLS_MAX];
    ligi_input inputs[CALLS_MAX * 4];
} sample;

static void start(sample *s)
{
    memset(s, 0, sizeof *s);
    s->graph = (ligi_layer_graph){0, 0, 0, s->signatures, s->layer_bytes, s->calls, s->inputs};
}

static uint32_t add_layer(sample *s, uint64_t signature)
{
    s->signatures[s->graph.layer_count].low = signature;
    s->layer_bytes[s->graph.layer_count] = 10 + signature;
    return s->graph.layer_count++;
}

static void add_call(sample *s, uint32_t layer, const uint32_t *from, uint32_t count)
{
    s->calls[s->graph.call_count++] = (ligi_call){layer, s->graph.input_count, count};
    for (uint32_t i = 0; i < count; i++)
        s->inputs[s->graph.input_count++] = (ligi_input){from[i], 0};
}

/* A call of a layer of its own. */
static uint32_t add(sample *s, uint64_t signature, const uint32_t *from, uint32_t count)
{
    add_call(s, add_layer(s, signature), from, count);
    return s->graph.call_count - 1;
}

static ligi_prefix match(sample *asking, sample *stored, uint32_t *map)
{
    ligi_prefix prefix;
    assert_ok(ligi_prefix_check(&asking->graph));
    assert_ok(ligi_prefix_check(&stored->graph));
    assert_ok(ligi_prefix_keys(&asking->graph, asking->keys));
    assert_ok(ligi_prefix_keys(&stored->graph, stored->keys));
    assert_ok(ligi_prefix_match(&asking->graph, asking->keys, &stored->graph, stored->keys, map,
                                &prefix));
    return prefix;
}

static uint32_t layers(sample *asking, sample *stored)
{
    uint32_t map[CALLS_MAX];
    return match(asking, stored, map).layers;
}

static void chain(sample *s, const char *signatures)
{
    start(s);
    for (uint32_t i = 0; signatures[i]; i++) {
        uint32_t before = i - 1;
        add(s, (uint64_t)signatures[i], &before, i > 0);
    }
}

static void chains_share_their_beginning(void **state)
{
    (void)state;
    static sample a, b;
    chain(&a, "iabcd");
    chain(&b, "iabxd");
    uint32_t map[CALLS_MAX];
    ligi_prefix prefix = match(&a, &b, map);
    assert_int_equal(prefix.layers, 3);
    assert_true(prefix.bytes == 30 + 'i' + 'a' + 'b');
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(map[i], i < 3 ? i : LIGI_NO_CALL);
    chain(&b, "xabcd");
    assert_int_equal(layers(&a, &b), 0);
    chain(&b, "");
    assert_int_equal(layers(&a, &b), 0);
    assert_int_equal(layers(&b, &a), 0);
}

static void same_input_twice_is_not_two_inputs(void **state)
{
    (void)state;
    static sample a, b;
    start(&a), start(&b);
    uint32_t root = add(&a, 'i', NULL, 0);
    add(&a, '+', (uint32_t[]){root, root}, 2);
    assert_int_equal(layers(&a, &a), 2);
    uint32_t one = add(&b, 'i', NULL, 0), two = add(&b, 'i', NULL, 0);
    add(&b, '+', (uint32_t[]){one, two}, 2);
    assert_int_equal(layers(&a, &b), 1);
    assert_int_equal(layers(&b, &b), 3);
}

static void input_order_counts(void **state)
{
    (void)state;
    static sample a, b;
    for (int turn = 0; turn < 2; turn++) {
        sample *s = turn ? &b : &a;
        start(s);
        uint32_t root = add(s, 'i', NULL, 0);
        uint32_t x = add(s, 'x', &root, 1), y = add(s, 'y', &root, 1);
        add(s, '-', turn ? (uint32_t[]){y, x} : (uint32_t[]){x, y}, 2);
    }
    assert_int_equal(layers(&a, &b), 3);
}

/* Two branches alike at their start, in the other order in the stored model: each must find the one
 * that goes on like itself. */
static void lookalikes_pair_by_what_follows(void **state)
{
    (void)state;
    static sample a, b;
    for (int turn = 0; turn < 2; turn++) {
        sample *s = turn ? &b : &a;
        start(s);
        uint32_t root = add(s, 'i', NULL, 0);
        uint32_t one = add(s, 'x', &root, 1), two = add(s, 'x', &root, 1);
        add(s, turn ? 'c' : 'b', &one, 1);
        add(s, turn ? 'b' : 'c', &two, 1);
    }
    uint32_t map[CALLS_MAX];
    assert_int_equal(match(&a, &b, map).layers, 5);
    assert_int_equal(map[1], 2);
    assert_int_equal(map[2], 1);
}

static void lookalikes_count_as_often_as_both_have_them(void **state)
{
    (void)state;
    static sample a, b;
    start(&a), start(&b);
    uint32_t root = add(&a, 'i', NULL, 0), other = add(&b, 'i', NULL, 0);
    for (int i = 0; i < 5; i++)
        add(&a, 'x', &root, 1);
    for (int i = 0; i < 3; i++)
        add(&b, 'x', &other, 1);
    assert_int_equal(layers(&a, &b), 4);
    assert_int_equal(layers(&b, &a), 4);
}

/* A layer used twice counts when both uses are in; when one is not, what follows the other is out
 * as well. */
static void shared_layers_count_whole(void **state)
{
    (void)state;
    static sample a, b;
    for (int turn = 0; turn < 2; turn++) {
        sample *s = turn ? &b : &a;
        start(s);
        add_call(s, add_layer(s, 'i'), NULL, 0);
        uint32_t shared = add_layer(s, 's');
        add_call(s, shared, (uint32_t[]){0}, 1);
        add_call(s, add_layer(s, 'm'), (uint32_t[]){1}, 1);
        add_call(s, shared, (uint32_t[]){2}, 1);
        add_call(s, add_layer(s, 'e'), (uint32_t[]){3}, 1);
    }
    assert_int_equal(layers(&a, &b), 4);
    b.signatures[2].low = 'n';
    assert_int_equal(layers(&a, &b), 1);
}

static void bad_graphs_are_refused(void **state)
{
    (void)state;
    static sample a;
    chain(&a, "iab");
    a.inputs[0].call = 2;
    assert_status(ligi_prefix_check(&a.graph), LIG_E_INVALID);
    chain(&a, "iab");
    a.calls[2].layer = 9;
    assert_status(ligi_prefix_check(&a.graph), LIG_E_INVALID);
    chain(&a, "iab");
    a.calls[2].input_count = UINT32_MAX;
    assert_status(ligi_prefix_check(&a.graph), LIG_E_INVALID);
    add_layer(&a, 'z');
    a.calls[2].input_count = 1;
    assert_status(ligi_prefix_check(&a.graph), LIG_E_INVALID);
    assert_says("never called");
}

/* --- the slow twins --- */

static void random_graph(sample *s, uint32_t calls, uint32_t kinds, int sharing)
{
    start(s);
    for (uint32_t i = 0; i < calls; i++) {
        uint32_t from[3], count = i ? (uint32_t)rand() % 3 : 0;
        for (uint32_t j = 0; j < count; j++)
            from[j] = (uint32_t)rand() % i;
        int reuse = sharing && s->graph.layer_count && rand() % 4 == 0;
        uint32_t layer = reuse ? (uint32_t)rand() % s->graph.layer_count
                               : add_layer(s, (uint64_t)rand() % kinds);
        add_call(s, layer, from, count);
    }
}

/* What the definition says, and nothing else: tries every mapping of calls, drops layers until
 * nothing is against the rules. */
static uint32_t count_layers(const ligi_layer_graph *a, const ligi_layer_graph *b,
                             const uint32_t *to)
{
    uint8_t in[CALLS_MAX];
    memset(in, 1, sizeof in);
    for (int moved = 1; moved;) {
        moved = 0;
        for (uint32_t i = 0; i < a->call_count; i++) {
            uint32_t layer = a->calls[i].layer;
            int good = to[i] != LIGI_NO_CALL;
            uint32_t goes = good ? b->calls[to[i]].layer : 0;
            for (uint32_t k = 0; k < a->call_count && good; k++)
                if (a->calls[k].layer == layer)
                    good = to[k] != LIGI_NO_CALL && b->calls[to[k]].layer == goes;
            for (uint32_t w = 0; w < b->call_count && good; w++)
                if (b->calls[w].layer == goes) {
                    good = 0;
                    for (uint32_t k = 0; k < a->call_count; k++)
                        good |= to[k] == w;
                }
            for (uint32_t j = 0; j < a->calls[i].input_count && good; j++)
                good = in[a->calls[a->inputs[a->calls[i].input_first + j].call].layer];
            if (in[layer] && !good)
                in[layer] = 0, moved = 1;
        }
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < a->layer_count; i++)
        count += in[i];
    return count;
}

static int may_pair(const sample *a, const sample *b, const uint32_t *to, uint32_t i, uint32_t w)
{
    const ligi_call *x = &a->calls[i], *y = &b->calls[w];
    if (a->signatures[x->layer].low != b->signatures[y->layer].low ||
        x->input_count != y->input_count)
        return 0;
    for (uint32_t k = 0; k < i; k++)
        if (to[k] == w)
            return 0;
    for (uint32_t j = 0; j < x->input_count; j++)
        if (to[a->inputs[x->input_first + j].call] != b->inputs[y->input_first + j].call)
            return 0;
    return 1;
}

static uint32_t try_all(const sample *a, const sample *b, uint32_t *to, uint32_t i)
{
    if (i == a->graph.call_count)
        return count_layers(&a->graph, &b->graph, to);
    to[i] = LIGI_NO_CALL;
    uint32_t best = try_all(a, b, to, i + 1);
    for (uint32_t w = 0; w < b->graph.call_count; w++) {
        if (!may_pair(a, b, to, i, w))
            continue;
        to[i] = w;
        uint32_t found = try_all(a, b, to, i + 1);
        best = found > best ? found : best;
    }
    to[i] = LIGI_NO_CALL;
    return best;
}

static void small_graphs_equal_the_definition(void **state)
{
    (void)state;
    static sample a, b;
    srand(3);
    for (int round = 0; round < 12000; round++) {
        uint32_t kinds = 1 + (uint32_t)rand() % 4, to[CALLS_MAX];
        random_graph(&a, (uint32_t)rand() % 7, kinds, round & 1);
        random_graph(&b, (uint32_t)rand() % 7, kinds, round & 1);
        uint32_t found = layers(&a, &b);
        uint32_t expected = a.graph.call_count ? try_all(&a, &b, to, 0) : 0;
        if (found != expected)
            fail_msg("round %d: %u layers, by definition %u", round, found, expected);
    }
}

/* The original's rule on graphs whose layers all differ: a call is in when all its inputs are and
 * the stored ones are the same. */
static uint32_t frontier(const sample *a, const sample *b)
{
    uint32_t to[CALLS_MAX], count = 0;
    for (uint32_t i = 0; i < a->graph.call_count; i++) {
        to[i] = LIGI_NO_CALL;
        for (uint32_t w = 0; w < b->graph.call_count && to[i] == LIGI_NO_CALL; w++)
            if (may_pair(a, b, to, i, w))
                to[i] = w;
        count += to[i] != LIGI_NO_CALL;
    }
    return count;
}

static void large_graphs_equal_the_frontier_rule(void **state)
{
    (void)state;
    static sample a, b;
    srand(5);
    for (int round = 0; round < 4000; round++) {
        random_graph(&a, 60, 1, 0);
        for (uint32_t i = 0; i < a.graph.layer_count; i++)
            a.signatures[i].low = i;
        b = a;
        b.graph.signatures = b.signatures, b.graph.layer_bytes = b.layer_bytes;
        b.graph.calls = b.calls, b.graph.inputs = b.inputs;
        for (int change = rand() % 4; change > 0; change--)
            b.signatures[rand() % 60].low = 1000 + (uint64_t)rand();
        assert_int_equal(layers(&a, &b), frontier(&a, &b));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_share_their_beginning),
        cmocka_unit_test(same_input_twice_is_not_two_inputs),
        cmocka_unit_test(input_order_counts),
        cmocka_unit_test(lookalikes_pair_by_what_follows),
        cmocka_unit_test(lookalikes_count_as_often_as_both_have_them),
        cmocka_unit_test(shared_layers_count_whole),
        cmocka_unit_test(bad_graphs_are_refused),
        cmocka_unit_test(small_graphs_equal_the_definition),
        cmocka_unit_test(large_graphs_equal_the_frontier_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
