#include "store/serve/message/served_head.h"

#include "base/error.h"

#include <string.h>

/* 0 u16 op, 2 u16 flags, 4 u32 status, 8 u64 id, 16 u64 number, 24 u64 deadline, 32 u64 body */
enum { AT_FLAGS = 2, AT_STATUS = 4, AT_ID = 8, AT_NUMBER = 16, AT_DEADLINE = 24, AT_BODY = 32 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "heads are copied as they are in memory");

/* Both hellos begin with these, in every version. */
static const char magic[8] = {'L', 'I', 'G', 'S', 'E', 'R', 'V', 'E'};

typedef struct operation {
    const char *name;
    int mutates, silent, brief;
} operation;

static const operation operations[LIGI_SERVED_OP_END] = {
    [LIGI_SERVED_PING] = {"ping", 0, 0, 0},
    [LIGI_SERVED_INFO] = {"info", 0, 0, 0},
    [LIGI_SERVED_RESOLVE] = {"resolve", 0, 0, 1},
    [LIGI_SERVED_RELEASE] = {"release", 0, 1, 1},
    [LIGI_SERVED_MODELS] = {"models", 0, 0, 0},
    [LIGI_SERVED_LINEAGE] = {"lineage", 0, 0, 0},
    [LIGI_SERVED_STAT] = {"stat", 0, 0, 1},
    [LIGI_SERVED_PACK_SIZE] = {"pack size", 0, 0, 1},
    [LIGI_SERVED_READ] = {"read", 0, 0, 1},
    [LIGI_SERVED_DESCRIPTOR] = {"descriptor", 0, 0, 1},
    [LIGI_SERVED_UPDATE] = {"update", 1, 0, 0},
    [LIGI_SERVED_ALIAS] = {"alias", 1, 0, 0},
    [LIGI_SERVED_ALIAS_AT] = {"alias at", 0, 0, 1},
    [LIGI_SERVED_RETIRE] = {"retire", 1, 0, 0},
    [LIGI_SERVED_LOCK] = {"lock", 0, 0, 0},
    [LIGI_SERVED_CHECK] = {"check", 0, 0, 0},
    [LIGI_SERVED_COMPACT] = {"compact", 0, 0, 0},
    [LIGI_SERVED_FIND] = {"find", 0, 0, 1},
    [LIGI_SERVED_WATCH] = {"watch", 0, 0, 0},
    [LIGI_SERVED_SAVE] = {"save", 1, 0, 0},
    [LIGI_SERVED_JOIN] = {"join", 1, 0, 0},
    [LIGI_SERVED_STAMPS] = {"time stamps", 0, 0, 0},
    [LIGI_SERVED_CLEAR_STAMPS] = {"clear time stamps", 0, 0, 0},
    [LIGI_SERVED_SHUTDOWN] = {"shutdown", 0, 0, 0},
    [LIGI_SERVED_CANCEL] = {"cancel", 0, 1, 0},
    [LIGI_SERVED_NEED] = {"need", 0, 1, 0},
    [LIGI_SERVED_DONE] = {"done", 0, 1, 0},
    [LIGI_SERVED_DATA] = {"data", 0, 1, 0},
    [LIGI_SERVED_COMMIT] = {"commit", 0, 1, 0},
    [LIGI_SERVED_RETIRE_NOW] = {"retire now", 1, 0, 0},
    [LIGI_SERVED_RESTORE] = {"restore", 1, 0, 0},
};

static int is_known(uint32_t op)
{
    return op < LIGI_SERVED_OP_END && operations[op].name != NULL;
}

const char *ligi_served_op_name(uint32_t op)
{
    return is_known(op) ? operations[op].name : "?";
}

int ligi_served_op_mutates(uint32_t op)
{
    return is_known(op) && operations[op].mutates;
}

int ligi_served_op_silent(uint32_t op)
{
    return is_known(op) && operations[op].silent;
}

int ligi_served_op_brief(uint32_t op)
{
    return is_known(op) && operations[op].brief;
}

void ligi_served_head_put(const ligi_served_head *head, uint8_t out[LIGI_SERVED_HEAD_BYTES])
{
    memcpy(out, &head->op, sizeof head->op);
    memcpy(out + AT_FLAGS, &head->flags, sizeof head->flags);
    memcpy(out + AT_STATUS, &head->status, sizeof head->status);
    memcpy(out + AT_ID, &head->id, sizeof head->id);
    memcpy(out + AT_NUMBER, &head->number, sizeof head->number);
    memcpy(out + AT_DEADLINE, &head->deadline_ns, sizeof head->deadline_ns);
    memcpy(out + AT_BODY, &head->body_bytes, sizeof head->body_bytes);
}

