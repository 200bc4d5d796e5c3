#include "net/ucx/ucx_receive.h"

#include "net/ucx/ucx_send.h"
#include "net/ucx/ucx_wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/ucx/ucx.h"

#define DIVERT_NS INT64_C(50000000)

static lig_status fail_corrupt(const ligi_ucx_wire *wire)
{
    const ligi_host *host = wire->self->host;

    return host->fail(LIG_E_CORRUPT, "invalid ucx message from %s", host->link_address(wire->link));
}

static int is_usable(const ligi_ucx_wire *wire)
{
    return wire->link != NULL && !wire->broken && !wire->self->host->link_dead(wire->link);
}

static void release(ligi_ucx_wire *wire, ligi_ucx_arrival *arrival)
{
    if (arrival->held && arrival->data != NULL)
        wire->self->ucp.ucp_am_data_release(wire->self->worker, arrival->data);
    else
        free(arrival->data);
    free(arrival);
}

void ligi_ucx_arrivals_free(ligi_ucx_wire *wire)
{
    while (wire->arrivals != NULL) {
        ligi_ucx_arrival *arrival = wire->arrivals;
        wire->arrivals = arrival->next;
        release(wire, arrival);
    }
    wire->arrival_count = 0;
}

/* A number is used up. The peer learns it when half of the window is. */
static lig_status use_up(ligi_ucx_wire *wire)
{
    uint8_t credit[LIGI_UCX_CREDIT_BYTES];

    wire->taken++;
    if (wire->taken - wire->told < LIGI_UCX_WINDOW / 2)
        return LIG_OK;
    wire->told = wire->taken;
    ligi_ucx_credit_encode(wire->taken, credit);
    return ligi_ucx_wire_say(wire, LIGI_UCX_CREDIT, credit, sizeof credit);
}

static void scatter(const ligi_incoming *in, const void *data)
{
    const char *from = data;

    for (size_t i = 0; i < in->count; i++) {
        if (in->iov[i].iov_len > 0)
            memcpy(in->iov[i].iov_base, from, in->iov[i].iov_len);
        from += in->iov[i].iov_len;
    }
}

static void on_landed(void *request, ucs_status_t status, size_t bytes, void *context)
{
    ligi_ucx_wire *wire = context;
    ligi_ucx_self *self = wire->self;

    (void)bytes;
    if (request != NULL)
        self->ucp.ucp_request_free(request);
    wire->landing = 0;
    if (!is_usable(wire))
        return;
    if (status != UCS_OK) {
        ligi_ucx_wire_fail(wire,
                           self->host->fail(LIG_E_PEER, "a message from %s was truncated (%s)",
                                            self->host->link_address(wire->link),
                                            self->ucp.ucs_status_string(status)));
        return;
    }
    wire->landed = 1;
    wire->due = self->any_due = 1;
}

/* UCX moves the payload from the sender's memory to where it goes. */
static lig_status land(ligi_ucx_wire *wire, const ligi_incoming *in, void *descriptor)
{
    ligi_ucx_self *self = wire->self;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                 .cb.recv_am = on_landed,
                                 .user_data = wire};
    void *buffer = in->iov;
    size_t count = in->count;

    if (in->count == 1) {
        buffer = in->iov->iov_base;
        count = in->iov->iov_len;
    } else {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype = UCP_DATATYPE_IOV;
    }
    wire->landing = 1;
    ucs_status_ptr_t request =
        self->ucp.ucp_am_recv_data_nbx(self->worker, descriptor, buffer, count, &param);
    if (UCS_PTR_IS_PTR(request))
        return LIG_OK;
    wire->landing = 0;
    return self->host->fail(LIG_E_PEER, "cannot receive a message from %s (%s)",
                            self->host->link_address(wire->link),
                            self->ucp.ucs_status_string(UCS_PTR_RAW_STATUS(request)));
}

/* Asks the module for the destination of the payload. An unwanted payload is not read. */
static lig_status take_data(ligi_ucx_wire *wire, const ligi_ucx_arrival *arrival, int *keeps)
{
    const ligi_host *host = wire->self->host;
    const ligi_ucx_frame *frame = &arrival->frame;
    int apart = frame->form == LIGI_UCX_HEAD_APART;
    ligi_incoming in = {.head = apart ? wire->head : arrival->head};

    if (apart != (wire->head != NULL) || (apart && wire->head_bytes != frame->prefix.head_bytes))
        return fail_corrupt(wire);
    LIG_TRY(host->link_begin(wire->link, &frame->prefix));
    wire->bye |= frame->prefix.kind == LIGI_KIND_BYE;
    LIG_TRY(host->link_take(wire->link, &in));
    free(wire->head);
    wire->head = NULL;
    LIG_TRY(use_up(wire));
    if (in.iov != NULL && in.bytes > 0 && arrival->rendezvous) {
        *keeps = 0;
        return land(wire, &in, arrival->data);
    }
    if (in.iov != NULL && in.bytes > 0)
        scatter(&in, frame->form == LIGI_UCX_INLINE ? arrival->head + frame->prefix.head_bytes
                                                    : arrival->data);
    host->link_landed(wire->link);
    return LIG_OK;
}

