#include "store/search/name_pattern.h"

#include "store_scene.h"

static void test_table(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        int fits;
    } cases[] = {
        {"", "", 1},
        {"", "a", 0},
        {"*", "", 1},
        {"*", "a/b", 1},
        {"a*", "a", 1},
        {"a*c", "abc/c", 1},
        {"a*c", "abcd", 0},
        {"?", "a", 1},
        {"?", "\xc3\xa9", 1},
        {"??", "\xc3\xa9", 0},
        {"[abc]", "b", 1},
        {"[abc]", "d", 0},
        {"[a-c]x", "bx", 1},
        {"[!a-c]", "b", 0},
        {"[^a-c]", "d", 1},
        {"[]]", "]", 1},
        {"[a", "[a", 1},
        {"[", "[", 1},
        {"a[", "a[", 1},
        {"[\xc3\xa9]", "\xc3\xa9", 1},
        {"*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 0},
        {"m/*/[0-9]", "m/x/y/7", 1},
        {"m/*/[0-9]", "m/x/y/z", 0},
        {"*\xff", "\xff", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (ligi_pattern_fits(cases[i].pattern, cases[i].text) != cases[i].fits)
            fail_msg("'%s' and '%s'", cases[i].pattern, cases[i].text);
}

/* A slow, obvious matcher for * and ?. */
static int fits_slowly(const char *pattern, const char *text)
{
    if (*pattern == '*')
        return fits_slowly(pattern + 1, text) || (*text && fits_slowly(pattern, text + 1));
    if (*pattern == '\0')
        return *text == '\0';
    return *text && (*pattern == '?' || *pattern == *text) && fits_slowly(pattern + 1, text + 1);
}

static void test_against_slow(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int i = 0; i < 100000; i++) {
        char pattern[9] = "", text[9] = "";
        for (uint64_t j = scene_random(&seed) % 8; j-- > 0;)
            pattern[j] = "ab*?"[scene_random(&seed) % 4];
        for (uint64_t j = scene_random(&seed) % 8; j-- > 0;)
            text[j] = "ab"[scene_random(&seed) % 2];
        assert_int_equal(ligi_pattern_fits(pattern, text), fits_slowly(pattern, text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table),
                                       cmocka_unit_test(test_against_slow)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
