#include "params/rows/row_kernels.h"

#include "params/tables/row_access.h"
#include "params/tables/row_install.h"
#include "params/tables/table_info.h"
#include "params/tables/table_testing.h"

#include <math.h>

enum { LONGEST = 131 };

static const char *const type_names[] = {"float32", "float64", "bfloat16", "int32", "int64"};

static uint32_t type_of(int type)
{
    return lig_dtype_parse(type_names[type]);
}

/* The instruction sets of this machine, the plain one first. */
static int variants(const ligi_row_kernels *out[3])
{
    int count = 0;

    out[count++] = ligi_row_plain;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        out[count++] = ligi_row_avx2;
    if (__builtin_cpu_supports("avx512f"))
        out[count++] = ligi_row_avx512;
#endif
    return count;
}

typedef struct body { /* values and state as in a row */
    uint8_t bytes[LONGEST * 8 * 4];
} body;

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *seed >> 20;
}

static void fill(int type, void *out, uint32_t count, uint64_t seed)
{
    for (uint32_t i = 0; i < count; i++) {
        double value = (double)(int64_t)(draw(&seed) % 2001) / 500 - 2;
        float narrow = (float)value;
        uint32_t bits;
        int64_t whole = (int64_t)draw(&seed);
        memcpy(&bits, &narrow, 4);
        uint16_t half = (uint16_t)(bits >> 16);
        const void *from = &whole;
        size_t bytes = lig_dtype_bytes(type_of(type));
        if (type == LIGI_ROW_FLOAT32)
            from = &narrow;
        else if (type == LIGI_ROW_FLOAT64)
            from = &value;
        else if (type == LIGI_ROW_BFLOAT16)
            from = &half;
        memcpy((uint8_t *)out + i * bytes, from, bytes);
    }
}

/* Runs one push; fills the resulting row and pending delta. */
static void push_once(const ligi_row_kernels *kernels, int type, uint32_t kind, uint32_t length,
                      body *row, body *pending)
{
    static const ligi_push_step step = {0.1, 1e-8, 0.9, 0.999, 0.01};
    uint8_t given[LONGEST * 8 + 1];
    size_t state_at = (length * lig_dtype_bytes(type_of(type)) + 7) / 8 * 8;
    ligi_row_push push = {row->bytes, row->bytes + state_at, given + 1, pending->bytes, length,
                          &step};

    fill(type, given + 1, length, length);
    if (kind == LIG_PARAMS_ADAM)
        push.pending = NULL;
    kernels->push[kind](&push);
    kernels->push[kind](&push);
}

static void all_variants_agree_to_the_bit(void **state)
{
    const ligi_row_kernels *sets[3];
    int count = variants(sets);

    (void)state;
    for (int type = 0; type < LIGI_ROW_TYPES; type++)
        for (uint32_t kind = 0; kind < LIGI_OPTIMIZERS; kind++)
            for (uint32_t length = 1; length <= LONGEST; length++) {
                body first = {{0}}, first_pending = {{0}};
                if (!sets[0][type].push[kind])
                    continue;
                fill(type, first.bytes, length, 5);
                push_once(&sets[0][type], type, kind, length, &first, &first_pending);
                for (int i = 1; i < count; i++) {
                    body row = {{0}}, pending = {{0}};
                    fill(type, row.bytes, length, 5);
                    push_once(&sets[i][type], type, kind, length, &row, &pending);
                    assert_memory_equal(&row, &first, sizeof row);
                    assert_memory_equal(&pending, &first_pending, sizeof pending);
                }
            }
}

static void copies_every_length(void **state)
{
    const ligi_row_kernels *sets[3];
    int count = variants(sets);
    _Alignas(16) uint8_t row[700];
    uint8_t to[701];

    (void)state;
    for (size_t i = 0; i < sizeof row; i++)
        row[i] = (uint8_t)(i * 7 + 1);
    for (int i = 0; i < count; i++)
        for (size_t bytes = 0; bytes < 650; bytes++) {
            memset(to, 0xee, sizeof to);
            sets[i][0].copy_out(to + 1, row, bytes);
            assert_memory_equal(to + 1, row, bytes);
            assert_int_equal(to[0], 0xee);
            assert_int_equal(to[bytes + 1], 0xee);
            _Alignas(16) uint8_t other[700] = {0};
            sets[i][0].copy_in(other, to + 1, bytes);
            assert_memory_equal(other, row, bytes);
            assert_int_equal(other[bytes], 0);
        }
}

