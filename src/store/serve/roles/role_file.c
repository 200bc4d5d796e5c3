#include "store/serve/roles/role_file.h"

#include "base/error.h"
#include "net/secure/secret_file.h"

#include <ligament/secret.h>

#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 5, FILE_BYTES_MAX = 1 << 20 };

static const char *const kinds[LIGI_ROLE_KINDS] = {
    [LIGI_ROLE_READ] = "read", [LIGI_ROLE_WRITE] = "write", [LIGI_ROLE_ADMIN] = "admin"};

const char *ligi_served_role_kind_name(ligi_served_role_kind kind)
{
    return kinds[kind];
}

/* --- words --- */

typedef struct words {
    const char *at[WORDS_MAX];
    size_t bytes[WORDS_MAX];
    size_t count; /* WORDS_MAX: or more */
} words;

/* The words of a line of `bytes` bytes. */
static words split(const char *line, size_t bytes)
{
    words found = {0};
    size_t at = 0;
    while (found.count < WORDS_MAX) {
        while (at < bytes && strchr(" \t\r", line[at]))
            at++;
        if (at == bytes)
            break;
        size_t begin = at;
        while (at < bytes && !strchr(" \t\r", line[at]))
            at++;
        found.at[found.count] = line + begin;
        found.bytes[found.count++] = at - begin;
    }
    return found;
}

static int is_word(const words *in, size_t index, const char *text)
{
    return index < in->count && in->bytes[index] == strlen(text) &&
           memcmp(in->at[index], text, in->bytes[index]) == 0;
}

/* LIGI_ROLE_KINDS: it is none. */
static ligi_served_role_kind kind_of(const words *line)
{
    int kind = 0;
    while (kind < LIGI_ROLE_KINDS && !is_word(line, 1, kinds[kind]))
        kind++;
    return (ligi_served_role_kind)kind;
}

static size_t line_bytes(const char *at)
{
    return strcspn(at, "\n");
}

/* The next line with words, from *at on; 0: there is none. *number counts all lines. */
static int next_line(const char **at, size_t *number, words *line)
{
    while (**at) {
        size_t bytes = line_bytes(*at);
        *line = split(*at, bytes);
        *at += bytes + ((*at)[bytes] == '\n');
        (*number)++;
        if (line->count && line->at[0][0] != '#')
            return 1;
    }
    return 0;
}

static size_t count_lines(const char *text)
{
    size_t count = 0, number = 0;
    words line;
    while (next_line(&text, &number, &line))
        count++;
    return count;
}

/* --- one role --- */

static lig_status check_key(const char *path, size_t number, size_t bytes)
{
    if (bytes >= LIG_SECRET_LEAST && bytes <= LIG_SECRET_MOST)
        return LIG_OK;
    return lig_fail(LIG_E_INVALID,
                    "%s, line %zu: the key has %zu bytes, expected %d to %d (recommended: 64 "
                    "hexadecimal digits of 32 random bytes)",
                    path, number, bytes, LIG_SECRET_LEAST, LIG_SECRET_MOST);
}

static int is_name_byte(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || strchr("._-", byte);
}

static lig_status take_name(const char *path, size_t number, const words *line,
                            ligi_served_role *role)
{
    size_t bytes = line->bytes[0], at = 0;
    while (at < bytes && is_name_byte(line->at[0][at]))
        at++;
    if (at < bytes || bytes >= sizeof role->name)
        return lig_fail(LIG_E_INVALID,
                        "%s, line %zu: invalid name of a role (expected at most %zu letters, "
                        "digits, '.', '_' and '-')",
                        path, number, sizeof role->name - 1);
    memcpy(role->name, line->at[0], bytes);
    return LIG_OK;
}

static lig_status take_prefix(const char *path, size_t number, const words *line,
                              ligi_served_role *role)
{
    if (is_word(line, 3, "*"))
        return LIG_OK;
    if (line->count == 3 && role->kind != LIGI_ROLE_WRITE)
        return LIG_OK;
    if (line->count == 3) { /* its own */
        size_t bytes = strlen(role->name);
        memcpy(role->prefix, role->name, bytes);
        role->prefix[bytes] = '/';
        return LIG_OK;
    }
    const char *text = line->at[3];
    size_t bytes = line->bytes[3];
    if (role->kind == LIGI_ROLE_ADMIN)
        return lig_fail(
            LIG_E_INVALID,
            "%s, line %zu: an admin sees all models and cannot have a prefix (use the role read or "
            "write)",
            path, number);
    if (bytes < 3 || bytes > sizeof role->prefix || memcmp(text + bytes - 2, "/*", 2) != 0 ||
        memchr(text, '*', bytes - 1) || text[0] == '/')
        return lig_fail(LIG_E_INVALID,
                        "%s, line %zu: invalid prefix '%.*s' (expected a name and '/*', at most "
                        "%zu bytes)",
                        path, number, (int)bytes, text, sizeof role->prefix);
    memcpy(role->prefix, text, bytes - 1);
    return LIG_OK;
}

static lig_status take_role(const char *path, size_t number, const words *line,
                            ligi_served_role_line *out)
{
    out->role.kind = kind_of(line);
    if (line->count < 3 || line->count > 4 || out->role.kind == LIGI_ROLE_KINDS)
        return lig_fail(LIG_E_INVALID,
                        "%s, line %zu: expected 'name role key [prefix/*]', with the role read, "
                        "write or admin",
                        path, number);
    LIG_TRY(take_name(path, number, line, &out->role));
    LIG_TRY(check_key(path, number, line->bytes[2]));
    out->key = line->at[2];
    out->key_bytes = line->bytes[2];
    return take_prefix(path, number, line, &out->role);
}

