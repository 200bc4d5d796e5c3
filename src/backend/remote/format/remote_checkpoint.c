#include "backend/remote/format/remote_checkpoint.h"

#include "base/error.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC UINT64_C(0x31504B4347494C) /* "LIGCKP1" */
#define FRAME_BYTES ((size_t)1 << 20)
#define HEADER_BYTES 72 /* magic, id, version, chain, items, condemned, zero, check */
#define ITEM_LEAST 6    /* kind, key's size, value's size */

/* A header, then frames of about FRAME_BYTES that each have a check, then nothing. */
enum { KIND_ITEM, KIND_CONDEMNED };

/* --- writing --- */

typedef struct framing {
    ligi_writer frame;
    uint64_t number; /* of the frame */
    ligi_remote_sink sink;
    void *context;
} framing;

static uint64_t frame_check(uint64_t number, const void *bytes, size_t count)
{
    return ligi_hash64_plain(bytes, count) + number * UINT64_C(0x9E3779B97F4A7C15);
}

static lig_status flush(framing *self)
{
    ligi_writer head = {0};

    LIG_TRY(self->frame.status);
    if (self->frame.bytes == 0)
        return LIG_OK;
    ligi_put_u64(&head, self->frame.bytes);
    ligi_put_u64(&head, frame_check(self->number++, self->frame.data, self->frame.bytes));
    lig_status status = head.status;
    if (status == LIG_OK)
        status = self->sink(self->context, head.data, head.bytes);
    if (status == LIG_OK)
        status = self->sink(self->context, self->frame.data, self->frame.bytes);
    ligi_writer_fini(&head);
    self->frame.bytes = 0;
    return status;
}

static lig_status put_map(framing *self, const ligi_item_map *map, uint8_t kind)
{
    ligi_item_walk walk = {0};
    lig_catalog_item item;

    while (ligi_item_map_next(map, &walk, &item)) {
        ligi_put_u8(&self->frame, kind);
        ligi_put_u8(&self->frame, (uint8_t)item.key_bytes);
        ligi_put_u32(&self->frame, (uint32_t)item.value_bytes);
        ligi_put_bytes(&self->frame, item.key, item.key_bytes);
        ligi_put_bytes(&self->frame, item.value, item.value_bytes);
        if (self->frame.bytes >= FRAME_BYTES)
            LIG_TRY(flush(self));
    }
    return flush(self);
}

static lig_status put_header(framing *self, const ligi_remote_state *state, const uint8_t id[16])
{
    ligi_writer head = {0};

    ligi_put_u64(&head, MAGIC);
    ligi_put_bytes(&head, id, 16);
    ligi_put_u64(&head, state->version);
    ligi_put_u64(&head, state->chain);
    ligi_put_u64(&head, ligi_item_map_count(state->items));
    ligi_put_u64(&head, ligi_item_map_count(state->condemned));
    ligi_put_u64(&head, 0);
    lig_status status = head.status;
    if (status == LIG_OK)
        ligi_put_u64(&head, ligi_hash64_plain(head.data, head.bytes));
    if (status == LIG_OK)
        status = head.status;
    if (status == LIG_OK)
        status = self->sink(self->context, head.data, head.bytes);
    ligi_writer_fini(&head);
    return status;
}

lig_status ligi_remote_checkpoint_put(const ligi_remote_state *state, const uint8_t id[16],
                                      ligi_remote_sink sink, void *context)
{
    framing self = {.sink = sink, .context = context};
    lig_status status = put_header(&self, state, id);

    if (status == LIG_OK)
        status = put_map(&self, state->items, KIND_ITEM);
    if (status == LIG_OK)
        status = put_map(&self, state->condemned, KIND_CONDEMNED);
    ligi_writer_fini(&self.frame);
    return status;
}

/* --- reading --- */

typedef struct op_list {
    lig_catalog_op *ops;
    size_t count, capacity, expected;
} op_list;

typedef struct parsing {
    uint64_t version, chain;
    op_list lists[2]; /* by kind */
} parsing;

