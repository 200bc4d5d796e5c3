#include "net/ucx/ucx_wire.h"

#include "net/ucx/ucx_receive.h"

#include <stdlib.h>

#include "base/clock.h"
#include "net/ucx/ucx.h"

#define LINGER_NS INT64_C(1000000000)
/* How long a drop waits for UCX to release memory. It takes microseconds, but the thread may not
 * be scheduled for a while, and a caller that continues earlier would have its memory
 * overwritten. */
#define SETTLE_NS INT64_C(5000000000)

static size_t bucket_of(ucp_ep_h ep)
{
    return ((uintptr_t)ep >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 56;
}

ligi_ucx_wire *ligi_ucx_wire_of(const ligi_ucx_self *self, ucp_ep_h ep)
{
    ligi_ucx_wire *wire = self->by_ep[bucket_of(ep)];

    while (wire != NULL && wire->ep != ep)
        wire = wire->next_same;
    return wire;
}

static void forget_ep(ligi_ucx_wire *wire)
{
    ligi_ucx_wire **at = &wire->self->by_ep[bucket_of(wire->ep)];

    while (*at != wire)
        at = &(*at)->next_same;
    *at = wire->next_same;
}

/* Called by UCX if the peer has ended, refuses, or did not exist. */
static void on_error(void *context, ucp_ep_h ep, ucs_status_t status)
{
    ligi_ucx_wire *wire = context;
    ligi_ucx_self *self = wire->self;

    (void)ep;
    wire->broken = 1;
    wire->due = self->any_due = 1;
    if (wire->link != NULL && !self->host->link_dead(wire->link))
        ligi_ucx_wire_fail(
            wire, self->host->fail(
                      LIG_E_PEER, "connection to %s failed: it is gone or does not answer (%s)",
                      self->host->link_address(wire->link), self->ucp.ucs_status_string(status)));
}

lig_status ligi_ucx_wire_create(ligi_ucx_self *self, ucp_ep_params_t *params, int accepted,
                                ligi_ucx_wire **wire)
{
    ligi_ucx_wire *made = calloc(1, sizeof *made);
    size_t secret_bytes;

    if (made == NULL)
        return self->host->fail(LIG_E_NOMEM, "out of memory for a connection");
    params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler.cb = on_error;
    params->err_handler.arg = made;
    made->self = self;
    made->accepted = accepted;
    ucs_status_t status = self->ucp.ucp_ep_create(self->worker, params, &made->ep);
    if (status != UCS_OK) {
        free(made);
        return self->host->fail(LIG_E_PEER, "UCX cannot create an endpoint: %s",
                                self->ucp.ucs_status_string(status));
    }
    made->proving.needed = self->host->net_secret(self->net, &secret_bytes) != NULL;
    made->proving.done = !made->proving.needed;
    made->next = self->wires;
    made->at = &self->wires;
    if (self->wires != NULL)
        self->wires->at = &made->next;
    self->wires = made;
    made->next_same = self->by_ep[bucket_of(made->ep)];
    self->by_ep[bucket_of(made->ep)] = made;
    *wire = made;
    return LIG_OK;
}

void ligi_ucx_wire_fail(ligi_ucx_wire *wire, lig_status status)
{
    if (wire->link != NULL)
        wire->self->host->link_fail(wire->link, status);
}

static void on_closed(void *request, ucs_status_t status, void *context)
{
    ligi_ucx_wire *wire = context;

    (void)status;
    wire->closed = 1;
    wire->due = wire->self->any_due = 1;
    wire->self->ucp.ucp_request_free(request);
}

/* Forced close: all operations in progress end with an error, now or in the next rounds.
 * Lingering is for waiting for a peer. */
static void start_close(ligi_ucx_wire *wire)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
                                                 UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA,
                                 .flags = UCP_EP_CLOSE_FLAG_FORCE,
                                 .cb.send = on_closed,
                                 .user_data = wire};

    if (wire->closing)
        return;
    wire->closing = 1;
    wire->linger_ns = 0;
    forget_ep(wire);
    ligi_ucx_arrivals_free(wire);
    ucs_status_ptr_t request = wire->self->ucp.ucp_ep_close_nbx(wire->ep, &param);
    ligi_ucx_stir(wire->self);
    if (!UCS_PTR_IS_PTR(request))
        wire->closed = 1;
}

static int has_ended(const ligi_ucx_wire *wire)
{
    return wire->link == NULL && wire->closed && wire->op_count == 0 && !wire->landing;
}

static void destroy(ligi_ucx_wire *wire)
{
    wire->self->ending_count--;
    *wire->at = wire->next;
    if (wire->next != NULL)
        wire->next->at = wire->at;
    free(wire->head);
    free(wire);
}

void ligi_ucx_wire_cut(ligi_ucx_wire *wire)
{
    ligi_ucx_self *self = wire->self;
    int64_t end_ns = ligi_now_ns() + SETTLE_NS;

    wire->broken = 1;
    start_close(wire);
    /* When this returns, memory belongs to its owner again. UCX cancels at once, and reports it in
     * the next rounds. */
    self->quiet++;
    while ((wire->op_count > 0 || wire->landing) && ligi_now_ns() < end_ns)
        self->ucp.ucp_worker_progress(self->worker);
    self->quiet--;
}

void ligi_ucx_wire_drop(void *context, int graceful)
{
    ligi_ucx_wire *wire = context;
    ligi_ucx_self *self = wire->self;

    (void)graceful; /* the last messages should be delivered */
    wire->link = NULL;
    self->ending_count++;
    if (!wire->broken && !wire->landing && wire->op_bytes == 0 && !wire->bye) {
        /* Closing at once could discard the last messages: the peer's own close shows that they
         * were read. */
        wire->linger_ns = ligi_now_ns() + LINGER_NS;
        self->host->net_alarm(self->net, wire->linger_ns);
        return;
    }
    ligi_ucx_wire_cut(wire);
    if (has_ended(wire))
        destroy(wire);
}

size_t ligi_ucx_wires_reap(ligi_ucx_self *self, int64_t now_ns)
{
    size_t left = 0;

    if (self->ending_count == 0)
        return 0;
    for (ligi_ucx_wire *wire = self->wires, *next; wire != NULL; wire = next) {
        next = wire->next;
        if (wire->link != NULL)
            continue;
        if (!wire->closing && (wire->broken || now_ns >= wire->linger_ns))
            start_close(wire);
        if (has_ended(wire)) {
            destroy(wire);
            continue;
        }
        left++;
        if (wire->linger_ns != 0)
            self->host->net_alarm(self->net, wire->linger_ns);
    }
    return left;
}

void ligi_ucx_wires_force(ligi_ucx_self *self)
{
    for (ligi_ucx_wire *wire = self->wires; wire != NULL; wire = wire->next)
        if (wire->link == NULL)
            start_close(wire);
}