/* --- files --- */

static int same_key(const ligi_served_role_line *a, const ligi_served_role_line *b)
{
    return a->key_bytes == b->key_bytes && memcmp(a->key, b->key, a->key_bytes) == 0;
}

/* A connection is known by its key. */
static lig_status check_unique(const char *path, const ligi_served_role_file *file, size_t number)
{
    const ligi_served_role_line *last = &file->lines[file->count - 1];
    for (size_t i = 0; i + 1 < file->count; i++) {
        const ligi_served_role_line *other = &file->lines[i];
        if (strcmp(other->role.name, last->role.name) == 0)
            return lig_fail(LIG_E_INVALID, "%s, line %zu: role '%s' is defined twice", path, number,
                            last->role.name);
        if (same_key(other, last))
            return lig_fail(LIG_E_INVALID,
                            "%s, line %zu: roles '%s' and '%s' have the same key (each needs its "
                            "own)",
                            path, number, other->role.name, last->role.name);
    }
    return LIG_OK;
}

/* A line whose third word has the length of a key is a role with a mistake, not a secret. */
static int is_bare(const words *line)
{
    return kind_of(line) == LIGI_ROLE_KINDS &&
           (line->count < 3 || line->bytes[2] < LIG_SECRET_LEAST);
}

/* A single line without a role: "name key", or a bare secret, which may contain spaces. */
static lig_status take_bare(const char *path, size_t number, const words *line,
                            ligi_served_role_line *out)
{
    int named = line->count == 2 && line->bytes[1] >= LIG_SECRET_LEAST;
    out->role.kind = LIGI_ROLE_ADMIN;
    if (named)
        LIG_TRY(take_name(path, number, line, &out->role));
    out->key = line->at[named];
    out->key_bytes = line_bytes(out->key);
    while (strchr(" \t\r", out->key[out->key_bytes - 1]))
        out->key_bytes--;
    return check_key(path, number, out->key_bytes);
}

static lig_status parse(const char *path, ligi_served_role_file *file)
{
    size_t count = count_lines(file->text), number = 0;
    const char *at = file->text;
    words line = {0};
    if (count == 0)
        return lig_fail(LIG_E_INVALID,
                        "secret file %s has no key (lines that begin with '#' are comments)", path);
    LIG_TRY(ligi_calloc(&file->lines, count, sizeof *file->lines, "roles"));
    int some = next_line(&at, &number, &line);
    if (count == 1 && is_bare(&line)) {
        file->count = 1;
        return take_bare(path, number, &line, &file->lines[0]);
    }
    for (; some; some = next_line(&at, &number, &line)) {
        LIG_TRY(take_role(path, number, &line, &file->lines[file->count++]));
        LIG_TRY(check_unique(path, file, number));
    }
    return LIG_OK;
}

lig_status ligi_served_role_file_parse(const char *path, char *text, ligi_served_role_file *file)
{
    *file = (ligi_served_role_file){.text = text};
    lig_status status = parse(path, file);
    if (status != LIG_OK)
        ligi_served_role_file_fini(file);
    return status;
}

lig_status ligi_served_role_file_read(const char *path, ligi_served_role_file *file)
{
    char *text;
    size_t bytes;
    LIG_TRY(ligi_secret_file_read(path, FILE_BYTES_MAX, &text, &bytes));
    if (strlen(text) != bytes) {
        lig_secret_free(text);
        return lig_fail(LIG_E_INVALID, "secret file %s contains a NUL byte", path);
    }
    return ligi_served_role_file_parse(path, text, file);
}

void ligi_served_role_file_fini(ligi_served_role_file *file)
{
    free(file->lines);
    lig_secret_free(file->text);
    *file = (ligi_served_role_file){0};
}

/* --- numbers --- */

static int is_same(const ligi_served_role_line *a, const ligi_served_role_line *b)
{
    return a->role.kind == b->role.kind && strcmp(a->role.name, b->role.name) == 0 &&
           strcmp(a->role.prefix, b->role.prefix) == 0 && same_key(a, b);
}

void ligi_served_role_file_number(ligi_served_role_file *file, const ligi_served_role_file *before,
                                  uint64_t *next_tag)
{
    for (size_t i = 0; i < file->count; i++) {
        ligi_served_role_line *line = &file->lines[i];
        for (size_t k = 0; k < before->count && line->role.tag == 0; k++)
            if (is_same(line, &before->lines[k]))
                line->role.tag = before->lines[k].role.tag;
        if (line->role.tag == 0)
            line->role.tag = (*next_tag)++;
    }
}

const ligi_served_role *ligi_served_role_file_find(const ligi_served_role_file *file, uint64_t tag)
{
    for (size_t i = 0; i < file->count; i++)
        if (tag && file->lines[i].role.tag == tag)
            return &file->lines[i].role;
    return NULL;
}

/* --- a client's --- */

lig_status ligi_served_role_key_read(const char *path, char **key, size_t *bytes)
{
    ligi_served_role_file file;
    LIG_TRY(ligi_served_role_file_read(path, &file));
    lig_status status = LIG_OK;
    if (file.count > 1)
        status = lig_fail(LIG_E_INVALID,
                          "secret file %s has the keys of %zu roles, expected one line with the "
                          "client's own (it is the server's file)",
                          path, file.count);
    if (status == LIG_OK) {
        *bytes = file.lines[0].key_bytes;
        memmove(file.text, file.lines[0].key, *bytes);
        file.text[*bytes] = '\0';
        *key = file.text;
        file.text = NULL;
    }
    ligi_served_role_file_fini(&file);
    return status;
}
