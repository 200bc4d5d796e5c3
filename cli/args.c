#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const cli_flag common_flags[] = {
    {"json", 0, NULL, "print JSON"},
    {"help", 'h', NULL, "print this help"},
    {NULL, 0, NULL, NULL},
};

/* --- memory and failures
 * ------------------------------------------------------------------------------------------ */

lig_status cli_alloc(void *out, size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size > 0 ? size : 1);
    if (memory == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory: %zu elements of %zu bytes", count, size);
    memcpy(out, &memory, sizeof memory);
    return LIG_OK;
}

lig_status cli_format(char **out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = NULL;
    int bytes = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (bytes < 0)
        return lig_fail(LIG_E_NOMEM, "out of memory for a string");
    *out = text;
    return LIG_OK;
}

lig_status cli_text_open(cli_text *text)
{
    *text = (cli_text){0};
    text->file = open_memstream(&text->data, &text->bytes);
    return text->file != NULL ? LIG_OK : lig_fail(LIG_E_NOMEM, "out of memory for a string");
}

lig_status cli_text_close(cli_text *text, lig_status status)
{
    int failed = ferror(text->file);
    failed |= fclose(text->file);
    if (failed && status == LIG_OK)
        status = lig_fail(LIG_E_NOMEM, "out of memory for a string");
    if (status != LIG_OK) {
        free(text->data);
        text->data = NULL;
    }
    return status;
}

lig_status cli_fail_path(const char *path, const char *verb)
{
    int number = errno;
    lig_status status = number == ENOENT || number == ENOTDIR                    ? LIG_E_NOTFOUND
                        : number == EACCES || number == EPERM || number == EROFS ? LIG_E_DENIED
                                                                                 : LIG_E_IO;
    return lig_fail(status, "cannot %s '%s': %s", verb, path, strerror(number));
}

int cli_failed(void)
{
    fflush(stdout);
    fputs("ligament: ", stderr);
    cli_put_escaped(stderr, lig_error_text());
    putc('\n', stderr);
    return 1;
}

lig_status cli_wrong(const cli_call *call, lig_status status)
{
    *call->misused = 1;
    return status;
}

int cli_misused(const cli_call *call, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("ligament: ", stderr);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; see 'ligament %s --help'\n", call->command->name);
    return 2;
}

/* --- flags ----------------------------------------------------------------------------------- */

static const cli_flag *find_flag(const cli_command *command, const char *name, size_t bytes,
                                 char letter)
{
    const cli_flag *const tables[] = {command->flags, common_flags};
    for (size_t t = 0; t < 2; t++) {
        for (const cli_flag *flag = tables[t]; flag != NULL && flag->name != NULL; flag++)
            if (name != NULL ? strlen(flag->name) == bytes && memcmp(flag->name, name, bytes) == 0
                             : flag->letter == letter)
                return flag;
    }
    return NULL;
}

static int give(cli_call *call, const cli_flag *flag, const char *value)
{
    if (strcmp(flag->name, "json") == 0)
        call->json = 1;
    if (flag == &common_flags[1]) {
        cli_help(stdout, call->command);
        return -1;
    }
    call->given[call->given_count++] = (cli_given){flag, value};
    return 0;
}

/* --name, --name=value, --name value */
static int take_long(cli_call *call, const char *word, const char *next, int *used_next)
{
    size_t bytes = strcspn(word, "=");
    const cli_flag *flag = find_flag(call->command, word, bytes, 0);
    if (flag == NULL)
        return cli_misused(call, "unknown option '--%.*s' for '%s'", (int)bytes, word,
                           call->command->name);
    if (flag->value == NULL)
        return word[bytes] == '='
                   ? cli_misused(call, "option '--%s' does not take a value", flag->name)
                   : give(call, flag, NULL);
    if (word[bytes] == '=')
        return give(call, flag, word + bytes + 1);
    if (next == NULL)
        return cli_misused(call, "option '--%s' requires a value (%s)", flag->name, flag->value);
    *used_next = 1;
    return give(call, flag, next);
}

/* -x, -xy, -nvalue, -n value */
static int take_short(cli_call *call, const char *word, const char *next, int *used_next)
{
    for (const char *at = word; *at != '\0'; at++) {
        const cli_flag *flag = find_flag(call->command, NULL, 0, *at);
        int status;
        if (flag == NULL)
            return cli_misused(call, "unknown option '-%c' for '%s'", *at, call->command->name);
        if (flag->value != NULL && at[1] != '\0')
            return give(call, flag, at + 1);
        if (flag->value != NULL && next == NULL)
            return cli_misused(call, "option '-%c' requires a value (%s)", *at, flag->value);
        *used_next = flag->value != NULL;
        status = give(call, flag, flag->value != NULL ? next : NULL);
        if (status != 0)
            return status;
    }
    return 0;
}