static lig_status malformed(const char *what)
{
    return lig_fail(LIG_E_CORRUPT, "malformed message of a served store: %s", what);
}

static lig_status check_head(const ligi_served_head *head)
{
    if (!is_known(head->op))
        return malformed("unknown operation");
    if (head->flags & ~(LIGI_SERVED_REPLY | LIGI_SERVED_BEHIND))
        return malformed("unknown flags");
    if (head->status > LIG_E_INTERNAL || (head->status && !(head->flags & LIGI_SERVED_REPLY)))
        return malformed("invalid status");
    if (head->id == 0)
        return malformed("request id 0");
    if (head->body_bytes > LIGI_SERVED_BODY_BYTES_MAX)
        return malformed("body too long");
    int request = !(head->flags & LIGI_SERVED_REPLY);
    if (request && (head->number != 0) != operations[head->op].mutates)
        return malformed("missing or unexpected sequence number");
    return LIG_OK;
}

lig_status ligi_served_head_get(const void *bytes, size_t size, uint64_t payload_bytes,
                                ligi_served_head *head)
{
    const uint8_t *at = bytes;
    if (size < LIGI_SERVED_HEAD_BYTES)
        return malformed("truncated head");
    memcpy(&head->op, at, sizeof head->op);
    memcpy(&head->flags, at + AT_FLAGS, sizeof head->flags);
    memcpy(&head->status, at + AT_STATUS, sizeof head->status);
    memcpy(&head->id, at + AT_ID, sizeof head->id);
    memcpy(&head->number, at + AT_NUMBER, sizeof head->number);
    memcpy(&head->deadline_ns, at + AT_DEADLINE, sizeof head->deadline_ns);
    memcpy(&head->body_bytes, at + AT_BODY, sizeof head->body_bytes);
    LIG_TRY(check_head(head));
    int behind = (head->flags & LIGI_SERVED_BEHIND) != 0;
    size_t inside = size - LIGI_SERVED_HEAD_BYTES;
    if (behind ? inside != 0 || head->body_bytes > payload_bytes : inside != head->body_bytes)
        return malformed("wrong length of the body");
    head->body = behind ? NULL : at + LIGI_SERVED_HEAD_BYTES;
    return LIG_OK;
}

/* --- helpers of the decoders --- */

lig_status ligi_served_end(const ligi_reader *reader, const char *what)
{
    if (!reader->failed && reader->at == reader->bytes)
        return LIG_OK;
    return lig_fail(LIG_E_CORRUPT, "malformed message of a served store: %s: %s", what,
                    reader->failed ? "truncated or invalid" : "trailing bytes");
}

void ligi_served_maybe_put(ligi_writer *writer, const char *text)
{
    ligi_put_u8(writer, text != NULL);
    if (text)
        ligi_put_text(writer, text);
}

const char *ligi_served_maybe_get(ligi_reader *reader, size_t max_bytes)
{
    uint8_t there = ligi_get_u8(reader);
    if (there > 1)
        reader->failed = 1;
    return there ? ligi_get_text(reader, max_bytes) : NULL;
}

void ligi_served_blob_put(ligi_writer *writer, const void *data, size_t bytes)
{
    ligi_put_varint(writer, bytes);
    if (bytes)
        ligi_put_bytes(writer, data, bytes);
}

const uint8_t *ligi_served_blob_get(ligi_reader *reader, size_t *bytes)
{
    *bytes = ligi_get_count(reader, 1);
    const uint8_t *data = *bytes ? ligi_get_bytes(reader, *bytes) : NULL;
    if (data == NULL)
        *bytes = 0;
    return data;
}

/* --- the beginning --- */

/* The peer's version, when its hello is one of a served store. */
static lig_status open_hello(ligi_reader *reader, const char *peer)
{
    const void *found = ligi_get_bytes(reader, sizeof magic);
    if (found == NULL || memcmp(found, magic, sizeof magic) != 0)
        return lig_fail(LIG_E_UNSUPPORTED, "the peer does not speak the protocol of served stores");
    uint32_t version = ligi_get_u32(reader);
    if (reader->failed)
        return malformed("truncated hello");
    if (version != LIGI_SERVED_VERSION)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "protocol version mismatch: the %s has version %u of the served-store "
                        "protocol, this process version %u (use the same release on both sides)",
                        peer, version, LIGI_SERVED_VERSION);
    return LIG_OK;
}

static void get_fixed(ligi_reader *reader, void *out, size_t bytes)
{
    const void *found = ligi_get_bytes(reader, bytes);
    if (found)
        memcpy(out, found, bytes);
}

