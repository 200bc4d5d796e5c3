/* Messages from a hostile peer: refused, or read without leaving the buffer. */
#include "group/roster/group_message.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_all(const uint8_t *data, size_t bytes)
{
    ligi_group_message message;
    ligi_join join;
    ligi_group_entry entry;
    if (ligi_group_message_decode(data, bytes, &message, &join) != LIG_OK)
        return;
    assert(strlen(message.text) < sizeof message.text);
    while (ligi_group_message_entry(&message, &entry)) {
        assert(entry.blob_bytes <= LIGI_BLOB_BYTES_MAX);
        assert(strlen(entry.member.host) < sizeof entry.member.host);
        assert(entry.member.role < LIGI_ROLES);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const uint8_t kinds[] = {LIGI_GROUP_MESSAGE_JOIN, LIGI_GROUP_MESSAGE_ROSTER,
                                    LIGI_GROUP_MESSAGE_CHANGE, LIGI_GROUP_MESSAGE_FAIL,
                                    LIGI_GROUP_MESSAGE_WAIT};
    uint8_t head[1024] = {LIGI_GROUP_MESSAGE_VERSION};
    read_all(data, bytes);
    if (bytes == 0 || bytes > sizeof head - 1)
        return 0;
    memcpy(head + 1, data, bytes);
    head[1] = kinds[data[0] % sizeof kinds];
    read_all(head, bytes + 1);
    return 0;
}
