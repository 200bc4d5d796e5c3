#include "net/ucx/ucx.h"

#include "net/ucx/ucx_load.h"
#include "net/ucx/ucx_receive.h"
#include "net/ucx/ucx_send.h"
#include "net/ucx/ucx_wire.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "net/ucx/ucx_device.h"

#define KNOCKS_MAX 1024u
#define CLOSE_NS INT64_C(900000000)
#define POLLS_MAX 64
#define REFUSALS_MAX 100u /* consecutive refusals to be armed, after which it sleeps anyway */
#define PAUSE_NS INT64_C(200000)

typedef struct ucx_options {
    int trusted;
} ucx_options;

static const ligi_option options[] = {
    {"trusted", LIGI_OPTION_BOOL, "0",
     "1: the network between hosts is trusted; UCX does not encrypt",
     offsetof(ucx_options, trusted)},
};

static lig_status fail_ucx(const ligi_ucx_self *self, const char *what, ucs_status_t status)
{
    return self->host->fail(LIG_E_UNSUPPORTED, "UCX %s: %s", what,
                            self->ucp.ucs_status_string(status));
}

/* With error handling for peers, UCX does not use shared memory unless requested. */
static lig_status make_context(ligi_ucx_self *self)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
                           .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                           .name = "ligament"};
    ucp_config_t *config;

    ucs_status_t status = self->ucp.ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return fail_ucx(self, "cannot read its configuration", status);
    (void)self->ucp.ucp_config_modify(config, "MM_ERROR_HANDLING", "y");
    status =
        self->ucp.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &self->context);
    self->ucp.ucp_config_release(config);
    return status == UCS_OK ? LIG_OK : fail_ucx(self, "cannot be initialised", status);
}

/* With "auto", UCX over sockets would be slower than tcp, and not encrypted. */
static lig_status check_device(const ligi_ucx_self *self)
{
    char *text = NULL;
    size_t bytes = 0;

    if (self->host->net_limits(self->net)->fabric != LIGI_FABRIC_DEVICE)
        return LIG_OK;
    FILE *stream = open_memstream(&text, &bytes);
    if (stream == NULL)
        return self->host->fail(LIG_E_NOMEM, "out of memory for a list of devices");
    self->ucp.ucp_context_print_info(self->context, stream);
    int found = fclose(stream) == 0 && ligi_ucx_device_in(text);
    free(text);
    return found ? LIG_OK
                 : self->host->fail(
                       LIG_E_UNSUPPORTED,
                       "UCX found no RDMA device (use tcp, which is as fast and encrypted)");
}

static lig_status make_worker(ligi_ucx_self *self)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE |
                                                UCP_WORKER_PARAM_FIELD_FLAGS,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED,
                                  .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK};
    ucp_worker_attr_t attributes = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};

    ucs_status_t status = self->ucp.ucp_worker_create(self->context, &params, &self->worker);
    if (status != UCS_OK)
        return fail_ucx(self, "cannot create a worker", status);
    status = self->ucp.ucp_worker_query(self->worker, &attributes);
    if (status == UCS_OK && attributes.max_am_header < LIGI_UCX_FRAME_BYTES + LIGI_UCX_HEAD_INLINE)
        status = UCS_ERR_UNSUPPORTED;
    return status == UCS_OK
               ? ligi_ucx_receive_start(self)
               : fail_ucx(self, "does not support long headers on these devices", status);
}

static void on_ready(void *context, uint32_t events)
{
    (void)context; /* the round that follows looks */
    (void)events;
}

static lig_status watch(ligi_ucx_self *self)
{
    int fd;

    ucs_status_t status = self->ucp.ucp_worker_get_efd(self->worker, &fd);
    if (status != UCS_OK)
        return fail_ucx(self, "has no file descriptor to wait on", status);
    self->watch.ready = on_ready;
    self->watch.context = self;
    return self->host->net_watch(self->net, &self->watch, fd, 0);
}

static void destroy(ligi_ucx_self *self)
{
    if (self->worker != NULL)
        self->ucp.ucp_worker_destroy(self->worker);
    if (self->context != NULL)
        self->ucp.ucp_cleanup(self->context);
    ligi_ucx_ops_free(self);
    free(self);
}

static lig_status open_ucx(ligi_net *net, const ligi_host *host, void **self)
{
    ligi_ucx_self *made;

    if (host->abi != LIGI_TRANSPORT_ABI || host->size != sizeof(ligi_host))
        return LIG_E_UNSUPPORTED; /* the loader compares and reports it */
    made = calloc(1, sizeof *made);
    if (made == NULL)
        return host->fail(LIG_E_NOMEM, "out of memory for the ucx transport");
    made->net = net;
    made->host = host;
    made->watch.fd = -1;
    lig_status status = ligi_ucx_load(host, &made->ucp);
    if (status == LIG_OK)
        status = make_context(made);
    if (status == LIG_OK)
        status = check_device(made);
    if (status == LIG_OK)
        status = make_worker(made);
    if (status == LIG_OK)
        status = watch(made);
    if (status != LIG_OK) {
        destroy(made);
        return status;
    }
    *self = made;
    return LIG_OK;
}

