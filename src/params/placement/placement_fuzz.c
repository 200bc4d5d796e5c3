/* Sync messages from hostile nodes, in any order, between rounds of a node with random interests:
 * refused, or applied without access outside the buffers. */
#include "params/placement/owner_protocol.h"
#include "params/placement/placement.h"
#include "params/placement/replica_protocol.h"
#include "params/tables/row_access.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 3, KEYS = 6, LENGTH = 2, ITEMS_MAX = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef struct reader {
    const uint8_t *data;
    size_t bytes, at;
} reader;

static uint32_t next(reader *in, uint32_t below)
{
    return in->at < in->bytes ? in->data[in->at++] % below : 0;
}

static lig_status take(void *context, uint64_t bytes, ligi_send_buffer **buffer)
{
    (void)context;
    *buffer = calloc(1, sizeof **buffer);
    assert(*buffer != NULL);
    (*buffer)->data = malloc(bytes);
    (*buffer)->room = bytes;
    assert((*buffer)->data != NULL);
    return LIG_OK;
}

static void drop(void *context, ligi_send_buffer *buffer)
{
    (void)context;
    free(buffer->data);
    free(buffer);
}

static lig_status outgoing(void *context, uint32_t to, const ligi_params_outgoing *message)
{
    assert(to != 0 && to < NODES && message->message.count > 0);
    assert(message->buffer->bytes <= message->buffer->room);
    drop(context, message->buffer);
    return LIG_OK;
}

/* A message with rows of about the right size. */
static lig_status one_message(ligi_placement *placement, reader *in)
{
    uint8_t rows[(ITEMS_MAX + 1) * LENGTH * sizeof(int64_t)];
    ligi_sync_item items[ITEMS_MAX];
    ligi_params_message head = {.kind = (uint8_t)(LIGI_PARAMS_SYNC + next(in, 3)),
                                .origin = next(in, NODES + 1),
                                .count = 1 + next(in, ITEMS_MAX)};
    uint64_t rows_bytes = 0;

    memset(rows, 1, sizeof rows);
    for (uint32_t i = 0; i < head.count; i++) {
        items[i] = (ligi_sync_item){.key = (int64_t)next(in, KEYS + 2) - 1,
                                    .number = next(in, 8),
                                    .kind = (uint16_t)next(in, 10),
                                    .extra = next(in, 8)};
        if (items[i].kind >= LIGI_ITEM_DELTA && items[i].kind <= LIGI_ITEM_FRESH)
            rows_bytes += LENGTH * sizeof(int64_t);
    }
    rows_bytes += next(in, 16) == 0;
    const ligi_params_parts parts = {.items = items, .rows = rows, .rows_bytes = rows_bytes};
    return ligi_placement_arrived(placement, 1 + next(in, NODES - 1), &head, &parts);
}

static lig_status one_round(ligi_placement *placement, reader *in, ligi_intent_segment *segment)
{
    size_t budget = SIZE_MAX;
    int through;

    segment->entries[0] = next(in, KEYS);
    segment->done = 0;
    segment->end = 1 + next(in, 2);
    if (next(in, 2))
        LIG_TRY(ligi_placement_begin(placement, 0, segment, &budget, &through));
    else
        LIG_TRY(ligi_placement_end(placement, segment, &budget, &through));
    LIG_TRY(ligi_placement_rested(placement));
    if (next(in, 4) == 0)
        LIG_TRY(ligi_placement_surrender(placement, next(in, KEYS)));
    if (next(in, 4) == 0)
        LIG_TRY(ligi_placement_written_by(placement, next(in, KEYS), next(in, NODES)));
    LIG_TRY(ligi_placement_spread(placement, &budget));
    return ligi_sync_send_flush(&placement->sender);
}

static lig_status one_push(ligi_placement *placement, reader *in)
{
    int64_t key = next(in, KEYS), values[LENGTH] = {1, 2};
    ligi_entry noted[1];
    ligi_miss misses[1];
    uint64_t elements;
    ligi_batch batch = {
        .keys = &key, .count = 1, .values = values, .misses = misses, .noted = noted};

    LIG_TRY(ligi_tables_resolve(placement->tables, &batch, &elements));
    ligi_tables_write(placement->tables, LIGI_WRITE_PUSH, &batch);
    return ligi_placement_note(placement, noted, batch.noted_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const lig_params_table table = {.key_count = KEYS, .length = LENGTH};
    const ligi_tables_options options = {
        .tables = &table, .table_count = 1, .dtype = LIG_INT64, .node_count = NODES};
    reader in = {data, bytes, 0};
    ligi_placement_options own = {.node_count = NODES, .send_ops = {take, drop, outgoing, NULL}};
    ligi_intent_segment *segment = calloc(1, sizeof *segment + sizeof segment->entries[0]);
    ligi_placement placement;
    lig_status status = LIG_OK;

    assert(segment != NULL);
    segment->count = 1;
    own.techniques = (lig_params_techniques)next(&in, 3);
    if (ligi_tables_create(&own.tables, &options) != LIG_OK)
        abort();
    if (ligi_placement_init(&placement, &own) != LIG_OK)
        abort();
    while (in.at < in.bytes && status == LIG_OK) {
        uint32_t what = next(&in, 4);
        status = what == 0   ? one_round(&placement, &in, segment)
                 : what == 1 ? one_push(&placement, &in)
                             : one_message(&placement, &in);
    }
    ligi_placement_fini(&placement);
    ligi_tables_destroy(own.tables);
    free(segment);
    return 0;
}
