/* The parser keeps an explicit stack of open containers, so the nesting depth is limited by a
 * constant and not by the process's stack. */
#include "formats/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cli_json {
    cli_json_value *values;
    size_t count, capacity, limit;
    char *owned; /* the text, if the value owns it */
};

typedef struct parser {
    cli_json *json;
    char *at, *end;
    uint32_t open[CLI_JSON_DEPTH_MAX]; /* indexes of the containers around `at` */
    uint32_t depth;
    const char *key; /* of the next value */
    const char *line_start;
    size_t line;
} parser;

static lig_status bad(const parser *self, const char *what)
{
    return lig_fail(LIG_E_INVALID, "JSON line %zu, column %zu: %s", self->line,
                    (size_t)(self->at - self->line_start) + 1, what);
}

/* Newlines occur nowhere else in a valid text, so lines are counted here. */
static void skip_space(parser *self)
{
    for (; self->at < self->end; self->at++) {
        if (*self->at == '\n') {
            self->line++;
            self->line_start = self->at + 1;
        } else if (*self->at != ' ' && *self->at != '\r' && *self->at != '\t') {
            return;
        }
    }
}

static lig_status add_value(parser *self, uint32_t kind, const char *text, size_t bytes)
{
    cli_json *json = self->json;
    if (json->count == json->limit)
        return lig_fail(LIG_E_LIMIT, "JSON text has more than %zu values", json->limit);
    if (json->count == json->capacity) {
        size_t capacity = json->capacity ? json->capacity * 2 : 64;
        cli_json_value *grown = realloc(json->values, capacity * sizeof *grown);
        if (grown == NULL)
            return lig_fail(LIG_E_NOMEM, "out of memory for %zu JSON values", capacity);
        json->values = grown;
        json->capacity = capacity;
    }
    json->values[json->count++] = (cli_json_value){self->key, text, (uint32_t)bytes, 0, 1, kind};
    self->key = NULL;
    if (self->depth > 0)
        json->values[self->open[self->depth - 1]].count++;
    return LIG_OK;
}

/* --- strings --------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four hex digits at `at`; -1 if they are invalid. */
static int32_t hex_unit(const parser *self, const char *at)
{
    int32_t unit = 0;
    if (self->end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

static char *put_utf8(char *out, uint32_t code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xC0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *out++ = (char)(0xE0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    } else {
        *out++ = (char)(0xF0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3F));
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    }
    return out;
}

/* `at` is just after "\\u". */
static lig_status take_unicode(parser *self, char **out)
{
    int32_t unit = hex_unit(self, self->at), low;
    if (unit < 0)
        return bad(self, "\\u needs four hexadecimal digits");
    if (unit == 0)
        return bad(self, "escaped NUL in a string");
    self->at += 4;
    if (unit >= 0xD800 && unit < 0xE000) {
        int paired =
            unit < 0xDC00 && self->end - self->at >= 6 && self->at[0] == '\\' && self->at[1] == 'u';
        low = paired ? hex_unit(self, self->at + 2) : -1;
        if (low < 0xDC00 || low >= 0xE000)
            return bad(self, "unpaired surrogate");
        self->at += 6;
        unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    }
    *out = put_utf8(*out, (uint32_t)unit);
    return LIG_OK;
}

static lig_status take_escape(parser *self, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (self->end - self->at < 2)
        return bad(self, "unterminated string");
    const char *found = self->at[1] != '\0' ? strchr(from, self->at[1]) : NULL;
    if (found != NULL) {
        self->at += 2;
        *(*out)++ = to[found - from];
        return LIG_OK;
    }
    if (self->at[1] != 'u')
        return bad(self, "unknown escape");
    self->at += 2;
    return take_unicode(self, out);
}

size_t cli_json_utf8_bytes(const unsigned char *at, const unsigned char *end)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t bytes = *at < 0x80                  ? 1
                   : *at >= 0xF0 && *at < 0xF8 ? 4
                   : *at >= 0xE0               ? 3
                   : *at >= 0xC0               ? 2
                                               : 0;
    if (bytes <= 1 || *at >= 0xF8 || (size_t)(end - at) < bytes)
        return bytes == 1;
    uint32_t code = *at & (0x7Fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3F);
    }
    return code >= least[bytes] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF) ? bytes : 0;
}

