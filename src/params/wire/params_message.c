#include "params/wire/params_message.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "heads are copied as they are in memory");
_Static_assert(LIGI_PARAMS_SENTENCE_MAX <= LIGI_PARAMS_HEAD_MAX - LIGI_PARAMS_HEAD_BYTES,
               "a head has room for a message");

static lig_status corrupt(const char *what)
{
    return lig_fail(LIG_E_CORRUPT, "malformed message between nodes: %s", what);
}

uint64_t ligi_params_message_front(const ligi_params_message *message)
{
    uint64_t count = message->count;
    switch (message->kind) {
    case LIGI_PARAMS_REQUEST: return 8 * count + LIGI_PAD8(4 * count);
    case LIGI_PARAMS_RESPONSE:
        return (message->flags & LIGI_PARAMS_POSITIONS ? LIGI_PAD8(4 * count) : 0) +
               (message->flags & LIGI_PARAMS_MOVES ? 8 * count : 0);
    case LIGI_PARAMS_SYNC:
    case LIGI_PARAMS_UPDATE:
    case LIGI_PARAMS_LOCATION: return sizeof(ligi_sync_item) * count;
    default: return 0;
    }
}

static lig_status check_tail(const ligi_params_message *message, const uint8_t *tail, size_t bytes,
                             const ligi_params_hello *own)
{
    if (message->kind == LIGI_PARAMS_REQUEST && (message->flags & LIGI_PARAMS_RATES))
        return bytes == 8 * (size_t)own->table_count ? LIG_OK
                                                     : corrupt("learning rates are missing");
    if (message->kind == LIGI_PARAMS_RESPONSE && (message->flags & LIGI_PARAMS_FAILED)) {
        int known = message->number > LIG_OK && message->number <= LIG_E_INTERNAL;
        return known && bytes <= LIGI_PARAMS_SENTENCE_MAX && memchr(tail, 0, bytes) == NULL
                   ? LIG_OK
                   : corrupt("unknown status, or error text too long");
    }
    return bytes == 0 ? LIG_OK : corrupt("head too long for its kind");
}

static lig_status check_flags(const ligi_params_message *message)
{
    uint32_t known = 0;
    if (message->kind == LIGI_PARAMS_REQUEST)
        known = LIGI_PARAMS_RATES;
    else if (message->kind == LIGI_PARAMS_RESPONSE)
        known = LIGI_PARAMS_POSITIONS | LIGI_PARAMS_MOVES | LIGI_PARAMS_VALUES | LIGI_PARAMS_FAILED;
    else if (message->kind != LIGI_PARAMS_LOCATION && message->kind != LIGI_PARAMS_SHARE)
        known = UINT32_MAX; /* checked by the snapshot room */
    if (message->flags & ~known)
        return corrupt("unknown flags");
    if (message->kind == LIGI_PARAMS_RESPONSE && !(message->flags & LIGI_PARAMS_POSITIONS) &&
        (message->flags & (LIGI_PARAMS_MOVES | LIGI_PARAMS_VALUES)))
        return corrupt("rows without positions");
    if (message->kind == LIGI_PARAMS_RESPONSE && (message->flags & LIGI_PARAMS_VALUES) &&
        message->verb != LIGI_PULL)
        return corrupt("rows that were not requested");
    return LIG_OK;
}

/* Whether rows may follow the parts before them. */
static int has_rows(const ligi_params_message *message)
{
    switch (message->kind) {
    case LIGI_PARAMS_REQUEST: return message->verb != LIGI_PULL;
    case LIGI_PARAMS_RESPONSE: return (message->flags & LIGI_PARAMS_VALUES) != 0;
    case LIGI_PARAMS_LOCATION: return 0;
    default: return 1;
    }
}

uint64_t ligi_params_payload_max(uint64_t row_bytes)
{
    uint64_t alone = row_bytes + LIGI_PARAMS_FRONT_MAX;
    return alone > LIGI_PARAMS_PAYLOAD_MAX ? alone : LIGI_PARAMS_PAYLOAD_MAX;
}

