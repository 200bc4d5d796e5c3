
/* Sums for one type of row: included by row_kernels_body.h once per type (T in the row, A in state
 * and deltas), last: it undefines the type's macros. */

static void NAME(add)(const ligi_row_push *push)
{
    T *restrict values = push->values;
    const LOOSE *restrict gradient = push->gradient;
    A *restrict pending = push->pending;
    uint32_t length = push->length;

    for (uint32_t i = 0; i < length; i++)
        PUT(values + i, GET(values + i) + GIVEN(gradient + i));
    if (pending)
        for (uint32_t i = 0; i < length; i++)
            pending[i] += GIVEN(gradient + i);
}

static void NAME(merge)(const ligi_row_merge *merge)
{
    T *restrict values = merge->values;
    A *restrict state = merge->state;
    const LOOSE_A *restrict delta = merge->delta;

    for (size_t i = 0; i < merge->length; i++)
        PUT(values + i, GET(values + i) + delta[i]);
    for (size_t i = 0; i < merge->state_count; i++)
        STATE_PUT(state + i, STATE_GET(state + i) + delta[merge->length + i]);
}

#undef NAME
#undef T
#undef LOOSE
#undef A
#undef LOOSE_A
#undef GET
#undef PUT
#undef GIVEN
#undef STATE_GET
#undef STATE_PUT
#undef ROOT