static lig_status take_head(ligi_ucx_wire *wire, ligi_ucx_arrival *arrival)
{
    if (wire->head != NULL || arrival->rendezvous)
        return fail_corrupt(wire);
    wire->head = malloc(arrival->data_bytes + 1);
    if (wire->head == NULL)
        return wire->self->host->fail(LIG_E_NOMEM, "out of memory for a message's head");
    memcpy(wire->head, arrival->data, arrival->data_bytes);
    wire->head_bytes = arrival->data_bytes;
    return use_up(wire);
}

/* *keeps stays 1 while the arrival's data is still to be released. */
static void take(ligi_ucx_wire *wire, ligi_ucx_arrival *arrival, int *keeps)
{
    lig_status status =
        arrival->id == LIGI_UCX_HEAD ? take_head(wire, arrival) : take_data(wire, arrival, keeps);
    if (status != LIG_OK)
        ligi_ucx_wire_fail(wire, status);
}

/* --- what waits --- */

int ligi_ucx_wire_look(ligi_ucx_wire *wire)
{
    int happened = 0;

    wire->due = 0;
    ligi_ucx_wire_settle(wire);
    if (is_usable(wire) && wire->landed) {
        wire->landed = 0;
        wire->self->host->link_landed(wire->link);
        happened++;
    }
    while (is_usable(wire) && !wire->landing && !wire->landed && wire->arrivals != NULL &&
           wire->arrivals->frame.number == wire->taken) {
        ligi_ucx_arrival *arrival = wire->arrivals;
        int keeps = 1;
        wire->arrivals = arrival->next;
        wire->arrival_count--;
        take(wire, arrival, &keeps);
        if (!keeps)
            arrival->data = NULL;
        release(wire, arrival);
        happened++;
    }
    if (is_usable(wire))
        ligi_ucx_wire_send(wire);
    return happened;
}

/* Inserts it at its number; a number that was already used, or is outside the peer's window, is
 * invalid. */
static lig_status enlist(ligi_ucx_wire *wire, ligi_ucx_arrival *arrival)
{
    ligi_ucx_arrival **at = &wire->arrivals;

    while (*at != NULL && (*at)->frame.number < arrival->frame.number)
        at = &(*at)->next;
    if (*at != NULL && (*at)->frame.number == arrival->frame.number)
        return fail_corrupt(wire);
    arrival->next = *at;
    *at = arrival;
    wire->arrival_count++;
    wire->due = wire->self->any_due = 1;
    return LIG_OK;
}

typedef struct ucx_came {
    ligi_ucx_message id;
    const void *header;
    size_t header_bytes;
    void *data;
    size_t data_bytes;
    uint64_t attributes;
} ucx_came;