/* The end of the run of plain ASCII at `at`, which needs no decoding and is most of most texts. */
static char *skip_plain(const parser *self, char *at)
{
    while (at < self->end && *at >= 0x20 && *at < 0x7F && *at != '"' && *at != '\\')
        at++;
    return at;
}

/* `at` is at the opening quote. Decoding never lengthens a string, so it is done in place. */
static lig_status take_string(parser *self, char **text, size_t *bytes)
{
    char *out = ++self->at;
    *text = out;
    while (self->at < self->end && *self->at != '"') {
        size_t step = (size_t)(skip_plain(self, self->at) - self->at);
        if (*self->at == '\\') {
            LIG_TRY(take_escape(self, &out));
            continue;
        }
        if (step == 0)
            step = cli_json_utf8_bytes((unsigned char *)self->at, (unsigned char *)self->end);
        if (step == 0)
            return bad(self, "invalid UTF-8 in a string");
        if ((unsigned char)*self->at < 0x20)
            return bad(self, "unescaped control character in a string");
        if (out != self->at)
            memmove(out, self->at, step);
        out += step;
        self->at += step;
    }
    if (self->at == self->end)
        return bad(self, "unterminated string");
    self->at++;
    *bytes = (size_t)(out - *text);
    *out = '\0';
    return LIG_OK;
}

/* --- values ---------------------------------------------------------------------------------- */

