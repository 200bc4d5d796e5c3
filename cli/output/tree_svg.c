#include "output/tree_drawing.h"

#include <stdlib.h>
#include <string.h>

enum {
    TOP = 70,      /* of the first row */
    ROW = 28,      /* height of a row */
    LEFT = 22,     /* of the first lane */
    LANE = 20,     /* width of a lane */
    CHARACTER = 8, /* estimated width of one at FONT px */
    FONT = 13,
    BAR = 110, /* longest bar */
    NAME_MAX_PX = 520,
    DETAILS_PX = 420,
    SIZE_PX = 200
};

/* Text on white and lines of 2 px are readable in all of them; adjacent lanes differ. */
static const char *const colours[] = {"#1f6fb2", "#b5521b", "#2e7d4f",
                                      "#8e4a9e", "#a23b47", "#5b6770"};

typedef struct drawing {
    FILE *file;
    const cli_tree *tree;
    int size_at, details_at, width, height; /* px */
    uint64_t most_bytes;
} drawing;

/* --- texts ----------------------------------------------------------------------------------- */

static void put_xml(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        const char *entity = *text == '&'   ? "&amp;"
                             : *text == '<' ? "&lt;"
                             : *text == '>' ? "&gt;"
                             : *text == '"' ? "&quot;"
                                            : NULL;
        if (entity != NULL)
            fputs(entity, file);
        else
            putc(*text, file);
    }
}

/* Escapes what no terminal or XML reader should see, truncates to `most` characters and writes the
 * rest as XML. */
static lig_status put_text(FILE *file, const char *text, size_t most)
{
    char *escaped;
    LIG_TRY(cli_escape(text, &escaped));
    size_t used = 0, bytes = 0;
    for (; escaped[bytes] != '\0'; bytes++) {
        used += ((unsigned char)escaped[bytes] & 0xC0) != 0x80;
        if (used > most)
            break;
    }
    int truncated = escaped[bytes] != '\0';
    escaped[bytes] = '\0';
    put_xml(file, escaped);
    fputs(truncated ? "…" : "", file);
    free(escaped);
    return LIG_OK;
}

