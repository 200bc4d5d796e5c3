#include "params/state/request_tickets.h"

#include "base/test.h"

static void test_tickets_end_in_any_order(void **unused)
{
    (void)unused;
    ligi_request_tickets tickets = {0};
    ligi_request_ticket *three[3];
    for (int64_t i = 0; i < 3; i++) {
        assert_ok(ligi_params_tickets_begin(&tickets, 1, &three[i]));
        assert_int_equal(three[i]->number, i);
        three[i]->left = 2;
    }
    assert_false(ligi_params_tickets_has_ended(&tickets, 1));
    assert_false(ligi_params_ticket_answered(&tickets, three[1], 1));
    assert_true(ligi_params_ticket_answered(&tickets, three[1], 1));
    assert_true(ligi_params_tickets_has_ended(&tickets, 1));
    assert_int_equal(tickets.ended, 0);
    assert_true(ligi_params_ticket_answered(&tickets, three[0], 2));
    assert_int_equal(tickets.ended, 2);
    ligi_params_ticket_fail(&tickets, three[2], LIG_E_PEER, "node 7 is lost");
    assert_int_equal(tickets.ended, 3);
    assert_status(ligi_params_ticket_outcome(three[2]), LIG_E_PEER);
    assert_says("node 7");
    assert_ok(ligi_params_ticket_outcome(three[2])); /* reported once */
    assert_ok(ligi_params_ticket_outcome(three[0]));
    assert_null(ligi_params_tickets_find(&tickets, 3));
    assert_null(ligi_params_tickets_find(&tickets, -1));
    ligi_params_tickets_fini(&tickets);
}

static void test_a_full_ring_waits_for_the_oldest(void **unused)
{
    (void)unused;
    ligi_request_tickets tickets = {0};
    ligi_request_ticket *ticket, *first = NULL;
    for (uint32_t i = 0; i < LIGI_TICKETS_MAX; i++) {
        assert_ok(ligi_params_tickets_begin(&tickets, 0, &ticket));
        ticket->left = 1;
        first = first ? first : ticket;
    }
    assert_true(ligi_params_ticket_answered(&tickets, ticket, 1)); /* the youngest has ended */
    assert_status(ligi_params_tickets_begin(&tickets, 0, &ticket), LIG_E_BUSY);
    assert_true(ligi_params_ticket_answered(&tickets, first, 1));
    assert_ok(ligi_params_tickets_begin(&tickets, 0, &ticket));
    assert_ptr_equal(ticket, first);
    assert_int_equal(ticket->number, LIGI_TICKETS_MAX);
    assert_null(ligi_params_tickets_find(&tickets, 0)); /* no longer remembered, so it has ended */
    assert_true(ligi_params_tickets_has_ended(&tickets, 0));
    ligi_params_tickets_undo(&tickets, ticket);
    assert_int_equal(tickets.next, LIGI_TICKETS_MAX);
    assert_null(ligi_params_tickets_find(&tickets, LIGI_TICKETS_MAX));
    assert_ok(ligi_params_tickets_begin(&tickets, 0, &ticket));
    assert_ok(ligi_params_ticket_reserve(ticket, 100));
    ligi_params_tickets_fini(&tickets);
}

static void test_lists_are_as_many_as_tickets_are_open(void **unused)
{
    (void)unused;
    ligi_request_tickets tickets = {0};
    ligi_request_ticket *pair[2];
    size_t lists = 0;
    for (int i = 0; i < 3000; i++) { /* two are open at a time */
        assert_ok(ligi_params_tickets_begin(&tickets, 0, &pair[i % 2]));
        assert_ok(ligi_params_ticket_reserve(pair[i % 2], 100000));
        pair[i % 2]->left = 1;
        if (i > 0)
            assert_true(ligi_params_ticket_answered(&tickets, pair[(i + 1) % 2], 1));
    }
    for (size_t i = 0; i < LIGI_TICKETS_MAX; i++)
        lists += tickets.ring[i].wants != NULL;
    assert_true(lists <= 4);
    ligi_params_tickets_fini(&tickets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tickets_end_in_any_order),
        cmocka_unit_test(test_a_full_ring_waits_for_the_oldest),
        cmocka_unit_test(test_lists_are_as_many_as_tickets_are_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
