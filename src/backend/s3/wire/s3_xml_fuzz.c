/* Any bytes as an answer of a server: refused, or read within them. */
#include "backend/s3/wire/s3_answer.h"
#include "backend/s3/wire/s3_list.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int touch(void *context, const ligi_s3_list_item *item)
{
    volatile size_t *seen = context;

    *seen += strlen(item->key) + strlen(item->upload) + (size_t)item->date_s;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *body = (const char *)data;
    char upload[LIGI_S3_UPLOAD_BYTES];
    ligi_s3_answer answer = {0};
    volatile size_t seen = 0;
    int truncated;

    (void)ligi_s3_list_parse(body, size, touch, (void *)&seen, &truncated);
    (void)ligi_s3_upload_parse(body, size, upload);
    (void)ligi_s3_complete_parse(body, size);
    ligi_s3_answer_parse_error(&answer, body, size);
    seen += strlen(answer.code) + strlen(answer.message) + strlen(answer.region);
    return 0;
}