static int take_words(cli_call *call, int argc, char **argv)
{
    int plain = 0, status = 0;
    for (int i = 0; i < argc && status == 0; i++) {
        const char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        int used_next = 0;
        if (!plain && strcmp(word, "--") == 0)
            plain = 1;
        else if (!plain && word[0] == '-' && word[1] == '-')
            status = take_long(call, word + 2, next, &used_next);
        else if (!plain && word[0] == '-' && word[1] != '\0')
            status = take_short(call, word + 1, next, &used_next);
        else
            call->words[call->word_count++] = word;
        i += used_next;
    }
    return status;
}

int cli_call_parse(cli_call *call, const cli_command *command, int argc, char **argv)
{
    size_t letters = 1;
    for (int i = 0; i < argc; i++)
        letters += strlen(argv[i]) + 1; /* a word of combined short flags yields one flag per
                                         * letter */
    *call = (cli_call){.command = command};
    if (cli_alloc(&call->words, (size_t)argc + 1, sizeof *call->words) != LIG_OK ||
        cli_alloc(&call->given, letters, sizeof *call->given) != LIG_OK) {
        cli_call_fini(call);
        return cli_failed();
    }
    int status = take_words(call, argc, argv);
    if (status == 0 && call->word_count < command->word_min)
        status = cli_misused(call, "missing arguments: usage is 'ligament %s %s'", command->name,
                             command->usage);
    if (status == 0 && call->word_count > command->word_max)
        status = cli_misused(call, "unexpected argument '%s'", call->words[command->word_max]);
    if (status != 0)
        cli_call_fini(call);
    return status;
}

void cli_call_fini(cli_call *call)
{
    free(call->words);
    free(call->given);
    call->words = NULL;
    call->given = NULL;
}

static void print_flags(FILE *file, const cli_command *command, const cli_flag *flags)
{
    for (; flags != NULL && flags->name != NULL; flags++) {
        char left[80], letter[8] = "    ";
        if (find_flag(command, flags->name, strlen(flags->name), 0) != flags)
            continue; /* the command describes it differently */
        if (flags->letter != 0)
            snprintf(letter, sizeof letter, "-%c, ", flags->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, flags->name, flags->value ? " " : "",
                 flags->value ? flags->value : "");
        fprintf(file, "  %-24s %s\n", left, flags->help);
    }
}

void cli_help(FILE *file, const cli_command *command)
{
    fprintf(file, "Usage: ligament %s %s\n\n%s.\n", command->name, command->usage,
            command->summary);
    if (command->details != NULL)
        fprintf(file, "\n%s\n", command->details);
    fputs("\nOptions:\n", file);
    print_flags(file, command, command->flags);
    print_flags(file, command, common_flags);
}

/* --- values ---------------------------------------------------------------------------------- */

const char *cli_value_next(const cli_call *call, const char *flag, size_t *at)
{
    while (*at < call->given_count) {
        const cli_given *given = &call->given[(*at)++];
        if (strcmp(given->flag->name, flag) == 0)
            return given->value != NULL ? given->value : "";
    }
    return NULL;
}

const char *cli_value(const cli_call *call, const char *flag)
{
    const char *last = NULL, *value;
    for (size_t at = 0; (value = cli_value_next(call, flag, &at)) != NULL;)
        last = value;
    return last;
}

int cli_has(const cli_call *call, const char *flag)
{
    return cli_value(call, flag) != NULL;
}

lig_status cli_once(const cli_call *call, const char *flag)
{
    size_t at = 0;
    const char *first = cli_value_next(call, flag, &at);
    const char *second = first != NULL ? cli_value_next(call, flag, &at) : NULL;
    if (second == NULL)
        return LIG_OK;
    return cli_wrong(call, lig_fail(LIG_E_INVALID, "--%s has two values: '%s' and '%s' (pass one)",
                                    flag, first, second));
}

lig_status cli_number(const cli_call *call, const char *flag, uint64_t least, uint64_t most,
                      uint64_t *number)
{
    const char *text = cli_value(call, flag);
    char *end;
    if (text == NULL)
        return LIG_OK;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < least ||
        value > most)
        return cli_wrong(
            call, lig_fail(LIG_E_INVALID,
                           "invalid value for --%s: '%s' (expected an integer from %llu to %llu)",
                           flag, text, (unsigned long long)least, (unsigned long long)most));
    *number = value;
    return LIG_OK;
}

