#include "params/snapshot/snapshot_message.h"

#include "params/wire/params_message.h"

#include <string.h>

static lig_status wrong(uint8_t verb)
{
    return lig_fail(LIG_E_CORRUPT, "malformed snapshot message (verb %u)", verb);
}

static lig_status open_text(uint8_t verb, const uint8_t *rest, uint64_t left,
                            ligi_snapshot_message *content)
{
    const ligi_snapshot_front *front = &content->front;
    if (front->count != left || left > LIGI_SNAPSHOT_TEXT_MAX ||
        front->total > LIGI_SNAPSHOT_DATA_MAX || front->status > LIG_E_INTERNAL)
        return wrong(verb);
    if (front->status == LIG_OK &&
        (front->at > front->total || front->count > front->total - front->at))
        return wrong(verb);
    if (front->status != LIG_OK && left > LIGI_PARAMS_SENTENCE_MAX)
        return wrong(verb);
    content->text = rest;
    return LIG_OK;
}

lig_status ligi_params_snapshot_message_open(uint8_t verb, const void *payload, uint64_t bytes,
                                             ligi_snapshot_message *content)
{
    *content = (ligi_snapshot_message){0};
    if (bytes < sizeof content->front)
        return wrong(verb);
    memcpy(&content->front, payload, sizeof content->front);
    const uint8_t *rest = (const uint8_t *)payload + sizeof content->front;
    uint64_t left = bytes - sizeof content->front, keys = (uint64_t)content->front.count * 8;
    uint64_t bits = ((uint64_t)content->front.count + 7) / 8;
    switch (verb) {
    case LIGI_SNAPSHOT_REPORT:
    case LIGI_SNAPSHOT_DECISION: return open_text(verb, rest, left, content);
    case LIGI_SNAPSHOT_GET: return left == 0 ? LIG_OK : wrong(verb);
    case LIGI_SNAPSHOT_OWNED:
    case LIGI_SNAPSHOT_TAKEN: content->bits = rest; return left == bits ? LIG_OK : wrong(verb);
    case LIGI_SNAPSHOT_ROWS:
    case LIGI_SNAPSHOT_OWN:
    case LIGI_SNAPSHOT_PUT: break;
    default: return wrong(verb);
    }
    if (left < keys || (verb == LIGI_SNAPSHOT_OWN && left != keys))
        return wrong(verb);
    content->keys = rest;
    content->bodies = rest + keys;
    content->body_bytes = left - keys;
    return LIG_OK;
}

int64_t ligi_params_snapshot_message_key(const ligi_snapshot_message *content, uint32_t index)
{
    int64_t key;
    memcpy(&key, content->keys + (uint64_t)index * 8, sizeof key);
    return key;
}

int ligi_params_snapshot_message_bit(const ligi_snapshot_message *content, uint32_t index)
{
    return content->bits[index / 8] >> (index % 8) & 1;
}
