#include "formats/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void quote(FILE *file, const char *text)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    putc('"', file);
    const unsigned char *end = (const unsigned char *)text + strlen(text);
    for (const unsigned char *at = (const unsigned char *)text; at < end;) {
        size_t bytes = cli_json_utf8_bytes(at, end);
        const char *found = strchr(from, *at);
        if (found != NULL)
            fprintf(file, "\\%c", to[found - from]);
        else if (*at < 0x20 || *at == 0x7F)
            fprintf(file, "\\u%04x", *at);
        else if (bytes == 0)
            fputs("\\ufffd", file);
        else
            fwrite(at, 1, bytes, file);
        at += bytes > 0 ? bytes : 1;
    }
    putc('"', file);
}

static void new_line(cli_json_writer *writer)
{
    if (writer->compact)
        return;
    fprintf(writer->file, "\n%*s", (int)writer->depth * 2, "");
}

static void begin_item(cli_json_writer *writer, const char *key)
{
    uint64_t bit = UINT64_C(1) << (writer->depth & 63);
    if (writer->depth > 0) {
        if (writer->filled & bit)
            fputs(writer->compact ? ", " : ",", writer->file);
        new_line(writer);
        writer->filled |= bit;
    }
    if (key != NULL) {
        quote(writer->file, key);
        fputs(": ", writer->file);
    }
}

void cli_json_open(cli_json_writer *writer, const char *key, char bracket)
{
    begin_item(writer, key);
    putc(bracket, writer->file);
    writer->depth++;
    writer->filled &= ~(UINT64_C(1) << (writer->depth & 63));
}

void cli_json_close(cli_json_writer *writer, char bracket)
{
    int filled = (writer->filled >> (writer->depth & 63) & 1) != 0;
    writer->depth--;
    if (filled)
        new_line(writer);
    putc(bracket, writer->file);
    if (writer->depth == 0 && !writer->compact)
        putc('\n', writer->file);
}

void cli_json_put_text(cli_json_writer *writer, const char *key, const char *text)
{
    begin_item(writer, key);
    if (text == NULL)
        fputs("null", writer->file);
    else
        quote(writer->file, text);
}

void cli_json_put_u64(cli_json_writer *writer, const char *key, uint64_t value)
{
    begin_item(writer, key);
    fprintf(writer->file, "%" PRIu64, value);
}

void cli_json_put_i64(cli_json_writer *writer, const char *key, int64_t value)
{
    begin_item(writer, key);
    fprintf(writer->file, "%" PRId64, value);
}

void cli_json_put_double(cli_json_writer *writer, const char *key, double value)
{
    char text[40];
    begin_item(writer, key);
    if (!isfinite(value)) {
        fputs("null", writer->file);
        return;
    }
    for (int digits = 15; digits <= 17;
         digits++) { /* the shortest form that reads back as the same number */
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fputs(text, writer->file);
}

void cli_json_put_bool(cli_json_writer *writer, const char *key, int value)
{
    begin_item(writer, key);
    fputs(value ? "true" : "false", writer->file);
}

void cli_json_put_raw(cli_json_writer *writer, const char *key, const char *json)
{
    begin_item(writer, key);
    fputs(json, writer->file);
}
