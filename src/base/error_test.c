#include "base/error.h"
#include "base/log.h"
#include "base/test.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void sentence_is_set_and_cut(void **state)
{
    (void)state;
    assert_int_equal(lig_fail(LIG_E_BUSY, "held by %s %d", "peer", 7), LIG_E_BUSY);
    assert_string_equal(lig_error_text(), "held by peer 7");
    char longer[3000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    lig_fail(LIG_E_INVALID, "%s", longer);
    assert_int_equal(strlen(lig_error_text()), LIGI_ERROR_TEXT_BYTES - 1);
}

static void sentence_may_quote_itself(void **state)
{
    (void)state;
    lig_fail(LIG_E_IO, "inner");
    lig_fail(LIG_E_IO, "outer: %s", lig_error_text());
    assert_string_equal(lig_error_text(), "outer: inner");
}

static void errno_chooses_the_status(void **state)
{
    (void)state;
    assert_int_equal(ligi_fail_errno(ENOSPC, "writing '%s'", "a"), LIG_E_IO);
    assert_int_equal(lig_error_number(), ENOSPC);
    assert_says("writing 'a': No space left");
    assert_int_equal(ligi_fail_errno(EACCES, "x"), LIG_E_DENIED);
    assert_int_equal(ligi_fail_errno(ENOMEM, "x"), LIG_E_NOMEM);
    lig_fail(LIG_E_INVALID, "no errno here");
    assert_int_equal(lig_error_number(), 0);
}

static void *fail_elsewhere(void *failure)
{
    lig_fail(LIG_E_CORRUPT, "seen on another thread");
    ligi_failure_take(failure, LIG_E_CORRUPT);
    return NULL;
}

static void failure_moves_between_threads(void **state)
{
    (void)state;
    lig_fail(LIG_E_INVALID, "mine");
    ligi_failure failure;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &failure), 0);
    pthread_join(thread, NULL);
    assert_string_equal(lig_error_text(), "mine");
    assert_int_equal(ligi_failure_publish(&failure), LIG_E_CORRUPT);
    assert_string_equal(lig_error_text(), "seen on another thread");
}

static void every_status_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i <= LIG_E_INTERNAL; i++)
        assert_string_not_equal(lig_status_name((lig_status)i), "unknown");
    assert_string_equal(lig_status_name((lig_status)99), "unknown");
    assert_string_equal(lig_version(), "0.1.0");
}

static void growing_keeps_and_refuses(void **state)
{
    (void)state;
    int *numbers = NULL;
    size_t capacity = 0;
    for (int i = 0; i < 1000; i++) {
        assert_ok(ligi_grow(&numbers, &capacity, (size_t)i + 1, sizeof *numbers, "numbers"));
        numbers[i] = i;
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(numbers[i], i);
    assert_status(ligi_grow(&numbers, &capacity, SIZE_MAX / 2, sizeof *numbers, "numbers"),
                  LIG_E_NOMEM);
    assert_says("numbers");
    free(numbers);
}

static void keep_line(void *context, lig_log_level level, const char *text)
{
    (void)level;
    snprintf(context, 64, "%s", text);
}

/* A name that a peer chose must not look like a message of its own. */
static void a_message_is_one_line(void **state)
{
    char line[64] = "";
    (void)state;
    lig_log_set(keep_line, line);
    ligi_log(LIG_LOG_INFO, "no '%s'", "a\nligament: error: \x1b[2J\x7f\xc3\xa4");
    lig_log_set(NULL, NULL);
    assert_string_equal(line, "no 'a?ligament: error: ?[2J?\xc3\xa4'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_one_line),         cmocka_unit_test(sentence_is_set_and_cut),
        cmocka_unit_test(sentence_may_quote_itself),     cmocka_unit_test(errno_chooses_the_status),
        cmocka_unit_test(failure_moves_between_threads), cmocka_unit_test(every_status_has_a_name),
        cmocka_unit_test(growing_keeps_and_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
