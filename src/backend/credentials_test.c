#include "backend/credentials.h"

#include <stdio.h>

#include "base/test.h"

static void test_set_and_get(void **state)
{
    char value[64] = "before";

    (void)state;
    assert_status(ligi_credential_get("s3.access_key", value, sizeof value), LIG_E_NOTFOUND);
    assert_string_equal(value, "before");
    assert_ok(lig_credential_set("s3.access_key", "first"));
    assert_ok(lig_credential_set("s3.secret_key", "other"));
    assert_ok(lig_credential_set("s3.access_key", "second"));
    assert_ok(ligi_credential_get("s3.access_key", value, sizeof value));
    assert_string_equal(value, "second");
    assert_status(ligi_credential_get("s3.access_key", value, 6), LIG_E_NOTFOUND);
    assert_ok(lig_credential_set("s3.access_key", NULL));
    assert_status(ligi_credential_get("s3.access_key", value, sizeof value), LIG_E_NOTFOUND);
    assert_ok(lig_credential_set("s3.access_key", NULL));
    assert_ok(lig_credential_set("s3.secret_key", NULL));
}

static void test_refuses(void **state)
{
    char longer[LIG_CREDENTIAL_VALUE_MAX + 2], name[32];

    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_status(lig_credential_set("", "x"), LIG_E_INVALID);
    assert_status(lig_credential_set(NULL, "x"), LIG_E_INVALID);
    assert_status(lig_credential_set("key", "x"), LIG_E_INVALID);
    assert_status(lig_credential_set("S3.key", "x"), LIG_E_INVALID);
    assert_status(lig_credential_set("s3.access_key", "hidden\r\nx: y"), LIG_E_INVALID);
    assert_null(strstr(lig_error_text(), "hidden"));
    assert_status(lig_credential_set("s3.access_key", longer), LIG_E_INVALID);
    lig_status status = LIG_OK;
    for (int i = 0; i < 100 && status == LIG_OK; i++) {
        snprintf(name, sizeof name, "test.key%d", i);
        status = lig_credential_set(name, "x");
    }
    assert_int_equal(status, LIG_E_LIMIT);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "test.key%d", i);
        assert_ok(lig_credential_set(name, NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_and_get),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
