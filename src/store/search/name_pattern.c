#include "store/search/name_pattern.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* One character of UTF-8; an invalid byte counts as a character. */
static size_t read_char(const char *text, uint32_t *out)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t bytes = at[0] < 0xC0 ? 1 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
    uint32_t value = bytes == 1 ? at[0] : at[0] & (0xFFu >> (bytes + 1));
    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            *out = at[0];
            return 1;
        }
        value = value << 6 | (at[i] & 0x3F);
    }
    *out = value;
    return bytes;
}

/* The ']' that ends the set begun at `set`, NULL when there is none. A ']' in first place is a
 * member. */
static const char *set_end(const char *set)
{
    const char *at = set + 1;
    if (*at == '!' || *at == '^')
        at++;
    return *at ? strchr(at + 1, ']') : NULL;
}

static int in_set(const char *set, const char *end, uint32_t wanted)
{
    const char *at = set + 1;
    int negated = *at == '!' || *at == '^', found = 0;
    at += negated;
    while (at < end) {
        uint32_t low, high;
        at += read_char(at, &low);
        high = low;
        if (*at == '-' && at + 1 < end)
            at += 1 + read_char(at + 1, &high);
        found |= low <= wanted && wanted <= high;
    }
    return found != negated;
}

/* Bytes of the pattern's first item when it fits the character, 0 otherwise. */
static size_t fits_one(const char *pattern, uint32_t character)
{
    if (*pattern == '?')
        return 1;
    const char *end = *pattern == '[' ? set_end(pattern) : NULL;
    if (end)
        return in_set(pattern, end, character) ? (size_t)(end - pattern) + 1 : 0;
    uint32_t wanted;
    size_t bytes = read_char(pattern, &wanted);
    return wanted == character ? bytes : 0;
}

/* On a mismatch only the last star needs to take more: no recursion, at most length times length
 * steps. */
int ligi_pattern_fits(const char *pattern, const char *text)
{
    const char *star = NULL, *retry = NULL;
    while (*text) {
        uint32_t character;
        size_t step = read_char(text, &character);
        if (*pattern == '*') {
            star = ++pattern;
            retry = text;
            continue;
        }
        size_t used = *pattern ? fits_one(pattern, character) : 0;
        if (used) {
            pattern += used;
            text += step;
            continue;
        }
        if (star == NULL)
            return 0;
        pattern = star;
        retry += read_char(retry, &character);
        text = retry;
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}
