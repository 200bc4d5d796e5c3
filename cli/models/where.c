/* A recursive-descent parser into an array of tests; inner nodes refer to their operands by
 * index. */
#include "models/where.h"

#include "cli.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH_MAX = 64 };

typedef enum field_kind {
    FIELD_NAME,
    FIELD_PARENT,
    FIELD_CREATED,
    FIELD_BYTES,
    FIELD_OWN_BYTES,
    FIELD_TENSORS,
    FIELD_TAG,
    FIELD_METRIC
} field_kind;

typedef enum node_kind { NODE_AND, NODE_OR, NODE_NOT, NODE_TEST } node_kind;
typedef enum comparison {
    HAS,
    EQUAL,
    UNEQUAL,
    LESS,
    LESS_EQUAL,
    MORE,
    MORE_EQUAL,
    LIKE
} comparison;

typedef struct where_node {
    node_kind kind;
    int left, right; /* operands of and, or; left of not */
    field_kind field;
    comparison operator;
    char *name;    /* of a tag or metric */
    char *text;    /* the value */
    double number; /* the value as a number */
    int is_number;
} where_node;

struct cli_where {
    where_node *nodes;
    size_t count;
    int root;
};

typedef struct where_parser {
    const char *text, *at;
    cli_where *where;
    int depth;
} where_parser;

/* --- tokens ---------------------------------------------------------------------------------- */

static lig_status fail_at(const where_parser *self, const char *expected)
{
    if (*self->at == '\0')
        return lig_fail(LIG_E_INVALID, "invalid condition '%s': expected %s at the end", self->text,
                        expected);
    return lig_fail(LIG_E_INVALID, "invalid condition '%s': expected %s at '%s'", self->text,
                    expected, self->at);
}

static void skip_space(where_parser *self)
{
    while (isspace((unsigned char)*self->at))
        self->at++;
}

static int ends_word(char c)
{
    return c == '\0' || isspace((unsigned char)c) || strchr("()=<>!~'\"", c) != NULL;
}

/* Takes a keyword, which must not be the beginning of a longer word. */
static int take_keyword(where_parser *self, const char *keyword)
{
    size_t bytes = strlen(keyword);
    skip_space(self);
    if (strncmp(self->at, keyword, bytes) != 0 || !ends_word(self->at[bytes]))
        return 0;
    self->at += bytes;
    return 1;
}

static int take_mark(where_parser *self, char mark)
{
    skip_space(self);
    if (*self->at != mark)
        return 0;
    self->at++;
    return 1;
}

static lig_status take_quoted(where_parser *self, char **out)
{
    char quote = *self->at;
    const char *end = strchr(self->at + 1, quote);
    if (end == NULL)
        return fail_at(self, "a closing quote");
    LIG_TRY(cli_format(out, "%.*s", (int)(end - self->at - 1), self->at + 1));
    self->at = end + 1;
    return LIG_OK;
}

static lig_status take_word(where_parser *self, const char *expected, char **out)
{
    skip_space(self);
    if (*self->at == '\'' || *self->at == '"')
        return take_quoted(self, out);
    const char *end = self->at;
    while (!ends_word(*end))
        end++;
    if (end == self->at)
        return fail_at(self, expected);
    LIG_TRY(cli_format(out, "%.*s", (int)(end - self->at), self->at));
    self->at = end;
    return LIG_OK;
}

static comparison take_operator(where_parser *self)
{
    static const struct {
        const char *text;
        comparison operator;
    } operators[] = {{"==", EQUAL}, {"=", EQUAL},       {"!=", UNEQUAL}, {"<=", LESS_EQUAL},
                     {"<", LESS},   {">=", MORE_EQUAL}, {">", MORE},     {"~", LIKE}};
    skip_space(self);
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        size_t bytes = strlen(operators[i].text);
        if (strncmp(self->at, operators[i].text, bytes) == 0) {
            self->at += bytes;
            return operators[i].operator;
        }
    }
    return HAS;
}

/* --- values ---------------------------------------------------------------------------------- */

static int is_text(field_kind field)
{
    return field == FIELD_NAME || field == FIELD_PARENT || field == FIELD_TAG;
}

static int to_number(const char *text, double *number)
{
    char *end;
    if (text[0] == '\0' || isspace((unsigned char)text[0]))
        return 0;
    *number = strtod(text, &end);
    return *end == '\0';
}

