#include "mesh/buffers/registered_buffers.h"

#include "base/error.h"

#include <stdlib.h>

ligi_registered_buffer *ligi_registered_find(const ligi_registered *places, uint64_t key)
{
    uint64_t index;
    if (places->count == 0 || !ligi_map_find(&places->map, &key, sizeof key, &index))
        return NULL;
    return places->all[index];
}

lig_status ligi_registered_fits(const ligi_registered_buffer *buffer, uint64_t tensor_bytes)
{
    if (buffer && tensor_bytes > buffer->bytes)
        return lig_fail(
            LIG_E_LIMIT,
            "the tensor of key %llu has %llu bytes, but the buffer registered for it only %llu",
            (unsigned long long)buffer->key, (unsigned long long)tensor_bytes,
            (unsigned long long)buffer->bytes);
    return LIG_OK;
}

lig_status ligi_registered_set(ligi_registered *places, uint64_t key, void *data, uint64_t bytes,
                               uint16_t memory)
{
    ligi_registered_buffer *place = ligi_registered_find(places, key);
    if (place && (place->holder || place->parked))
        return lig_fail(LIG_E_BUSY, "the buffer of key %llu is in use by an unanswered request",
                        (unsigned long long)key);
    if (place) {
        place->data = data;
        place->bytes = bytes;
        place->memory = memory;
        return LIG_OK;
    }
    if (places->count == LIGI_REGISTERED_MAX)
        return lig_fail(LIG_E_LIMIT, "too many registered buffers for the worker: the limit is %d",
                        LIGI_REGISTERED_MAX);
    LIG_TRY(ligi_grow(&places->all, &places->room, places->count + 1, sizeof *places->all,
                      "registered buffers"));
    LIG_TRY(ligi_calloc(&place, 1, sizeof *place, "a registered buffer"));
    *place = (ligi_registered_buffer){.key = key, .data = data, .bytes = bytes, .memory = memory};
    lig_status status =
        ligi_map_insert(&places->map, &place->key, sizeof place->key, places->count, NULL);
    if (status != LIG_OK) {
        free(place);
        return status;
    }
    places->all[places->count++] = place;
    return LIG_OK;
}

void ligi_registered_fini(ligi_registered *places)
{
    for (size_t i = 0; i < places->count; i++)
        free(places->all[i]);
    free(places->all);
    ligi_map_fini(&places->map);
    *places = (ligi_registered){0};
}
