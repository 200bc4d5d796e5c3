#include "params/rows/row_init.h"

#include "params/tables/table_testing.h"

#include <math.h>

enum { ROWS = 400, LENGTH = 50 };

static double at(const void *row, uint32_t dtype, uint32_t i)
{
    uint32_t bits;
    float narrow;

    switch (dtype) {
    case LIG_FLOAT32: return (double)((const float *)row)[i];
    case LIG_FLOAT64: return ((const double *)row)[i];
    case LIG_INT32: return ((const int32_t *)row)[i];
    case LIG_INT64: return (double)((const int64_t *)row)[i];
    default:
        bits = (uint32_t)((const uint16_t *)row)[i] << 16;
        memcpy(&narrow, &bits, 4);
        return (double)narrow;
    }
}

typedef struct moments {
    double mean, deviation, least, most;
} moments;

static moments of(const lig_params_init *init, uint32_t dtype)
{
    double sum = 0, squares = 0;
    moments out = {0, 0, INFINITY, -INFINITY};
    int64_t row[LENGTH];

    for (uint64_t key = 0; key < ROWS; key++) {
        ligi_row_init_fill(&(ligi_row_init){init, dtype, 3, key, LENGTH}, row);
        for (uint32_t i = 0; i < LENGTH; i++) {
            double value = at(row, dtype, i);
            sum += value;
            squares += value * value;
            out.least = fmin(out.least, value);
            out.most = fmax(out.most, value);
        }
    }
    out.mean = sum / (ROWS * LENGTH);
    out.deviation = sqrt(squares / (ROWS * LENGTH) - out.mean * out.mean);
    return out;
}

static void distributions(void **state)
{
    static const uint32_t dtypes[] = {LIG_FLOAT32, LIG_FLOAT64, LIG_BFLOAT16, LIG_INT32, LIG_INT64};

    (void)state;
    for (int i = 0; i < 5; i++) {
        double slack = i >= 3 ? 0.1 : 0.05;
        lig_params_init uniform = {LIG_PARAMS_UNIFORM, 0, -4, 8, 1};
        moments got = of(&uniform, dtypes[i]);
        double centre = i >= 3 ? 1.5 : 2; /* -4 .. 7 */
        assert_true(fabs(got.mean - centre) < 2 * slack);
        assert_true(fabs(got.deviation - 12 / sqrt(12)) < slack);
        assert_true(got.least >= -4 && got.least < -3.9 && got.most < 8 && got.most > 6.9);
        lig_params_init normal = {LIG_PARAMS_NORMAL, 0, 3, 5, 1};
        got = of(&normal, dtypes[i]);
        assert_true(fabs(got.mean - 3) < 0.15);
        assert_true(fabs(got.deviation - 5) < 0.15);
        lig_params_init constant = {LIG_PARAMS_CONSTANT, 0, -2, 0, 0};
        got = of(&constant, dtypes[i]);
        assert_true(got.least == -2 && got.most == -2);
    }
}

/* b itself is never drawn, even where rounding would reach it. */
static void ends_below_b(void **state)
{
    static const double ends[] = {0, 1, -1, 0.3, -0.3};

    (void)state;
    for (int i = 0; i < 5; i++)
        for (int narrow = 0; narrow < 2; narrow++) {
            double b = ends[i], a = b - 1e-6;
            lig_params_init init = {LIG_PARAMS_UNIFORM, 0, a, b, 9};
            assert_true(of(&init, narrow ? LIG_BFLOAT16 : LIG_FLOAT32).most < b);
        }
}

static void depends_on_what_it_says(void **state)
{
    lig_params_init init = {LIG_PARAMS_UNIFORM, 0, 0, 1, 5}, other = init;
    double first[8], second[8], longer[9];

    (void)state;
    other.seed = 6;
    ligi_row_init_fill(&(ligi_row_init){&init, LIG_FLOAT64, 0, 7, 8}, first);
    ligi_row_init_fill(&(ligi_row_init){&init, LIG_FLOAT64, 0, 7, 9}, longer);
    assert_memory_equal(first, longer, sizeof first);
    ligi_row_init_fill(&(ligi_row_init){&other, LIG_FLOAT64, 0, 7, 8}, second);
    assert_memory_not_equal(first, second, sizeof first);
    ligi_row_init_fill(&(ligi_row_init){&init, LIG_FLOAT64, 1, 7, 8}, second);
    assert_memory_not_equal(first, second, sizeof first);
    ligi_row_init_fill(&(ligi_row_init){&init, LIG_FLOAT64, 0, 8, 8}, second);
    assert_memory_not_equal(first, second, sizeof first);
}

/* Pinned: a job restarted with another build has the same initial rows. */
static void values_are_pinned(void **state)
{
    lig_params_init init = {LIG_PARAMS_UNIFORM, 0, 0, 1, 42};
    double row[2];

    (void)state;
    ligi_row_init_fill(&(ligi_row_init){&init, LIG_FLOAT64, 1, 1000, 2}, row);
    assert_true(row[0] == 0x1.dd71acef60004p-2);
    assert_true(row[1] == 0x1.6df904c5c8fb5p-1);
}

static void nodes_do_not_matter(void **state)
{
    lig_params_table table = {
        .key_count = 30, .length = 6, .init = {LIG_PARAMS_NORMAL, 0, 0, 1, 3}};
    ligi_tables *alone = tables_of(&table, 1, LIG_FLOAT32, 0, 1);

    (void)state;
    for (uint32_t rank = 0; rank < 3; rank++) {
        ligi_tables *one = tables_of(&table, 1, LIG_FLOAT32, rank, 3);
        for (int64_t key = rank; key < 30; key += 3) {
            float here[6], there[6];
            assert_int_equal(read_keys(alone, &key, 1, here), 0);
            assert_int_equal(read_keys(one, &key, 1, there), 0);
            assert_memory_equal(here, there, sizeof here);
        }
        ligi_tables_destroy(one);
    }
    ligi_tables_destroy(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distributions),           cmocka_unit_test(ends_below_b),
        cmocka_unit_test(depends_on_what_it_says), cmocka_unit_test(values_are_pinned),
        cmocka_unit_test(nodes_do_not_matter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
