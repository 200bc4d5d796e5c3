/* JSON: a parser for texts nobody vouches for, and a writer.
 *
 *     cli_json *json;
 *     LIG_TRY(cli_json_parse(text, bytes, 0, &json));
 *     const cli_json_value *nodes = cli_json_member(cli_json_root(json), "nodes"), *node;
 *     for (node = cli_json_first(nodes); node != NULL; node = cli_json_next(nodes, node))
 *         LIG_TRY(cli_json_to_double(cli_json_member(node, "forward_ms"), "forward_ms", &ms[i++]));
 *     cli_json_destroy(json);
 */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <ligament/base.h>
#include <stdio.h>

typedef enum cli_json_kind {
    CLI_JSON_NULL,
    CLI_JSON_FALSE,
    CLI_JSON_TRUE,
    CLI_JSON_NUMBER,
    CLI_JSON_STRING,
    CLI_JSON_ARRAY,
    CLI_JSON_OBJECT
} cli_json_kind;

/* Read-only. Values are in document order in one array: a container's children follow it. */
typedef struct cli_json_value {
    const char *key;  /* of a member of an object, else NULL */
    const char *text; /* of a string: valid UTF-8 without embedded NUL; of a number: its digits */
    uint32_t bytes;   /* length of text; a string's text is NUL-terminated */
    uint32_t count;   /* members or elements of a container */
    uint32_t span;    /* values in this subtree, itself included */
    uint32_t kind;    /* cli_json_kind */
} cli_json_value;

typedef struct cli_json cli_json;

#define CLI_JSON_DEPTH_MAX 64
#define CLI_JSON_BYTES_MAX UINT32_MAX
#define CLI_JSON_VALUES_MAX 50000000u

/* Parses a whole text (RFC 8259; an escaped NUL is rejected). Strings are decoded in place: `text`
 * is modified, must have one writable byte after its end (text[bytes], which becomes NUL), and is
 * borrowed until destroy. Error messages contain line and column. `value_limit` 0 means
 * CLI_JSON_VALUES_MAX; a value takes 40 bytes. Returns *json. */
lig_status cli_json_parse(char *text, size_t bytes, size_t value_limit, cli_json **json);
/* The same for a NUL-terminated text, which is copied: the result owns the copy. */
lig_status cli_json_parse_copy(const char *text, cli_json **json);
void cli_json_destroy(cli_json *json);
const cli_json_value *cli_json_root(const cli_json *json);

/* Reads and parses a whole file: LIG_E_LIMIT if it is larger than `byte_limit`. "-" is standard
 * input. The result owns the text. */
lig_status cli_json_read(const char *path, uint64_t byte_limit, cli_json **json);

/* Children in order: first(container), then next(container, child) until NULL. NULL and scalar
 * values have none. */
const cli_json_value *cli_json_first(const cli_json_value *container);
const cli_json_value *cli_json_next(const cli_json_value *container, const cli_json_value *child);

/* The first member with this key; NULL if there is none, or if `object` is NULL or not an object.
 * Linear. */
const cli_json_value *cli_json_member(const cli_json_value *object, const char *key);

/* Converts a value to a C value; LIG_E_INVALID with a message about `what` if it is NULL, of
 * another kind or out of range (a double is finite; integers have no fraction). */
lig_status cli_json_to_double(const cli_json_value *value, const char *what, double *out);
lig_status cli_json_to_u64(const cli_json_value *value, const char *what, uint64_t *out);
lig_status cli_json_to_i64(const cli_json_value *value, const char *what, int64_t *out);
lig_status cli_json_to_text(const cli_json_value *value, const char *what, const char **out);

/* Length of the UTF-8 sequence at `at`, which is before `end`; 0 if it is invalid (including
 * overlong forms and surrogates). */
size_t cli_json_utf8_bytes(const unsigned char *at, const unsigned char *end);

/* --- writing --------------------------------------------------------------------------------- */

/* Embedded; starts as {.file = stdout}. Indented by two spaces per level with a final newline, or
 * everything on one line without one if `compact`. */
typedef struct cli_json_writer {
    FILE *file;
    int compact;
    uint32_t depth;
    uint64_t filled; /* bit d: a value was written at depth d */
} cli_json_writer;

/* `key` is NULL in arrays and at the top. Bytes that are not UTF-8 become U+FFFD; NaN and
 * infinities become null. */
void cli_json_open(cli_json_writer *writer, const char *key, char bracket); /* '{' or '[' */
void cli_json_close(cli_json_writer *writer, char bracket);                 /* '}' or ']' */
void cli_json_put_text(cli_json_writer *writer, const char *key,
                       const char *text); /* NULL text: null */
void cli_json_put_u64(cli_json_writer *writer, const char *key, uint64_t value);
void cli_json_put_i64(cli_json_writer *writer, const char *key, int64_t value);
void cli_json_put_double(cli_json_writer *writer, const char *key, double value);
void cli_json_put_bool(cli_json_writer *writer, const char *key, int value);
/* `json` must be JSON text; it is written verbatim. */
void cli_json_put_raw(cli_json_writer *writer, const char *key, const char *json);

#endif
