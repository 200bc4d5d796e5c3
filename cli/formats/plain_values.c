#include "formats/plain_values.h"

#include "cli.h"

#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 1024 };

typedef struct walk {
    const cli_plain_visit *visit;
    lig_status status;
    char path[PATH_BYTES];
} walk;

static void visit_node(walk *self, const cli_json_value *node, size_t used);

/* Appends to the path; returns its new length. */
static size_t step(walk *self, size_t used, const char *key)
{
    int more = snprintf(self->path + used, PATH_BYTES - used, "%s%s", used > 0 ? "." : "", key);
    size_t end = used + (size_t)(more > 0 ? more : 0);
    return end < PATH_BYTES ? end : PATH_BYTES - 1;
}

static void write_value(cli_json_writer *writer, const cli_json_value *value)
{
    static const char *const words[] = {
        [CLI_JSON_NULL] = "null", [CLI_JSON_FALSE] = "false", [CLI_JSON_TRUE] = "true"};
    char digits[64];
    const cli_json_value *child;
    switch ((cli_json_kind)value->kind) {
    case CLI_JSON_NUMBER:
        snprintf(digits, sizeof digits, "%.*s", (int)value->bytes, value->text);
        cli_json_put_raw(writer, NULL, digits);
        break;
    case CLI_JSON_STRING: cli_json_put_text(writer, NULL, value->text); break;
    case CLI_JSON_ARRAY:
    case CLI_JSON_OBJECT: /* of a complex number: an infinite part is {"$float": "inf"} */
        if (value->kind == CLI_JSON_ARRAY)
            cli_json_open(writer, NULL, '[');
        for (child = cli_json_first(value); child; child = cli_json_next(value, child))
            write_value(writer, child);
        if (value->kind == CLI_JSON_ARRAY)
            cli_json_close(writer, ']');
        break;
    default: cli_json_put_raw(writer, NULL, words[value->kind]);
    }
}

static lig_status to_json(const cli_json_value *value, char **text)
{
    cli_text made;
    LIG_TRY(cli_text_open(&made));
    write_value(&(cli_json_writer){.file = made.file, .compact = 1}, value);
    LIG_TRY(cli_text_close(&made, LIG_OK));
    *text = made.data;
    return LIG_OK;
}

static void tell(walk *self, const cli_json_value *value)
{
    char *text = NULL;
    self->status = to_json(value, &text);
    if (self->status == LIG_OK)
        self->visit->value(self->visit->context, self->path, text);
    free(text);
}

static void visit_items(walk *self, const cli_json_value *list, size_t used)
{
    const cli_json_value *item;
    size_t index = 0;
    for (item = cli_json_first(list); item; item = cli_json_next(list, item)) {
        char number[24];
        snprintf(number, sizeof number, "%zu", index++);
        visit_node(self, item, step(self, used, number));
    }
}

/* [[key, node], ...] */
static void visit_pairs(walk *self, const cli_json_value *pairs, size_t used)
{
    const cli_json_value *pair;
    for (pair = cli_json_first(pairs); pair; pair = cli_json_next(pairs, pair)) {
        const cli_json_value *key = cli_json_first(pair);
        const cli_json_value *node = key ? cli_json_next(pair, key) : NULL;
        char *text = NULL;
        if (node == NULL)
            continue;
        if (key->kind != CLI_JSON_STRING)
            self->status = to_json(key, &text);
        if (self->status == LIG_OK)
            visit_node(self, node, step(self, used, text ? text : key->text));
        free(text);
    }
}

static void visit_tagged(walk *self, const cli_json_value *tagged, size_t used)
{
    if (strcmp(tagged->key, "$tensor") == 0)
        return;
    if (strcmp(tagged->key, "$tuple") == 0) {
        visit_items(self, tagged, used);
    } else if (strcmp(tagged->key, "$dict") == 0) {
        visit_pairs(self, tagged, used);
    } else if (strcmp(tagged->key, "$named") == 0) {
        const cli_json_value *name = cli_json_first(tagged);
        visit_pairs(self, name ? cli_json_next(tagged, name) : NULL, used);
    } else {
        tell(self, tagged);
    }
}

/* The parser limits the depth. */
static void visit_node(walk *self, const cli_json_value *node, size_t used)
{
    const cli_json_value *child = cli_json_first(node);
    self->path[used] = '\0';
    if (self->status != LIG_OK)
        return;
    if (node->kind == CLI_JSON_ARRAY)
        visit_items(self, node, used);
    else if (node->kind != CLI_JSON_OBJECT)
        tell(self, node);
    else if (node->count == 1 && child->key[0] == '$')
        visit_tagged(self, child, used);
    else
        for (; child; child = cli_json_next(node, child))
            visit_node(self, child, step(self, used, child->key));
}

lig_status cli_plain_values(const char *structure, const cli_plain_visit *visit)
{
    cli_json *json;
    walk self = {.visit = visit};
    if (structure == NULL || structure[0] == '\0')
        return LIG_OK;
    LIG_TRY(cli_json_parse_copy(structure, &json));
    const cli_json_value *tree = cli_json_member(cli_json_root(json), "tree");
    if (tree)
        visit_node(&self, tree, 0);
    cli_json_destroy(json);
    return self.status;
}