/* 4096, 64K, 1.5G, 1.5GiB */
static int to_bytes(const char *text, double *number)
{
    static const char units[] = "KMGT";
    char *end;
    *number = strtod(text, &end);
    if (end == text)
        return 0;
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    for (const char *at = units; unit != NULL && at <= unit; at++)
        *number *= 1024;
    end += unit != NULL;
    return *end == '\0' || strcmp(end, "B") == 0 || strcmp(end, "iB") == 0;
}

/* Local time, as ls prints it; the time of day may be left out. */
static int to_date(const char *text, double *number)
{
    static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm date = {.tm_isdst = -1};
        const char *end = strptime(text, forms[i], &date);
        if (end != NULL && *end == '\0') {
            *number = (double)mktime(&date);
            return 1;
        }
    }
    return 0;
}

static lig_status convert_value(const where_parser *self, where_node *node)
{
    int bytes = node->field == FIELD_BYTES || node->field == FIELD_OWN_BYTES;
    node->is_number = (node->field == FIELD_CREATED ? to_date
                       : bytes                      ? to_bytes
                                                    : to_number)(node->text, &node->number);
    if (is_text(node->field) && node->operator == LIKE)
        return LIG_OK;
    if (node->operator == LIKE)
        return lig_fail(LIG_E_INVALID,
                        "invalid condition '%s': ~ compares names and tags, not numbers",
                        self->text);
    if (node->is_number || is_text(node->field))
        return LIG_OK;
    return lig_fail(LIG_E_INVALID, "invalid condition '%s': '%s' is not %s", self->text, node->text,
                    node->field == FIELD_CREATED ? "a date such as 2026-01-31 or 2026-01-31 08:05"
                    : bytes                      ? "a size such as 4096 or 1.5G"
                                                 : "a number");
}

/* --- grammar --------------------------------------------------------------------------------- */

static int add_node(where_parser *self, where_node node)
{
    self->where->nodes[self->where->count] = node;
    return (int)self->where->count++;
}

static void name_field(where_node *node, char *word)
{
    static const struct {
        const char *name;
        field_kind field;
    } fields[] = {{"name", FIELD_NAME},       {"parent", FIELD_PARENT},
                  {"created", FIELD_CREATED}, {"bytes", FIELD_BYTES},
                  {"size", FIELD_BYTES},      {"own_bytes", FIELD_OWN_BYTES},
                  {"tensors", FIELD_TENSORS}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(word, fields[i].name) == 0) {
            node->field = fields[i].field;
            free(word);
            return;
        }
    }
    size_t prefix = strncmp(word, "tag.", 4) == 0 ? 4 : strncmp(word, "metric.", 7) == 0 ? 7 : 0;
    node->field = prefix == 4 ? FIELD_TAG : FIELD_METRIC;
    memmove(word, word + prefix, strlen(word + prefix) + 1);
    node->name = word;
}

static lig_status parse_test(where_parser *self, int *out)
{
    char *word;
    LIG_TRY(take_word(self, "a metric, tag.NAME, name, parent, created, bytes or '('", &word));
    where_node node = {.kind = NODE_TEST};
    name_field(&node, word);
    *out = add_node(self, node); /* the array owns its texts from here */
    where_node *added = &self->where->nodes[*out];
    added->operator = take_operator(self);
    if (added->operator == HAS)
        return LIG_OK;
    LIG_TRY(take_word(self, "a value", &added->text));
    return convert_value(self, added);
}

static lig_status parse_or(where_parser *self, int *out);

static lig_status parse_unit(where_parser *self, int *out)
{
    if (self->depth >= DEPTH_MAX)
        return lig_fail(LIG_E_LIMIT, "invalid condition '%s': nested more than %d levels deep",
                        self->text, DEPTH_MAX);
    self->depth++;
    if (take_keyword(self, "not")) {
        int operand;
        LIG_TRY(parse_unit(self, &operand));
        *out = add_node(self, (where_node){.kind = NODE_NOT, .left = operand});
    } else if (take_mark(self, '(')) {
        LIG_TRY(parse_or(self, out));
        if (!take_mark(self, ')'))
            return fail_at(self, "')'");
    } else {
        LIG_TRY(parse_test(self, out));
    }
    self->depth--;
    return LIG_OK;
}

static lig_status parse_and(where_parser *self, int *out)
{
    LIG_TRY(parse_unit(self, out));
    while (take_keyword(self, "and")) {
        int right;
        LIG_TRY(parse_unit(self, &right));
        *out = add_node(self, (where_node){.kind = NODE_AND, .left = *out, .right = right});
    }
    return LIG_OK;
}