/* Keeps the message for later. *status is the result for UCX. */
static lig_status keep(ligi_ucx_wire *wire, const ucx_came *came, const ligi_ucx_frame *frame,
                       ucs_status_t *status)
{
    size_t head_bytes = came->header_bytes - LIGI_UCX_FRAME_BYTES;
    ligi_ucx_arrival *arrival = calloc(1, sizeof *arrival + head_bytes);
    uint8_t *head = (uint8_t *)(arrival + 1);

    if (arrival == NULL)
        return wire->self->host->fail(LIG_E_NOMEM, "out of memory for a message");
    arrival->id = came->id;
    arrival->frame = *frame;
    arrival->data_bytes = came->data_bytes;
    arrival->rendezvous = (came->attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    arrival->held =
        (came->attributes & (UCP_AM_RECV_ATTR_FLAG_RNDV | UCP_AM_RECV_ATTR_FLAG_DATA)) != 0;
    arrival->head = head;
    memcpy(head, (const uint8_t *)came->header + LIGI_UCX_FRAME_BYTES, head_bytes);
    if (arrival->held) {
        arrival->data = came->data;
    } else if (came->data_bytes > 0) {
        arrival->data = malloc(came->data_bytes);
        if (arrival->data == NULL) {
            free(arrival);
            return wire->self->host->fail(LIG_E_NOMEM, "out of memory for a message");
        }
        memcpy(arrival->data, came->data, came->data_bytes);
    }
    lig_status result = enlist(wire, arrival);
    if (result != LIG_OK) {
        if (arrival->held)
            arrival->data = NULL; /* released by not being kept */
        release(wire, arrival);
        return result;
    }
    *status = arrival->held ? UCS_INPROGRESS : UCS_OK;
    return LIG_OK;
}

/* Delivers a message in place, inside UCX's callback, as for nearly all messages. The result tells
 * UCX whether its descriptor is still in use. */
static ucs_status_t take_now(ligi_ucx_wire *wire, const ucx_came *came, const ligi_ucx_frame *frame)
{
    uint8_t *head = wire->self->head;
    ligi_ucx_arrival here = {.id = came->id,
                             .frame = *frame,
                             .rendezvous = (came->attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0,
                             .data = came->data,
                             .data_bytes = came->data_bytes,
                             .head = head};
    int keeps = 1;

    memcpy(head, (const uint8_t *)came->header + LIGI_UCX_FRAME_BYTES,
           came->header_bytes - LIGI_UCX_FRAME_BYTES);
    take(wire, &here, &keeps);
    return keeps ? UCS_OK : UCS_INPROGRESS;
}

static lig_status hear(ligi_ucx_wire *wire, const ucx_came *came, ucs_status_t *status)
{
    ligi_ucx_frame frame;

    if (came->id == LIGI_UCX_PROOF) {
        wire->due = wire->self->any_due = 1; /* the hello waits for it */
        return ligi_ucx_prove_take(wire, came->header, came->header_bytes);
    }
    if (!wire->proving.done)
        return wire->self->host->fail(
            LIG_E_DENIED, "protocol error: %s sent a message before it proved the secret",
            wire->self->host->link_address(wire->link));
    if (came->id == LIGI_UCX_CREDIT) {
        uint64_t credit = came->header_bytes == LIGI_UCX_CREDIT_BYTES && came->data_bytes == 0
                              ? ligi_ucx_credit_decode(came->header)
                              : UINT64_MAX;
        if (credit > wire->sent || credit < wire->credit)
            return fail_corrupt(wire);
        wire->credit = credit;
        wire->due = wire->self->any_due = 1;
        return LIG_OK;
    }
    if (!ligi_ucx_frame_decode(came->id, came->header, came->header_bytes, came->data_bytes,
                               &frame) ||
        frame.number - wire->taken >= LIGI_UCX_WINDOW)
        return fail_corrupt(wire);
    if (wire->self->quiet || wire->landing || wire->landed || frame.number != wire->taken)
        return keep(wire, came, &frame, status);
    *status = take_now(wire, came, &frame);
    return LIG_OK;
}

static ucs_status_t on_message(ligi_ucx_self *self, const ucx_came *came,
                               const ucp_am_recv_param_t *param)
{
    ligi_ucx_wire *wire = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP)
                              ? ligi_ucx_wire_of(self, param->reply_ep)
                              : NULL;
    ucs_status_t status = UCS_OK;

    if (wire == NULL || !is_usable(wire))
        return UCS_OK;
    self->host->link_heard(wire->link, ligi_now_coarse_ns());
    lig_status heard = hear(wire, came, &status);
    if (heard != LIG_OK)
        ligi_ucx_wire_fail(wire, heard);
    return status;
}

/* One for each identifier, because a handler does not receive it. */
#define HANDLER(name, id_)                                                                         \
    static ucs_status_t name(void *context, const void *header, size_t header_bytes, void *data,   \
                             size_t bytes, const ucp_am_recv_param_t *param)                       \
    {                                                                                              \
        ucx_came came = {id_, header, header_bytes, data, bytes, param->recv_attr};                \
        return on_message(context, &came, param);                                                  \
    }
HANDLER(on_data, LIGI_UCX_DATA)
HANDLER(on_head, LIGI_UCX_HEAD)
HANDLER(on_credit, LIGI_UCX_CREDIT)
HANDLER(on_proof, LIGI_UCX_PROOF)

lig_status ligi_ucx_receive_start(ligi_ucx_self *self)
{
    static const ucp_am_recv_callback_t handlers[LIGI_UCX_MESSAGE_COUNT] = {on_data, on_head,
                                                                            on_credit, on_proof};

    for (unsigned i = 0; i < LIGI_UCX_MESSAGE_COUNT; i++) {
        ucp_am_handler_param_t param = {
            .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                          UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            .id = i,
            .flags = UCP_AM_FLAG_WHOLE_MSG,
            .cb = handlers[i],
            .arg = self};
        ucs_status_t status = self->ucp.ucp_worker_set_am_recv_handler(self->worker, &param);
        if (status != UCS_OK)
            return self->host->fail(LIG_E_UNSUPPORTED, "UCX cannot set a handler: %s",
                                    self->ucp.ucs_status_string(status));
    }
    return LIG_OK;
}

/* A receive that UCX has begun cannot be redirected: it may end soon, or the
 * connection does. */
void ligi_ucx_wire_divert(void *context)
{
    ligi_ucx_wire *wire = context;
    ligi_ucx_self *self = wire->self;
    int64_t end_ns = ligi_now_ns() + DIVERT_NS;

    self->quiet++;
    while (wire->landing && !wire->broken && ligi_now_ns() < end_ns)
        self->ucp.ucp_worker_progress(self->worker);
    self->quiet--;
    ligi_ucx_stir(self);
    if (!wire->landing)
        return;
    ligi_ucx_wire_cut(wire);
    ligi_ucx_wire_fail(wire,
                       self->host->fail(LIG_E_PEER,
                                        "%s stopped in the middle of a message that was cancelled",
                                        self->host->link_address(wire->link)));
}
