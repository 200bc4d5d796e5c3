/* Letters of sync on their way out. */
#include "params/wire/sync_send.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* What a receiver does at one go. Rows that have just left are in the cache when others take their
 * slots, and so is the letter when it is written again. */
#define PLAIN_ITEMS 1024u
#define ROWS_BYTES (UINT64_C(256) << 10)

lig_status ligi_courier_init(ligi_courier *courier, const ligi_carrier *carrier,
                             uint32_t node_count, uint64_t row_bytes_max)
{
    *courier = (ligi_courier){
        .carrier = *carrier, .node_count = node_count, .row_bytes_max = row_bytes_max};
    return ligi_calloc(&courier->envelopes, node_count, sizeof *courier->envelopes, "letters");
}

void ligi_courier_fini(ligi_courier *courier)
{
    for (uint32_t i = 0; courier->envelopes != NULL && i < courier->node_count; i++)
        if (courier->envelopes[i].parcel != NULL)
            courier->carrier.drop(courier->carrier.context, courier->envelopes[i].parcel);
    free(courier->envelopes);
    courier->envelopes = NULL;
}

static lig_status seal(ligi_courier *courier, uint32_t to)
{
    ligi_envelope *envelope = &courier->envelopes[to];
    ligi_parcel *parcel = envelope->parcel;
    uint64_t begun = (uint64_t)envelope->room * sizeof(ligi_item),
             used = (uint64_t)envelope->letter.count * sizeof(ligi_item);

    if (parcel == NULL)
        return LIG_OK;
    envelope->parcel = NULL;
    if (used == 0) { /* there was nothing to say after all */
        courier->carrier.drop(courier->carrier.context, parcel);
        return LIG_OK;
    }
    if (used < begun && envelope->rows_bytes > 0)
        memmove(parcel->data + used, parcel->data + begun, envelope->rows_bytes);
    parcel->bytes = used + envelope->rows_bytes;
    const ligi_post post = {.letter = envelope->letter, .parcel = parcel};
    return courier->carrier.post(courier->carrier.context, to, &post);
}

/* Items that have rows come in large numbers or as a handful; room for a full letter's items is
 * kept before the rows, and only a letter that is not full has its rows moved together. */
static lig_status begin(ligi_courier *courier, const ligi_address *address, uint64_t row_bytes)
{
    ligi_envelope *envelope = &courier->envelopes[address->to];
    uint32_t next = envelope->next;
    uint64_t room = PLAIN_ITEMS, bytes = room * sizeof(ligi_item);

    if (row_bytes > 0) {
        room = ROWS_BYTES / (sizeof(ligi_item) + courier->row_bytes_max);
        room = room < 1 ? 1 : room > PLAIN_ITEMS ? PLAIN_ITEMS : room;
        bytes = room * (sizeof(ligi_item) + courier->row_bytes_max);
    }
    ligi_parcel *parcel;
    LIG_TRY(courier->carrier.take(courier->carrier.context, bytes, &parcel));
    *envelope = (ligi_envelope){.parcel = parcel,
                                .room = (uint32_t)room,
                                .next = next,
                                .letter = {.kind = (uint8_t)address->kind,
                                           .hops = address->hops,
                                           .origin = address->origin}};
    if (next == 0) {
        envelope->next = courier->begun != 0 ? courier->begun : courier->node_count + 1;
        courier->begun = address->to + 1;
    }
    return LIG_OK;
}

static int fits(const ligi_envelope *envelope, const ligi_address *address, uint64_t row_bytes)
{
    const ligi_letter *letter = &envelope->letter;
    uint64_t used = envelope->room * sizeof(ligi_item) + envelope->rows_bytes;

    return letter->kind == address->kind && letter->origin == address->origin &&
           letter->hops == address->hops && letter->count < envelope->room &&
           row_bytes <= envelope->parcel->room - used;
}

lig_status ligi_courier_room(ligi_courier *courier, const ligi_address *address, uint64_t row_bytes,
                             void **row)
{
    ligi_envelope *envelope = &courier->envelopes[address->to];

    if (envelope->parcel != NULL && !fits(envelope, address, row_bytes))
        LIG_TRY(seal(courier, address->to));
    if (envelope->parcel == NULL)
        LIG_TRY(begin(courier, address, row_bytes));
    if (row != NULL)
        *row = envelope->parcel->data + envelope->room * sizeof(ligi_item) + envelope->rows_bytes;
    return LIG_OK;
}

void ligi_courier_add(ligi_courier *courier, uint32_t to, const ligi_item *item, uint64_t row_bytes)
{
    ligi_envelope *envelope = &courier->envelopes[to];

    memcpy(envelope->parcel->data + envelope->letter.count * sizeof *item, item, sizeof *item);
    envelope->letter.count++;
    envelope->rows_bytes += row_bytes;
}

lig_status ligi_courier_say(ligi_courier *courier, const ligi_address *address,
                            const ligi_item *item)
{
    LIG_TRY(ligi_courier_room(courier, address, 0, NULL));
    ligi_courier_add(courier, address->to, item, 0);
    return LIG_OK;
}

lig_status ligi_courier_send(ligi_courier *courier)
{
    lig_status status = LIG_OK;

    while (courier->begun != 0 && courier->begun <= courier->node_count) {
        uint32_t to = courier->begun - 1;
        lig_status sent = seal(courier, to);
        status = status == LIG_OK ? sent : status;
        courier->begun = courier->envelopes[to].next;
        courier->envelopes[to].next = 0;
    }
    courier->begun = 0;
    return status;
}
