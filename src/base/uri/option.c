#include "base/uri/option.h"

#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t unit_of(const char *text)
{
    static const struct {
        const char *name;
        int shift;
    } units[] = {{"", 0},     {"B", 0},   {"K", 10},   {"KB", 10}, {"KiB", 10},
                 {"M", 20},   {"MB", 20}, {"MiB", 20}, {"G", 30},  {"GB", 30},
                 {"GiB", 30}, {"T", 40},  {"TB", 40},  {"TiB", 40}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(text, units[i].name) == 0)
            return UINT64_C(1) << units[i].shift;
    return 0;
}

lig_status ligi_parse_bytes(const char *text, uint64_t *bytes)
{
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    uint64_t unit = end == text || text[0] == '-' || text[0] == '+' || errno ? 0 : unit_of(end);
    if (unit == 0 || number > UINT64_MAX / unit)
        return lig_fail(LIG_E_INVALID, "'%s' is not a size (a number with KiB, MiB, GiB or TiB)",
                        text);
    *bytes = (uint64_t)number * unit;
    return LIG_OK;
}

static lig_status parse_bool(const char *text, int *value)
{
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0) {
            *value = (int)(i & 1);
            return LIG_OK;
        }
    return lig_fail(LIG_E_INVALID, "'%s' is neither 0 nor 1", text);
}

static lig_status parse_int(const char *text, int64_t *value)
{
    char *end = NULL;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno)
        return lig_fail(LIG_E_INVALID, "'%s' is not an integer", text);
    *value = number;
    return LIG_OK;
}

static lig_status fill_one(const ligi_option *option, const char *text, void *into)
{
    void *at = (char *)into + option->offset;
    switch (option->kind) {
    case LIGI_OPTION_BOOL: return parse_bool(text, at);
    case LIGI_OPTION_INT: return parse_int(text, at);
    case LIGI_OPTION_BYTES: return ligi_parse_bytes(text, at);
    case LIGI_OPTION_TEXT: return ligi_strdup(at, text);
    }
    return lig_fail(LIG_E_INTERNAL, "option '%s' has an unknown type", option->name);
}

static int known(const ligi_option *table, size_t count, const char *const *also, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].name, key) == 0)
            return 1;
    for (; also && *also; also++)
        if (strcmp(*also, key) == 0)
            return 1;
    return 0;
}

static lig_status refuse_unknown(const ligi_option *table, size_t count, const char *const *also,
                                 const char *key)
{
    char names[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < count && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                 table[i].name);
    for (; also && *also && used < sizeof names; also++)
        used +=
            (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", *also);
    return lig_fail(LIG_E_INVALID, "unknown option '%s' (known: %s)", key, used ? names : "none");
}

static lig_status fill(const ligi_option *table, size_t count, const ligi_uri *uri, void *into)
{
    for (size_t i = 0; i < count; i++) {
        const char *text = ligi_uri_option_get(uri, table[i].name);
        if (text == NULL)
            text = table[i].fallback;
        if (text == NULL)
            continue;
        lig_status status = fill_one(&table[i], text, into);
        if (status == LIG_E_INVALID)
            return ligi_fail_again(LIG_E_INVALID, "option '%s': %s", table[i].name,
                                   lig_error_text());
        LIG_TRY(status);
    }
    return LIG_OK;
}

static char **text_at(const ligi_option *option, void *into)
{
    return (char **)((char *)into + option->offset);
}

lig_status ligi_options_fill(const ligi_option *table, size_t count, const ligi_uri *uri,
                             const char *const *also, void *into)
{
    for (size_t i = 0; i < uri->option_count; i++)
        if (!known(table, count, also, uri->options[i].key))
            return refuse_unknown(table, count, also, uri->options[i].key);
    for (size_t i = 0; i < count; i++)
        if (table[i].kind == LIGI_OPTION_TEXT)
            *text_at(&table[i], into) = NULL;
    lig_status status = fill(table, count, uri, into);
    if (status != LIG_OK)
        ligi_options_fini(table, count, into);
    return status;
}

void ligi_options_fini(const ligi_option *table, size_t count, void *into)
{
    for (size_t i = 0; i < count; i++) {
        if (table[i].kind != LIGI_OPTION_TEXT)
            continue;
        char **text = text_at(&table[i], into);
        free(*text);
        *text = NULL;
    }
}
