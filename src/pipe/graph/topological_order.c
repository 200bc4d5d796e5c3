#include "pipe/graph/topological_order.h"

typedef struct ready {
    double key;
    uint32_t unit;
} ready;

/* Units whose producers are all placed, smallest key first, then smallest unit. */
typedef struct ready_heap {
    ready *item;
    uint32_t count;
} ready_heap;

static int sooner(ready a, ready b)
{
    return a.key < b.key || (a.key == b.key && a.unit < b.unit);
}

static void push(ready_heap *heap, ready item)
{
    uint32_t at = heap->count++;
    for (; at && sooner(item, heap->item[(at - 1) / 2]); at = (at - 1) / 2)
        heap->item[at] = heap->item[(at - 1) / 2];
    heap->item[at] = item;
}

static ready pop(ready_heap *heap)
{
    ready top = heap->item[0], item = heap->item[--heap->count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < heap->count; child = 2 * at + 1) {
        if (child + 1 < heap->count && sooner(heap->item[child + 1], heap->item[child]))
            child++;
        if (!sooner(heap->item[child], item))
            break;
        heap->item[at] = heap->item[child];
        at = child;
    }
    heap->item[at] = item;
    return top;
}

typedef struct placing {
    const ligi_graph *graph;
    uint32_t *waits; /* nets that a unit is waiting for */
    uint32_t *left;  /* users of a net that are not placed */
    uint32_t placed;
    ready_heap heap;
    ligi_random *random;
    ligi_order_kind kind;
} placing;

/* Bytes that become live minus those that die. Deep: the newest first, with a random tie-break
 * among siblings. */
static double key_of(const placing *p, uint32_t unit)
{
    const ligi_graph *graph = p->graph;
    double key = 0;
    if (p->kind == LIGI_ORDER_DEEP)
        return -(double)p->placed - ligi_random_unit(p->random);
    for (uint32_t net = graph->out_begin[unit]; net < graph->out_begin[unit + 1]; net++)
        key += graph->bytes[net];
    for (uint32_t i = graph->in_begin[unit]; i < graph->in_begin[unit + 1]; i++)
        key -= p->left[graph->in_net[i]] == 1 ? graph->bytes[graph->in_net[i]] : 0;
    return key;
}

static void place(placing *p, uint32_t unit)
{
    const ligi_graph *graph = p->graph;
    for (uint32_t i = graph->in_begin[unit]; i < graph->in_begin[unit + 1]; i++)
        p->left[graph->in_net[i]]--;
    for (uint32_t net = graph->out_begin[unit]; net < graph->out_begin[unit + 1]; net++)
        for (uint32_t q = graph->pin_begin[net]; q < graph->pin_begin[net + 1]; q++)
            if (--p->waits[graph->pin[q]] == 0)
                push(&p->heap, (ready){key_of(p, graph->pin[q]), graph->pin[q]});
}

lig_status ligi_order_make(const ligi_graph *graph, ligi_order_kind kind, ligi_random *random,
                           uint32_t *order)
{
    uint32_t n = graph->unit_count;
    if (kind == LIGI_ORDER_GIVEN) {
        for (uint32_t i = 0; i < n; i++)
            order[i] = i;
        return LIG_OK;
    }
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    placing p = {.graph = graph, .random = random, .kind = kind};
    p.waits = LIGI_TAKE(&scratch, uint32_t, n);
    p.left = LIGI_TAKE(&scratch, uint32_t, graph->net_count);
    p.heap.item = LIGI_TAKE(&scratch, ready, n);
    lig_status status = ligi_scratch_check(&scratch);
    for (uint32_t net = 0; status == LIG_OK && net < graph->net_count; net++)
        p.left[net] = graph->pin_begin[net + 1] - graph->pin_begin[net];
    for (uint32_t u = 0; status == LIG_OK && u < n; u++) {
        p.waits[u] = graph->in_begin[u + 1] - graph->in_begin[u];
        if (!p.waits[u])
            push(&p.heap, (ready){key_of(&p, u), u});
    }
    while (status == LIG_OK && p.heap.count) {
        uint32_t unit = pop(&p.heap).unit;
        order[p.placed++] = unit;
        place(&p, unit);
    }
    ligi_scratch_free(&scratch);
    return status;
}

lig_status ligi_order_of_stages(const ligi_graph *graph, const uint32_t *stage,
                                uint32_t stage_count, uint32_t *order)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    uint32_t *begin = LIGI_TAKE(&scratch, uint32_t, (size_t)stage_count + 1);
    lig_status status = ligi_scratch_check(&scratch);
    if (status == LIG_OK) {
        for (uint32_t u = 0; u < graph->unit_count; u++)
            begin[stage[u] + 1]++;
        for (uint32_t s = 0; s < stage_count; s++)
            begin[s + 1] += begin[s];
        for (uint32_t u = 0; u < graph->unit_count; u++)
            order[begin[stage[u]]++] = u;
    }
    ligi_scratch_free(&scratch);
    return status;
}