static size_t characters(const char *text)
{
    size_t count = 0;
    for (; *text != '\0'; text++)
        count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

/* --- geometry -------------------------------------------------------------------------------- */

static int lane_x(size_t lane)
{
    return LEFT + (int)(lane < 10000 ? lane : 10000) * LANE;
}

static int row_y(size_t row)
{
    return TOP + (int)row * ROW + ROW / 2;
}

static void measure(drawing *self)
{
    int names_end = 200, details = 0;
    for (size_t i = 0; i < self->tree->count; i++) {
        const cli_tree_row *row = &self->tree->rows[i];
        char metrics[1024], tags[1024];
        size_t letters = characters(row->model->name) + characters(row->aliases) + 3;
        int text = (int)(letters < 1000 ? letters : 1000) * CHARACTER + (row->orphan ? 150 : 0);
        int end = lane_x(row->lane) + 14 + (text < NAME_MAX_PX ? text : NAME_MAX_PX);
        names_end = end > names_end ? end : names_end;
        if (row->model->bytes > self->most_bytes)
            self->most_bytes = row->model->bytes;
        cli_metrics_text(row->model, metrics, sizeof metrics);
        cli_tags_text(row->model, tags, sizeof tags);
        int wide = (int)(characters(metrics) + characters(tags) + 2) * CHARACTER;
        details = wide > details ? wide : details;
    }
    self->size_at = names_end + 20;
    self->details_at = self->size_at + BAR + SIZE_PX;
    self->width = self->details_at + (details < DETAILS_PX ? details + 20 : DETAILS_PX + 20);
    self->height = TOP + (int)self->tree->count * ROW + 16;
}

/* --- parts ----------------------------------------------------------------------------------- */

static void put_edge(const drawing *self, size_t index)
{
    const cli_tree_row *row = &self->tree->rows[index], *parent = &self->tree->rows[row->parent];
    int x = lane_x(row->lane), y = row_y(index);
    int from_x = lane_x(parent->lane), from_y = row_y(row->parent);
    const char *colour = colours[row->lane % (sizeof colours / sizeof *colours)];
    if (x == from_x)
        fprintf(self->file, "<path d=\"M%d %dV%d\" stroke=\"%s\"/>\n", x, from_y, y, colour);
    else
        fprintf(self->file, "<path d=\"M%d %dV%dQ%d %d %d %dH%d\" stroke=\"%s\"/>\n", from_x,
                from_y, y - 8, from_x, y, from_x + 8, y, x, colour);
}

static lig_status put_tooltip(const drawing *self, const cli_tree_row *row)
{
    char date[32], metrics[1024], tags[1024];
    const lig_model *model = row->model;
    cli_date_text(model->created_ns, date, sizeof date);
    cli_metrics_text(model, metrics, sizeof metrics);
    cli_tags_text(model, tags, sizeof tags);
    fputs("<title>", self->file);
    LIG_TRY(put_text(self->file, model->name, SIZE_MAX));
    fprintf(self->file, "\n%s\n%zu tensors, %llu bytes, %llu of them written by this model", date,
            model->tensor_count, (unsigned long long)model->bytes,
            (unsigned long long)model->own_bytes);
    fputs(metrics[0] ? "\n" : "", self->file);
    LIG_TRY(put_text(self->file, metrics, SIZE_MAX));
    fputs(tags[0] ? "\n" : "", self->file);
    LIG_TRY(put_text(self->file, tags, SIZE_MAX));
    fputs("</title>", self->file);
    return LIG_OK;
}

static lig_status put_name(const drawing *self, const cli_tree_row *row, int x, int y)
{
    size_t room = NAME_MAX_PX / CHARACTER - 1;
    fprintf(self->file, "<text x=\"%d\" y=\"%d\">", x + 14, y + 4);
    LIG_TRY(put_text(self->file, row->model->name, room));
    if (row->aliases[0] != '\0') {
        fputs("<tspan dx=\"7\" font-weight=\"bold\">[", self->file);
        LIG_TRY(put_text(self->file, row->aliases, room));
        fputs("]</tspan>", self->file);
    }
    if (row->orphan) {
        fputs("<tspan dx=\"7\" fill=\"#777\">parent removed: ", self->file);
        LIG_TRY(put_text(self->file, row->model->parent_name, 12));
        fputs("</tspan>", self->file);
    }
    fputs("</text>", self->file);
    return LIG_OK;
}

/* The light bar is the model's size, the dark part what it wrote itself. */
static void put_size(const drawing *self, const lig_model *model, int y)
{
    double scale = self->most_bytes > 0 ? (double)BAR / (double)self->most_bytes : 0;
    char size[24], own[24];
    cli_size_text(model->bytes, size, sizeof size);
    cli_size_text(model->own_bytes, own, sizeof own);
    fprintf(self->file,
            "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"10\" fill=\"#cfd8e3\"/>"
            "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"10\" fill=\"#3d5a80\"/>",
            self->size_at, y - 5, (double)model->bytes * scale, self->size_at, y - 5,
            (double)model->own_bytes * scale);
    fprintf(self->file, "<text x=\"%d\" y=\"%d\">%s", self->size_at + BAR + 10, y + 4, size);
    if (model->own_bytes != model->bytes)
        fprintf(self->file, "<tspan fill=\"#777\">, own %s</tspan>", own);
    fputs("</text>", self->file);
}

static lig_status put_details(const drawing *self, const lig_model *model, int y)
{
    char metrics[1024], tags[1024];
    size_t room = DETAILS_PX / CHARACTER;
    cli_metrics_text(model, metrics, sizeof metrics);
    cli_tags_text(model, tags, sizeof tags);
    size_t used = characters(metrics);
    fprintf(self->file, "<text x=\"%d\" y=\"%d\">", self->details_at, y + 4);
    LIG_TRY(put_text(self->file, metrics, room));
    if (tags[0] != '\0' && used + 4 < room) {
        fprintf(self->file, "<tspan%s fill=\"#777\">", used > 0 ? " dx=\"10\"" : "");
        LIG_TRY(put_text(self->file, tags, room - used - 2));
        fputs("</tspan>", self->file);
    }
    fputs("</text>", self->file);
    return LIG_OK;
}

static lig_status put_row(const drawing *self, size_t index)
{
    const cli_tree_row *row = &self->tree->rows[index];
    int x = lane_x(row->lane), y = row_y(index);
    const char *colour = colours[row->lane % (sizeof colours / sizeof *colours)];
    fprintf(self->file,
            "<g class=\"row\"><rect class=\"back\" x=\"0\" y=\"%d\" width=\"%d\" height=\"%d\" "
            "fill=\"#000\" fill-opacity=\"0\"/>",
            y - ROW / 2, self->width, ROW);
    LIG_TRY(put_tooltip(self, row));
    fprintf(self->file,
            "<circle cx=\"%d\" cy=\"%d\" r=\"5\" fill=\"%s\" stroke=\"%s\" stroke-width=\"2\"/>", x,
            y, row->aliases[0] ? colour : "#fff", colour);
    LIG_TRY(put_name(self, row, x, y));
    put_size(self, row->model, y);
    LIG_TRY(put_details(self, row->model, y));
    fputs("</g>\n", self->file);
    return LIG_OK;
}

static lig_status put_head(const drawing *self, const char *title)
{
    uint64_t own = 0;
    char size[24];
    for (size_t i = 0; i < self->tree->count; i++)
        own += self->tree->rows[i].model->own_bytes;
    cli_size_text(own, size, sizeof size);
    fputs("<text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"bold\">", self->file);
    LIG_TRY(put_text(self->file, title, 100));
    fprintf(self->file,
            "</text>\n<text x=\"16\" y=\"46\" fill=\"#777\">%zu model%s, %s written. A filled "
            "circle marks a model with an alias; the dark part of a bar shows the bytes that the "
            "model wrote.</text>\n",
            self->tree->count, self->tree->count == 1 ? "" : "s", size);
    return LIG_OK;
}

lig_status cli_tree_svg(const cli_tree *tree, const char *title, FILE *file)
{
    drawing self = {.file = file, .tree = tree};
    measure(&self);
    if (self.width < 720) /* the line of explanation */
        self.width = 720;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" font-family=\"sans-serif\" font-size=\"%d\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            self.width, self.height, self.width, self.height, FONT);
    LIG_TRY(put_head(&self, title));
    fputs("<g fill=\"none\" stroke-width=\"2\">\n", file);
    for (size_t i = 0; i < tree->count; i++)
        if (tree->rows[i].parent != CLI_NO_ROW)
            put_edge(&self, i);
    fputs("</g>\n", file);
    for (size_t i = 0; i < tree->count; i++)
        LIG_TRY(put_row(&self, i));
    fputs("</svg>\n", file);
    return LIG_OK;
}

lig_status cli_tree_html(const cli_tree *tree, const char *title, FILE *file)
{
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>", file);
    LIG_TRY(put_text(file, title, SIZE_MAX));
    fputs("</title>\n<style>\nbody { margin: 0; background: #fff; overflow-x: auto }\n"
          ".row:hover .back { fill-opacity: 0.06 }\n</style>\n</head>\n<body>\n",
          file);
    LIG_TRY(cli_tree_svg(tree, title, file));
    fputs("</body>\n</html>\n", file);
    return LIG_OK;
}

/* --- DOT ------------------------------------------------------------------------------------- */

static lig_status put_quoted(FILE *file, const char *text)
{
    char *escaped;
    LIG_TRY(cli_escape(text, &escaped));
    for (const char *at = escaped; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\')
            putc('\\', file);
        putc(*at, file);
    }
    free(escaped);
    return LIG_OK;
}

lig_status cli_tree_dot(const cli_tree *tree, FILE *file)
{
    fputs("digraph lineage {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n", file);
    for (size_t i = 0; i < tree->count; i++) {
        const cli_tree_row *row = &tree->rows[i];
        char size[24], metrics[1024];
        cli_size_text(row->model->own_bytes, size, sizeof size);
        cli_metrics_text(row->model, metrics, sizeof metrics);
        fprintf(file, "  m%zu [label=\"", i);
        LIG_TRY(put_quoted(file, row->model->name));
        fprintf(file, "\\nown %s", size);
        fputs(metrics[0] ? "\\n" : "", file);
        LIG_TRY(put_quoted(file, metrics));
        fprintf(file, "\"%s];\n", row->aliases[0] ? ", style=bold" : "");
        if (row->parent != CLI_NO_ROW)
            fprintf(file, "  m%zu -> m%zu;\n", row->parent, i);
    }
    fputs("}\n", file);
    return LIG_OK;
}
