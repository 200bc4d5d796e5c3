#include "net/ucx/ucx_frame.h"

#include "base/codec.h"

#define MAGIC UINT64_C(0x31585543) /* "CUX1" */

void ligi_ucx_frame_encode(const ligi_ucx_frame *frame, uint8_t out[LIGI_UCX_FRAME_BYTES])
{
    ligi_store_le(out, MAGIC, 4);
    ligi_store_le(out + 4, frame->form, 4);
    ligi_store_le(out + 8, frame->number, 8);
    ligi_store_le(out + 16, frame->prefix.kind, 4);
    ligi_store_le(out + 20, frame->prefix.head_bytes, 4);
    ligi_store_le(out + 24, frame->prefix.payload_bytes, 8);
}

int ligi_ucx_frame_decode(ligi_ucx_message id, const void *header, size_t header_bytes,
                          uint64_t data_bytes, ligi_ucx_frame *frame)
{
    const uint8_t *in = header;

    if (header_bytes < LIGI_UCX_FRAME_BYTES || ligi_load_le(in, 4) != MAGIC)
        return 0;
    *frame = (ligi_ucx_frame){
        .number = ligi_load_le(in + 8, 8),
        .form = (uint32_t)ligi_load_le(in + 4, 4),
        .prefix = {.kind = (uint32_t)ligi_load_le(in + 16, 4),
                   .head_bytes = (uint32_t)ligi_load_le(in + 20, 4),
                   .payload_bytes = ligi_load_le(in + 24, 8)},
    };
    size_t rest = header_bytes - LIGI_UCX_FRAME_BYTES;
    uint64_t head = frame->prefix.head_bytes, payload = frame->prefix.payload_bytes;
    if (rest > LIGI_UCX_HEAD_INLINE || head > LIGI_HEAD_BYTES_MAX)
        return 0;
    if (id == LIGI_UCX_HEAD)
        return frame->form == LIGI_UCX_HEAD_APART && rest == 0 && data_bytes == head;
    switch (frame->form) {
    case LIGI_UCX_PLAIN: return rest == head && data_bytes == payload;
    case LIGI_UCX_HEAD_APART: return rest == 0 && data_bytes == payload;
    case LIGI_UCX_INLINE: return payload <= rest && rest == head + payload && data_bytes == 0;
    default: return 0;
    }
}

void ligi_ucx_credit_encode(uint64_t count, uint8_t out[LIGI_UCX_CREDIT_BYTES])
{
    ligi_store_le(out, count, LIGI_UCX_CREDIT_BYTES);
}

uint64_t ligi_ucx_credit_decode(const uint8_t in[LIGI_UCX_CREDIT_BYTES])
{
    return ligi_load_le(in, LIGI_UCX_CREDIT_BYTES);
}
