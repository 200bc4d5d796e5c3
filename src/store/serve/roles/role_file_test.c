#include "store/serve/roles/role_file.h"

#include "base/test.h"
#include "net/secure/secret_memory.h"

#define K1 "0123456789abcdef0123456789abcdef"
#define K2 "fedcba9876543210fedcba9876543210"

static lig_status parse(const char *text, ligi_served_role_file *file)
{
    char *copy = NULL;
    assert_ok(ligi_secret_memory_alloc(&copy, strlen(text) + 1, "a test"));
    memcpy(copy, text, strlen(text) + 1);
    return ligi_served_role_file_parse("roles", copy, file);
}

static void test_lines_are_roles(void **state)
{
    static const char text[] =
        "# comment\n\nroot admin " K1 "\n  alice\twrite " K2 " team/a/* \r\nbob read " K1 K2
        " team/*\ncarol read " K2 K1 "\ndave write " K1 K1 "\nerin write " K2 K2 " *\n";
    static const struct {
        const char *name, *prefix;
        ligi_served_role_kind kind;
    } expected[] = {{"root", "", LIGI_ROLE_ADMIN},      {"alice", "team/a/", LIGI_ROLE_WRITE},
                    {"bob", "team/", LIGI_ROLE_READ},   {"carol", "", LIGI_ROLE_READ},
                    {"dave", "dave/", LIGI_ROLE_WRITE}, {"erin", "", LIGI_ROLE_WRITE}};
    ligi_served_role_file file;
    (void)state;
    assert_ok(parse(text, &file));
    assert_int_equal(file.count, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < file.count; i++) {
        assert_string_equal(file.lines[i].role.name, expected[i].name);
        assert_string_equal(file.lines[i].role.prefix, expected[i].prefix);
        assert_int_equal(file.lines[i].role.kind, expected[i].kind);
    }
    assert_int_equal(file.lines[0].key_bytes, strlen(K1));
    assert_memory_equal(file.lines[0].key, K1, strlen(K1));
    ligi_served_role_file_fini(&file);
}

static void test_a_single_secret_is_an_admin(void **state)
{
    static const struct {
        const char *text, *name, *key;
    } cases[] = {{K1, "", K1},
                 {"ci " K1, "ci", K1},
                 {"# made by openssl rand -hex 32\n\n  " K1 " \n# the end", "", K1},
                 {"several words that are one secret", "", "several words that are one secret"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ligi_served_role_file file;
        assert_ok(parse(cases[i].text, &file));
        assert_int_equal(file.count, 1);
        assert_int_equal(file.lines[0].role.kind, LIGI_ROLE_ADMIN);
        assert_string_equal(file.lines[0].role.name, cases[i].name);
        assert_int_equal(file.lines[0].key_bytes, strlen(cases[i].key));
        assert_memory_equal(file.lines[0].key, cases[i].key, strlen(cases[i].key));
        ligi_served_role_file_fini(&file);
    }
}

static void test_what_is_wrong_is_named_by_its_line(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"a read " K1 "\nb reads " K2, "line 2"},
        {"a read " K1 "\n\n\nb read short", "line 4"},
        {"a read " K1 " x", "prefix"},
        {"a read " K1 " /*", "prefix"},
        {"a read " K1 " x*y/*", "prefix"},
        {"a read " K1 " /x/*", "prefix"},
        {"a admin " K1 " x/*", "admin"},
        {"a read " K1 " x/* more", "expected"},
        {"a/b read " K1, "name"},
        {"a read " K1 "\na write " K2, "twice"},
        {"a read " K1 "\nb write " K1, "same key"},
        {"short", "bytes"},
        {"", "no key"},
        {"# a comment that is longer than the shortest key", "no key"},
        {"a reads " K1, "with the role read"},
        {"a Read " K1 " team/*", "with the role read"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ligi_served_role_file file;
        assert_status(parse(cases[i].text, &file), LIG_E_INVALID);
        assert_says(cases[i].says);
        assert_null(strstr(lig_error_text(), K1));
    }
}

/* A session ends when its role's number is gone. */
static void test_roles_keep_their_numbers(void **state)
{
    ligi_served_role_file none = {0}, before, after;
    uint64_t next = 1;
    (void)state;
    assert_ok(parse("a read " K1 "\nb write " K2 "\nc read " K1 K1, &before));
    ligi_served_role_file_number(&before, &none, &next);
    assert_ok(parse("d read " K2 K2 "\nb write " K2 "\na read " K1 " x/*\nc read " K2 K1, &after));
    ligi_served_role_file_number(&after, &before, &next);
    assert_int_equal(after.lines[1].role.tag, before.lines[1].role.tag);
    for (size_t i = 0; i < after.count; i++)
        if (i != 1)
            assert_true(after.lines[i].role.tag > before.lines[2].role.tag);
    assert_string_equal(ligi_served_role_file_find(&after, before.lines[1].role.tag)->name, "b");
    assert_null(ligi_served_role_file_find(&after, before.lines[0].role.tag));
    assert_null(ligi_served_role_file_find(&after, 0));
    ligi_served_role_file_fini(&before);
    ligi_served_role_file_fini(&after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_roles),
        cmocka_unit_test(test_a_single_secret_is_an_admin),
        cmocka_unit_test(test_what_is_wrong_is_named_by_its_line),
        cmocka_unit_test(test_roles_keep_their_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
