#include "backend/s3/wire/s3_place.h"

#include "base/test.h"

static const ligi_engine_host host = {.fail = lig_fail};

static lig_status parse(const char *rest, const char *endpoint, const char *addressing,
                        ligi_s3_place *place)
{
    return ligi_s3_place_parse(
        &host, rest, &(ligi_s3_place_options){.endpoint = endpoint, .addressing = addressing},
        place);
}

static void test_endpoints(void **state)
{
    ligi_s3_place place;
    const struct {
        const char *endpoint, *host;
        int tls;
    } good[] = {{"http://127.0.0.1:8000", "127.0.0.1:8000", 0},
                {"https://s3.example.com/", "s3.example.com", 1},
                {"s3.example.com:443", "s3.example.com", 1},
                {"HTTP://gate:80", "gate", 0},
                {"http://gate:443", "gate:443", 0},
                {"https://[::1]:9000", "[::1]:9000", 1}};
    const char *const bad[] = {"",          "http://",  "ftp://host",  "host/path",
                               "a b",       "host:",    "host:123456", "[::1",
                               "user@host", "host?x=y", "host\r\nx:y", "http://h/x"};

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_ok(parse("//bucket/p", good[i].endpoint, NULL, &place));
        assert_string_equal(place.host, good[i].host);
        assert_int_equal(place.tls, good[i].tls);
        assert_int_equal(place.bucket_in_host, 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_status(parse("//bucket/p", bad[i], NULL, &place), LIG_E_INVALID);
}

static void test_amazon(void **state)
{
    ligi_s3_place place;
    char path[LIGI_S3_PATH_BYTES];

    (void)state;
    assert_ok(ligi_s3_place_parse(&host, "//models/a b/c//",
                                  &(ligi_s3_place_options){.region = "eu-west-1"}, &place));
    assert_string_equal(place.host, "models.s3.eu-west-1.amazonaws.com");
    assert_string_equal(place.prefix, "a b/c/");
    assert_int_equal(place.tls, 1);
    assert_true(ligi_s3_place_path(&place, "cat/1", path, sizeof path));
    assert_string_equal(path, "/a%20b/c/cat/1");
    assert_true(ligi_s3_place_path(&place, NULL, path, sizeof path));
    assert_string_equal(path, "/");
    /* A dot would not match the certificate. */
    assert_ok(parse("//my.models/x", NULL, NULL, &place));
    assert_string_equal(place.host, "s3.us-east-1.amazonaws.com");
    assert_true(ligi_s3_place_path(&place, "+", path, sizeof path));
    assert_string_equal(path, "/my.models/x/%2B");
    assert_true(ligi_s3_place_path(&place, NULL, path, sizeof path));
    assert_string_equal(path, "/my.models");
    assert_false(ligi_s3_place_path(&place, "k", path, 10));
    assert_ok(parse("//bucket", "http://gate:1", "host", &place));
    assert_string_equal(place.host, "bucket.gate:1");
    assert_string_equal(place.prefix, "");
}

static void test_refuses(void **state)
{
    ligi_s3_place place;
    char longer[700] = "//bucket/";

    (void)state;
    assert_status(parse("//", NULL, NULL, &place), LIG_E_INVALID);
    assert_status(parse("//ab/x", NULL, NULL, &place), LIG_E_INVALID);
    assert_status(parse("//buck et/x", NULL, NULL, &place), LIG_E_INVALID);
    assert_status(parse("//bucket/a/../b", NULL, NULL, &place), LIG_E_INVALID);
    assert_status(parse("//bucket/./b", NULL, NULL, &place), LIG_E_INVALID);
    assert_status(parse("//bucket/a\nb", NULL, NULL, &place), LIG_E_INVALID);
    assert_ok(parse("//bucket/a..b/...", NULL, NULL, &place));
    memset(longer + 9, 'x', sizeof longer - 10);
    assert_status(parse(longer, NULL, NULL, &place), LIG_E_LIMIT);
    assert_status(parse("//bucket/x", NULL, "both", &place), LIG_E_INVALID);
    assert_status(
        ligi_s3_place_parse(&host, "//bucket/x", &(ligi_s3_place_options){.region = "a/b"}, &place),
        LIG_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_endpoints),
        cmocka_unit_test(test_amazon),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
