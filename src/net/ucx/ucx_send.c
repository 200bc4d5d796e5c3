#include "net/ucx/ucx_send.h"

#include "net/ucx/ucx_wire.h"

#include <stdlib.h>
#include <string.h>

#include "net/ucx/ucx.h"

/* ligi_outgoing.at: 0 not begun, 1 gone, 1 + n: UCX has n sends of it in hand. */
#define GONE 1u
#define IN_HAND_BYTES (UINT64_C(4) << 20)

static lig_status take_op(ligi_ucx_wire *wire, ligi_outgoing *out, ligi_ucx_op **op)
{
    ligi_ucx_self *self = wire->self;
    ligi_ucx_op *taken = self->free_ops;

    if (taken != NULL)
        self->free_ops = taken->next;
    else
        taken = malloc(sizeof *taken);
    if (taken == NULL)
        return self->host->fail(LIG_E_NOMEM, "out of memory for a message to %s",
                                self->host->link_address(wire->link));
    taken->wire = wire;
    taken->out = out;
    taken->bytes = 0;
    *op = taken;
    return LIG_OK;
}

static void give_op(ligi_ucx_op *op)
{
    ligi_ucx_self *self = op->wire->self;

    op->next = self->free_ops;
    self->free_ops = op;
}

void ligi_ucx_ops_free(ligi_ucx_self *self)
{
    while (self->free_ops != NULL) {
        ligi_ucx_op *op = self->free_ops;
        self->free_ops = op->next;
        free(op);
    }
}

/* A dead link's messages belong to the core again and are no longer accessed. */
static void op_ended(ligi_ucx_op *op)
{
    ligi_ucx_wire *wire = op->wire;

    if (op->out != NULL && wire->link != NULL && !wire->self->host->link_dead(wire->link) &&
        --op->out->at == GONE)
        wire->due = wire->self->any_due = 1;
    give_op(op);
}

static void on_sent(void *request, ucs_status_t status, void *context)
{
    ligi_ucx_op *op = context;
    ligi_ucx_wire *wire = op->wire;

    wire->op_count--;
    wire->op_bytes -= op->bytes;
    wire->due = wire->self->any_due = 1;
    wire->self->ucp.ucp_request_free(request);
    if (status != UCS_OK && !wire->broken && wire->link != NULL &&
        !wire->self->host->link_dead(wire->link))
        ligi_ucx_wire_fail(wire, wire->self->host->fail(LIG_E_PEER, "cannot send to %s (%s)",
                                                        wire->self->host->link_address(wire->link),
                                                        wire->self->ucp.ucs_status_string(status)));
    op_ended(op);
}

typedef struct ucx_post {
    ligi_ucx_message id;
    size_t header_bytes;
    const struct iovec *iov;
    size_t count;
    uint32_t flags;
} ucx_post;

/* Passes one active message to UCX. op->out counts it as in progress. */
static lig_status post(ligi_ucx_op *op, const ucx_post *what)
{
    ligi_ucx_wire *wire = op->wire;
    const ligi_ucx_calls *ucp = &wire->self->ucp;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
                                                 UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA,
                                 .flags = UCP_AM_SEND_FLAG_REPLY | what->flags,
                                 .cb.send = on_sent,
                                 .user_data = op};
    const void *buffer = NULL;
    size_t count = 0;

    if (what->count == 1) {
        buffer = what->iov->iov_base;
        count = what->iov->iov_len;
    } else if (what->count > 1) { /* ucp_dt_iov_t is laid out as struct iovec is */
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype = UCP_DATATYPE_IOV;
        buffer = what->iov;
        count = what->count;
    }
    if (op->out != NULL)
        op->out->at++;
    ucs_status_ptr_t request = ucp->ucp_am_send_nbx(wire->ep, what->id, op->header,
                                                    what->header_bytes, buffer, count, &param);
    if (UCS_PTR_IS_PTR(request)) { /* kept, and perhaps not begun */
        ligi_ucx_stir(wire->self);
        wire->op_count++;
        wire->op_bytes += op->bytes;
        return LIG_OK;
    }
    ucs_status_t status = UCS_PTR_RAW_STATUS(request);
    op_ended(op);
    if (status == UCS_OK)
        return LIG_OK;
    return wire->self->host->fail(LIG_E_PEER, "cannot send to %s (%s)",
                                  wire->self->host->link_address(wire->link),
                                  ucp->ucs_status_string(status));
}