static lig_status check_payload(const ligi_params_message *message, uint64_t payload_bytes,
                                uint64_t payload_max)
{
    uint64_t front = ligi_params_message_front(message);
    if (message->kind == LIGI_PARAMS_SHARE)
        return LIG_OK;
    if (message->count > LIGI_PARAMS_KEYS_MAX || payload_bytes > payload_max)
        return corrupt("payload too large");
    int about_keys = message->kind == LIGI_PARAMS_REQUEST || message->kind == LIGI_PARAMS_RESPONSE;
    if (about_keys && message->count == 0)
        return corrupt("no keys");
    if (payload_bytes < front || (payload_bytes > front && !has_rows(message)))
        return corrupt("payload size does not match the head");
    return LIG_OK;
}

lig_status ligi_params_message_check(const void *head, size_t bytes, uint64_t payload_bytes,
                                     uint64_t payload_max, const ligi_params_hello *own,
                                     ligi_params_message *message)
{
    const uint8_t *tail = (const uint8_t *)head + LIGI_PARAMS_HEAD_BYTES;
    if (bytes < LIGI_PARAMS_HEAD_BYTES || bytes > LIGI_PARAMS_HEAD_MAX)
        return corrupt("its length");
    memcpy(message, head, sizeof *message);
    if (message->version != LIGI_PARAMS_MESSAGE_VERSION)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "a node has version %u of the parameter protocol, this process version %d",
                        message->version, LIGI_PARAMS_MESSAGE_VERSION);
    if (message->kind < LIGI_PARAMS_SHARE || message->kind > LIGI_PARAMS_SNAPSHOT)
        return corrupt("its kind");
    int about_keys = message->kind == LIGI_PARAMS_REQUEST || message->kind == LIGI_PARAMS_RESPONSE;
    if (message->origin >= own->node_count || message->hops > LIGI_PARAMS_HOPS_MAX ||
        (about_keys && (message->verb > LIGI_SET || message->worker >= own->worker_count)))
        return corrupt("invalid origin or kind");
    LIG_TRY(check_flags(message));
    LIG_TRY(check_tail(message, tail, bytes - LIGI_PARAMS_HEAD_BYTES, own));
    return check_payload(message, payload_bytes, payload_max);
}

void ligi_params_message_open(const ligi_params_message *message, const void *head,
                              size_t head_bytes, const void *payload, uint64_t payload_bytes,
                              ligi_params_parts *parts)
{
    const uint8_t *at = payload, *tail = (const uint8_t *)head + LIGI_PARAMS_HEAD_BYTES;
    uint64_t count = message->count, front = ligi_params_message_front(message);
    *parts = (ligi_params_parts){.rows = at + front, .rows_bytes = payload_bytes - front};
    switch (message->kind) {
    case LIGI_PARAMS_REQUEST:
        parts->keys = (const int64_t *)(const void *)at;
        parts->positions = (const uint32_t *)(const void *)(at + 8 * count);
        if (message->flags & LIGI_PARAMS_RATES)
            parts->rates = (const double *)(const void *)tail;
        break;
    case LIGI_PARAMS_RESPONSE:
        if (message->flags & LIGI_PARAMS_POSITIONS)
            parts->positions = (const uint32_t *)(const void *)at;
        if (message->flags & LIGI_PARAMS_MOVES)
            parts->moves = (const uint64_t *)(const void *)(at + LIGI_PAD8(4 * count));
        if (message->flags & LIGI_PARAMS_FAILED) {
            parts->sentence = (const char *)tail;
            parts->sentence_bytes = (uint32_t)(head_bytes - LIGI_PARAMS_HEAD_BYTES);
        }
        break;
    case LIGI_PARAMS_SYNC:
    case LIGI_PARAMS_UPDATE:
    case LIGI_PARAMS_LOCATION: parts->items = (const ligi_sync_item *)(const void *)at; break;
    default: break;
    }
}

/* --- hellos --- */

static const char magic[8] = {'L', 'I', 'G', 'P', 'A', 'R', 'M', LIGI_PARAMS_MESSAGE_VERSION};

