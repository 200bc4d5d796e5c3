#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/json.h"

/* Parses a copy exactly as large as the contract asks for, so that a sanitizer sees one byte more.
 */
static lig_status parse(const char *text, size_t limit, char **copy, cli_json **json)
{
    size_t bytes = strlen(text);
    *copy = malloc(bytes + 1);
    memcpy(*copy, text, bytes);
    return cli_json_parse(*copy, bytes, limit, json);
}

static void refuses(const char *text, const char *part)
{
    char *copy;
    cli_json *json = NULL;
    assert_int_not_equal(parse(text, 0, &copy, &json), LIG_OK);
    if (strstr(lig_error_text(), part) == NULL)
        fail_msg("'%s' gave: %s", text, lig_error_text());
    assert_null(json);
    free(copy);
}

static void test_values(void **state)
{
    char *copy;
    cli_json *json;
    double number;
    uint64_t whole;
    int64_t sign;
    const char *text;
    (void)state;
    assert_int_equal(parse(" {\"a\": [1, -2.5e3, true, false, null, \"x\"], \"b\": {}, \"c\": "
                           "18446744073709551615} ",
                           0, &copy, &json),
                     LIG_OK);
    const cli_json_value *root = cli_json_root(json), *a = cli_json_member(root, "a"), *at;
    assert_int_equal(root->count, 3);
    assert_int_equal(a->count, 6);
    at = cli_json_first(a);
    assert_int_equal(cli_json_to_i64(at, "one", &sign), LIG_OK);
    assert_int_equal(sign, 1);
    at = cli_json_next(a, at);
    assert_int_equal(cli_json_to_double(at, "number", &number), LIG_OK);
    assert_true(number == -2500);
    assert_int_equal(cli_json_to_i64(at, "number", &sign), LIG_E_INVALID);
    at = cli_json_next(a, at);
    assert_int_equal(at->kind, CLI_JSON_TRUE);
    at = cli_json_next(a, cli_json_next(a, cli_json_next(a, at)));
    assert_int_equal(cli_json_to_text(at, "text", &text), LIG_OK);
    assert_string_equal(text, "x");
    assert_null(cli_json_next(a, at));
    assert_null(cli_json_first(cli_json_member(root, "b")));
    assert_int_equal(cli_json_to_u64(cli_json_member(root, "c"), "c", &whole), LIG_OK);
    assert_true(whole == UINT64_MAX);
    assert_int_equal(cli_json_to_u64(cli_json_member(root, "d"), "d", &whole), LIG_E_INVALID);
    assert_non_null(strstr(lig_error_text(), "d is missing"));
    cli_json_destroy(json);
    free(copy);
}

static void test_strings(void **state)
{
    char *copy;
    cli_json *json;
    (void)state;
    assert_int_equal(
        parse("[\"\\u0041\\n\\/\\\\\\\"\\u00fc\\ud83d\\ude00\xc3\xbc\", \"\"]", 0, &copy, &json),
        LIG_OK);
    const cli_json_value *at = cli_json_first(cli_json_root(json));
    assert_string_equal(at->text, "A\n/\\\"\xc3\xbc\xf0\x9f\x98\x80\xc3\xbc");
    assert_int_equal(at->bytes, strlen(at->text));
    assert_string_equal(cli_json_next(cli_json_root(json), at)->text, "");
    cli_json_destroy(json);
    free(copy);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "unexpected end of text"},
        {"[1,]", "expected a value"},
        {"[1 2]", "',' or ']'"},
        {"{\"a\" 1}", "expected ':'"},
        {"{\"a\": 1,}", "a key in quotes"},
        {"{a: 1}", "a key in quotes"},
        {"[1", "unterminated array"},
        {"{\"a\": 1", "unterminated object"},
        {"\"abc", "unterminated string"},
        {"\"a\\", "unterminated string"},
        {"\"\\x\"", "unknown escape"},
        {"\"\\u12\"", "four hexadecimal"},
        {"\"\\ud800\"", "surrogate"},
        {"\"\\udc00\\ud800\"", "surrogate"},
        {"\"\\u0000\"", "NUL"},
        {"\"\xff\"", "UTF-8"},
        {"\"\xc0\xaf\"", "UTF-8"},
        {"\"\xed\xa0\x80\"", "UTF-8"},
        {"\"a\tb\"", "control character"},
        {"01", "expected a value"},
        {"-", "expected a value"},
        {"1.", "after the decimal point"},
        {"1e+", "exponent"},
        {"nul", "expected a value"},
        {"truefalse", "after the end"},
        {"1 1", "after the end"},
        {"[\n1,\n  ?]", "line 3, column 3"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuses(cases[i].text, cases[i].part);
}

