/* Any bytes as a record of the log: they are refused, or all items lie within them. */
#include "backend/log/log_record.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void touch(const ligi_clog_item *item)
{
    volatile uint8_t seen = 0;

    if (item->key_bytes > 0)
        seen ^= item->key[item->key_bytes - 1];
    if (item->value_bytes > 0)
        seen ^= item->value[item->value_bytes - 1];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t at = LIGI_CLOG_HEADER_BYTES;
    ligi_clog_header header;
    ligi_clog_item item;

    if (size < LIGI_CLOG_HEADER_BYTES)
        return 0;
    if (ligi_clog_header_get(data, &header) && header.bytes <= size)
        (void)ligi_clog_record_whole(data, &header);
    while (at < size) {
        if (ligi_clog_item_next(data, size, &at, &item))
            touch(&item);
        else if (!ligi_clog_item_skip(data, size, &at))
            break;
    }
    return 0;
}
