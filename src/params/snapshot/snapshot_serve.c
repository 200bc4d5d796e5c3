#include "params/snapshot/snapshot_serve.h"

#include "params/snapshot/snapshot.h"
#include "params/snapshot/snapshot_agree.h"
#include "params/state/node_wait.h"
#include "params/state/peer.h"
#include "params/state/send_buffer.h"
#include "params/sync/sync_round.h"
#include "params/tables/key_home.h"
#include "params/tables/row_access.h"
#include "params/tables/row_install.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"

#include <stdlib.h>
#include <string.h>

/* --- the index of hashed keys --- */

typedef struct known_key {
    uint64_t unit;
    int64_t key;
    ligi_entry entry;
} known_key;

static int by_unit(const void *left, const void *right)
{
    const known_key *a = left, *b = right;
    if (a->unit != b->unit)
        return a->unit < b->unit ? -1 : 1;
    return a->key < b->key ? -1 : a->key > b->key;
}

void ligi_params_snapshot_index_fini(ligi_snapshot_index *index)
{
    free(index->entries);
    free(index->starts);
    *index = (ligi_snapshot_index){0};
}

static uint64_t unit_of(const ligi_snapshot_plan *plan, int64_t key)
{
    uint32_t table = (uint32_t)ligi_tables_table_of_key(plan->tables, key);
    return plan->table[table].first_unit + ligi_params_snapshot_plan_bucket(plan, table, key);
}

static void fill_index(const ligi_snapshot_plan *plan, const known_key *known,
                       ligi_snapshot_index *index)
{
    uint64_t at = 0;
    for (uint64_t unit = 0; unit <= plan->unit_count; unit++) {
        while (at < index->count && known[at].unit < unit)
            at++;
        index->starts[unit] = at;
    }
    for (uint64_t i = 0; i < index->count; i++)
        index->entries[i] = known[i].entry;
}

/* Keys are added and never removed: an index is valid until more are added. */
lig_status ligi_params_snapshot_index_make(lig_params *node, const ligi_snapshot_plan *plan,
                                           ligi_snapshot_index *index)
{
    known_key *known = NULL;
    if (!ligi_tables_hashed(node->tables))
        return LIG_OK;
    uint64_t count = ligi_tables_entry_count(node->tables);
    if (index->starts && index->count == count)
        return LIG_OK;
    ligi_params_snapshot_index_fini(index);
    LIG_TRY(ligi_calloc(&index->entries, count + 1, sizeof *index->entries, "hashed keys"));
    LIG_TRY(ligi_calloc(&index->starts, plan->unit_count + 1, sizeof *index->starts, "blocks"));
    LIG_TRY(ligi_calloc(&known, count + 1, sizeof *known, "hashed keys"));
    index->count = count;
    for (uint64_t i = 0; i < count; i++) {
        int64_t key = ligi_tables_key(node->tables, (ligi_entry)i);
        known[i] = (known_key){unit_of(plan, key), key, (ligi_entry)i};
    }
    qsort(known, count, sizeof *known, by_unit);
    fill_index(plan, known, index);
    free(known);
    return LIG_OK;
}

lig_status ligi_params_snapshot_count(ligi_snapshot_call *call, uint64_t *counts)
{
    lig_params *node = call->node;
    ligi_node_lock(node);
    uint64_t count = ligi_tables_entry_count(node->tables);
    for (uint64_t i = 0; i < count; i++) {
        int64_t key = ligi_tables_key(node->tables, (ligi_entry)i);
        if (ligi_tables_home(node->tables, key) == node->rank)
            counts[unit_of(&call->plan, key)]++;
    }
    ligi_node_unlock(node);
    return LIG_OK;
}

/* --- sending rows --- */

/* The entries of a unit known here: fills *first; returns how many. Dense entries are
 * consecutive. */