static void close_listeners(ligi_ucx_self *self)
{
    while (self->knocks != NULL) {
        ligi_ucx_knock *knock = self->knocks;
        self->knocks = knock->next;
        self->ucp.ucp_listener_reject(knock->listener->listener, knock->request);
        free(knock);
    }
    while (self->listeners != NULL) {
        ligi_ucx_listener *listener = self->listeners;
        self->listeners = listener->next;
        self->ucp.ucp_listener_destroy(listener->listener);
        free(listener);
    }
}

/* Every wire was dropped before: the rest waits for a peer to read a goodbye, or for UCX to
 * release it. */
static void close_ucx(void *context, int forked)
{
    ligi_ucx_self *self = context;
    int64_t end_ns = ligi_now_ns() + CLOSE_NS;

    if (forked) /* UCX's threads are not here: its memory is left to the end of the process */
        return;
    self->host->net_forget(self->net, &self->watch);
    self->quiet++;
    while (ligi_ucx_wires_reap(self, ligi_now_ns()) > 0 && ligi_now_ns() < end_ns) {
        if (self->ucp.ucp_worker_progress(self->worker) == 0 &&
            self->ucp.ucp_worker_arm(self->worker) == UCS_OK) {
            int fd;
            self->ucp.ucp_worker_get_efd(self->worker, &fd);
            struct pollfd one = {.fd = fd, .events = POLLIN};
            poll(&one, 1, 10);
        }
    }
    ligi_ucx_wires_force(self);
    for (int i = 0; i < POLLS_MAX; i++)
        self->ucp.ucp_worker_progress(self->worker);
    ligi_ucx_wires_reap(self, INT64_MAX);
    close_listeners(self);
    destroy(self);
}

/* --- addresses --- */

/* The option `trusted` is in the address that a listener publishes: the listening user has
 * declared it for those who connect. */
static lig_status check_address(ligi_ucx_self *self, const ligi_uri *uri, ligi_ucx_address *address)
{
    ucx_options chosen = {0};
    size_t secret_bytes;

    LIG_TRY(self->host->options_fill(options, 1, uri, NULL, &chosen));
    LIG_TRY(ligi_ucx_address_parse(self->host, uri, address));
    if (ligi_ucx_address_loopback(address))
        return LIG_OK;
    if (self->host->net_secret(self->net, &secret_bytes) == NULL)
        return self->host->fail(
            LIG_E_DENIED, "'ucx:%s' is not on this host: connections between hosts need a secret",
            uri->rest);
    if (!chosen.trusted)
        return self->host->fail(LIG_E_DENIED,
                                "'ucx:%s' is not on this host, and UCX does not encrypt: add "
                                "?trusted=1 if the network is trusted, or use tcp",
                                uri->rest);
    return LIG_OK;
}

/* Called by UCX: only noted here, since an endpoint is best made outside its callbacks. */
static void on_knock(ucp_conn_request_h request, void *context)
{
    ligi_ucx_listener *listener = context;
    ligi_ucx_self *self = listener->self;
    ligi_ucx_knock *knock = self->knock_count < KNOCKS_MAX ? malloc(sizeof *knock) : NULL;

    if (knock == NULL) {
        self->ucp.ucp_listener_reject(listener->listener, request);
        return;
    }
    *knock = (ligi_ucx_knock){self->knocks, listener, request};
    self->knocks = knock;
    self->knock_count++;
}

static lig_status listen_ucx(void *context, const ligi_uri *uri,
                             char address[LIGI_ADDRESS_BYTES_MAX])
{
    ligi_ucx_self *self = context;
    ligi_ucx_listener *made;
    ligi_ucx_address at;

    LIG_TRY(check_address(self, uri, &at));
    made = calloc(1, sizeof *made);
    if (made == NULL)
        return self->host->fail(LIG_E_NOMEM, "out of memory for a listener");
    made->self = self;
    ucp_listener_params_t params = {.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                                                  UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                                    .sockaddr = {(struct sockaddr *)&at.storage, at.bytes},
                                    .conn_handler = {on_knock, made}};
    ucp_listener_attr_t attributes = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucs_status_t status = self->ucp.ucp_listener_create(self->worker, &params, &made->listener);
    if (status == UCS_OK)
        status = self->ucp.ucp_listener_query(made->listener, &attributes);
    if (status != UCS_OK) {
        if (made->listener != NULL)
            self->ucp.ucp_listener_destroy(made->listener);
        free(made);
        return self->host->fail(status == UCS_ERR_BUSY ? LIG_E_EXISTS : LIG_E_IO,
                                "UCX cannot listen on 'ucx:%s': %s", uri->rest,
                                self->ucp.ucs_status_string(status));
    }
    made->next = self->listeners;
    self->listeners = made;
    ligi_ucx_address_print(&attributes.sockaddr, address);
    if (!ligi_ucx_address_loopback(&at))
        strncat(address, "?trusted=1", LIGI_ADDRESS_BYTES_MAX - strlen(address) - 1);
    return LIG_OK;
}