/* A head that is too long for a header is sent before, as data. */
static lig_status post_head(ligi_ucx_wire *wire, ligi_outgoing *out)
{
    struct iovec piece = {(void *)out->head, out->prefix.head_bytes};
    ligi_ucx_frame frame = {wire->sent++, LIGI_UCX_HEAD_APART, out->prefix};
    ligi_ucx_op *op;

    LIG_TRY(take_op(wire, out, &op));
    op->bytes = out->prefix.head_bytes; /* UCX reads it where the core has it */
    ligi_ucx_frame_encode(&frame, op->header);
    return post(
        op, &(ucx_post){LIGI_UCX_HEAD, LIGI_UCX_FRAME_BYTES, &piece, 1, UCP_AM_SEND_FLAG_EAGER});
}

static ligi_ucx_form form_of(const ligi_outgoing *out)
{
    if (out->prefix.head_bytes > LIGI_UCX_HEAD_INLINE)
        return LIGI_UCX_HEAD_APART;
    return out->prefix.payload_bytes <= LIGI_UCX_HEAD_INLINE - out->prefix.head_bytes
               ? LIGI_UCX_INLINE
               : LIGI_UCX_PLAIN;
}

static size_t gather(const ligi_outgoing *out, uint8_t *into)
{
    size_t at = 0;

    for (size_t i = 0; i < out->count; i++) {
        if (out->iov[i].iov_len > 0)
            memcpy(into + at, out->iov[i].iov_base, out->iov[i].iov_len);
        at += out->iov[i].iov_len;
    }
    return at;
}

static lig_status post_message(ligi_ucx_wire *wire, ligi_outgoing *out)
{
    ligi_ucx_form form = form_of(out);
    ligi_ucx_op *op;

    out->at = GONE; /* plus one for each part in hand */
    if (form == LIGI_UCX_HEAD_APART)
        LIG_TRY(post_head(wire, out));
    ligi_ucx_frame frame = {wire->sent++, form, out->prefix};
    /* Small ones are copied: for the core they are sent. */
    LIG_TRY(take_op(wire, form == LIGI_UCX_INLINE ? NULL : out, &op));
    ucx_post what = {.id = LIGI_UCX_DATA, .header_bytes = LIGI_UCX_FRAME_BYTES};
    ligi_ucx_frame_encode(&frame, op->header);
    if (form != LIGI_UCX_HEAD_APART && out->prefix.head_bytes > 0)
        memcpy(op->header + what.header_bytes, out->head, out->prefix.head_bytes);
    if (form != LIGI_UCX_HEAD_APART)
        what.header_bytes += out->prefix.head_bytes;
    if (form == LIGI_UCX_INLINE) {
        what.header_bytes += gather(out, op->header + what.header_bytes);
    } else if (out->prefix.payload_bytes > 0) {
        op->bytes = out->prefix.payload_bytes;
        what.iov = out->iov;
        what.count = out->count;
    }
    return post(op, &what);
}

void ligi_ucx_wire_settle(ligi_ucx_wire *wire)
{
    const ligi_host *host = wire->self->host;
    ligi_outgoing *out;

    while (wire->link != NULL && !host->link_dead(wire->link) &&
           (out = host->link_queue(wire->link)) != NULL && out->at == GONE)
        host->link_gone(wire->link);
}

/* A message uses at most two numbers. Messages that wait behind many sends in progress can still be
 * cancelled. */
static int has_credit(const ligi_ucx_wire *wire)
{
    return wire->op_bytes < IN_HAND_BYTES && wire->sent + 2 <= wire->credit + LIGI_UCX_WINDOW;
}

void ligi_ucx_wire_send(void *context)
{
    ligi_ucx_wire *wire = context;
    const ligi_host *host = wire->self->host;

    if (!wire->proving.done || wire->broken || wire->link == NULL)
        return;
    ligi_outgoing *end = host->link_queue_end(wire->link);
    ligi_outgoing *out = host->link_queue(wire->link);
    for (; out != NULL && out != end && has_credit(wire); out = out->next) {
        if (out->at != 0)
            continue;
        lig_status status = post_message(wire, out);
        if (status != LIG_OK) {
            ligi_ucx_wire_fail(wire, status);
            return;
        }
    }
    ligi_ucx_wire_settle(wire);
}

lig_status ligi_ucx_wire_say(ligi_ucx_wire *wire, ligi_ucx_message id, const void *data,
                             size_t bytes)
{
    ligi_ucx_op *op;

    LIG_TRY(take_op(wire, NULL, &op));
    memcpy(op->header, data, bytes);
    return post(op, &(ucx_post){id, bytes, NULL, 0, UCP_AM_SEND_FLAG_EAGER});
}