lig_status cli_bytes(const cli_call *call, const char *flag, uint64_t *bytes)
{
    const char *text = cli_value(call, flag);
    return text ? cli_bytes_text(call, flag, text, bytes) : LIG_OK;
}

lig_status cli_bytes_text(const cli_call *call, const char *flag, const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    const char *unit;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    unit = *end != '\0' ? strchr(units, *end) : NULL;
    int shift = unit != NULL ? 10 * (int)(unit - units + 1) : 0;
    end += unit != NULL;
    if (text[0] < '0' || text[0] > '9' || errno != 0 || value == 0 || value > UINT64_MAX >> shift ||
        (*end != '\0' && strcmp(end, "B") != 0 && strcmp(end, "iB") != 0))
        return cli_wrong(
            call, lig_fail(LIG_E_INVALID,
                           "invalid value for --%s: '%s' (expected a size such as 500M or 5G)",
                           flag, text));
    *bytes = (uint64_t)value << shift;
    return LIG_OK;
}

/* "name=value" with the '=' replaced by a NUL; the command line may be modified. */
static lig_status cut_pair(const char *flag, const char *text, const char **name,
                           const char **value)
{
    char *equals = strchr(text, '=');
    if (equals == NULL || equals == text)
        return lig_fail(LIG_E_INVALID, "invalid value for --%s: '%s' (expected NAME=VALUE)", flag,
                        text);
    *equals = '\0';
    *name = text;
    *value = equals + 1;
    return LIG_OK;
}

/* The last of the pairs must not have the name of another. */
static lig_status refuse_repeated(const char *flag, const lig_tag *pairs, size_t last)
{
    for (size_t i = 0; i < last; i++)
        if (strcmp(pairs[i].name, pairs[last].name) == 0)
            return lig_fail(LIG_E_INVALID, "--%s has two values for '%s': '%s' and '%s' (pass one)",
                            flag, pairs[i].name, pairs[i].value, pairs[last].value);
    return LIG_OK;
}

lig_status cli_tags(const cli_call *call, const char *flag, lig_tag **tags, size_t *count)
{
    lig_tag *list;
    const char *text;
    size_t used = 0;
    LIG_TRY(cli_alloc(&list, call->given_count, sizeof *list));
    for (size_t at = 0; (text = cli_value_next(call, flag, &at)) != NULL; used++) {
        lig_status status = cut_pair(flag, text, &list[used].name, &list[used].value);
        if (status == LIG_OK)
            status = refuse_repeated(flag, list, used);
        if (status != LIG_OK) {
            free(list);
            return cli_wrong(call, status);
        }
    }
    *tags = list;
    *count = used;
    return LIG_OK;
}

lig_status cli_numbers(const cli_call *call, const lig_tag *pairs, size_t count,
                       lig_metric **numbers)
{
    lig_metric *list;
    LIG_TRY(cli_alloc(&list, count, sizeof *list));
    for (size_t i = 0; i < count; i++) {
        char *end;
        list[i] = (lig_metric){pairs[i].name, strtod(pairs[i].value, &end)};
        if (pairs[i].value[0] != '\0' && *end == '\0')
            continue;
        free(list);
        return cli_wrong(call, lig_fail(LIG_E_INVALID, "metric '%s': '%s' is not a number",
                                        pairs[i].name, pairs[i].value));
    }
    *numbers = list;
    return LIG_OK;
}

lig_status cli_metrics(const cli_call *call, const char *flag, lig_metric **metrics, size_t *count)
{
    lig_tag *texts;
    LIG_TRY(cli_tags(call, flag, &texts, count));
    lig_status status = cli_numbers(call, texts, *count, metrics);
    free(texts);
    return status;
}

lig_status cli_pairs(const cli_call *call, size_t first, lig_tag *pairs)
{
    for (size_t i = first; i < call->word_count; i++) {
        const char *word = call->words[i];
        char *equals = strchr(word, '=');
        if (equals == NULL || equals == word)
            return cli_wrong(
                call, lig_fail(LIG_E_INVALID, "invalid argument '%s': expected NAME=VALUE", word));
        *equals = '\0';
        pairs[i - first] = (lig_tag){word, equals + 1};
    }
    return LIG_OK;
}
