/* Outgoing sync messages. */
#include "params/wire/sync_send.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* What a receiver handles in one step. Rows that have just left are in the cache when others take
 * their slots, and so is the message when its buffer is reused. */
#define PLAIN_ITEMS 1024u
#define ROWS_BYTES (UINT64_C(256) << 10)

lig_status ligi_sync_send_init(ligi_sync_sender *sender, const ligi_send_ops *send_ops,
                               uint32_t node_count, uint64_t row_bytes_max)
{
    *sender = (ligi_sync_sender){
        .send_ops = *send_ops, .node_count = node_count, .row_bytes_max = row_bytes_max};
    return ligi_calloc(&sender->drafts, node_count, sizeof *sender->drafts, "messages");
}

void ligi_sync_send_fini(ligi_sync_sender *sender)
{
    for (uint32_t i = 0; sender->drafts != NULL && i < sender->node_count; i++)
        if (sender->drafts[i].buffer != NULL)
            sender->send_ops.drop(sender->send_ops.context, sender->drafts[i].buffer);
    free(sender->drafts);
    sender->drafts = NULL;
}

static lig_status seal(ligi_sync_sender *sender, uint32_t to)
{
    ligi_message_draft *draft = &sender->drafts[to];
    ligi_send_buffer *buffer = draft->buffer;
    uint64_t begun = (uint64_t)draft->room * sizeof(ligi_sync_item),
             used = (uint64_t)draft->message.count * sizeof(ligi_sync_item);

    if (buffer == NULL)
        return LIG_OK;
    draft->buffer = NULL;
    if (used == 0) { /* nothing was added after all */
        sender->send_ops.drop(sender->send_ops.context, buffer);
        return LIG_OK;
    }
    if (used < begun && draft->rows_bytes > 0)
        memmove(buffer->data + used, buffer->data + begun, draft->rows_bytes);
    buffer->bytes = used + draft->rows_bytes;
    const ligi_params_outgoing outgoing = {.message = draft->message, .buffer = buffer};
    return sender->send_ops.outgoing(sender->send_ops.context, to, &outgoing);
}

/* Items with rows come in large numbers or as a few; space for a full message's items is reserved
 * before the rows, and only a message that is not full has its rows moved together. If the
 * longest row would fill a message, the buffer is sized for this row. */
static lig_status begin(ligi_sync_sender *sender, const ligi_sync_address *address,
                        uint64_t row_bytes)
{
    ligi_message_draft *draft = &sender->drafts[address->to];
    uint32_t next = draft->next;
    uint64_t room = PLAIN_ITEMS, bytes = room * sizeof(ligi_sync_item);

    if (row_bytes > 0) {
        uint64_t longest = sender->row_bytes_max < ROWS_BYTES ? sender->row_bytes_max : row_bytes;
        room = ROWS_BYTES / (sizeof(ligi_sync_item) + longest);
        room = room < 1 ? 1 : room > PLAIN_ITEMS ? PLAIN_ITEMS : room;
        bytes = room * (sizeof(ligi_sync_item) + longest);
    }
    ligi_send_buffer *buffer;
    LIG_TRY(sender->send_ops.take(sender->send_ops.context, bytes, &buffer));
    *draft = (ligi_message_draft){.buffer = buffer,
                                  .room = (uint32_t)room,
                                  .next = next,
                                  .message = {.kind = (uint8_t)address->kind,
                                              .hops = address->hops,
                                              .origin = address->origin}};
    if (next == 0) {
        draft->next = sender->begun != 0 ? sender->begun : sender->node_count + 1;
        sender->begun = address->to + 1;
    }
    return LIG_OK;
}

static int fits(const ligi_message_draft *draft, const ligi_sync_address *address,
                uint64_t row_bytes)
{
    const ligi_params_message *message = &draft->message;
    uint64_t used = draft->room * sizeof(ligi_sync_item) + draft->rows_bytes;

    return message->kind == address->kind && message->origin == address->origin &&
           message->hops == address->hops && message->count < draft->room &&
           row_bytes <= draft->buffer->room - used;
}

lig_status ligi_sync_send_reserve(ligi_sync_sender *sender, const ligi_sync_address *address,
                                  uint64_t row_bytes, void **row)
{
    ligi_message_draft *draft = &sender->drafts[address->to];

    if (draft->buffer != NULL && !fits(draft, address, row_bytes))
        LIG_TRY(seal(sender, address->to));
    if (draft->buffer == NULL)
        LIG_TRY(begin(sender, address, row_bytes));
    if (row != NULL)
        *row = draft->buffer->data + draft->room * sizeof(ligi_sync_item) + draft->rows_bytes;
    return LIG_OK;
}

void ligi_sync_send_add(ligi_sync_sender *sender, uint32_t to, const ligi_sync_item *item,
                        uint64_t row_bytes)
{
    ligi_message_draft *draft = &sender->drafts[to];

    memcpy(draft->buffer->data + draft->message.count * sizeof *item, item, sizeof *item);
    draft->message.count++;
    draft->rows_bytes += row_bytes;
}

lig_status ligi_sync_send_item(ligi_sync_sender *sender, const ligi_sync_address *address,
                               const ligi_sync_item *item)
{
    LIG_TRY(ligi_sync_send_reserve(sender, address, 0, NULL));
    ligi_sync_send_add(sender, address->to, item, 0);
    return LIG_OK;
}

lig_status ligi_sync_send_flush(ligi_sync_sender *sender)
{
    lig_status status = LIG_OK;

    while (sender->begun != 0 && sender->begun <= sender->node_count) {
        uint32_t to = sender->begun - 1;
        lig_status sent = seal(sender, to);
        status = status == LIG_OK ? sent : status;
        sender->begun = sender->drafts[to].next;
        sender->drafts[to].next = 0;
    }
    sender->begun = 0;
    return status;
}
