#include "group/roster/group_message.h"

#include <stdio.h>
#include <string.h>

#define ENTRY_BYTES_MIN 20
#define WHY_BYTES_MAX 127

static int has_number(ligi_group_message_kind kind)
{
    return kind != LIGI_GROUP_MESSAGE_JOIN && kind != LIGI_GROUP_MESSAGE_RELEASE &&
           kind != LIGI_GROUP_MESSAGE_BEAT;
}

/* --- writing --------------------------------------------------------------------------------- */

static void put_welcome(ligi_writer *writer, const ligi_group_message *message)
{
    ligi_put_u64(writer, message->welcome.id);
    ligi_put_u8(writer, (uint8_t)message->welcome.role);
    ligi_put_u32(writer, message->welcome.rank);
    ligi_put_u32(writer, message->welcome.incarnation);
    ligi_put_u8(writer, message->welcome.last != 0);
}

void ligi_group_message_put(ligi_writer *writer, const ligi_group_message *message)
{
    ligi_put_u8(writer, LIGI_GROUP_MESSAGE_VERSION);
    ligi_put_u8(writer, (uint8_t)message->kind);
    if (has_number(message->kind))
        ligi_put_u64(writer, message->number);
    switch (message->kind) {
    case LIGI_GROUP_MESSAGE_ARRIVE:
        ligi_put_u32(writer, message->mask);
        ligi_put_u32(writer, message->flags);
        break;
    case LIGI_GROUP_MESSAGE_WAIT:
    case LIGI_GROUP_MESSAGE_EXPEL: ligi_put_text(writer, message->text); break;
    case LIGI_GROUP_MESSAGE_REFUSE:
    case LIGI_GROUP_MESSAGE_FAIL:
        ligi_put_u8(writer, (uint8_t)message->status);
        ligi_put_text(writer, message->text);
        break;
    case LIGI_GROUP_MESSAGE_ROSTER:
        put_welcome(writer, message);
        ligi_put_u32(writer, (uint32_t)message->entry_count);
        break;
    default: break;
    }
}

static void put_blob(ligi_writer *writer, const void *blob, size_t bytes)
{
    ligi_put_varint(writer, bytes);
    ligi_put_bytes(writer, blob, bytes);
}

void ligi_group_message_put_join(ligi_writer *writer, const ligi_join *join)
{
    ligi_put_u8(writer, (uint8_t)join->role);
    ligi_put_u32(writer, join->rank);
    ligi_put_u32(writer, join->server_count);
    ligi_put_u32(writer, join->worker_count);
    ligi_put_u32(writer, join->group_size);
    ligi_put_u32(writer, join->pid);
    ligi_put_text(writer, join->host);
    put_blob(writer, join->blob, join->blob_bytes);
}

void ligi_group_message_put_entry(ligi_writer *writer, const ligi_group_entry *entry)
{
    ligi_put_u8(writer, (uint8_t)entry->member.role);
    ligi_put_u32(writer, entry->member.rank);
    ligi_put_u8(writer, (uint8_t)entry->member.state);
    ligi_put_u32(writer, entry->member.incarnation);
    ligi_put_u32(writer, entry->member.pid);
    ligi_put_text(writer, entry->member.host);
    ligi_put_text(writer, entry->why);
    put_blob(writer, entry->blob, entry->blob_bytes);
}

/* --- reading --------------------------------------------------------------------------------- */

static ligi_role get_role(ligi_reader *reader)
{
    uint8_t role = ligi_get_u8(reader);
    if (role >= LIGI_ROLES)
        reader->failed = 1;
    return role < LIGI_ROLES ? (ligi_role)role : LIGI_SERVER;
}