static uint64_t entries_of(const struct ligi_snapshot_state *self, uint64_t unit,
                           const ligi_entry **list, uint64_t *first)
{
    const ligi_snapshot_plan *plan = self->plan;
    uint64_t number = 0;
    uint32_t table = (uint32_t)ligi_params_snapshot_plan_unit(plan, unit, &number);
    *list = NULL;
    if (ligi_tables_hashed(plan->tables)) {
        *list = self->index.entries + self->index.starts[unit];
        return self->index.starts[unit + 1] - self->index.starts[unit];
    }
    const uint64_t *rows = plan->table[table].rows;
    *first = (uint64_t)ligi_tables_offset(plan->tables, table) + rows[number];
    return rows[number + 1] - rows[number];
}

typedef struct giving {
    const ligi_tables *tables;
    const ligi_entry *list;
    uint64_t first, at, end; /* entries to examine */
    uint32_t count;          /* of them, owned */
    uint64_t bytes;          /* of their bodies */
} giving;

static ligi_entry entry_at(const giving *self, uint64_t index)
{
    return self->list ? self->list[index] : (ligi_entry)(self->first + index);
}

/* As many as fit in one message; self->end is where it stops. */
static void measure(giving *self, uint64_t count)
{
    for (self->end = self->at; self->end < count; self->end++) {
        ligi_entry entry = entry_at(self, self->end);
        if (ligi_tables_state(self->tables, entry) != LIGI_ROW_OWNED)
            continue;
        size_t bytes = ligi_tables_body_bytes(self->tables, entry);
        if (self->count &&
            (self->bytes + bytes > LIGI_UNIT_BYTES || self->count == LIGI_UNIT_ROWS_MAX))
            return;
        self->bytes += bytes;
        self->count++;
    }
}

static void fill(const giving *self, uint8_t *key, uint8_t *body)
{
    for (uint64_t i = self->at; i < self->end; i++) {
        ligi_entry entry = entry_at(self, i);
        if (ligi_tables_state(self->tables, entry) != LIGI_ROW_OWNED)
            continue;
        int64_t number = ligi_tables_key(self->tables, entry);
        memcpy(key, &number, sizeof number);
        ligi_tables_get_body(self->tables, entry, body);
        key += sizeof number;
        body += ligi_tables_body_bytes(self->tables, entry);
    }
}

static lig_status send_rows(lig_params *node, uint32_t rank, ligi_snapshot_front front,
                            const giving *from)
{
    ligi_send_buffer *buffer = NULL;
    uint64_t keys = (uint64_t)from->count * 8;
    LIG_TRY(ligi_send_buffer_take(node, sizeof front + keys + from->bytes, &buffer));
    memcpy(buffer->data, &front, sizeof front);
    fill(from, buffer->data + sizeof front, buffer->data + sizeof front + keys);
    buffer->bytes = sizeof front + keys + from->bytes;
    ligi_params_outgoing outgoing = {
        .message = {.kind = LIGI_PARAMS_SNAPSHOT, .verb = LIGI_SNAPSHOT_ROWS, .origin = node->rank},
        .buffer = buffer};
    return ligi_params_peer_send(&node->peers[rank], &outgoing);
}

/* A node that has abandoned the call does not answer: node 0 knows this and notifies the requesting
 * node. */
lig_status ligi_params_snapshot_get(lig_params *node, uint32_t rank,
                                    const ligi_snapshot_message *content)
{
    struct ligi_snapshot_state *self = node->snapshot;
    giving from = {.tables = node->tables, .at = content->front.at};
    if (self->plan == NULL || content->front.call != self->call)
        return LIG_OK;
    if (content->front.unit >= self->plan->unit_count)
        return lig_fail(LIG_E_CORRUPT, "no such block: %llu",
                        (unsigned long long)content->front.unit);
    LIG_TRY(ligi_params_snapshot_index_make(node, self->plan, &self->index));
    uint64_t count = entries_of(self, content->front.unit, &from.list, &from.first);
    measure(&from, count);
    ligi_snapshot_front front = {.call = self->call,
                                 .unit = content->front.unit,
                                 .at = from.end,
                                 .count = from.count,
                                 .more = from.end < count};
    return send_rows(node, rank, front, &from);
}