static char *skip_digits(const parser *self, char *at)
{
    while (at < self->end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

static lig_status take_number(parser *self)
{
    char *start = self->at, *at = start + (*start == '-'), *digits = at;
    at = skip_digits(self, at);
    if (at == digits || (*digits == '0' && at - digits > 1))
        return bad(self, "expected a value");
    if (at < self->end && *at == '.') {
        digits = ++at;
        at = skip_digits(self, at);
        if (at == digits)
            return bad(self, "expected digits after the decimal point");
    }
    if (at < self->end && (*at | 0x20) == 'e') {
        at += at + 1 < self->end && (at[1] == '+' || at[1] == '-') ? 2 : 1;
        digits = at;
        at = skip_digits(self, at);
        if (at == digits)
            return bad(self, "expected digits in the exponent");
    }
    self->at = at;
    return add_value(self, CLI_JSON_NUMBER, start, (size_t)(at - start));
}

static lig_status take_word(parser *self)
{
    static const char *const words[] = {"null", "false", "true"};
    for (uint32_t i = 0; i < 3; i++) {
        size_t bytes = strlen(words[i]);
        if ((size_t)(self->end - self->at) >= bytes && memcmp(self->at, words[i], bytes) == 0) {
            self->at += bytes;
            return add_value(self, CLI_JSON_NULL + i, NULL, 0);
        }
    }
    return bad(self, "expected a value");
}

static lig_status open_container(parser *self, uint32_t kind)
{
    if (self->depth == CLI_JSON_DEPTH_MAX)
        return bad(self, "nested too deeply");
    LIG_TRY(add_value(self, kind, NULL, 0));
    self->open[self->depth++] = (uint32_t)(self->json->count - 1);
    self->at++;
    return LIG_OK;
}

static lig_status take_value(parser *self)
{
    char *text;
    size_t bytes;
    if (self->at == self->end)
        return bad(self, "unexpected end of text, expected a value");
    switch (*self->at) {
    case '{': return open_container(self, CLI_JSON_OBJECT);
    case '[': return open_container(self, CLI_JSON_ARRAY);
    case '"':
        LIG_TRY(take_string(self, &text, &bytes));
        return add_value(self, CLI_JSON_STRING, text, bytes);
    case 'n':
    case 't':
    case 'f': return take_word(self);
    default: return take_number(self);
    }
}

static lig_status take_key(parser *self)
{
    char *key;
    size_t bytes;
    if (self->at == self->end || *self->at != '"')
        return bad(self, "expected a key in quotes");
    LIG_TRY(take_string(self, &key, &bytes));
    skip_space(self);
    if (self->at == self->end || *self->at != ':')
        return bad(self, "expected ':'");
    self->at++;
    skip_space(self);
    self->key = key;
    return LIG_OK;
}

/* One step inside the innermost container: its end, or a comma where required, and a value. */
static lig_status take_item(parser *self)
{
    uint32_t index = self->open[self->depth - 1];
    cli_json_value *around = &self->json->values[index];
    int object = around->kind == CLI_JSON_OBJECT;
    if (self->at == self->end)
        return bad(self, object ? "unterminated object" : "unterminated array");
    if (*self->at == (object ? '}' : ']')) {
        around->span = (uint32_t)(self->json->count - index);
        self->depth--;
        self->at++;
        return LIG_OK;
    }
    if (around->count > 0) {
        if (*self->at != ',')
            return bad(self, object ? "expected ',' or '}'" : "expected ',' or ']'");
        self->at++;
        skip_space(self);
    }
    if (object)
        LIG_TRY(take_key(self));
    return take_value(self);
}

static lig_status parse_all(parser *self)
{
    skip_space(self);
    LIG_TRY(take_value(self));
    skip_space(self);
    while (self->depth > 0) {
        LIG_TRY(take_item(self));
        skip_space(self);
    }
    return self->at == self->end ? LIG_OK : bad(self, "unexpected text after the end of the value");
}

lig_status cli_json_parse(char *text, size_t bytes, size_t value_limit, cli_json **json)
{
    parser self = {.at = text, .end = text + bytes, .line_start = text, .line = 1};
    if (bytes >= CLI_JSON_BYTES_MAX)
        return lig_fail(LIG_E_LIMIT, "JSON text of %zu bytes is too large", bytes);
    self.json = calloc(1, sizeof *self.json);
    if (self.json == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for a JSON text");
    self.json->limit =
        value_limit > 0 && value_limit < CLI_JSON_VALUES_MAX ? value_limit : CLI_JSON_VALUES_MAX;
    text[bytes] = '\0';
    lig_status status = parse_all(&self);
    if (status != LIG_OK) {
        cli_json_destroy(self.json);
        return status;
    }
    *json = self.json;
    return LIG_OK;
}

void cli_json_destroy(cli_json *json)
{
    if (json == NULL)
        return;
    free(json->owned);
    free(json->values);
    free(json);
}

static lig_status read_all(FILE *file, const char *path, uint64_t byte_limit, char **text,
                           size_t *bytes)
{
    size_t used = 0, capacity = 1 << 16;
    char *data = malloc(capacity);
    while (data != NULL) {
        used += fread(data + used, 1, capacity - used - 1, file);
        if (used < capacity - 1 || used > byte_limit)
            break;
        capacity *= 2;
        char *grown = realloc(data, capacity);
        if (grown == NULL)
            free(data);
        data = grown;
    }
    lig_status status = LIG_OK;
    if (data == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory reading '%s'", path);
    if (ferror(file))
        status = lig_fail(LIG_E_IO, "cannot read '%s': %s", path, strerror(errno));
    else if (used > byte_limit)
        status = lig_fail(LIG_E_LIMIT, "'%s' is larger than %llu bytes", path,
                          (unsigned long long)byte_limit);
    if (status != LIG_OK) {
        free(data);
        return status;
    }
    *text = data;
    *bytes = used;
    return LIG_OK;
}

/* Frees the text on failure. */
static lig_status parse_owned(char *text, size_t bytes, cli_json **json)
{
    lig_status status = cli_json_parse(text, bytes, 0, json);
    if (status == LIG_OK)
        (*json)->owned = text;
    else
        free(text);
    return status;
}

lig_status cli_json_read(const char *path, uint64_t byte_limit, cli_json **json)
{
    int standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rbe");
    char *text;
    size_t bytes;
    if (file == NULL)
        return lig_fail(errno == ENOENT ? LIG_E_NOTFOUND : LIG_E_IO, "cannot open '%s': %s", path,
                        strerror(errno));
    lig_status status = read_all(file, path, byte_limit, &text, &bytes);
    if (!standard)
        fclose(file);
    LIG_TRY(status);
    return parse_owned(text, bytes, json);
}

lig_status cli_json_parse_copy(const char *text, cli_json **json)
{
    char *copy = strdup(text);
    if (copy == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for a JSON text");
    return parse_owned(copy, strlen(copy), json);
}

/* --- access to values ------------------------------------------------------------------------ */

const cli_json_value *cli_json_root(const cli_json *json)
{
    return json->values;
}

const cli_json_value *cli_json_first(const cli_json_value *container)
{
    return container != NULL && container->count > 0 ? container + 1 : NULL;
}

const cli_json_value *cli_json_next(const cli_json_value *container, const cli_json_value *child)
{
    const cli_json_value *next = child + child->span;
    return next < container + container->span ? next : NULL;
}

const cli_json_value *cli_json_member(const cli_json_value *object, const char *key)
{
    if (object == NULL || object->kind != CLI_JSON_OBJECT)
        return NULL;
    for (const cli_json_value *at = cli_json_first(object); at != NULL;
         at = cli_json_next(object, at))
        if (strcmp(at->key, key) == 0)
            return at;
    return NULL;
}

static lig_status wrong(const cli_json_value *value, const char *what, const char *wanted)
{
    if (value == NULL)
        return lig_fail(LIG_E_INVALID, "%s is missing: expected %s", what, wanted);
    if (value->kind == CLI_JSON_NUMBER)
        return lig_fail(LIG_E_INVALID, "%s is %.*s: expected %s", what,
                        value->bytes < 40 ? (int)value->bytes : 40, value->text, wanted);
    return lig_fail(LIG_E_INVALID, "invalid %s: expected %s", what, wanted);
}

lig_status cli_json_to_double(const cli_json_value *value, const char *what, double *out)
{
    double number =
        value != NULL && value->kind == CLI_JSON_NUMBER ? strtod(value->text, NULL) : NAN;
    if (!isfinite(number))
        return wrong(value, what, "a finite number");
    *out = number;
    return LIG_OK;
}

/* Returns 1 if the number has no fraction and no exponent. */
static int plain_integer(const cli_json_value *value)
{
    if (value == NULL || value->kind != CLI_JSON_NUMBER)
        return 0;
    for (uint32_t i = value->text[0] == '-'; i < value->bytes; i++)
        if (value->text[i] < '0' || value->text[i] > '9')
            return 0;
    return 1;
}

lig_status cli_json_to_u64(const cli_json_value *value, const char *what, uint64_t *out)
{
    errno = 0;
    unsigned long long number =
        plain_integer(value) && value->text[0] != '-' ? strtoull(value->text, NULL, 10) : 0;
    if (!plain_integer(value) || value->text[0] == '-' || errno != 0)
        return wrong(value, what, "a non-negative integer");
    *out = number;
    return LIG_OK;
}

lig_status cli_json_to_i64(const cli_json_value *value, const char *what, int64_t *out)
{
    errno = 0;
    long long number = plain_integer(value) ? strtoll(value->text, NULL, 10) : 0;
    if (!plain_integer(value) || errno != 0)
        return wrong(value, what, "an integer");
    *out = number;
    return LIG_OK;
}

lig_status cli_json_to_text(const cli_json_value *value, const char *what, const char **out)
{
    if (value == NULL || value->kind != CLI_JSON_STRING)
        return wrong(value, what, "a string");
    *out = value->text;
    return LIG_OK;
}