static lig_status damaged(const char *what)
{
    return lig_fail(LIG_E_CORRUPT, "a checkpoint of the catalog is damaged: %s", what);
}

static lig_status get_header(ligi_reader *reader, const uint8_t id[16], parsing *self)
{
    if (reader->bytes < HEADER_BYTES)
        return damaged("it is too short");
    uint64_t magic = ligi_get_u64(reader);
    const uint8_t *owner = ligi_get_bytes(reader, 16);
    self->version = ligi_get_u64(reader);
    self->chain = ligi_get_u64(reader);
    self->lists[KIND_ITEM].expected = ligi_get_u64(reader);
    self->lists[KIND_CONDEMNED].expected = ligi_get_u64(reader);
    (void)ligi_get_u64(reader);
    uint64_t check = ligi_hash64_plain(reader->data, reader->at);
    if (magic != MAGIC || ligi_get_u64(reader) != check)
        return damaged("its header does not match its check");
    if (memcmp(owner, id, 16) != 0)
        return damaged("it belongs to another store");
    return LIG_OK;
}

static lig_status get_item(ligi_reader *frame, parsing *self)
{
    uint8_t kind = ligi_get_u8(frame);
    size_t key_bytes = ligi_get_u8(frame), value_bytes = ligi_get_u32(frame);
    const void *key = ligi_get_bytes(frame, key_bytes), *value = ligi_get_bytes(frame, value_bytes);

    if (frame->failed || kind > KIND_CONDEMNED || key_bytes == 0 || key_bytes > LIGI_ITEM_KEY_MAX)
        return damaged("an item is invalid");
    op_list *list = &self->lists[kind];
    LIG_TRY(ligi_grow(&list->ops, &list->capacity, list->count + 1, sizeof *list->ops,
                      "the items of a checkpoint"));
    list->ops[list->count++] = (lig_catalog_op){key, key_bytes, value, value_bytes};
    return LIG_OK;
}

static lig_status get_frames(ligi_reader *reader, parsing *self)
{
    for (uint64_t number = 0; reader->at < reader->bytes; number++) {
        uint64_t bytes = ligi_get_u64(reader), check = ligi_get_u64(reader);
        const uint8_t *data = bytes <= SIZE_MAX ? ligi_get_bytes(reader, (size_t)bytes) : NULL;
        if (reader->failed || data == NULL || bytes < ITEM_LEAST ||
            check != frame_check(number, data, (size_t)bytes))
            return damaged("a frame does not match its check");
        ligi_reader frame = {.data = data, .bytes = (size_t)bytes};
        while (frame.at < frame.bytes)
            LIG_TRY(get_item(&frame, self));
    }
    for (int i = 0; i < 2; i++)
        if (self->lists[i].count != self->lists[i].expected)
            return damaged("its end is missing");
    return LIG_OK;
}

static lig_status make_state(const parsing *self, const uint8_t id[16], ligi_remote_state **out)
{
    ligi_remote_state *made;
    const op_list *items = &self->lists[KIND_ITEM], *condemned = &self->lists[KIND_CONDEMNED];

    LIG_TRY(ligi_remote_state_create(id, &made));
    made->version = self->version;
    made->chain = self->chain;
    lig_status status = ligi_item_map_edit(NULL, items->ops, items->count, &made->items);
    if (status == LIG_OK && condemned->count != 0)
        status = ligi_item_map_edit(NULL, condemned->ops, condemned->count, &made->condemned);
    if (status == LIG_OK)
        *out = made;
    else
        ligi_remote_state_release(made);
    return status;
}

lig_status ligi_remote_checkpoint_get(const void *bytes, size_t count, const uint8_t id[16],
                                      ligi_remote_state **state)
{
    ligi_reader reader = {.data = bytes, .bytes = count};
    parsing self = {0};
    lig_status status = get_header(&reader, id, &self);

    if (status == LIG_OK)
        status = get_frames(&reader, &self);
    if (status == LIG_OK)
        status = make_state(&self, id, state);
    for (int i = 0; i < 2; i++)
        free(self.lists[i].ops);
    return status;
}
