/* Tables and single texts for the terminal. Names come from files: nothing in them may reach the
 * terminal as a control sequence. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

struct cli_table {
    const cli_column *columns;
    size_t column_count, row_count, capacity;
    char **cells; /* row by row */
};

/* --- one text -------------------------------------------------------------------------------- */

/* The character at `at` and its bytes; 0 bytes when it is not UTF-8. */
static size_t decode(const unsigned char *at, uint32_t *code)
{
    size_t bytes = *at < 0x80                  ? 1
                   : *at >= 0xF0 && *at < 0xF5 ? 4
                   : *at >= 0xE0 && *at < 0xF0 ? 3
                   : *at >= 0xC2 && *at < 0xE0 ? 2
                                               : 0;
    *code = bytes == 1 ? *at : *at & (0x7Fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xC0) != 0x80)
            return 0;
        *code = *code << 6 | (at[i] & 0x3F);
    }
    return bytes;
}

/* Control characters, and characters that change the writing direction or are invisible. */
static int tricky(uint32_t code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x200B && code <= 0x200F) ||
           (code >= 0x2028 && code <= 0x202E) || (code >= 0x2060 && code <= 0x206F) ||
           code == 0xFEFF;
}

void cli_put_escaped(FILE *file, const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        uint32_t code;
        size_t bytes = decode(at, &code);
        if (bytes == 0)
            fprintf(file, "\\x%02x", *at);
        else if (code == '\n' || code == '\t' || code == '\r')
            fputs(code == '\n' ? "\\n" : code == '\t' ? "\\t" : "\\r", file);
        else if (tricky(code))
            fprintf(file, code < 0x80 ? "\\x%02x" : "\\u%04x", code);
        else
            fwrite(at, 1, bytes, file);
        at += bytes > 0 ? bytes : 1;
    }
}

lig_status cli_escape(const char *text, char **out)
{
    cli_text escaped;
    LIG_TRY(cli_text_open(&escaped));
    cli_put_escaped(escaped.file, text);
    LIG_TRY(cli_text_close(&escaped, LIG_OK));
    *out = escaped.data;
    return LIG_OK;
}

void cli_size_text(uint64_t bytes, char *text, size_t text_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1023.95 && unit < 6; unit++)
        value /= 1024;
    snprintf(text, text_bytes, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

void cli_date_text(int64_t ns, char *text, size_t text_bytes)
{
    time_t seconds = (time_t)(ns / INT64_C(1000000000));
    struct tm date;
    if (localtime_r(&seconds, &date) == NULL ||
        strftime(text, text_bytes, "%Y-%m-%d %H:%M:%S", &date) == 0)
        snprintf(text, text_bytes, "?");
}

void cli_shape_text(const lig_tensor *tensor, char *text, size_t text_bytes)
{
    size_t used = (size_t)snprintf(text, text_bytes, "[");
    for (uint32_t i = 0; i < tensor->ndim && used < text_bytes; i++)
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)tensor->shape[i]);
    if (used < text_bytes)
        snprintf(text + used, text_bytes - used, "]");
}

/* --- tables ---------------------------------------------------------------------------------- */

lig_status cli_table_create(cli_table **table, const cli_column *columns, size_t count)
{
    cli_table *made;
    LIG_TRY(cli_alloc(&made, 1, sizeof *made));
    made->columns = columns;
    made->column_count = count;
    *table = made;
    return LIG_OK;
}

lig_status cli_table_add(cli_table *table, const char *const *cells)
{
    size_t width = table->column_count;
    if (table->row_count == table->capacity) {
        size_t capacity = table->capacity > 0 ? table->capacity * 2 : 32;
        char **grown = realloc(table->cells, capacity * width * sizeof *grown);
        if (grown == NULL)
            return lig_fail(LIG_E_NOMEM, "out of memory for a table of %zu rows", capacity);
        table->cells = grown;
        table->capacity = capacity;
    }
    char **row = table->cells + table->row_count * width;
    for (size_t i = 0; i < width; i++) {
        lig_status status = cli_escape(cells[i], &row[i]);
        while (status != LIG_OK && i > 0)
            free(row[--i]);
        LIG_TRY(status);
    }
    table->row_count++;
    return LIG_OK;
}

void cli_table_destroy(cli_table *table)
{
    if (table == NULL)
        return;
    for (size_t i = 0; i < table->row_count * table->column_count; i++)
        free(table->cells[i]);
    free(table->cells);
    free(table);
}

/* Terminal columns of the first `bytes` bytes. A character of ambiguous width counts as one. */
static size_t screen_width(const char *text)
{
    size_t width = 0;
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        uint32_t code;
        size_t bytes = decode(at, &code);
        int wide = bytes > 0 ? wcwidth((wchar_t)code) : 1;
        width += wide < 0 ? 1 : (size_t)wide;
        at += bytes > 0 ? bytes : 1;
    }
    return width;
}

/* Length of the longest prefix that takes at most `width` columns. */
static size_t cut_bytes(const char *text, size_t width)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t used = 0;
    while (*at != '\0') {
        uint32_t code;
        size_t bytes = decode(at, &code);
        int wide = bytes > 0 ? wcwidth((wchar_t)code) : 1;
        used += wide < 0 ? 1 : (size_t)wide;
        if (used > width)
            break;
        at += bytes > 0 ? bytes : 1;
    }
    return (size_t)(at - (const unsigned char *)text);
}

