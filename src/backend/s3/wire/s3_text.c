#include "backend/s3/wire/s3_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

ligi_s3_text ligi_s3_text_over(char *data, size_t capacity)
{
    data[0] = '\0';
    return (ligi_s3_text){.data = data, .capacity = capacity};
}

void ligi_s3_text_add_bytes(ligi_s3_text *text, const char *data, size_t bytes)
{
    if (bytes >= text->capacity - text->bytes) {
        text->full = 1;
        return;
    }
    memcpy(text->data + text->bytes, data, bytes);
    text->bytes += bytes;
    text->data[text->bytes] = '\0';
}

void ligi_s3_text_add(ligi_s3_text *text, const char *string)
{
    ligi_s3_text_add_bytes(text, string, strlen(string));
}

void ligi_s3_text_format(ligi_s3_text *text, const char *format, ...)
{
    va_list arguments;
    size_t left = text->capacity - text->bytes;

    va_start(arguments, format);
    int bytes = vsnprintf(text->data + text->bytes, left, format, arguments);
    va_end(arguments);
    if (bytes < 0 || (size_t)bytes >= left) {
        text->data[text->bytes] = '\0';
        text->full = 1;
        return;
    }
    text->bytes += (size_t)bytes;
}

static int is_unreserved(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

void ligi_s3_text_encode(ligi_s3_text *text, const char *string, int slashes)
{
    static const char digits[] = "0123456789ABCDEF";

    for (const unsigned char *c = (const unsigned char *)string; *c != '\0'; c++) {
        char out[3] = {'%', digits[*c >> 4], digits[*c & 15]};
        if (is_unreserved(*c) || (slashes && *c == '/'))
            ligi_s3_text_add_bytes(text, (const char *)c, 1);
        else
            ligi_s3_text_add_bytes(text, out, 3);
    }
}

void ligi_s3_date_text(int64_t date_ns, char text[LIGI_S3_DATE_BYTES])
{
    time_t seconds = (time_t)(date_ns / 1000000000);
    struct tm parts;

    gmtime_r(&seconds, &parts);
    if (strftime(text, LIGI_S3_DATE_BYTES, "%Y%m%dT%H%M%SZ", &parts) == 0)
        text[0] = '\0';
}
