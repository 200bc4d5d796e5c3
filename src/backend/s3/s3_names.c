#include "backend/s3/s3_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int is_decimal(const char *folder)
{
    return folder[0] == 'c'; /* versions: cat/ and ckpt/ */
}

static void format(const char *folder, uint64_t number, char key[LIGI_S3_SHORT_KEY_BYTES])
{
    if (is_decimal(folder))
        snprintf(key, LIGI_S3_SHORT_KEY_BYTES, "%s%020" PRIu64, folder, number);
    else
        snprintf(key, LIGI_S3_SHORT_KEY_BYTES, "%s%016" PRIx64, folder, number);
}

void ligi_s3_name_commit(uint64_t version, char key[LIGI_S3_SHORT_KEY_BYTES])
{
    format("cat/", version, key);
}

void ligi_s3_name_object(ligi_object object, char key[LIGI_S3_SHORT_KEY_BYTES])
{
    format(ligi_s3_name_folder(object.kind), object.id, key);
}

void ligi_s3_name_hold(uint64_t id, char key[LIGI_S3_SHORT_KEY_BYTES])
{
    format("hold/", id, key);
}

const char *ligi_s3_name_folder(ligi_object_kind kind)
{
    return kind == LIGI_OBJECT_PACK ? "pack/" : "ckpt/";
}

int ligi_s3_name_number(const char *key, const char *folder, uint64_t *number)
{
    size_t bytes = strlen(folder);
    char again[LIGI_S3_SHORT_KEY_BYTES];
    uint64_t value;

    if (strncmp(key, folder, bytes) != 0 || strlen(key) > bytes + 20)
        return 0;
    if (sscanf(key + bytes, is_decimal(folder) ? "%" SCNu64 : "%" SCNx64, &value) != 1)
        return 0;
    format(folder, value, again);
    if (strcmp(again, key) != 0)
        return 0;
    *number = value;
    return 1;
}
