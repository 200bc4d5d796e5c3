
/* Optimizers for one floating type of row: included by row_kernels_body.h like row_sums.h. For a
 * replica the change of value and state is added to its pending delta too. */

static void NAME(sgd)(const ligi_row_push *push)
{
    T *restrict values = push->values;
    const LOOSE *restrict gradient = push->gradient;
    A *restrict pending = push->pending;
    A lr = (A)push->step->lr, decay = (A)push->step->weight_decay;

    for (uint32_t i = 0; i < push->length; i++) {
        A value = GET(values + i);
        A change = -lr * (GIVEN(gradient + i) + decay * value);
        PUT(values + i, value + change);
        if (pending)
            pending[i] += change;
    }
}

static void NAME(adagrad)(const ligi_row_push *push)
{
    T *restrict values = push->values;
    A *restrict sums = push->state;
    const LOOSE *restrict gradient = push->gradient;
    A *restrict pending = push->pending;
    A lr = (A)push->step->lr, eps = (A)push->step->eps, decay = (A)push->step->weight_decay;

    for (uint32_t i = 0; i < push->length; i++) {
        A value = GET(values + i);
        A slope = GIVEN(gradient + i) + decay * value;
        A sum = STATE_GET(sums + i) + slope * slope;
        A change = -lr * slope / (ROOT(sum) + eps);
        STATE_PUT(sums + i, sum);
        PUT(values + i, value + change);
        if (pending) {
            pending[i] += change;
            pending[push->length + i] += slope * slope;
        }
    }
}

/* One sum per row, of the mean of squares. */
static void NAME(rowwise)(const ligi_row_push *push)
{
    T *restrict values = push->values;
    A *restrict sum_at = push->state;
    const LOOSE *restrict gradient = push->gradient;
    A *restrict pending = push->pending;
    A lr = (A)push->step->lr, eps = (A)push->step->eps, decay = (A)push->step->weight_decay;
    double squares_sum = 0;

    for (uint32_t first = 0; first < push->length; first += LIGI_ROW_SUMMED) {
        uint32_t left = push->length - first;
        uint32_t count = left < LIGI_ROW_SUMMED ? left : LIGI_ROW_SUMMED;
        A part = 0;
        for (uint32_t i = first; i < first + count; i++) {
            A slope = GIVEN(gradient + i) + decay * GET(values + i);
            part += slope * slope;
        }
        squares_sum += (double)part;
    }
    A squares = (A)squares_sum / (A)push->length;
    A sum = STATE_GET(sum_at) + squares;
    A scale = ROOT(sum) + eps;
    for (uint32_t i = 0; i < push->length; i++) {
        A value = GET(values + i);
        A change = -lr * (GIVEN(gradient + i) + decay * value) / scale;
        PUT(values + i, value + change);
        if (pending)
            pending[i] += change;
    }
    STATE_PUT(sum_at, sum);
    if (pending)
        pending[push->length] += squares;
}

static void NAME(adam)(const ligi_row_push *push)
{
    uint32_t length = push->length;
    T *restrict values = push->values;
    A *restrict means = push->state;
    A *restrict squares = means + length;
    A *restrict step_at = squares + length;
    const LOOSE *restrict gradient = push->gradient;
    const ligi_push_step *step = push->step;
    A number = STATE_GET(step_at) + 1;
    A beta2 = (A)step->beta2, first = (A)(1 - step->beta1), second = (A)(1 - step->beta2);
    A size = (A)(step->lr / (1 - pow(step->beta1, (double)number)));
    A root = (A)sqrt(1 - pow(step->beta2, (double)number));
    A eps = (A)step->eps, decay = (A)step->weight_decay;

    for (uint32_t i = 0; i < length; i++) {
        A value = GET(values + i);
        A slope = GIVEN(gradient + i) + decay * value;
        A mean = STATE_GET(means + i);
        mean += (slope - mean) * first;
        A square = STATE_GET(squares + i) * beta2 + slope * slope * second;
        STATE_PUT(means + i, mean);
        STATE_PUT(squares + i, square);
        PUT(values + i, value - size * mean / (ROOT(square) / root + eps));
    }
    STATE_PUT(step_at, number);
}
