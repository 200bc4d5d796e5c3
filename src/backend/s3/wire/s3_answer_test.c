#include "backend/s3/wire/s3_answer.h"

#include "base/test.h"

static const ligi_engine_host host = {.fail = lig_fail};
static const ligi_s3_subject subject = {.what = "cannot read",
                                        .bucket = "models",
                                        .key = "x/pack/1",
                                        .endpoint = "http://gate:1",
                                        .region = "us-east-1"};

static ligi_s3_answer http(int status, const char *code)
{
    ligi_s3_answer answer = {.http = status};

    strncpy(answer.code, code, sizeof answer.code - 1);
    return answer;
}

static void test_verdicts(void **state)
{
    const struct {
        ligi_s3_answer answer;
        ligi_s3_verdict verdict;
        ligi_commit_reply reply;
    } cases[] = {
        {http(200, ""), LIGI_S3_DONE, LIGI_REPLY_WRITTEN},
        {http(204, ""), LIGI_S3_DONE, LIGI_REPLY_WRITTEN},
        {http(206, ""), LIGI_S3_DONE, LIGI_REPLY_WRITTEN},
        {http(301, "PermanentRedirect"), LIGI_S3_FAILED, LIGI_REPLY_REFUSED},
        {http(400, "RequestTimeout"), LIGI_S3_RETRY, LIGI_REPLY_LOST},
        {http(400, "EntityTooLarge"), LIGI_S3_FAILED, LIGI_REPLY_REFUSED},
        {http(403, "SignatureDoesNotMatch"), LIGI_S3_FAILED, LIGI_REPLY_REFUSED},
        {http(404, "NoSuchKey"), LIGI_S3_FAILED, LIGI_REPLY_REFUSED},
        {http(409, "ConditionalRequestConflict"), LIGI_S3_RETRY, LIGI_REPLY_AGAIN},
        {http(409, "OperationAborted"), LIGI_S3_RETRY, LIGI_REPLY_AGAIN},
        {http(412, "PreconditionFailed"), LIGI_S3_FAILED, LIGI_REPLY_EXISTS},
        {http(429, ""), LIGI_S3_RETRY, LIGI_REPLY_LOST},
        {http(500, "InternalError"), LIGI_S3_RETRY, LIGI_REPLY_LOST},
        {http(501, "NotImplemented"), LIGI_S3_FAILED, LIGI_REPLY_LOST},
        {http(502, ""), LIGI_S3_RETRY, LIGI_REPLY_LOST},
        {http(503, "SlowDown"), LIGI_S3_RETRY, LIGI_REPLY_LOST},
        {{.link = LIGI_S3_LINK_UNSENT}, LIGI_S3_RETRY, LIGI_REPLY_AGAIN},
        {{.link = LIGI_S3_LINK_LOST}, LIGI_S3_RETRY, LIGI_REPLY_LOST},
        {{.link = LIGI_S3_LINK_MALFORMED}, LIGI_S3_FAILED, LIGI_REPLY_LOST},
        {{.link = LIGI_S3_LINK_UNTRUSTED}, LIGI_S3_FAILED, LIGI_REPLY_REFUSED},
        {{.link = LIGI_S3_LINK_REFUSED}, LIGI_S3_FAILED, LIGI_REPLY_REFUSED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ligi_s3_answer_verdict(&cases[i].answer), cases[i].verdict);
        assert_int_equal(ligi_s3_answer_put_reply(&cases[i].answer), cases[i].reply);
    }
}

