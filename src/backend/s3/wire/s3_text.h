/* Text of a fixed size: URLs, headers and what is signed. Appending past the end sets `full`, which
 * the caller checks once. */
#ifndef LIGI_S3_TEXT_H
#define LIGI_S3_TEXT_H

#include <ligament/base.h>

typedef struct ligi_s3_text {
    char *data; /* always ends with a NUL */
    size_t bytes, capacity;
    int full; /* something did not fit */
} ligi_s3_text;

/* `data` is borrowed; capacity is at least 1. */
ligi_s3_text ligi_s3_text_over(char *data, size_t capacity);
void ligi_s3_text_add(ligi_s3_text *text, const char *string);
void ligi_s3_text_add_bytes(ligi_s3_text *text, const char *data, size_t bytes);
void ligi_s3_text_format(ligi_s3_text *text, const char *format, ...) LIG_PRINTF(2, 3);
/* Percent-encodes as SigV4 wants it: all but letters, digits and "-._~" (and '/' if `slashes`),
 * with upper-case digits. */
void ligi_s3_text_encode(ligi_s3_text *text, const char *string, int slashes);
/* "20130524T000000Z" */
#define LIGI_S3_DATE_BYTES 17
void ligi_s3_date_text(int64_t date_ns, char text[LIGI_S3_DATE_BYTES]);

#endif
