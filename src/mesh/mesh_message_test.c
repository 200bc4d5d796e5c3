#include "base/test.h"
#include "mesh/mesh_message.h"

#include <stdlib.h>

typedef struct sample {
    lig_tensor tensors[8];
    ligi_place places[8];
    uint64_t keys[8];
    int64_t shapes[8][LIG_MESH_NDIM_MAX];
    uint8_t head[LIGI_MESSAGE_BYTES_MAX];
    size_t bytes;
} sample;

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void fill(sample *one, uint64_t *state, uint32_t push, uint32_t pull, uint64_t serial)
{
    for (uint32_t i = 0; i < push + pull; i++) {
        lig_tensor *tensor = &one->tensors[i];
        *tensor = (lig_tensor){.dtype = (uint16_t)(1 + next_random(state) % (LIG_DTYPE_COUNT - 1)),
                               .ndim = (uint32_t)(next_random(state) % (LIG_MESH_NDIM_MAX + 1)),
                               .shape = one->shapes[i]};
        tensor->bytes = lig_dtype_bytes(tensor->dtype);
        for (uint32_t d = 0; d < tensor->ndim; d++) {
            one->shapes[i][d] = (int64_t)(next_random(state) % 5);
            tensor->bytes *= (uint64_t)one->shapes[i][d];
        }
        one->keys[i] = next_random(state);
        one->places[i] = (ligi_place){.kind = (uint32_t)(next_random(state) % 3)};
        if (one->places[i].kind == LIGI_PLACE_ARENA)
            one->places[i] =
                (ligi_place){LIGI_PLACE_ARENA, (uint32_t)(next_random(state) % LIGI_MESSAGE_ARENAS),
                             next_random(state)};
    }
    ligi_request_parts parts = {.serial = serial,
                                .push = one->tensors,
                                .pull = one->tensors + push,
                                .push_keys = one->keys,
                                .pull_keys = one->keys + push,
                                .push_places = one->places,
                                .pull_places = one->places + push,
                                .push_count = push,
                                .pull_count = pull};
    one->bytes = ligi_message_request(&parts, one->head);
}

static void test_what_is_written_is_read(void **unused)
{
    (void)unused;
    sample *one = malloc(sizeof *one);
    ligi_pieces pieces = {0};
    uint64_t state = 88172645463325252u;
    for (uint64_t round = 0; round < 2000; round++) {
        uint32_t push = (uint32_t)(round % 5), pull = (uint32_t)(round / 5 % 4);
        fill(one, &state, push, pull, round);
        ligi_message message;
        assert_ok(ligi_message_decode(one->head, one->bytes, &pieces, &message));
        assert_int_equal(message.kind, LIGI_MESSAGE_REQUEST);
        assert_int_equal(message.serial, round);
        assert_int_equal(message.push_count, push);
        assert_int_equal(message.pull_count, pull);
        uint64_t sum = 0, payload = 0;
        for (uint32_t i = 0; i < push + pull; i++) {
            assert_int_equal(pieces.keys[i], one->keys[i]);
            assert_int_equal(pieces.tensors[i].dtype, one->tensors[i].dtype);
            assert_int_equal(pieces.tensors[i].bytes, one->tensors[i].bytes);
            assert_int_equal(pieces.tensors[i].ndim, one->tensors[i].ndim);
            assert_memory_equal(pieces.tensors[i].shape, one->shapes[i], 8 * one->tensors[i].ndim);
            assert_memory_equal(&pieces.places[i], &one->places[i], sizeof *one->places);
            sum += i < push ? one->tensors[i].bytes : 0;
            payload +=
                i < push && one->places[i].kind != LIGI_PLACE_ARENA ? one->tensors[i].bytes : 0;
        }
        assert_int_equal(message.push_bytes, sum);
        assert_int_equal(message.payload_bytes, payload);
    }
    ligi_pieces_fini(&pieces);
    free(one);
}

static void test_every_cut_is_refused(void **unused)
{
    (void)unused;
    sample *one = malloc(sizeof *one);
    ligi_pieces pieces = {0};
    ligi_message message;
    uint64_t state = 12345;
    fill(one, &state, 3, 2, 7);
    for (size_t bytes = 0; bytes < one->bytes; bytes++)
        assert_status(ligi_message_decode(one->head, bytes, &pieces, &message), LIG_E_CORRUPT);
    assert_status(ligi_message_decode(one->head, one->bytes + 1, &pieces, &message), LIG_E_CORRUPT);
    ligi_pieces_fini(&pieces);
    free(one);
}