/* torch.optim's results for the same gradients (rowwise: the formula in float64). */
static void formulas_are_torchs(void **state)
{
    static const struct {
        uint32_t kind;
        double values[3];
    } cases[] = {
        {LIG_PARAMS_SGD, {0.458621472, -1.27624369, 1.76386607}},
        {LIG_PARAMS_ADAGRAD, {0.357360154, -1.23936927, 1.90924811}},
        {LIG_PARAMS_ROWWISE_ADAGRAD, {0.404703734, -1.19376875, 1.86091269}},
        {LIG_PARAMS_ADAM, {0.303819358, -1.22218704, 1.92728901}},
    };
    static const double given[3][3] = {{0.1, -0.2, 0.3}, {1.0, 0.5, -2.0}, {-0.7, 0.0, 4.0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lig_params_table table = {.key_count = 2,
                                  .length = 3,
                                  .optimizer = {cases[i].kind, 0, 0.1, 1e-8, 0.9, 0.999, 0.01}};
        ligi_tables *wide = tables_of(&table, 1, LIG_FLOAT64, 0, 1);
        ligi_tables *narrow = tables_of(&table, 1, LIG_FLOAT32, 0, 1);
        int64_t key = 1;
        double start[3] = {0.5, -1.25, 2}, end[3];
        float start32[3] = {0.5f, -1.25f, 2}, end32[3];
        assert_int_equal(write_keys(wide, LIGI_WRITE_SET, &key, 1, start), 0);
        assert_int_equal(write_keys(narrow, LIGI_WRITE_SET, &key, 1, start32), 0);
        for (int step = 0; step < 3; step++) {
            float given32[3] = {(float)given[step][0], (float)given[step][1],
                                (float)given[step][2]};
            assert_int_equal(write_keys(wide, LIGI_WRITE_PUSH, &key, 1, given[step]), 0);
            assert_int_equal(write_keys(narrow, LIGI_WRITE_PUSH, &key, 1, given32), 0);
        }
        assert_int_equal(read_keys(wide, &key, 1, end), 0);
        assert_int_equal(read_keys(narrow, &key, 1, end32), 0);
        for (int e = 0; e < 3; e++) {
            assert_true(fabs(end[e] - cases[i].values[e]) < 1e-6);
            assert_true(fabs((double)end32[e] - cases[i].values[e]) < 1e-6);
        }
        ligi_tables_destroy(wide);
        ligi_tables_destroy(narrow);
    }
}

/* The owner gets exactly what a replica's optimizer changed: value and state. */
static void changes_of_replicas_reach_the_owner(void **state)
{
    static const uint32_t kinds[] = {LIG_PARAMS_ADD, LIG_PARAMS_SGD, LIG_PARAMS_ADAGRAD,
                                     LIG_PARAMS_ROWWISE_ADAGRAD};
    static const uint32_t dtypes[] = {LIG_FLOAT32, LIG_FLOAT64, LIG_BFLOAT16};

    (void)state;
    for (int i = 0; i < 12; i++) {
        lig_params_table table = {.key_count = 2, .length = 5, .init = {.kind = 1, .a = 1}};
        table.optimizer = (lig_params_optimizer){kinds[i % 4], 0, 0.5, 1e-8, 0, 0, 0};
        ligi_tables *owner = tables_of(&table, 1, dtypes[i / 4], 0, 2);
        ligi_tables *other = tables_of(&table, 1, dtypes[i / 4], 1, 2);
        uint8_t body_of_owner[128] = {0}, body_of_replica[128] = {0}, delta[128], given[64];
        int64_t key = 0;
        fill(i / 4, given, 5, 3);
        assert_true(ligi_tables_get_body(owner, 0, body_of_owner));
        assert_ok(ligi_tables_install_replica(other, 0, body_of_owner, 0));
        assert_int_equal(write_keys(other, LIGI_WRITE_PUSH, &key, 1, given), 0);
        assert_int_equal(ligi_tables_take_pending(other, 0, delta), 1);
        ligi_tables_add_delta(owner, 0, delta);
        assert_true(ligi_tables_get_body(owner, 0, body_of_owner));
        assert_true(ligi_tables_get_body(other, 0, body_of_replica));
        assert_memory_equal(body_of_owner, body_of_replica, sizeof body_of_replica);
        ligi_tables_destroy(owner);
        ligi_tables_destroy(other);
    }
}

static void adam_is_never_done_in_a_replica(void **state)
{
    lig_params_table table = {
        .key_count = 2, .length = 2, .optimizer = {LIG_PARAMS_ADAM, 0, 0.1, 1e-8, 0.9, 0.999, 0}};
    ligi_tables *tables = tables_of(&table, 1, LIG_FLOAT32, 1, 2);
    float body_bytes[16] = {0}, given[2] = {1, 1};
    int64_t key = 0;

    (void)state;
    assert_false(ligi_tables_replicable(tables, 0));
    assert_ok(ligi_tables_install_replica(tables, 0, body_bytes, 0));
    assert_int_equal(write_keys(tables, LIGI_WRITE_PUSH, &key, 1, given), 1);
    ligi_tables_destroy(tables);
}

static void learning_rates(void **state)
{
    lig_params_table table = {
        .key_count = 1, .length = 1, .optimizer = {LIG_PARAMS_SGD, 0, 0.5, 0, 0, 0, 0}};
    ligi_tables *tables = tables_of(&table, 1, LIG_FLOAT32, 0, 1);
    float value, one = 1;
    double other = 2;
    int64_t key = 0;
    table_room room;

    (void)state;
    assert_int_equal(write_keys(tables, LIGI_WRITE_PUSH, &key, 1, &one), 0);
    ligi_tables_set_lr(tables, 0, 0.25);
    assert_true(ligi_tables_get_lr(tables, 0) == 0.25);
    assert_int_equal(write_keys(tables, LIGI_WRITE_PUSH, &key, 1, &one), 0);
    batch_of(&room, &key, 1, &one)->lr = &other;
    ligi_tables_write(tables, LIGI_WRITE_PUSH, &room.batch);
    assert_int_equal(read_keys(tables, &key, 1, &value), 0);
    assert_true(value == -2.75f);
    ligi_tables_destroy(tables);
}

static void bfloat16_is_rounded(void **state)
{
    static const struct {
        uint16_t a, b, sum;
    } cases[] = {
        {0x3f80, 0x3b80, 0x3f80}, /* 1 + 1/256: a tie, to even */
        {0x3f81, 0x3b80, 0x3f82}, /* the next one, to even */
        {0x3f80, 0x3c00, 0x3f81}, /* 1 + 1/128 */
        {0x7f80, 0x3f80, 0x7f80}, /* infinity */
        {0x7fc0, 0x3f80, 0x7fc0}, /* NaN */
        {0x7f7f, 0x7f7f, 0x7f80}, /* too large */
    };
    const ligi_row_kernels *sets[3];
    int count = variants(sets);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int set = 0; set < count; set++) {
            uint16_t value = cases[i].a, given = cases[i].b;
            ligi_row_push push = {&value, NULL, &given, NULL, 1, NULL};
            sets[set][LIGI_ROW_BFLOAT16].push[LIG_PARAMS_ADD](&push);
            assert_int_equal(value, cases[i].sum);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_variants_agree_to_the_bit),
        cmocka_unit_test(copies_every_length),
        cmocka_unit_test(formulas_are_torchs),
        cmocka_unit_test(changes_of_replicas_reach_the_owner),
        cmocka_unit_test(adam_is_never_done_in_a_replica),
        cmocka_unit_test(learning_rates),
        cmocka_unit_test(bfloat16_is_rounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
