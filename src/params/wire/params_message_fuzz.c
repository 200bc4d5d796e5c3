/* Messages and hellos from a hostile peer: an accepted message can be read to its end. */
#include "params/wire/params_message.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static volatile uint64_t sink;

static void look_at(const void *from, uint64_t bytes)
{
    const uint8_t *at = from;
    for (uint64_t i = 0; i < bytes && at; i++)
        sink += at[i];
}

static void look_at_all(const ligi_params_message *message, const ligi_params_parts *parts)
{
    look_at(parts->keys, 8 * (uint64_t)message->count);
    look_at(parts->positions, 4 * (uint64_t)message->count);
    look_at(parts->moves, 8 * (uint64_t)message->count);
    look_at(parts->items, sizeof(ligi_sync_item) * (uint64_t)message->count);
    look_at(parts->rows, parts->rows_bytes);
    look_at(parts->sentence, parts->sentence_bytes);
}

/* Head and payload in memory of exactly their size, so that AddressSanitizer detects any access
 * beyond it. */
static void try_message(const ligi_params_hello *own, const uint8_t *data, size_t head_bytes,
                        size_t payload_bytes)
{
    ligi_params_message message;
    ligi_params_parts parts;
    uint8_t *head = malloc(head_bytes + 1), *payload = malloc(payload_bytes + 1);
    if (head && payload) {
        memcpy(head, data, head_bytes);
        memcpy(payload, data + head_bytes, payload_bytes);
        if (ligi_params_message_check(head, head_bytes, payload_bytes, LIGI_PARAMS_PAYLOAD_MAX, own,
                                      &message) == LIG_OK &&
            message.kind != LIGI_PARAMS_SHARE) {
            ligi_params_message_open(&message, head, head_bytes, payload, payload_bytes, &parts);
            look_at_all(&message, &parts);
            look_at(parts.rates, parts.rates ? 8 * (uint64_t)own->table_count : 0);
        }
    }
    free(head);
    free(payload);
}

/* The first bytes determine how the rest is split; a nearly valid head is built from it as well. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ligi_params_hello own = {.node_count = 3, .worker_count = 2, .table_count = 2}, other;
    if (bytes < 4 + LIGI_PARAMS_HEAD_BYTES)
        return 0;
    size_t tail = data[0] % 20, head_bytes = LIGI_PARAMS_HEAD_BYTES + tail;
    uint8_t *made = malloc(bytes);
    if (made == NULL)
        return 0;
    memcpy(made, data, bytes);
    (void)ligi_params_hello_check(&own, data, bytes, &other);
    if (bytes - 4 >= head_bytes) {
        ligi_params_message message;
        try_message(&own, data + 4, head_bytes, bytes - 4 - head_bytes);
        memcpy(&message, data + 4, sizeof message);
        message.version = LIGI_PARAMS_MESSAGE_VERSION;
        message.kind = (uint8_t)(1 + data[1] % 8);
        message.verb %= 4;
        message.hops = 0;
        message.origin %= 4;
        message.worker %= 3;
        message.count = data[2];
        message.flags %= 16;
        message.number %= 20;
        memcpy(made + 4, &message, sizeof message);
        try_message(&own, made + 4, head_bytes, bytes - 4 - head_bytes);
    }
    free(made);
    return 0;
}