void cli_put_cut(FILE *file, const char *text, size_t width)
{
    char *escaped;
    if (cli_escape(text, &escaped) != LIG_OK)
        return;
    if (screen_width(escaped) <= width)
        fputs(escaped, file);
    else
        fprintf(file, "%.*s…", (int)cut_bytes(escaped, width - 1), escaped);
    free(escaped);
}

static size_t terminal_width(FILE *file)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    if (!isatty(fileno(file)))
        return SIZE_MAX;
    long width = columns != NULL ? strtol(columns, NULL, 10) : 0;
    if (width > 0)
        return (size_t)width;
    return ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

static int colourful(FILE *file)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    return isatty(fileno(file)) && term != NULL && strcmp(term, "dumb") != 0 &&
           (no_color == NULL || *no_color == '\0');
}

enum { GAP = 2, NARROWEST = 12, COLUMNS_MAX = 16 };

static int is_empty(const cli_table *table, size_t column)
{
    for (size_t r = 0; r < table->row_count; r++)
        if (table->cells[r * table->column_count + column][0] != '\0')
            return 0;
    return 1;
}

static size_t total_width(const size_t *widths, size_t count)
{
    size_t total = 0;
    for (size_t c = 0; c < count; c++)
        total += widths[c] > 0 ? widths[c] + GAP : 0;
    return total > 0 ? total - GAP : 0;
}

static void shrink(const cli_table *table, size_t room, size_t *widths)
{
    while (total_width(widths, table->column_count) > room) {
        size_t widest = SIZE_MAX;
        for (size_t c = 0; c < table->column_count; c++)
            if (table->columns[c].fit == CLI_FIT_SHRINK && widths[c] > NARROWEST &&
                (widest == SIZE_MAX || widths[c] > widths[widest]))
                widest = c;
        if (widest == SIZE_MAX)
            return;
        widths[widest]--;
    }
}

/* The width when every column that can shrink has. */
static size_t narrowest_width(const cli_table *table, const size_t *widths)
{
    size_t narrow[COLUMNS_MAX];
    for (size_t c = 0; c < table->column_count; c++)
        narrow[c] = table->columns[c].fit == CLI_FIT_SHRINK && widths[c] > NARROWEST
                        ? (size_t)NARROWEST
                        : widths[c];
    return total_width(narrow, table->column_count);
}

/* Natural widths. If they do not fit, columns without a value are left out (width 0); then, from
 * the right, those that may be, if shrinking is not enough; then the widest shrink. */
static void choose_widths(const cli_table *table, size_t room, size_t *widths)
{
    size_t count = table->column_count;
    for (size_t c = 0; c < count; c++) {
        widths[c] = screen_width(table->columns[c].title);
        for (size_t r = 0; r < table->row_count; r++) {
            size_t width = screen_width(table->cells[r * count + c]);
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    for (size_t c = 0; c < count && total_width(widths, count) > room; c++)
        if (table->row_count > 0 && is_empty(table, c))
            widths[c] = 0;
    for (size_t c = count; c > 0 && narrowest_width(table, widths) > room; c--)
        if (table->columns[c - 1].fit == CLI_FIT_DROP)
            widths[c - 1] = 0;
    shrink(table, room, widths);
}

static void put_cell(FILE *file, const char *text, size_t width, const cli_column *column, int last)
{
    size_t has = screen_width(text);
    int pad = has < width ? (int)(width - has) : 0;
    if (column->right)
        fprintf(file, "%*s", pad, "");
    if (has <= width)
        fputs(text, file);
    else
        fprintf(file, "%.*s…", (int)cut_bytes(text, width - 1), text);
    if (!column->right && !last)
        fprintf(file, "%*s", pad, "");
    if (!last)
        fprintf(file, "%*s", GAP, "");
}

static void put_row(FILE *file, const cli_table *table, const size_t *widths,
                    const char *const *cells)
{
    size_t last = table->column_count;
    while (last > 1 && widths[last - 1] == 0)
        last--;
    for (size_t c = 0; c < last; c++)
        if (widths[c] > 0)
            put_cell(file, cells != NULL ? cells[c] : table->columns[c].title, widths[c],
                     &table->columns[c], c + 1 == last);
}

void cli_table_print(const cli_table *table, FILE *file)
{
    size_t count = table->column_count, widths[COLUMNS_MAX];
    int colour = colourful(file);
    if (count > COLUMNS_MAX)
        return;
    choose_widths(table, terminal_width(file), widths);
    fputs(colour ? "\033[1m" : "", file);
    put_row(file, table, widths, NULL);
    fputs(colour ? "\033[0m\n" : "\n", file);
    for (size_t r = 0; r < table->row_count; r++) {
        put_row(file, table, widths, (const char *const *)table->cells + r * count);
        putc('\n', file);
    }
}

lig_status cli_table_end(cli_table *table, lig_status status)
{
    if (status == LIG_OK)
        cli_table_print(table, stdout);
    cli_table_destroy(table);
    return status;
}
