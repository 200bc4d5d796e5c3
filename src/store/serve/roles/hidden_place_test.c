#include "store/serve/roles/hidden_place.h"

#include "base/test.h"

typedef struct row {
    const char *uri, *text, *shown;
} row;

static const row rows[] = {
    {"file:///srv/m", "there is no model 'a/b' in file:///srv/m",
     "there is no model 'a/b' in the store"},
    {"file:///srv/m", "cannot open /srv/m/packs/17: no such file",
     "cannot open the store/packs/17: no such file"},
    {"file:///srv/m/", "stat of /srv/m/x and file:///srv/m failed",
     "stat of the store/x and the store failed"},
    {"file:///srv/a%20b", "cannot open '/srv/a b'", "cannot open 'the store'"},
    {"/srv/m", "/srv/m is full", "the store is full"},
    {"srv/m", "srv/m/x: srv/m", "the store/x: the store"},
    {"s3://bucket/prefix", "in s3://bucket/prefix", "in the store"},
    {"s3://b/p", "s3: cannot read s3://b/p/packs/1 at http://10.0.0.1:9000: timeout",
     "s3: cannot read the store/packs/1 at the store: timeout"},
    {"s3://b/p?endpoint=https://x.example", "s3: no reply from https://x.example.",
     "s3: no reply from the store."},
    /* what only looks like it */
    {"s3://b/p", "there is no model 'team/http://x'", "there is no model 'team/http://x'"},
    {"/m", "there is no model 'team/m' in /m", "there is no model 'team/m' in the store"},
    {"/srv/m", "/srv/m2, /srv/m_3 and x/srv/m", "/srv/m2, /srv/m_3 and x/srv/m"},
    {"store", "the store is closed", "the store is closed"},
    {"/", "a/b is not c/d", "a/b is not c/d"},
};

static void test_rows(void **state)
{
    char out[LIGI_ERROR_TEXT_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ligi_served_place_hide(rows[i].text, rows[i].uri, out);
        assert_string_equal(out, rows[i].shown);
    }
}

/* A text that grows is cut off. */
static void test_long(void **state)
{
    char text[LIGI_ERROR_TEXT_BYTES], out[LIGI_ERROR_TEXT_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "/m "[i % 3];
    text[sizeof text - 1] = '\0';
    ligi_served_place_hide(text, "/m", out);
    assert_true(strlen(out) < sizeof out);
    assert_null(strstr(out, "/m"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
