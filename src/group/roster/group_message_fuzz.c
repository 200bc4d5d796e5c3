/* Notes from a hostile peer: refused, or read without a step outside. */
#include "group/roster/group_message.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_all(const uint8_t *data, size_t bytes)
{
    ligi_note note;
    ligi_join join;
    ligi_entry entry;
    if (ligi_note_decode(data, bytes, &note, &join) != LIG_OK)
        return;
    assert(strlen(note.text) < sizeof note.text);
    while (ligi_note_entry(&note, &entry)) {
        assert(entry.blob_bytes <= LIGI_BLOB_BYTES_MAX);
        assert(strlen(entry.member.host) < sizeof entry.member.host);
        assert(entry.member.role < LIGI_ROLES);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const uint8_t kinds[] = {LIGI_NOTE_JOIN, LIGI_NOTE_ROSTER, LIGI_NOTE_CHANGE,
                                    LIGI_NOTE_FAIL, LIGI_NOTE_WAIT};
    uint8_t head[1024] = {LIGI_NOTE_VERSION};
    read_all(data, bytes);
    if (bytes == 0 || bytes > sizeof head - 1)
        return 0;
    memcpy(head + 1, data, bytes);
    head[1] = kinds[data[0] % sizeof kinds];
    read_all(head, bytes + 1);
    return 0;
}
