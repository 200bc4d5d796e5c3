/* Heads from a hostile peer: parsed completely or refused, and a parsed head encodes to the same
 * bytes. */
#include "mesh/mesh_message.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ligi_pieces pieces = {0};
    ligi_message message;
    uint8_t start[LIGI_MESSAGE_SMALL_BYTES] = {LIGI_MESSAGE_REQUEST, LIGI_MESSAGE_VERSION};
    uint8_t *head = malloc(bytes + sizeof start);
    if (head == NULL)
        return 0;
    memcpy(head, start, sizeof start);
    memcpy(head + sizeof start, data, bytes);
    if (bytes >= 4) /* the counts come from the input as well */
        memcpy(head + 2, data, 4);
    (void)ligi_message_decode(data, bytes, NULL, &message);
    (void)ligi_message_decode(data, bytes, &pieces, &message);
    if (ligi_message_decode(head, bytes + sizeof start, &pieces, &message) == LIG_OK) {
        uint8_t *again = malloc(LIGI_MESSAGE_BYTES_MAX);
        ligi_request_parts parts = {message.serial,
                                    pieces.tensors,
                                    pieces.tensors + message.push_count,
                                    pieces.keys,
                                    pieces.keys + message.push_count,
                                    pieces.places,
                                    pieces.places + message.push_count,
                                    message.push_count,
                                    message.pull_count};
        if (again) {
            size_t wrote = ligi_message_request(&parts, again);
            assert(wrote == bytes + sizeof start);
            assert(memcmp(again + sizeof start, head + sizeof start, bytes) == 0);
        }
        free(again);
    }
    ligi_pieces_fini(&pieces);
    free(head);
    return 0;
}
