#include "params/snapshot/snapshot_message.h"

#include "params/wire/params_message.h"

#include <string.h>

static lig_status wrong(uint8_t verb)
{
    return lig_fail(LIG_E_CORRUPT, "a letter about saving (%u) does not fit together", verb);
}

static lig_status open_text(uint8_t verb, const uint8_t *rest, uint64_t left, ligi_note *note)
{
    const ligi_note_front *front = &note->front;
    if (front->count != left || left > LIGI_NOTE_TEXT_MAX || front->total > LIGI_NOTE_DATA_MAX ||
        front->status > LIG_E_INTERNAL)
        return wrong(verb);
    if (front->status == LIG_OK &&
        (front->at > front->total || front->count > front->total - front->at))
        return wrong(verb);
    if (front->status != LIG_OK && left > LIGI_LETTER_SENTENCE_MAX)
        return wrong(verb);
    note->text = rest;
    return LIG_OK;
}

lig_status ligi_note_open(uint8_t verb, const void *payload, uint64_t bytes, ligi_note *note)
{
    *note = (ligi_note){0};
    if (bytes < sizeof note->front)
        return wrong(verb);
    memcpy(&note->front, payload, sizeof note->front);
    const uint8_t *rest = (const uint8_t *)payload + sizeof note->front;
    uint64_t left = bytes - sizeof note->front, keys = (uint64_t)note->front.count * 8;
    uint64_t bits = ((uint64_t)note->front.count + 7) / 8;
    switch (verb) {
    case LIGI_KEEP_SAY:
    case LIGI_KEEP_HEAR: return open_text(verb, rest, left, note);
    case LIGI_KEEP_GET: return left == 0 ? LIG_OK : wrong(verb);
    case LIGI_KEEP_OWNED:
    case LIGI_KEEP_TAKEN: note->bits = rest; return left == bits ? LIG_OK : wrong(verb);
    case LIGI_KEEP_ROWS:
    case LIGI_KEEP_OWN:
    case LIGI_KEEP_PUT: break;
    default: return wrong(verb);
    }
    if (left < keys || (verb == LIGI_KEEP_OWN && left != keys))
        return wrong(verb);
    note->keys = rest;
    note->bodies = rest + keys;
    note->body_bytes = left - keys;
    return LIG_OK;
}

int64_t ligi_note_key(const ligi_note *note, uint32_t index)
{
    int64_t key;
    memcpy(&key, note->keys + (uint64_t)index * 8, sizeof key);
    return key;
}

int ligi_note_bit(const ligi_note *note, uint32_t index)
{
    return note->bits[index / 8] >> (index % 8) & 1;
}