/* Names given by a peer appear in error texts and logs: printable only. */
static void get_words(ligi_reader *reader, char *text, size_t text_bytes)
{
    const char *got = ligi_get_text(reader, text_bytes - 1);
    snprintf(text, text_bytes, "%s", got);
    for (char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
}

static const void *get_blob(ligi_reader *reader, size_t *bytes)
{
    uint64_t length = ligi_get_varint(reader);
    *bytes = 0;
    if (length > LIGI_BLOB_BYTES_MAX) {
        reader->failed = 1;
        return NULL;
    }
    const void *blob = ligi_get_bytes(reader, (size_t)length);
    if (blob != NULL)
        *bytes = (size_t)length;
    return blob;
}

static void get_join(ligi_reader *reader, ligi_join *join)
{
    *join = (ligi_join){.role = get_role(reader)};
    join->rank = ligi_get_u32(reader);
    join->server_count = ligi_get_u32(reader);
    join->worker_count = ligi_get_u32(reader);
    join->group_size = ligi_get_u32(reader);
    join->pid = ligi_get_u32(reader);
    get_words(reader, join->host, sizeof join->host);
    const void *blob = get_blob(reader, &join->blob_bytes);
    if (join->blob_bytes > 0)
        memcpy(join->blob, blob, join->blob_bytes);
}

static void get_entry(ligi_reader *reader, ligi_group_entry *entry)
{
    *entry = (ligi_group_entry){.member.role = get_role(reader)};
    entry->member.rank = ligi_get_u32(reader);
    uint8_t state = ligi_get_u8(reader);
    if (state > LIGI_LEFT)
        reader->failed = 1;
    entry->member.state = state > LIGI_LEFT ? LIGI_LOST : (ligi_member_state)state;
    entry->member.incarnation = ligi_get_u32(reader);
    entry->member.pid = ligi_get_u32(reader);
    get_words(reader, entry->member.host, sizeof entry->member.host);
    entry->why = ligi_get_text(reader, WHY_BYTES_MAX);
    entry->blob = get_blob(reader, &entry->blob_bytes);
}

static void get_entries(ligi_reader *reader, ligi_group_message *message)
{
    message->entry_count = 1;
    if (message->kind == LIGI_GROUP_MESSAGE_ROSTER) {
        message->welcome.id = ligi_get_u64(reader);
        message->welcome.role = get_role(reader);
        message->welcome.rank = ligi_get_u32(reader);
        message->welcome.incarnation = ligi_get_u32(reader);
        message->welcome.last = ligi_get_u8(reader) != 0;
        message->entry_count = ligi_get_u32(reader);
        if (message->entry_count > (reader->bytes - reader->at) / ENTRY_BYTES_MIN)
            reader->failed = 1;
    }
    message->entries = *reader;
    ligi_group_entry entry;
    for (size_t i = 0; i < message->entry_count && !reader->failed; i++)
        get_entry(reader, &entry);
}

static void get_failure(ligi_reader *reader, ligi_group_message *message)
{
    uint8_t status = ligi_get_u8(reader);
    if (status == LIG_OK || status > LIG_E_INTERNAL)
        reader->failed = 1;
    message->status = status > LIG_E_INTERNAL ? LIG_E_INTERNAL : (lig_status)status;
    get_words(reader, message->text, sizeof message->text);
}

/* The part behind the kind; a kind that does not exist fails. */
static void get_body(ligi_reader *reader, ligi_group_message *message, ligi_join *join)
{
    if (has_number(message->kind))
        message->number = ligi_get_u64(reader);
    switch (message->kind) {
    case LIGI_GROUP_MESSAGE_JOIN: get_join(reader, join); break;
    case LIGI_GROUP_MESSAGE_RELEASE:
    case LIGI_GROUP_MESSAGE_BEAT:
    case LIGI_GROUP_MESSAGE_CONFIRM:
    case LIGI_GROUP_MESSAGE_ANSWER:
    case LIGI_GROUP_MESSAGE_CANCEL:
    case LIGI_GROUP_MESSAGE_PROBE:
    case LIGI_GROUP_MESSAGE_PASS: break;
    case LIGI_GROUP_MESSAGE_ARRIVE:
        message->mask = ligi_get_u32(reader);
        message->flags = ligi_get_u32(reader);
        break;
    case LIGI_GROUP_MESSAGE_WAIT:
    case LIGI_GROUP_MESSAGE_EXPEL: get_words(reader, message->text, sizeof message->text); break;
    case LIGI_GROUP_MESSAGE_REFUSE:
    case LIGI_GROUP_MESSAGE_FAIL: get_failure(reader, message); break;
    case LIGI_GROUP_MESSAGE_ROSTER:
    case LIGI_GROUP_MESSAGE_CHANGE: get_entries(reader, message); break;
    default: reader->failed = 1;
    }
}

lig_status ligi_group_message_decode(const void *data, size_t bytes, ligi_group_message *message,
                                     ligi_join *join)
{
    ligi_reader reader = {.data = data, .bytes = bytes};
    uint8_t version = ligi_get_u8(&reader);
    if (!reader.failed && version != LIGI_GROUP_MESSAGE_VERSION)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "protocol version mismatch in the group: the peer has version %u, this "
                        "process version %d",
                        version, LIGI_GROUP_MESSAGE_VERSION);
    *message = (ligi_group_message){.kind = (ligi_group_message_kind)ligi_get_u8(&reader)};
    if (!reader.failed)
        get_body(&reader, message, join);
    if (reader.failed || reader.at != reader.bytes)
        return lig_fail(LIG_E_CORRUPT, "malformed group message: %zu bytes, kind %d", bytes,
                        (int)message->kind);
    return LIG_OK;
}

int ligi_group_message_entry(ligi_group_message *message, ligi_group_entry *entry)
{
    if (message->entry_count == 0)
        return 0;
    message->entry_count--;
    get_entry(&message->entries, entry);
    return 1;
}
