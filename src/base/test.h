/* Included by every cmocka test of the library. */
#ifndef LIGI_TEST_H
#define LIGI_TEST_H

#include <ligament/base.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Fails with the library's error text. */
#define assert_ok(call)                                                                            \
    do {                                                                                           \
        lig_status assert_status_ = (call);                                                        \
        if (assert_status_ != LIG_OK)                                                              \
            fail_msg("%s: %s (%s)", #call, lig_error_text(), lig_status_name(assert_status_));     \
    } while (0)

#define assert_status(call, expected)                                                              \
    assert_string_equal(lig_status_name(call), lig_status_name(expected))

/* The last error text contains `part`. */
#define assert_says(part)                                                                          \
    do {                                                                                           \
        if (strstr(lig_error_text(), part) == NULL)                                                \
            fail_msg("'%s' is not in the error text '%s'", part, lig_error_text());                \
    } while (0)

#endif
