/* Letters and greetings from a hostile peer: what the check lets pass can be read to its end. */
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

static void look_at_all(const ligi_letter *letter, const ligi_parts *parts)
{
    look_at(parts->keys, 8 * (uint64_t)letter->count);
    look_at(parts->positions, 4 * (uint64_t)letter->count);
    look_at(parts->moves, 8 * (uint64_t)letter->count);
    look_at(parts->items, sizeof(ligi_item) * (uint64_t)letter->count);
    look_at(parts->rows, parts->rows_bytes);
    look_at(parts->sentence, parts->sentence_bytes);
}

/* Head and payload in memory of just their size, so that a step beyond is seen. */
static void try_letter(const ligi_greeting *own, const uint8_t *data, size_t head_bytes,
                       size_t payload_bytes)
{
    ligi_letter letter;
    ligi_parts parts;
    uint8_t *head = malloc(head_bytes + 1), *payload = malloc(payload_bytes + 1);
    if (head && payload) {
        memcpy(head, data, head_bytes);
        memcpy(payload, data + head_bytes, payload_bytes);
        if (ligi_letter_check(head, head_bytes, payload_bytes, own, &letter) == LIG_OK &&
            letter.kind != LIGI_LETTER_SHARE) {
            ligi_letter_open(&letter, head, head_bytes, payload, payload_bytes, &parts);
            look_at_all(&letter, &parts);
            look_at(parts.rates, parts.rates ? 8 * (uint64_t)own->table_count : 0);
        }
    }
    free(head);
    free(payload);
}

/* The first bytes say how the rest is cut, and a head that is nearly right is made of it as well.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ligi_greeting own = {.node_count = 3, .worker_count = 2, .table_count = 2}, other;
    if (bytes < 4 + LIGI_LETTER_BYTES)
        return 0;
    size_t tail = data[0] % 20, head_bytes = LIGI_LETTER_BYTES + tail;
    uint8_t *made = malloc(bytes);
    if (made == NULL)
        return 0;
    memcpy(made, data, bytes);
    (void)ligi_greeting_check(&own, data, bytes, &other);
    if (bytes - 4 >= head_bytes) {
        ligi_letter letter;
        try_letter(&own, data + 4, head_bytes, bytes - 4 - head_bytes);
        memcpy(&letter, data + 4, sizeof letter);
        letter.version = LIGI_LETTER_VERSION;
        letter.kind = (uint8_t)(1 + data[1] % 8);
        letter.verb %= 4;
        letter.hops = 0;
        letter.origin %= 4;
        letter.worker %= 3;
        letter.count = data[2];
        letter.flags %= 16;
        letter.number %= 20;
        memcpy(made + 4, &letter, sizeof letter);
        try_letter(&own, made + 4, head_bytes, bytes - 4 - head_bytes);
    }
    free(made);
    return 0;
}