static lig_status connect_ucx(void *context, const ligi_uri *uri, ligi_link *link, void **wire)
{
    ligi_ucx_self *self = context;
    ligi_ucx_address to;
    ligi_ucx_wire *made;

    LIG_TRY(check_address(self, uri, &to));
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
                              .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
                              .sockaddr = {(struct sockaddr *)&to.storage, to.bytes}};
    LIG_TRY(ligi_ucx_wire_create(self, &params, 0, &made));
    made->link = link;
    lig_status status = ligi_ucx_prove_start(made);
    if (status != LIG_OK) {
        ligi_ucx_wire_drop(made, 0);
        return status;
    }
    *wire = made;
    ligi_ucx_wire_send(made);
    return LIG_OK;
}

static void accept_one(ligi_ucx_self *self, const ligi_ucx_knock *knock,
                       const ligi_transport_ops *ops)
{
    ucp_conn_request_attr_t attributes = {.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR};
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
                              .conn_request = knock->request};
    char peer[LIGI_ADDRESS_BYTES_MAX] = "a peer by ucx";
    ligi_ucx_wire *wire;

    if (self->ucp.ucp_conn_request_query(knock->request, &attributes) == UCS_OK)
        ligi_ucx_address_print(&attributes.client_address, peer);
    if (ligi_ucx_wire_create(self, &params, 1, &wire) != LIG_OK)
        return;
    if (self->host->link_accept(self->net, ops, wire, peer, &wire->link) != LIG_OK ||
        ligi_ucx_prove_start(wire) != LIG_OK)
        ligi_ucx_wire_drop(wire, 0);
}

/* --- progress --- */

static int poll_ucx(void *context);

static int look_due(ligi_ucx_self *self)
{
    int happened = 0;

    if (!self->any_due)
        return 0;
    self->any_due = 0;
    for (ligi_ucx_wire *wire = self->wires; wire != NULL; wire = wire->next)
        if (wire->due && wire->link != NULL)
            happened += 1 + ligi_ucx_wire_look(wire);
    return happened;
}

/* UCX is not armed while it holds a send that did not fit in, and no descriptor signals when it
 * does: it has to be polled, at first without a pause, then, since the peer seems to be stopped,
 * with pauses. Returns 1 to be polled at once. */
static int look_again(ligi_ucx_self *self)
{
    if (self->refusals < REFUSALS_MAX) {
        self->refusals++;
        return 1;
    }
    self->host->net_alarm(self->net, ligi_now_ns() + PAUSE_NS);
    return 0;
}

/* Between two sleeps the descriptor is not read: it stays readable until UCX is armed, and a
 * peer that finds us armed makes a system call for each message. */
static int arm_ucx(void *context)
{
    ligi_ucx_self *self = context;

    if (self->any_due || self->knocks != NULL)
        return 1;
    if (self->ucp.ucp_worker_arm(self->worker) != UCS_OK)
        return look_again(self);
    self->refusals = 0;
    return self->host->net_rewatch(self->net, &self->watch, EPOLLIN) != LIG_OK;
}

static void disarm_ucx(void *context)
{
    ligi_ucx_self *self = context;

    if (self->watch.events != 0)
        (void)self->host->net_rewatch(self->net, &self->watch, 0);
}

void ligi_ucx_stir(const ligi_ucx_self *self)
{
    if (self->watch.events != 0)
        self->host->net_wake(self->net);
}

__attribute__((visibility("default"))) extern const ligi_transport_ops lig_transport_entry;

const ligi_transport_ops lig_transport_entry = {
    .abi = LIGI_TRANSPORT_ABI,
    .size = sizeof(ligi_transport_ops),
    .scheme = "ucx",
    .help = "experimental, not yet run on RDMA hardware: RDMA, CUDA and several rails through UCX; "
            "not encrypted",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .near = "ucx://127.0.0.1:0",
    .far4 = "ucx://0.0.0.0:0?trusted=1",
    .far6 = "ucx://[::]:0?trusted=1",
    .rank = 50,
    .clear = 1,
    .open = open_ucx,
    .close = close_ucx,
    .listen = listen_ucx,
    .connect = connect_ucx,
    .send = ligi_ucx_wire_send,
    .divert = ligi_ucx_wire_divert,
    .drop = ligi_ucx_wire_drop,
    .poll = poll_ucx,
    .arm = arm_ucx,
    .disarm = disarm_ucx,
};

static int poll_ucx(void *context)
{
    ligi_ucx_self *self = context;
    int happened = self->ucp.ucp_worker_progress(self->worker) != 0;

    while (self->knocks != NULL) {
        ligi_ucx_knock *knock = self->knocks;
        self->knocks = knock->next;
        self->knock_count--;
        accept_one(self, knock, &lig_transport_entry);
        free(knock);
        happened++;
    }
    happened += look_due(self);
    if (self->ending_count > 0)
        ligi_ucx_wires_reap(self, ligi_now_ns());
    if (happened > 0)
        self->refusals = 0;
    return happened;
}
