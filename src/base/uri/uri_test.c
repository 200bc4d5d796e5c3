#include "base/test.h"
#include "base/uri/option.h"

static void parses_as(const char *text, const char *scheme, const char *rest)
{
    ligi_uri uri;
    assert_ok(ligi_uri_parse(&uri, text));
    assert_string_equal(uri.scheme, scheme);
    assert_string_equal(uri.rest, rest);
    ligi_uri_fini(&uri);
}

static void places_are_found(void **state)
{
    (void)state;
    parses_as("/a/b", "file", "/a/b");
    parses_as("a b/%20c", "file", "a b/%20c");
    parses_as("C:/x", "file", "C:/x");
    parses_as("file:///a/b", "file", "/a/b");
    parses_as("file://localhost/a", "file", "/a");
    parses_as("file:a/b", "file", "a/b");
    parses_as("FILE:/a%20b", "file", "/a b");
    parses_as("mem:", "mem", "");
    parses_as("mem:x", "mem", "x");
    parses_as("rados://pool/prefix?conf=/etc/c", "rados", "//pool/prefix");
    parses_as("what?ever", "file", "what?ever");
    parses_as("dir?mode=r", "file", "dir");
    parses_as("./x:y", "file", "./x:y");
}

static void options_are_decoded(void **state)
{
    (void)state;
    ligi_uri uri;
    assert_ok(ligi_uri_parse(&uri, "mem:x?a=1&b=x%26y&c&d="));
    assert_int_equal(uri.option_count, 4);
    assert_string_equal(ligi_uri_option_get(&uri, "a"), "1");
    assert_string_equal(ligi_uri_option_get(&uri, "b"), "x&y");
    assert_string_equal(ligi_uri_option_get(&uri, "c"), "1");
    assert_string_equal(ligi_uri_option_get(&uri, "d"), "");
    assert_null(ligi_uri_option_get(&uri, "e"));
    ligi_uri_fini(&uri);
}

static void bad_uris_are_refused(void **state)
{
    (void)state;
    ligi_uri uri;
    assert_status(ligi_uri_parse(&uri, ""), LIG_E_INVALID);
    assert_status(ligi_uri_parse(&uri, "file://host/x"), LIG_E_INVALID);
    assert_says("file:///host/x");
    assert_status(ligi_uri_parse(&uri, "mem:%zz"), LIG_E_INVALID);
    assert_status(ligi_uri_parse(&uri, "mem:a%0"), LIG_E_INVALID);
    assert_status(ligi_uri_parse(&uri, "mem:a%00b"), LIG_E_INVALID);
    assert_status(ligi_uri_parse(&uri, "mem:?=1"), LIG_E_INVALID);
    assert_status(ligi_uri_parse(&uri, "mem:?a=1&a=2"), LIG_E_INVALID);
    assert_says("duplicate option 'a'");
    char longer[LIGI_URI_BYTES_MAX + 10];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_status(ligi_uri_parse(&uri, longer), LIG_E_LIMIT);
}

struct settings {
    int fast;
    int64_t depth;
    uint64_t cache;
    char *mode, *note;
};

static const ligi_option table[] = {
    {"fast", LIGI_OPTION_BOOL, "1", "", offsetof(struct settings, fast)},
    {"depth", LIGI_OPTION_INT, "-4", "", offsetof(struct settings, depth)},
    {"cache", LIGI_OPTION_BYTES, "64MiB", "", offsetof(struct settings, cache)},
    {"mode", LIGI_OPTION_TEXT, "a", "", offsetof(struct settings, mode)},
    {"note", LIGI_OPTION_TEXT, NULL, "", offsetof(struct settings, note)},
};
#define TABLE table, sizeof table / sizeof *table

static lig_status fill(struct settings *into, const char *text)
{
    static const char *const also[] = {"retry", NULL};
    ligi_uri uri;
    assert_ok(ligi_uri_parse(&uri, text));
    lig_status status = ligi_options_fill(TABLE, &uri, also, into);
    ligi_uri_fini(&uri);
    return status;
}

static void options_fill_a_struct(void **state)
{
    (void)state;
    struct settings into;
    assert_ok(fill(&into, "mem:?cache=3K&fast=no&retry=9"));
    assert_int_equal(into.fast, 0);
    assert_int_equal(into.depth, -4);
    assert_true(into.cache == 3072);
    assert_string_equal(into.mode, "a");
    assert_null(into.note);
    ligi_options_fini(TABLE, &into);
    assert_status(fill(&into, "mem:?chache=1"), LIG_E_INVALID);
    assert_says("known: fast, depth, cache, mode, note, retry");
    assert_status(fill(&into, "mem:?mode=r&cache=-1"), LIG_E_INVALID);
    assert_says("option 'cache'");
    assert_status(fill(&into, "mem:?depth=1x"), LIG_E_INVALID);
    assert_status(fill(&into, "mem:?fast=maybe"), LIG_E_INVALID);
}

static void sizes_are_parsed(void **state)
{
    (void)state;
    uint64_t bytes;
    assert_ok(ligi_parse_bytes("16MiB", &bytes));
    assert_true(bytes == UINT64_C(16) << 20);
    assert_ok(ligi_parse_bytes("0", &bytes));
    assert_status(ligi_parse_bytes("99999999999T", &bytes), LIG_E_INVALID);
    assert_status(ligi_parse_bytes("", &bytes), LIG_E_INVALID);
    assert_status(ligi_parse_bytes("5 MiB", &bytes), LIG_E_INVALID);
    assert_status(ligi_parse_bytes("999999999999999999999999", &bytes), LIG_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_found),     cmocka_unit_test(options_are_decoded),
        cmocka_unit_test(bad_uris_are_refused), cmocka_unit_test(options_fill_a_struct),
        cmocka_unit_test(sizes_are_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
