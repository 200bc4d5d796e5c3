#include "net/ucx/ucx_frame.h"

#include "base/test.h"

static const ligi_ucx_frame sample = {
    .number = UINT64_C(0x1122334455667788),
    .prefix = {.kind = LIGI_KIND_DATA, .head_bytes = 7, .payload_bytes = UINT64_C(1) << 40}};

static void test_there_and_back(void **state)
{
    uint8_t bytes[LIGI_UCX_FRAME_BYTES + 7] = {0};
    ligi_ucx_frame got;

    (void)state;
    ligi_ucx_frame_encode(&sample, bytes);
    assert_true(ligi_ucx_frame_decode(LIGI_UCX_DATA, bytes, sizeof bytes, UINT64_C(1) << 40, &got));
    assert_true(got.number == sample.number);
    assert_int_equal(got.prefix.kind, LIGI_KIND_DATA);
    assert_int_equal(got.prefix.head_bytes, 7);
    assert_true(got.prefix.payload_bytes == UINT64_C(1) << 40);
    uint8_t credit[LIGI_UCX_CREDIT_BYTES];
    ligi_ucx_credit_encode(UINT64_MAX - 5, credit);
    assert_true(ligi_ucx_credit_decode(credit) == UINT64_MAX - 5);
}

/* Lengths that do not fit each other are refused, before anything is read by them. */
static void test_refuses(void **state)
{
    uint8_t bytes[LIGI_UCX_FRAME_BYTES + 8] = {0};
    ligi_ucx_frame got, apart = sample;
    uint64_t payload = sample.prefix.payload_bytes;
    size_t whole = LIGI_UCX_FRAME_BYTES + 7;

    (void)state;
    ligi_ucx_frame_encode(&sample, bytes);
    assert_false(ligi_ucx_frame_decode(LIGI_UCX_DATA, bytes, whole + 1, payload, &got));
    assert_false(ligi_ucx_frame_decode(LIGI_UCX_DATA, bytes, whole - 1, payload, &got));
    assert_false(ligi_ucx_frame_decode(LIGI_UCX_DATA, bytes, LIGI_UCX_FRAME_BYTES - 1, 0, &got));
    assert_false(ligi_ucx_frame_decode(LIGI_UCX_DATA, bytes, 0, 0, &got));
    assert_false(ligi_ucx_frame_decode(LIGI_UCX_DATA, bytes, whole, payload - 1, &got));
    assert_false(ligi_ucx_frame_decode(LIGI_UCX_HEAD, bytes, whole, 7, &got));
    for (size_t i = 0; i < 8; i++) { /* the magic number, the flag */
        bytes[i] ^= 0x40;
        assert_false(ligi_ucx_frame_decode(LIGI_UCX_DATA, bytes, whole, payload, &got));
        bytes[i] ^= 0x40;
    }
    apart.form = LIGI_UCX_HEAD_APART;
    ligi_ucx_frame_encode(&apart, bytes);
    assert_true(ligi_ucx_frame_decode(LIGI_UCX_HEAD, bytes, LIGI_UCX_FRAME_BYTES, 7, &got));
    assert_false(ligi_ucx_frame_decode(LIGI_UCX_HEAD, bytes, LIGI_UCX_FRAME_BYTES, 8, &got));
    assert_true(ligi_ucx_frame_decode(LIGI_UCX_DATA, bytes, LIGI_UCX_FRAME_BYTES, payload, &got));
    apart.form = LIGI_UCX_INLINE;
    apart.prefix.payload_bytes = 1;
    ligi_ucx_frame_encode(&apart, bytes);
    assert_true(ligi_ucx_frame_decode(LIGI_UCX_DATA, bytes, whole + 1, 0, &got));
    assert_false(ligi_ucx_frame_decode(LIGI_UCX_DATA, bytes, whole, 0, &got));
    assert_false(ligi_ucx_frame_decode(LIGI_UCX_DATA, bytes, whole + 1, 1, &got));
    apart.prefix.payload_bytes = UINT64_MAX - 5; /* 7 and this are 1 */
    ligi_ucx_frame_encode(&apart, bytes);
    assert_false(ligi_ucx_frame_decode(LIGI_UCX_DATA, bytes, LIGI_UCX_FRAME_BYTES + 1, 0, &got));
    apart.form = LIGI_UCX_HEAD_APART;
    apart.prefix.head_bytes = LIGI_HEAD_BYTES_MAX + 1;
    ligi_ucx_frame_encode(&apart, bytes);
    assert_false(ligi_ucx_frame_decode(LIGI_UCX_HEAD, bytes, LIGI_UCX_FRAME_BYTES,
                                       LIGI_HEAD_BYTES_MAX + 1, &got));
}

/* No more than there is room for is ever copied behind a frame. */
static void test_refuses_long_headers(void **state)
{
    static uint8_t bytes[LIGI_UCX_FRAME_BYTES + LIGI_UCX_HEAD_INLINE + 1];
    ligi_ucx_frame got, frame = sample;

    (void)state;
    frame.prefix.payload_bytes = 0;
    frame.prefix.head_bytes = LIGI_UCX_HEAD_INLINE + 1;
    ligi_ucx_frame_encode(&frame, bytes);
    assert_false(ligi_ucx_frame_decode(LIGI_UCX_DATA, bytes, sizeof bytes, 0, &got));
    frame.prefix.head_bytes = LIGI_UCX_HEAD_INLINE;
    ligi_ucx_frame_encode(&frame, bytes);
    assert_true(ligi_ucx_frame_decode(LIGI_UCX_DATA, bytes, sizeof bytes - 1, 0, &got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_refuses_long_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
