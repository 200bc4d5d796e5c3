#include "base/map.h"
#include "base/test.h"
#include "store/search/layer_graph.h"

#include <stdlib.h>

/* input -> dense -> relu, dense used twice; calls given in a shuffled order. */
static const lig_layer three[] = {{"in", "i", 1}, {"block.dense", "d", 1}, {"block", "r", 1}};
static const lig_input from_in[] = {{3, 0}}, from_dense[] = {{0, 1}}, from_relu[] = {{1, 0}};
static const lig_call shuffled[] = {
    {1, 1, from_in}, {2, 1, from_dense}, {1, 1, from_relu}, {0, 0, NULL}};
static const lig_graph sample = {"test/1", three, shuffled, 3, 4};

static lig_tensor tensor(const char *name, uint64_t bytes)
{
    return (lig_tensor){.name = name, .bytes = bytes};
}

static void calls_are_put_in_order(void **state)
{
    (void)state;
    lig_tensor tensors[] = {tensor("block.dense.kernel", 40), tensor("block/scale", 2),
                            tensor("in", 1), tensor("blocks", 9)};
    ligi_layers layers = {0};
    assert_ok(ligi_layers_make(&layers, &sample, tensors, 4));
    static const uint32_t order[] = {0, 1, 2, 1};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(layers.graph.calls[i].layer, order[i]);
    assert_int_equal(layers.graph.inputs[layers.graph.calls[2].input_first].output, 1);
    assert_true(layers.graph.layer_bytes[0] == 1 && layers.graph.layer_bytes[1] == 40 &&
                layers.graph.layer_bytes[2] == 2);
    ligi_layers_fini(&layers);
}

static void graphs_come_back(void **state)
{
    (void)state;
    ligi_layers layers = {0}, back = {0};
    assert_ok(ligi_layers_make(&layers, &sample, NULL, 0));
    ligi_writer writer = {0};
    ligi_layers_put(&writer, &layers);
    ligi_reader reader = {.data = writer.data, .bytes = writer.bytes};
    assert_ok(ligi_layers_get(&reader, &back));
    assert_int_equal(reader.at, reader.bytes);
    assert_string_equal(back.kind, "test/1");
    assert_string_equal(back.names[1], "block.dense");
    assert_memory_equal(layers.keys, back.keys, 4 * sizeof *back.keys);
    ligi_layers_fini(&back);
    for (size_t cut = 0; cut < writer.bytes; cut++) {
        ligi_reader shorter = {.data = writer.data, .bytes = cut};
        assert_status(ligi_layers_get(&shorter, &back), LIG_E_CORRUPT);
        ligi_layers_fini(&back);
    }
    srand(4);
    for (int round = 0; round < 20000; round++) { /* whatever is in the file: a graph or an error */
        uint8_t *copy = malloc(writer.bytes);
        memcpy(copy, writer.data, writer.bytes);
        copy[(size_t)rand() % writer.bytes] = (uint8_t)rand();
        ligi_reader hostile = {.data = copy, .bytes = writer.bytes};
        (void)ligi_layers_get(&hostile, &back);
        ligi_layers_fini(&back);
        free(copy);
    }
    ligi_writer_fini(&writer);
    ligi_layers_fini(&layers);
}

static void refused(const lig_graph *graph, const char *sentence)
{
    ligi_layers layers = {0};
    assert_status(ligi_layers_make(&layers, graph, NULL, 0), LIG_E_INVALID);
    assert_says(sentence);
    ligi_layers_fini(&layers);
}

static void bad_graphs_get_a_sentence(void **state)
{
    (void)state;
    static const lig_input self[] = {{1, 0}}, other[] = {{2, 0}}, far[] = {{9, 0}};
    static const lig_call cycle[] = {{0, 0, NULL}, {1, 1, other}, {2, 1, self}},
                          lost[] = {{0, 0, NULL}, {1, 1, far}};
    static const lig_layer twice[] = {{"a", "x", 1}, {"a", "y", 1}};
    static const lig_call both[] = {{0, 0, NULL}, {1, 0, NULL}}, wrong[] = {{7, 0, NULL}};
    refused(&(lig_graph){"k", three, cycle, 3, 3}, "cycle through or before layer 'block.dense'");
    refused(&(lig_graph){"k", three, lost, 3, 2}, "input from call 9");
    refused(&(lig_graph){"k", twice, both, 2, 2}, "two layers of a graph are named 'a'");
    refused(&(lig_graph){"k", three, wrong, 3, 1}, "layer 7");
    refused(&(lig_graph){"k", three, both, 3, 2}, "never called");
}

static void lookalikes_have_keys_of_their_own(void **state)
{
    (void)state;
    static const lig_layer layers[] = {{"i", "i", 1}, {"a", "x", 1}, {"b", "x", 1}, {"c", "y", 1}};
    static const lig_input root[] = {{0, 0}};
    static const lig_call calls[] = {{0, 0, NULL}, {1, 1, root}, {2, 1, root}, {3, 1, root}};
    ligi_layers four = {0}, three_only = {0}, other = {0};
    ligi_hash128 keys[4], fewer[3], foreign[4];
    assert_ok(ligi_layers_make(&four, &(lig_graph){"k", layers, calls, 4, 4}, NULL, 0));
    assert_ok(ligi_layers_make(&three_only, &(lig_graph){"k", layers, calls, 3, 3}, NULL, 0));
    assert_ok(ligi_layers_make(&other, &(lig_graph){"other", layers, calls, 4, 4}, NULL, 0));
    assert_ok(ligi_layers_keys(&four, keys));
    assert_ok(ligi_layers_keys(&three_only, fewer));
    assert_ok(ligi_layers_keys(&other, foreign));
    assert_memory_equal(keys, fewer, sizeof fewer);
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(&keys[i], &keys[j], sizeof *keys);
        assert_memory_not_equal(&keys[i], &foreign[i], sizeof *keys);
    }
    ligi_layers_fini(&four);
    ligi_layers_fini(&three_only);
    ligi_layers_fini(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_put_in_order),
        cmocka_unit_test(graphs_come_back),
        cmocka_unit_test(bad_graphs_get_a_sentence),
        cmocka_unit_test(lookalikes_have_keys_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
