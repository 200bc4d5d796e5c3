#include "backend/s3/wire/s3_sign.h"

#include "backend/s3/client/s3_load.h"
#include "backend/s3/wire/s3_text.h"
#include "base/test.h"

static const ligi_engine_host host = {.fail = lig_fail};

static ligi_s3_digest digests(void)
{
    const ligi_s3_calls *calls;

    assert_ok(ligi_s3_load(&host, &calls));
    return ligi_s3_digests(calls);
}

static const ligi_s3_signing example = {.method = "GET",
                                        .path = "/test.txt",
                                        .query = "",
                                        .access_key = "AKIAIOSFODNN7EXAMPLE",
                                        .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                        .region = "us-east-1",
                                        .date = "20130524T000000Z"};
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SCOPE "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"

/* The examples of Amazon's documentation ("Signature Calculations for the Authorization
 * Header"). */
static void test_documented(void **state)
{
    const ligi_s3_header get[] = {{"host", "examplebucket.s3.amazonaws.com"},
                                  {"range", "bytes=0-9"},
                                  {"x-amz-content-sha256", EMPTY},
                                  {"x-amz-date", "20130524T000000Z"}};
    const ligi_s3_header list[] = {get[0], get[2], get[3]};
    ligi_s3_digest digest = digests();
    char text[LIGI_S3_AUTHORIZATION_BYTES];
    ligi_s3_signing request = example;

    (void)state;
    request.headers = get;
    request.header_count = 4;
    request.payload = EMPTY;
    assert_true(ligi_s3_sign(&digest, &request, text));
    assert_string_equal(text, SCOPE
                        ", SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, Signature="
                        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    request.path = "/";
    request.query = "lifecycle=";
    request.headers = list;
    request.header_count = 3;
    assert_true(ligi_s3_sign(&digest, &request, text));
    assert_non_null(
        strstr(text, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
    request.query = "max-keys=2&prefix=J";
    assert_true(ligi_s3_sign(&digest, &request, text));
    assert_non_null(
        strstr(text, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

static void test_limits(void **state)
{
    static char longer[20000];
    const ligi_s3_header one[] = {{"host", "h"}};
    ligi_s3_digest digest = digests();
    char text[LIGI_S3_AUTHORIZATION_BYTES];
    ligi_s3_signing request = example;

    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    request.headers = one;
    request.header_count = 1;
    request.payload = EMPTY;
    request.path = longer;
    assert_false(ligi_s3_sign(&digest, &request, text));
    request.path = "/";
    request.secret_key = longer;
    assert_false(ligi_s3_sign(&digest, &request, text));
    request.secret_key = "x";
    request.access_key = longer;
    assert_false(ligi_s3_sign(&digest, &request, text));
    request.access_key = "x";
    request.date = "";
    assert_false(ligi_s3_sign(&digest, &request, text));
}

static void test_text(void **state)
{
    char memory[16], date[LIGI_S3_DATE_BYTES];
    ligi_s3_text text = ligi_s3_text_over(memory, sizeof memory);

    (void)state;
    ligi_s3_text_encode(&text, "a/b c+\xC3\xA9", 1);
    assert_string_equal(memory, "a/b%20c%2B%C3");
    assert_true(text.full);
    text = ligi_s3_text_over(memory, sizeof memory);
    ligi_s3_text_encode(&text, "a/b~-._", 0);
    assert_string_equal(memory, "a%2Fb~-._");
    assert_false(text.full);
    ligi_s3_text_format(&text, "%s", "0123456");
    assert_true(text.full);
    assert_string_equal(memory, "a%2Fb~-._");
    ligi_s3_date_text(INT64_C(1369353600) * 1000000000 + 999999999, date);
    assert_string_equal(date, "20130524T000000Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documented),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
