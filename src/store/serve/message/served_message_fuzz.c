/* Messages from a hostile peer: the first byte chooses the decoder. An accepted message can be
 * encoded and decodes to the same values. */
#include "store/serve/message/served_message_testing.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void try_head(const uint8_t *data, size_t bytes)
{
    ligi_served_head head;
    uint8_t again[LIGI_SERVED_HEAD_BYTES];
    if (ligi_served_head_get(data, bytes, bytes, &head) != LIG_OK)
        return;
    ligi_served_head_put(&head, again);
    assert(memcmp(again, data, sizeof again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ligi_writer first = {0}, second = {0};
    if (bytes == 0)
        return 0;
    uint8_t choice = data[0] % (SERVED_RECODES + 1);
    data++, bytes--;
    if (choice == SERVED_RECODES) {
        try_head(data, bytes);
        return 0;
    }
    if (served_recodes[choice](data, bytes, &first) == LIG_OK && first.status == LIG_OK) {
        lig_status status = served_recodes[choice](first.data, first.bytes, &second);
        assert(status == LIG_OK);
        assert(first.bytes == second.bytes);
        assert(first.bytes == 0 || memcmp(first.data, second.data, first.bytes) == 0);
    }
    ligi_writer_fini(&first);
    ligi_writer_fini(&second);
    return 0;
}
