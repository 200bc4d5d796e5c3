#include "group/roster/group_message.h"

#include <stdio.h>
#include <string.h>

#define ENTRY_BYTES_MIN 20
#define WHY_BYTES_MAX 127

/* --- writing --------------------------------------------------------------------------------- */

static void put_welcome(ligi_writer *writer, const ligi_note *note)
{
    ligi_put_u64(writer, note->welcome.id);
    ligi_put_u8(writer, (uint8_t)note->welcome.role);
    ligi_put_u32(writer, note->welcome.rank);
    ligi_put_u32(writer, note->welcome.incarnation);
    ligi_put_u8(writer, note->welcome.last != 0);
}

void ligi_note_put(ligi_writer *writer, const ligi_note *note)
{
    ligi_put_u8(writer, LIGI_NOTE_VERSION);
    ligi_put_u8(writer, (uint8_t)note->kind);
    switch (note->kind) {
    case LIGI_NOTE_CONFIRM:
    case LIGI_NOTE_ANSWER:
    case LIGI_NOTE_CANCEL:
    case LIGI_NOTE_PROBE:
    case LIGI_NOTE_PASS: ligi_put_u64(writer, note->number); break;
    case LIGI_NOTE_ARRIVE:
        ligi_put_u64(writer, note->number);
        ligi_put_u32(writer, note->mask);
        ligi_put_u32(writer, note->flags);
        break;
    case LIGI_NOTE_WAIT:
    case LIGI_NOTE_EXPEL:
        ligi_put_u64(writer, note->number);
        ligi_put_text(writer, note->text);
        break;
    case LIGI_NOTE_REFUSE:
    case LIGI_NOTE_FAIL:
        ligi_put_u64(writer, note->number);
        ligi_put_u8(writer, (uint8_t)note->status);
        ligi_put_text(writer, note->text);
        break;
    case LIGI_NOTE_ROSTER:
        ligi_put_u64(writer, note->number);
        put_welcome(writer, note);
        ligi_put_u32(writer, (uint32_t)note->entry_count);
        break;
    case LIGI_NOTE_CHANGE: ligi_put_u64(writer, note->number); break;
    case LIGI_NOTE_JOIN:
    case LIGI_NOTE_RELEASE:
    case LIGI_NOTE_BEAT: break;
    }
}

static void put_blob(ligi_writer *writer, const void *blob, size_t bytes)
{
    ligi_put_varint(writer, bytes);
    ligi_put_bytes(writer, blob, bytes);
}

void ligi_note_put_join(ligi_writer *writer, const ligi_join *join)
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

void ligi_note_put_entry(ligi_writer *writer, const ligi_entry *entry)
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

/* What a peer calls itself goes into sentences and logs: printable, or not at all. */
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

static void get_entry(ligi_reader *reader, ligi_entry *entry)
{
    *entry = (ligi_entry){.member.role = get_role(reader)};
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

static void get_entries(ligi_reader *reader, ligi_note *note)
{
    note->entry_count = 1;
    if (note->kind == LIGI_NOTE_ROSTER) {
        note->welcome.id = ligi_get_u64(reader);
        note->welcome.role = get_role(reader);
        note->welcome.rank = ligi_get_u32(reader);
        note->welcome.incarnation = ligi_get_u32(reader);
        note->welcome.last = ligi_get_u8(reader) != 0;
        note->entry_count = ligi_get_u32(reader);
        if (note->entry_count > (reader->bytes - reader->at) / ENTRY_BYTES_MIN)
            reader->failed = 1;
    }
    note->entries = *reader;
    ligi_entry entry;
    for (size_t i = 0; i < note->entry_count && !reader->failed; i++)
        get_entry(reader, &entry);
}

static void get_failure(ligi_reader *reader, ligi_note *note)
{
    uint8_t status = ligi_get_u8(reader);
    if (status == LIG_OK || status > LIG_E_INTERNAL)
        reader->failed = 1;
    note->status = status > LIG_E_INTERNAL ? LIG_E_INTERNAL : (lig_status)status;
    get_words(reader, note->text, sizeof note->text);
}

/* The part behind the kind; a kind that does not exist fails. */
static void get_body(ligi_reader *reader, ligi_note *note, ligi_join *join)
{
    switch (note->kind) {
    case LIGI_NOTE_JOIN: get_join(reader, join); return;
    case LIGI_NOTE_RELEASE:
    case LIGI_NOTE_BEAT: return;
    case LIGI_NOTE_CONFIRM:
    case LIGI_NOTE_ANSWER:
    case LIGI_NOTE_CANCEL:
    case LIGI_NOTE_PROBE:
    case LIGI_NOTE_PASS:
    case LIGI_NOTE_ARRIVE:
    case LIGI_NOTE_WAIT:
    case LIGI_NOTE_EXPEL:
    case LIGI_NOTE_REFUSE:
    case LIGI_NOTE_FAIL:
    case LIGI_NOTE_ROSTER:
    case LIGI_NOTE_CHANGE: note->number = ligi_get_u64(reader); break;
    default: reader->failed = 1; return;
    }
    if (note->kind == LIGI_NOTE_ARRIVE) {
        note->mask = ligi_get_u32(reader);
        note->flags = ligi_get_u32(reader);
    } else if (note->kind == LIGI_NOTE_WAIT || note->kind == LIGI_NOTE_EXPEL) {
        get_words(reader, note->text, sizeof note->text);
    } else if (note->kind == LIGI_NOTE_REFUSE || note->kind == LIGI_NOTE_FAIL) {
        get_failure(reader, note);
    } else if (note->kind == LIGI_NOTE_ROSTER || note->kind == LIGI_NOTE_CHANGE) {
        get_entries(reader, note);
    }
}

lig_status ligi_note_decode(const void *data, size_t bytes, ligi_note *note, ligi_join *join)
{
    ligi_reader reader = {.data = data, .bytes = bytes};
    uint8_t version = ligi_get_u8(&reader);
    if (!reader.failed && version != LIGI_NOTE_VERSION)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "the other side speaks version %u of the group protocol, this one %d",
                        version, LIGI_NOTE_VERSION);
    *note = (ligi_note){.kind = (ligi_note_kind)ligi_get_u8(&reader)};
    if (!reader.failed)
        get_body(&reader, note, join);
    if (reader.failed || reader.at != reader.bytes)
        return lig_fail(LIG_E_CORRUPT, "a group message of %zu bytes (kind %d) makes no sense",
                        bytes, (int)note->kind);
    return LIG_OK;
}

int ligi_note_entry(ligi_note *note, ligi_entry *entry)
{
    if (note->entry_count == 0)
        return 0;
    note->entry_count--;
    get_entry(&note->entries, entry);
    return 1;
}
