#include "params/placement/placement_policy.h"

#include "base/test.h"

typedef struct row {
    lig_params_techniques techniques;
    int copyable, own;
    uint32_t other_count;
    int has_copy;
    uint32_t rested;
    ligi_policy_act act;
} row;

#define ALL LIG_PARAMS_ALL
#define COPIES LIG_PARAMS_REPLICATION_ONLY
#define MOVES LIG_PARAMS_RELOCATION_ONLY

static const row table[] = {
    /* alone */
    {ALL, 1, 0, 0, 0, 0, LIGI_POLICY_MOVE},
    {ALL, 1, 0, 0, 0, 9, LIGI_POLICY_MOVE},
    {ALL, 1, 0, 0, 1, 0, LIGI_POLICY_LATER},
    {ALL, 1, 0, 0, 1, 1, LIGI_POLICY_LATER},
    {ALL, 1, 0, 0, 1, 2, LIGI_POLICY_MOVE},
    {COPIES, 1, 0, 0, 0, 9, LIGI_POLICY_COPY},
    {COPIES, 1, 0, 0, 1, 9, LIGI_POLICY_STAY},
    {MOVES, 1, 0, 0, 0, 1, LIGI_POLICY_LATER},
    {MOVES, 1, 0, 0, 0, 2, LIGI_POLICY_MOVE},
    /* with the owner */
    {ALL, 1, 1, 0, 0, 9, LIGI_POLICY_COPY},
    {ALL, 1, 1, 0, 1, 9, LIGI_POLICY_STAY},
    {COPIES, 1, 1, 0, 0, 9, LIGI_POLICY_COPY},
    {MOVES, 1, 1, 0, 0, 9, LIGI_POLICY_STAY},
    /* with others */
    {ALL, 1, 0, 1, 0, 9, LIGI_POLICY_COPY},
    {ALL, 1, 0, 3, 1, 9, LIGI_POLICY_STAY},
    {COPIES, 1, 0, 2, 0, 0, LIGI_POLICY_COPY},
    {MOVES, 1, 0, 1, 0, 9, LIGI_POLICY_MOVE},
    {MOVES, 1, 0, 1, 0, 1, LIGI_POLICY_LATER},
    /* never copied, whatever was asked for */
    {ALL, 0, 0, 0, 0, 2, LIGI_POLICY_MOVE},
    {ALL, 0, 0, 0, 0, 1, LIGI_POLICY_LATER},
    {ALL, 0, 1, 0, 0, 9, LIGI_POLICY_STAY},
    {ALL, 0, 0, 1, 0, 9, LIGI_POLICY_MOVE},
    {ALL, 0, 1, 1, 0, 9, LIGI_POLICY_STAY},
    {COPIES, 0, 0, 0, 0, 2, LIGI_POLICY_MOVE},
    {COPIES, 0, 1, 0, 0, 9, LIGI_POLICY_STAY},
    {MOVES, 0, 0, 0, 0, 2, LIGI_POLICY_MOVE},
};

static void the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const row *r = &table[i];
        const ligi_policy_view view = {.techniques = r->techniques,
                                       .copyable = r->copyable,
                                       .own = r->own,
                                       .other_count = r->other_count,
                                       .has_copy = r->has_copy,
                                       .rested = r->rested};
        if (ligi_policy(&view) != r->act)
            fail_msg("row %zu: %d, not %d", i, ligi_policy(&view), r->act);
    }
}

/* What no table of examples can say: over all views. */
static void what_always_holds(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 3 * 2 * 2 * 3 * 2 * 4; bits++) {
        uint32_t b = bits;
        ligi_policy_view view = {.techniques = (lig_params_techniques)(b % 3)};
        view.copyable = (int)((b /= 3) % 2);
        view.own = (int)((b /= 2) % 2);
        view.other_count = (b /= 2) % 3;
        view.has_copy = (int)((b /= 3) % 2);
        view.rested = b / 2;
        ligi_policy_act act = ligi_policy(&view);
        if (act == LIGI_POLICY_MOVE || act == LIGI_POLICY_LATER)
            assert_true(!view.own &&
                        (view.other_count == 0 || !view.copyable || view.techniques == MOVES));
        if (act == LIGI_POLICY_COPY)
            assert_true(view.copyable && !view.has_copy && view.techniques != MOVES);
        if (act == LIGI_POLICY_MOVE && view.techniques == COPIES)
            assert_false(view.copyable);
        if (act == LIGI_POLICY_LATER)
            assert_true(view.rested < LIGI_POLICY_REST);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table),
        cmocka_unit_test(what_always_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