/* FNV-1a, folded: not for authentication, which is the group's secret. */
static uint32_t digest(uint32_t seed, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint64_t hash = UINT64_C(14695981039346656037) ^ seed;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(1099511628211);
    return (uint32_t)(hash ^ hash >> 32);
}

static uint32_t digest_shape(const lig_params_table *table)
{
    const char *name = table->name ? table->name : "values";
    uint32_t hash = digest(1, name, strlen(name));
    hash = digest(hash, &table->key_count, sizeof table->key_count);
    if (table->length != 0 || table->lengths == NULL)
        return digest(hash, &table->length, sizeof table->length);
    return digest(hash, table->lengths, table->key_count * sizeof *table->lengths);
}

static ligi_table_digest digest_table(const lig_params_table *table)
{
    const lig_params_optimizer *how = &table->optimizer;
    const double rates[] = {how->lr, how->eps, how->beta1, how->beta2, how->weight_decay};
    const double range[] = {table->init.a, table->init.b};
    uint32_t init = digest(table->init.kind, range, sizeof range);
    return (ligi_table_digest){
        .shape = digest_shape(table),
        .optimizer = digest(how->kind, rates, how->kind == LIG_PARAMS_ADD ? 0 : sizeof rates),
        .init = digest(init, &table->init.seed, sizeof table->init.seed)};
}

void ligi_params_hello_make(const lig_params_options *options, ligi_params_hello *hello)
{
    *hello = (ligi_params_hello){.node_count = options->node_count,
                                 .worker_count = options->worker_count,
                                 .dtype = options->dtype,
                                 .techniques = options->techniques,
                                 .flags = options->flags &
                                          (LIG_PARAMS_HAS_SCHEDULER | LIG_PARAMS_HASHED),
                                 .table_count = options->table_count};
    memcpy(hello->magic, magic, sizeof magic);
    for (uint32_t i = 0; i < options->table_count; i++) {
        hello->key_count += options->tables[i].key_count;
        hello->tables[i] = digest_table(&options->tables[i]);
    }
}

static lig_status differ(const char *what, uint64_t own, uint64_t other, uint32_t rank)
{
    if (own == other)
        return LIG_OK;
    return lig_fail(LIG_E_MISMATCH, "node %u has a different %s: %llu, but this node has %llu",
                    rank, what, (unsigned long long)other, (unsigned long long)own);
}

static lig_status check_tables(const ligi_params_hello *own, const ligi_params_hello *other)
{
    for (uint32_t i = 0; i < own->table_count; i++) {
        const ligi_table_digest *here = &own->tables[i], *there = &other->tables[i];
        const char *what = here->shape != there->shape           ? "name, keys or lengths"
                           : here->optimizer != there->optimizer ? "optimizer"
                           : here->init != there->init           ? "init"
                                                                 : NULL;
        if (what)
            return lig_fail(LIG_E_MISMATCH,
                            "table %u of node %u differs from this node's in its %s", i,
                            other->rank, what);
    }
    return LIG_OK;
}

lig_status ligi_params_hello_check(const ligi_params_hello *own, const void *data, size_t bytes,
                                   ligi_params_hello *other)
{
    if (bytes != sizeof *other || memcmp(data, magic, sizeof magic) != 0)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "the peer uses a different version of the parameter protocol");
    memcpy(other, data, sizeof *other);
    if (own->group_id && other->group_id && own->group_id != other->group_id)
        return lig_fail(LIG_E_DENIED, "the peer belongs to another group");
    uint32_t rank = other->rank;
    LIG_TRY(differ("number of nodes", own->node_count, other->node_count, rank));
    LIG_TRY(differ("number of workers", own->worker_count, other->worker_count, rank));
    LIG_TRY(differ("number of tables", own->table_count, other->table_count, rank));
    LIG_TRY(differ("dtype", own->dtype, other->dtype, rank));
    LIG_TRY(differ("choice of techniques", own->techniques, other->techniques, rank));
    LIG_TRY(differ("set of flags", own->flags, other->flags, rank));
    return check_tables(own, other);
}