static void test_limits(void **state)
{
    char deep[2 * CLI_JSON_DEPTH_MAX + 3], *copy;
    cli_json *json = NULL;
    (void)state;
    memset(deep, '[', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    refuses(deep, "too deeply");
    for (int i = 0; i < CLI_JSON_DEPTH_MAX; i++) {
        deep[i] = '[';
        deep[CLI_JSON_DEPTH_MAX + i] = ']';
    }
    deep[2 * CLI_JSON_DEPTH_MAX] = '\0';
    assert_int_equal(parse(deep, 0, &copy, &json), LIG_OK);
    cli_json_destroy(json);
    free(copy);
    assert_int_equal(parse("[1,2,3]", 3, &copy, &json), LIG_E_LIMIT);
    free(copy);
    assert_int_equal(parse("[1,2,3]", 4, &copy, &json), LIG_OK);
    cli_json_destroy(json);
    free(copy);
    assert_int_equal(parse("[1e999, 99999999999999999999]", 0, &copy, &json), LIG_OK);
    double number;
    uint64_t whole;
    const cli_json_value *at = cli_json_first(cli_json_root(json));
    assert_int_equal(cli_json_to_double(at, "x", &number), LIG_E_INVALID);
    assert_int_equal(cli_json_to_u64(cli_json_next(cli_json_root(json), at), "x", &whole),
                     LIG_E_INVALID);
    cli_json_destroy(json);
    free(copy);
}

#define FFFD "\xef\xbf\xbd"

/* What the writer writes, the parser reads. */
static void test_writer(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    double number;
    cli_json *json;
    (void)state;
    FILE *file = open_memstream(&text, &bytes);
    cli_json_writer writer = {.file = file};
    cli_json_open(&writer, NULL, '{');
    cli_json_put_text(&writer, "odd \"key\"\n", "\x01\x1b[31m\x7f\xc3\xbc\xff");
    /* An overlong form, a surrogate and a code above U+10FFFF are not UTF-8 either. */
    cli_json_put_text(&writer, "invalid", "\xe0\x80\xaf-\xed\xa0\x80-\xf4\x90\x80\x80");
    cli_json_put_double(&writer, "third", 1.0 / 3);
    cli_json_put_double(&writer, "nan", strtod("nan", NULL));
    cli_json_open(&writer, "empty", '[');
    cli_json_close(&writer, ']');
    cli_json_put_i64(&writer, "least", INT64_MIN);
    cli_json_close(&writer, '}');
    putc(0, file);
    fclose(file);
    assert_int_equal(cli_json_parse(text, bytes - 1, 0, &json), LIG_OK);
    const cli_json_value *root = cli_json_root(json);
    assert_string_equal(cli_json_first(root)->key, "odd \"key\"\n");
    assert_string_equal(cli_json_first(root)->text, "\x01\x1b[31m\x7f\xc3\xbc\xef\xbf\xbd");
    assert_string_equal(cli_json_member(root, "invalid")->text,
                        FFFD FFFD FFFD "-" FFFD FFFD FFFD "-" FFFD FFFD FFFD FFFD);
    assert_int_equal(cli_json_to_double(cli_json_member(root, "third"), "third", &number), LIG_OK);
    assert_true(number == 1.0 / 3);
    assert_int_equal(cli_json_member(root, "nan")->kind, CLI_JSON_NULL);
    cli_json_destroy(json);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),   cmocka_unit_test(test_strings),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
