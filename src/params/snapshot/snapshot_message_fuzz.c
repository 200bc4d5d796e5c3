/* Messages about saving and loading from a hostile peer: every part of an accepted message is
 * readable. */
#include "params/snapshot/snapshot_message.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static uint64_t look_at_all(const ligi_snapshot_message *content)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < content->front.count && content->text; i++)
        sum += content->text[i];
    for (uint32_t i = 0; i < content->front.count && content->keys; i++)
        sum += (uint64_t)ligi_params_snapshot_message_key(content, i);
    for (uint32_t i = 0; i < content->front.count && content->bits; i++)
        sum += (uint64_t)ligi_params_snapshot_message_bit(content, i);
    for (uint64_t i = 0; i < content->body_bytes; i++)
        sum += content->bodies[i];
    return sum;
}

/* The first byte is the verb and the second a small count, so that valid messages occur by
 * chance. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ligi_snapshot_message content;
    volatile uint64_t sum = 0;
    if (bytes < 2)
        return 0;
    uint8_t *payload = malloc(bytes);
    if (payload == NULL)
        return 0;
    memcpy(payload, data + 2, bytes - 2);
    for (int plain = 0; plain < 2; plain++) {
        if (ligi_params_snapshot_message_open(data[0] % 10, payload, bytes - 2, &content) == LIG_OK)
            sum += look_at_all(&content);
        uint32_t count = data[1];
        if (bytes - 2 >= sizeof content.front) {
            memset(payload + offsetof(ligi_snapshot_front, at), 0, 16);
            memcpy(payload + offsetof(ligi_snapshot_front, count), &count, sizeof count);
        }
    }
    free(payload);
    return 0;
}
