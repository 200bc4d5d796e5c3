/* The contents of the headers of active messages. Pure. */
#ifndef LIGI_UCX_FRAME_H
#define LIGI_UCX_FRAME_H

#include "net/transport.h"

typedef enum ligi_ucx_message { /* identifiers of active messages; pinned */
                                LIGI_UCX_DATA =
                                    0, /* frame, head; the payload is the message's data */
                                LIGI_UCX_HEAD =
                                    1, /* frame; the data is the head of the message that follows */
                                LIGI_UCX_CREDIT = 2, /* u64: the count of numbers used up */
                                LIGI_UCX_PROOF = 3,  /* see ucx_proof.h */
                                LIGI_UCX_MESSAGE_COUNT = 4
} ligi_ucx_message;

#define LIGI_UCX_FRAME_BYTES 32u
#define LIGI_UCX_HEAD_INLINE 1024u /* maximum number of bytes after the frame */
#define LIGI_UCX_WINDOW 256u       /* numbers that may be in flight to one peer */
#define LIGI_UCX_CREDIT_BYTES 8u

typedef enum ligi_ucx_form {
    LIGI_UCX_PLAIN = 0,      /* the head after the frame, the payload as the message's data */
    LIGI_UCX_HEAD_APART = 1, /* the head was sent as LIGI_UCX_HEAD just before */
    LIGI_UCX_INLINE = 2      /* head and payload after the frame: the fastest form, for small
                              * messages */
} ligi_ucx_form;

typedef struct ligi_ucx_frame {
    uint64_t number; /* in the order of sending; UCX may deliver short messages before long ones */
    uint32_t form;   /* ligi_ucx_form */
    ligi_frame_prefix prefix;
} ligi_ucx_frame;

void ligi_ucx_frame_encode(const ligi_ucx_frame *frame, uint8_t out[LIGI_UCX_FRAME_BYTES]);
/* 0 if these are not header and data of such a message: the lengths must match exactly. `id` is
 * LIGI_UCX_DATA or LIGI_UCX_HEAD. */
int ligi_ucx_frame_decode(ligi_ucx_message id, const void *header, size_t header_bytes,
                          uint64_t data_bytes, ligi_ucx_frame *frame);

void ligi_ucx_credit_encode(uint64_t count, uint8_t out[LIGI_UCX_CREDIT_BYTES]);
uint64_t ligi_ucx_credit_decode(const uint8_t in[LIGI_UCX_CREDIT_BYTES]);

#endif