static void test_hostile_numbers(void **unused)
{
    (void)unused;
    ligi_pieces pieces = {0};
    ligi_message message;
    int64_t shape[2] = {3, 5};
    lig_tensor tensor = {.dtype = LIG_FLOAT32, .ndim = 2, .shape = shape, .bytes = 60};
    uint64_t key = 9;
    uint8_t head[256], bad[256];
    ligi_request_parts parts = {.serial = 1, .push = &tensor, .push_keys = &key, .push_count = 1};
    size_t bytes = ligi_message_request(&parts, head);
    const struct {
        size_t at;
        uint64_t value;
        size_t width;
    } changes[] = {
        {0, 99, 1},                  /* kind */
        {1, 1, 1},                   /* version */
        {2, 65535, 2},               /* count */
        {48 + 8, 0, 2},              /* dtype */
        {48 + 8, 999, 2},            /* dtype */
        {48 + 10, 9, 1},             /* ndim */
        {48 + 10, 255, 1},           /* ndim */
        {48 + 11, 3, 1},             /* place */
        {48 + 11, 2, 1},             /* an arena without an offset */
        {48 + 12, 1, 4},             /* an arena for host memory */
        {48 + 16, UINT64_MAX, 8},    /* negative */
        {48 + 16, INT64_MAX / 8, 8}, /* product overflows */
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        memcpy(bad, head, bytes);
        memcpy(bad + changes[i].at, &changes[i].value, changes[i].width);
        assert_int_not_equal(ligi_message_decode(bad, bytes, &pieces, &message), LIG_OK);
    }
    assert_ok(ligi_message_decode(head, bytes, &pieces, &message));
    assert_true(pieces.room <= 4);
    ligi_pieces_fini(&pieces);
}

static void test_refusals_and_small_ones(void **unused)
{
    (void)unused;
    uint8_t head[LIGI_MESSAGE_REFUSAL_BYTES];
    ligi_message message;
    size_t bytes = ligi_message_refusal(5, LIG_E_LIMIT, "too large", head);
    assert_ok(ligi_message_decode(head, bytes, NULL, &message));
    assert_int_equal(message.status, LIG_E_LIMIT);
    assert_int_equal(message.sentence_bytes, 9);
    assert_memory_equal(message.sentence, "too large", 9);
    head[LIGI_MESSAGE_SMALL_BYTES + 2] = 0;
    assert_status(ligi_message_decode(head, bytes, NULL, &message), LIG_E_CORRUPT);
    char longest[4000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    bytes = ligi_message_refusal(5, LIG_E_LIMIT, longest, head);
    assert_int_equal(bytes, LIGI_MESSAGE_REFUSAL_BYTES);
    assert_ok(ligi_message_decode(head, bytes, NULL, &message));
    uint64_t stamps[4] = {1, 2, 3, 4};
    bytes = ligi_message_small(LIGI_MESSAGE_REPLY, 77, stamps, head);
    assert_ok(ligi_message_decode(head, bytes, NULL, &message));
    assert_int_equal(message.serial, 77);
    assert_memory_equal(message.stamps, stamps, sizeof stamps);
}

static void test_offers(void **unused)
{
    (void)unused;
    uint8_t head[LIGI_MESSAGE_OFFER_BYTES];
    ligi_offer offer = {.arena = 5, .process = {77}, .address = 4096, .bytes = 1 << 20}, read;
    ligi_message message;
    memset(offer.handle, 3, sizeof offer.handle);
    assert_int_equal(ligi_message_offer(&offer, head), sizeof head);
    assert_ok(ligi_message_decode_offer(head, sizeof head, &read));
    assert_memory_equal(&read, &offer, sizeof offer);
    for (size_t bytes = 0; bytes < sizeof head; bytes++)
        assert_status(ligi_message_decode_offer(head, bytes, &read), LIG_E_CORRUPT);
    assert_status(ligi_message_decode(head, sizeof head, NULL, &message), LIG_E_CORRUPT);
    offer.arena = LIGI_MESSAGE_ARENAS;
    ligi_message_offer(&offer, head);
    assert_status(ligi_message_decode_offer(head, sizeof head, &read), LIG_E_CORRUPT);
    size_t bytes = ligi_message_opened(3, LIG_E_UNSUPPORTED, head);
    assert_ok(ligi_message_decode(head, bytes, NULL, &message));
    assert_int_equal(message.serial, 3);
    assert_int_equal(message.status, LIG_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_every_cut_is_refused),
        cmocka_unit_test(test_hostile_numbers),
        cmocka_unit_test(test_refusals_and_small_ones),
        cmocka_unit_test(test_offers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