/* --- storing rows --- */

static lig_status make_bits(uint32_t count, uint8_t **bits)
{
    return ligi_calloc(bits, (size_t)count / 8 + 1, 1, "rows");
}

static lig_status send_bits(lig_params *node, uint32_t rank, ligi_snapshot_verb verb,
                            const ligi_snapshot_front *front, uint8_t *bits)
{
    struct iovec piece = {bits, ((size_t)front->count + 7) / 8};
    lig_status status = ligi_params_snapshot_send(node, rank, verb, front, &piece, 1);
    free(bits);
    return status;
}

lig_status ligi_params_snapshot_own(lig_params *node, uint32_t rank,
                                    const ligi_snapshot_message *content)
{
    uint8_t *bits = NULL;
    ligi_snapshot_front front = {
        .call = content->front.call, .unit = content->front.unit, .count = content->front.count};
    LIG_TRY(make_bits(front.count, &bits));
    for (uint32_t i = 0; i < front.count; i++) {
        ligi_entry entry;
        if (ligi_tables_known(node->tables, ligi_params_snapshot_message_key(content, i), &entry) &&
            ligi_tables_state(node->tables, entry) == LIGI_ROW_OWNED)
            bits[i / 8] |= (uint8_t)(1u << i % 8);
    }
    return send_bits(node, rank, LIGI_SNAPSHOT_OWNED, &front, bits);
}

static lig_status refuse(lig_params *node, uint32_t rank, const ligi_snapshot_message *content,
                         lig_status status)
{
    ligi_snapshot_front front = {
        .call = content->front.call, .unit = content->front.unit, .status = (uint16_t)status};
    return ligi_params_snapshot_send(node, rank, LIGI_SNAPSHOT_TAKEN, &front, NULL, 0);
}

/* Sets one row; *taken is 0 if it has been relocated. */
static lig_status put_row(lig_params *node, int64_t key, const uint8_t *body, int *taken)
{
    ligi_entry entry;
    LIG_TRY(ligi_tables_entry(node->tables, key, &entry));
    int set = ligi_tables_set_body(node->tables, entry, body);
    if (set == 1)
        ligi_sync_noted(node, NULL, &entry, 1);
    *taken = set >= 0;
    return LIG_OK;
}

lig_status ligi_params_snapshot_put(lig_params *node, uint32_t rank,
                                    const ligi_snapshot_message *content)
{
    struct ligi_snapshot_state *self = node->snapshot;
    const uint8_t *body = content->bodies;
    uint64_t left = content->body_bytes;
    uint8_t *bits = NULL;
    ligi_snapshot_front front = {
        .call = content->front.call, .unit = content->front.unit, .count = content->front.count};
    if (!self->writable || content->front.call != self->call)
        return refuse(node, rank, content, LIG_E_CLOSED);
    LIG_TRY(make_bits(front.count, &bits));
    lig_status status = LIG_OK;
    for (uint32_t i = 0; i < front.count && status == LIG_OK; i++) {
        int64_t key = ligi_params_snapshot_message_key(content, i);
        int taken = 0, table = ligi_tables_table_of_key(node->tables, key);
        uint32_t length = ligi_tables_length_of_key(node->tables, key);
        size_t bytes =
            table < 0 ? 0 : ligi_params_snapshot_body(self->plan, (uint32_t)table, length);
        if (table < 0 || bytes > left) {
            free(bits);
            return lig_fail(LIG_E_CORRUPT, "malformed rows in a snapshot message");
        }
        status = put_row(node, key, body, &taken);
        bits[i / 8] |= (uint8_t)((unsigned)taken << i % 8);
        body += bytes;
        left -= bytes;
    }
    if (status == LIG_OK)
        return send_bits(node, rank, LIGI_SNAPSHOT_TAKEN, &front, bits);
    free(bits);
    return refuse(node, rank, content, status);
}