static lig_status parse_or(where_parser *self, int *out)
{
    LIG_TRY(parse_and(self, out));
    while (take_keyword(self, "or")) {
        int right;
        LIG_TRY(parse_and(self, &right));
        *out = add_node(self, (where_node){.kind = NODE_OR, .left = *out, .right = right});
    }
    return LIG_OK;
}

void cli_where_destroy(cli_where *where)
{
    if (where == NULL)
        return;
    for (size_t i = 0; i < where->count; i++) {
        free(where->nodes[i].name);
        free(where->nodes[i].text);
    }
    free(where->nodes);
    free(where);
}

lig_status cli_where_parse(const char *text, cli_where **where)
{
    where_parser self = {.text = text, .at = text};
    LIG_TRY(cli_alloc(&self.where, 1, sizeof *self.where));
    /* Every node takes at least one character. */
    lig_status status = cli_alloc(&self.where->nodes, strlen(text) + 1, sizeof(where_node));
    if (status == LIG_OK)
        status = parse_or(&self, &self.where->root);
    skip_space(&self);
    if (status == LIG_OK && *self.at != '\0')
        status = fail_at(&self, "'and' or 'or'");
    if (status != LIG_OK) {
        cli_where_destroy(self.where);
        return status;
    }
    *where = self.where;
    return LIG_OK;
}

/* --- evaluation ------------------------------------------------------------------------------ */

/* The field of a model; 0 if it has none. Only one of text and number is set. */
static int field_of(const where_node *node, const lig_model *model, const char **text,
                    double *number)
{
    switch (node->field) {
    case FIELD_NAME: *text = model->name; return 1;
    case FIELD_PARENT: *text = model->parent_name; return model->parent_name[0] != '\0';
    case FIELD_CREATED: *number = (double)(model->created_ns / INT64_C(1000000000)); return 1;
    case FIELD_BYTES: *number = (double)model->bytes; return 1;
    case FIELD_OWN_BYTES: *number = (double)model->own_bytes; return 1;
    case FIELD_TENSORS: *number = (double)model->tensor_count; return 1;
    case FIELD_TAG:
        for (size_t i = 0; i < model->tag_count; i++) {
            *text = model->tags[i].value;
            if (strcmp(model->tags[i].name, node->name) == 0)
                return 1;
        }
        return 0;
    case FIELD_METRIC:
        for (size_t i = 0; i < model->metric_count; i++) {
            *number = model->metrics[i].value;
            if (strcmp(model->metrics[i].name, node->name) == 0)
                return 1;
        }
        return 0;
    }
    return 0;
}

static int compare(comparison operator, double difference)
{
    switch (operator) {
    case EQUAL: return difference == 0;
    case UNEQUAL: return difference != 0;
    case LESS: return difference < 0;
    case LESS_EQUAL: return difference <= 0;
    case MORE: return difference > 0;
    case MORE_EQUAL: return difference >= 0;
    case HAS:
    case LIKE: break;
    }
    return 1;
}

static int test_holds(const where_node *node, const lig_model *model)
{
    const char *text = NULL;
    double number = 0;
    if (!field_of(node, model, &text, &number))
        return 0;
    if (node->operator == HAS)
        return 1;
    if (node->operator == LIKE)
        return fnmatch(node->text, text, 0) == 0;
    /* Tags that hold numbers compare as numbers: 9 < 10. */
    if (text != NULL && !(node->is_number && to_number(text, &number)))
        return compare(node->operator, strcmp(text, node->text));
    if (number == node->number) /* also for infinities, whose difference is not a number */
        return compare(node->operator, 0);
    return compare(node->operator, number - node->number);
}

static int node_holds(const cli_where *where, int index, const lig_model *model)
{
    const where_node *node = &where->nodes[index];
    switch (node->kind) {
    case NODE_NOT: return !node_holds(where, node->left, model);
    case NODE_AND:
        return node_holds(where, node->left, model) && node_holds(where, node->right, model);
    case NODE_OR:
        return node_holds(where, node->left, model) || node_holds(where, node->right, model);
    case NODE_TEST: break;
    }
    return test_holds(node, model);
}

int cli_where_holds(const cli_where *where, const lig_model *model)
{
    return node_holds(where, where->root, model);
}

int cli_where_mentions(const cli_where *where, size_t index, int *is_tag, const char **name)
{
    for (size_t i = 0; i < where->count; i++) {
        const where_node *node = &where->nodes[i];
        if (node->name == NULL || index-- > 0)
            continue;
        *is_tag = node->field == FIELD_TAG;
        *name = node->name;
        return 1;
    }
    return 0;
}