void ligi_served_hello_put(ligi_writer *writer, const ligi_served_hello *hello)
{
    ligi_put_bytes(writer, magic, sizeof magic);
    ligi_put_u32(writer, LIGI_SERVED_VERSION);
    ligi_put_bytes(writer, hello->client, sizeof hello->client);
    ligi_put_u32(writer, hello->pid);
    ligi_put_text(writer, hello->host);
    ligi_put_bytes(writer, hello->pass, sizeof hello->pass);
}

lig_status ligi_served_hello_get(const void *bytes, size_t size, ligi_served_hello *hello)
{
    ligi_reader reader = {.data = bytes, .bytes = size};
    LIG_TRY(open_hello(&reader, "client"));
    get_fixed(&reader, hello->client, sizeof hello->client);
    hello->pid = ligi_get_u32(&reader);
    hello->host = ligi_get_text(&reader, LIGI_SERVED_HOST_BYTES_MAX);
    get_fixed(&reader, hello->pass, sizeof hello->pass);
    return ligi_served_end(&reader, "hello");
}

void ligi_served_welcome_put(ligi_writer *writer, const ligi_served_welcome *welcome)
{
    ligi_put_bytes(writer, magic, sizeof magic);
    ligi_put_u32(writer, LIGI_SERVED_VERSION);
    ligi_put_u32(writer, welcome->flags);
    ligi_put_u32(writer, welcome->volume_flags);
    ligi_put_bytes(writer, welcome->uuid, sizeof welcome->uuid);
    ligi_put_bytes(writer, welcome->secret, sizeof welcome->secret);
    ligi_put_bytes(writer, welcome->pass, sizeof welcome->pass);
    ligi_put_u64(writer, welcome->session);
    ligi_put_u64(writer, welcome->lease_ns);
    ligi_put_u64(writer, welcome->flight_bytes_max);
    ligi_put_u64(writer, welcome->read_bytes_max);
    ligi_put_u32(writer, welcome->request_max);
    ligi_served_blob_put(writer, welcome->card, welcome->card_bytes);
}

lig_status ligi_served_welcome_get(const void *bytes, size_t size, ligi_served_welcome *welcome)
{
    ligi_reader reader = {.data = bytes, .bytes = size};
    LIG_TRY(open_hello(&reader, "server"));
    welcome->flags = ligi_get_u32(&reader);
    welcome->volume_flags = ligi_get_u32(&reader);
    get_fixed(&reader, welcome->uuid, sizeof welcome->uuid);
    get_fixed(&reader, welcome->secret, sizeof welcome->secret);
    get_fixed(&reader, welcome->pass, sizeof welcome->pass);
    welcome->session = ligi_get_u64(&reader);
    welcome->lease_ns = ligi_get_u64(&reader);
    welcome->flight_bytes_max = ligi_get_u64(&reader);
    welcome->read_bytes_max = ligi_get_u64(&reader);
    welcome->request_max = ligi_get_u32(&reader);
    welcome->card = ligi_served_blob_get(&reader, &welcome->card_bytes);
    LIG_TRY(ligi_served_end(&reader, "welcome"));
    if (welcome->lease_ns == 0 || welcome->lease_ns > INT64_MAX || welcome->request_max == 0 ||
        welcome->read_bytes_max == 0 || welcome->flight_bytes_max < welcome->read_bytes_max)
        return malformed("limits of the welcome");
    return LIG_OK;
}

/* --- shared bodies --- */

void ligi_served_number_put(ligi_writer *writer, uint64_t number)
{
    ligi_put_u64(writer, number);
}

lig_status ligi_served_number_get(const void *body, size_t bytes, uint64_t *number)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    *number = ligi_get_u64(&reader);
    return ligi_served_end(&reader, "number");
}

void ligi_served_text_put(ligi_writer *writer, const char *text)
{
    ligi_put_text(writer, text);
}

lig_status ligi_served_text_get(const void *body, size_t bytes, const char **text)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    *text = ligi_get_text(&reader, bytes);
    return ligi_served_end(&reader, "text");
}

void ligi_served_error_put(ligi_writer *writer, const ligi_served_error *error)
{
    ligi_put_u32(writer, (uint32_t)error->number);
    ligi_put_text(writer, error->text);
}

lig_status ligi_served_error_get(const void *body, size_t bytes, ligi_served_error *error)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    error->number = (int32_t)ligi_get_u32(&reader);
    error->text = ligi_get_text(&reader, LIGI_ERROR_TEXT_BYTES);
    return ligi_served_end(&reader, "error");
}
