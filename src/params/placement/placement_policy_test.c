#include "params/placement/placement_policy.h"

#include "base/test.h"

typedef struct row {
    lig_params_techniques techniques;
    int replicable, own;
    uint32_t other_count;
    int has_replica;
    uint32_t rested;
    ligi_placement_policy_act act;
} row;

#define ALL LIG_PARAMS_ALL
#define COPIES LIG_PARAMS_REPLICATION_ONLY
#define MOVES LIG_PARAMS_RELOCATION_ONLY

static const row table[] = {
    /* alone */
    {ALL, 1, 0, 0, 0, 0, LIGI_POLICY_RELOCATE},
    {ALL, 1, 0, 0, 0, 9, LIGI_POLICY_RELOCATE},
    {ALL, 1, 0, 0, 1, 0, LIGI_POLICY_LATER},
    {ALL, 1, 0, 0, 1, 1, LIGI_POLICY_LATER},
    {ALL, 1, 0, 0, 1, 2, LIGI_POLICY_RELOCATE},
    {COPIES, 1, 0, 0, 0, 9, LIGI_POLICY_REPLICATE},
    {COPIES, 1, 0, 0, 1, 9, LIGI_POLICY_STAY},
    {MOVES, 1, 0, 0, 0, 1, LIGI_POLICY_LATER},
    {MOVES, 1, 0, 0, 0, 2, LIGI_POLICY_RELOCATE},
    /* with the owner */
    {ALL, 1, 1, 0, 0, 9, LIGI_POLICY_REPLICATE},
    {ALL, 1, 1, 0, 1, 9, LIGI_POLICY_STAY},
    {COPIES, 1, 1, 0, 0, 9, LIGI_POLICY_REPLICATE},
    {MOVES, 1, 1, 0, 0, 9, LIGI_POLICY_STAY},
    /* with others */
    {ALL, 1, 0, 1, 0, 9, LIGI_POLICY_REPLICATE},
    {ALL, 1, 0, 3, 1, 9, LIGI_POLICY_STAY},
    {COPIES, 1, 0, 2, 0, 0, LIGI_POLICY_REPLICATE},
    {MOVES, 1, 0, 1, 0, 9, LIGI_POLICY_RELOCATE},
    {MOVES, 1, 0, 1, 0, 1, LIGI_POLICY_LATER},
    /* never replicated, whatever was requested */
    {ALL, 0, 0, 0, 0, 2, LIGI_POLICY_RELOCATE},
    {ALL, 0, 0, 0, 0, 1, LIGI_POLICY_LATER},
    {ALL, 0, 1, 0, 0, 9, LIGI_POLICY_STAY},
    {ALL, 0, 0, 1, 0, 9, LIGI_POLICY_RELOCATE},
    {ALL, 0, 1, 1, 0, 9, LIGI_POLICY_STAY},
    {COPIES, 0, 0, 0, 0, 2, LIGI_POLICY_RELOCATE},
    {COPIES, 0, 1, 0, 0, 9, LIGI_POLICY_STAY},
    {MOVES, 0, 0, 0, 0, 2, LIGI_POLICY_RELOCATE},
};

static void the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const row *r = &table[i];
        const ligi_placement_policy_view view = {.techniques = r->techniques,
                                                 .replicable = r->replicable,
                                                 .own = r->own,
                                                 .other_count = r->other_count,
                                                 .has_replica = r->has_replica,
                                                 .rested = r->rested};
        if (ligi_placement_policy(&view) != r->act)
            fail_msg("row %zu: %d, not %d", i, ligi_placement_policy(&view), r->act);
    }
}

/* Properties that hold for all possible views. */
static void what_always_holds(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 3 * 2 * 2 * 3 * 2 * 4; bits++) {
        uint32_t b = bits;
        ligi_placement_policy_view view = {.techniques = (lig_params_techniques)(b % 3)};
        view.replicable = (int)((b /= 3) % 2);
        view.own = (int)((b /= 2) % 2);
        view.other_count = (b /= 2) % 3;
        view.has_replica = (int)((b /= 3) % 2);
        view.rested = b / 2;
        ligi_placement_policy_act act = ligi_placement_policy(&view);
        if (act == LIGI_POLICY_RELOCATE || act == LIGI_POLICY_LATER)
            assert_true(!view.own &&
                        (view.other_count == 0 || !view.replicable || view.techniques == MOVES));
        if (act == LIGI_POLICY_REPLICATE)
            assert_true(view.replicable && !view.has_replica && view.techniques != MOVES);
        if (act == LIGI_POLICY_RELOCATE && view.techniques == COPIES)
            assert_false(view.replicable);
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
