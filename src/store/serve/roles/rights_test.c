/* Every operation and every role: a new operation must be added here and in the table of rights. */
#include "store/serve/roles/rights.h"

#include "base/test.h"

#include <stdio.h>

/* r: read all, p: read below a prefix, w: write all, o: write its own prefix, a: admin. */
static const struct {
    ligi_served_op op;
    const char *who;
} expected[] = {
    {LIGI_SERVED_PING, "rpwoa"},     {LIGI_SERVED_INFO, "rpwoa"},
    {LIGI_SERVED_RESOLVE, "rpwoa"},  {LIGI_SERVED_RELEASE, "rpwoa"},
    {LIGI_SERVED_MODELS, "rpwoa"},   {LIGI_SERVED_LINEAGE, "rpwoa"},
    {LIGI_SERVED_STAT, "rpwoa"},     {LIGI_SERVED_PACK_SIZE, "rpwoa"},
    {LIGI_SERVED_READ, "rpwoa"},     {LIGI_SERVED_DESCRIPTOR, "rwa"},
    {LIGI_SERVED_UPDATE, "woa"},     {LIGI_SERVED_ALIAS, "woa"},
    {LIGI_SERVED_ALIAS_AT, "rpwoa"}, {LIGI_SERVED_RETIRE, "woa"},
    {LIGI_SERVED_LOCK, "woa"},       {LIGI_SERVED_CHECK, "a"},
    {LIGI_SERVED_COMPACT, "a"},      {LIGI_SERVED_FIND, "rpwoa"},
    {LIGI_SERVED_WATCH, "rpwoa"},    {LIGI_SERVED_SAVE, "woa"},
    {LIGI_SERVED_JOIN, "woa"},       {LIGI_SERVED_STAMPS, "rwa"},
    {LIGI_SERVED_CLEAR_STAMPS, "a"}, {LIGI_SERVED_SHUTDOWN, "a"},
    {LIGI_SERVED_CANCEL, "rpwoa"},   {LIGI_SERVED_NEED, ""},
    {LIGI_SERVED_DONE, ""},          {LIGI_SERVED_DATA, "woa"},
    {LIGI_SERVED_COMMIT, "woa"},     {LIGI_SERVED_RETIRE_NOW, "woa"},
    {LIGI_SERVED_RESTORE, "woa"},
};

static const struct {
    char letter;
    ligi_served_role role;
} roles[] = {
    {'r', {.name = "reader", .kind = LIGI_ROLE_READ}},
    {'p', {.name = "partly", .kind = LIGI_ROLE_READ, .prefix = "team/"}},
    {'w', {.name = "writer", .kind = LIGI_ROLE_WRITE}},
    {'o', {.name = "owner", .kind = LIGI_ROLE_WRITE, .prefix = "team/"}},
    {'a', {.name = "admin", .kind = LIGI_ROLE_ADMIN}},
};

static const char *who_may(uint32_t op)
{
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (expected[i].op == op)
            return expected[i].who;
    return NULL;
}

static void test_every_operation_of_every_role(void **state)
{
    (void)state;
    for (uint32_t op = 1; op < LIGI_SERVED_OP_END; op++) {
        const char *who = who_may(op);
        if (who == NULL)
            fail_msg("operation '%s' has no right", ligi_served_op_name(op));
        for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
            int may = strchr(who, roles[i].letter) != NULL;
            if (ligi_rights_has(&roles[i].role, op) != may)
                fail_msg("'%s' of %s", ligi_served_op_name(op), roles[i].role.name);
            assert_int_equal(ligi_rights_check(&roles[i].role, op), may ? LIG_OK : LIG_E_DENIED);
            if (!may) {
                assert_says(roles[i].role.name);
                assert_says(ligi_served_op_name(op));
            }
        }
    }
}

static void test_what_is_not_listed_is_denied(void **state)
{
    static const uint32_t unknown[] = {0, LIGI_SERVED_OP_END, UINT32_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_status(ligi_rights_check(&roles[4].role, unknown[i]), LIG_E_DENIED);
}

static void test_names_below_the_prefix(void **state)
{
    const ligi_served_role *owner = &roles[3].role;
    (void)state;
    assert_ok(ligi_rights_check_name(owner, LIGI_SERVED_SAVE, "team/x"));
    static const char *const others[] = {"team", "teams/x", "tea", "x/team/y", "", "Team/x"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_status(ligi_rights_check_name(owner, LIGI_SERVED_SAVE, others[i]), LIG_E_DENIED);
        assert_says("'owner' (write of 'team/*') may not 'save'");
        assert_says(others[i]);
    }
    assert_ok(ligi_rights_check_name(&roles[4].role, LIGI_SERVED_SAVE, "x"));
    assert_status(ligi_rights_check_name(&roles[1].role, LIGI_SERVED_SAVE, "team/x"), LIG_E_DENIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_operation_of_every_role),
        cmocka_unit_test(test_what_is_not_listed_is_denied),
        cmocka_unit_test(test_names_below_the_prefix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