static void test_sentences(void **state)
{
    const struct {
        ligi_s3_answer answer;
        lig_status status;
        const char *part;
    } cases[] = {
        {http(403, "SignatureDoesNotMatch"), LIG_E_DENIED, "AWS_SECRET_ACCESS_KEY"},
        {http(403, "InvalidAccessKeyId"), LIG_E_DENIED, "AWS_ACCESS_KEY_ID"},
        {http(403, "RequestTimeTooSkewed"), LIG_E_DENIED, "clock"},
        {http(403, "AccessDenied"), LIG_E_DENIED, "access denied"},
        {http(400, "ExpiredToken"), LIG_E_DENIED, "AWS_SESSION_TOKEN"},
        {http(404, "NoSuchBucket"), LIG_E_NOTFOUND, "the bucket does not exist"},
        {http(404, "NoSuchKey"), LIG_E_NOTFOUND, "the object does not exist"},
        {http(403, "QuotaExceeded"), LIG_E_LIMIT, "quota"},
        {http(507, ""), LIG_E_LIMIT, "full"},
        {http(301, "PermanentRedirect"), LIG_E_INVALID, "region"},
        {http(418, "Teapot"), LIG_E_IO, "HTTP 418 Teapot"},
        {{.link = LIGI_S3_LINK_UNSENT, .message = "refused"}, LIG_E_IO, "no connection to http"},
        {{.link = LIGI_S3_LINK_LOST, .message = "reset"}, LIG_E_IO, "failed: reset"},
        {{.link = LIGI_S3_LINK_UNTRUSTED}, LIG_E_DENIED, "?ca="},
        {{.link = LIGI_S3_LINK_MALFORMED}, LIG_E_IO, "is it an S3 endpoint?"},
    };
    ligi_s3_subject anonymous = subject;
    ligi_s3_answer elsewhere = http(301, "");

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_status(ligi_s3_answer_fail(&host, &cases[i].answer, &subject), cases[i].status);
        assert_says(cases[i].part);
        assert_says("cannot read s3://models/x/pack/1: ");
    }
    anonymous.anonymous = 1;
    assert_status(ligi_s3_answer_fail(&host, &cases[3].answer, &anonymous), LIG_E_DENIED);
    assert_says("without credentials");
    memcpy(elsewhere.region, "eu-west-1", 10);
    assert_status(ligi_s3_answer_fail(&host, &elsewhere, &subject), LIG_E_INVALID);
    assert_says("'eu-west-1', but requests were signed for 'us-east-1'");
}

static void test_errors(void **state)
{
    const char *body = "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>a\nb</Message>"
                       "<Region>eu</Region><Nested><Code>no</Code></Nested></Error>";
    ligi_s3_answer answer = {0};
    char longer[200] = "<Error><Code>";

    (void)state;
    ligi_s3_answer_parse_error(&answer, body, strlen(body));
    assert_string_equal(answer.code, "NoSuchKey");
    assert_string_equal(answer.message, "a b");
    assert_string_equal(answer.region, "eu");
    answer = (ligi_s3_answer){0};
    ligi_s3_answer_parse_error(&answer, "<html>", 6);
    assert_string_equal(answer.code, "");
    memset(longer + 13, 'x', 100);
    memcpy(longer + 113, "</Code></Error>", 16);
    ligi_s3_answer_parse_error(&answer, longer, strlen(longer));
    assert_string_equal(answer.code, "");
}

static void test_pauses(void **state)
{
    ligi_s3_answer plain = {0}, asked = {.retry_after_s = 3}, much = {.retry_after_s = 100000};

    (void)state;
    for (unsigned attempt = 1; attempt < 70; attempt++)
        for (uint64_t random = 0; random < 5; random++) {
            int64_t pause = ligi_s3_answer_pause_ns(&plain, attempt, random * UINT64_MAX / 5);
            int64_t most = attempt < 10 ? INT64_C(50000000) << (attempt - 1) : INT64_C(20000000000);
            most = most < INT64_C(20000000000) ? most : INT64_C(20000000000);
            assert_true(pause >= most / 2 && pause < most);
        }
    assert_true(ligi_s3_answer_pause_ns(&asked, 1, 0) == INT64_C(3000000000));
    assert_true(ligi_s3_answer_pause_ns(&much, 1, 0) == INT64_C(20000000000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_pauses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
