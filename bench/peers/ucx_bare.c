/* What bare UCX gives between two processes that met as the ucx transport's do: endpoints by socket
 * address, peer errors reported, active messages, polling all the time. ucx_perftest's endpoints
 * are made from a worker's address and have other lanes, so that it alone does not say what is
 * UCX's and what is ours.
 *
 *     ucx_bare [wakeup=1]
 *
 * prints one line of JSON a size: round trips of 8 B to 64 KiB, 1 and 64 MiB one way, p50 in us. */
#include "base/clock.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define BIG ((size_t)64 << 20)

typedef struct shape {
    const char *name;
    size_t bytes, back;
    int count;
} shape;

static const shape shapes[] = {
    {"8B", 8, 8, 4400},        {"4KiB", 4096, 4096, 3300}, {"64KiB", 65536, 65536, 1100},
    {"1MiB", 1 << 20, 8, 330}, {"64MiB", BIG, 8, 14},
};
#define SHAPES (sizeof shapes / sizeof *shapes)

typedef struct end {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    ucp_conn_request_h knock;
    size_t arrived, taken;
    int broken;
    uint8_t *out, *in;
} end;

static void check(ucs_status_t status, const char *what)
{
    if (status == UCS_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
    _exit(1);
}

static void on_landed(void *request, ucs_status_t status, size_t bytes, void *context)
{
    (void)bytes;
    check(status, "receiving");
    ((end *)context)->arrived++;
    ucp_request_free(request);
}

static ucs_status_t on_message(void *context, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param)
{
    ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                               UCP_OP_ATTR_FIELD_USER_DATA |
                                               UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                               .cb.recv_am = on_landed,
                               .user_data = context};
    end *self = context;

    (void)header;
    (void)header_bytes;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        ucs_status_ptr_t request = ucp_am_recv_data_nbx(self->worker, data, self->in, bytes, &how);
        check(UCS_PTR_IS_PTR(request) ? UCS_OK : UCS_PTR_RAW_STATUS(request), "landing");
        return UCS_INPROGRESS;
    }
    memcpy(self->in, data, bytes);
    self->arrived++;
    return UCS_OK;
}

static void on_error(void *context, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    (void)status;
    ((end *)context)->broken = 1;
}

static void on_knock(ucp_conn_request_h request, void *context)
{
    ((end *)context)->knock = request;
}

static void open_end(end *self, int wakeup)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_AM | (wakeup ? UCP_FEATURE_WAKEUP : 0)};
    ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = on_message,
        .arg = self};
    ucp_config_t *config;

    check(ucp_config_read(NULL, NULL, &config), "settings");
    ucp_config_modify(config, "MM_ERROR_HANDLING", "y");
    check(ucp_init(&params, config, &self->context), "context");
    ucp_config_release(config);
    check(ucp_worker_create(self->context, &single, &self->worker), "worker");
    check(ucp_worker_set_am_recv_handler(self->worker, &handler), "handler");
}

static void join(end *self, ucp_ep_params_t params)
{
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = on_error;
    params.err_handler.arg = self;
    check(ucp_ep_create(self->worker, &params, &self->ep), "endpoint");
}

static void say(end *self, size_t bytes)
{
    ucp_request_param_t param = {0};
    ucs_status_ptr_t request = ucp_am_send_nbx(self->ep, 0, NULL, 0, self->out, bytes, &param);

    if (!UCS_PTR_IS_PTR(request)) {
        check(UCS_PTR_RAW_STATUS(request), "sending");
        return;
    }
    while (ucp_request_check_status(request) == UCS_INPROGRESS && !self->broken)
        ucp_worker_progress(self->worker);
    ucp_request_free(request);
}

static void hear(end *self)
{
    while (self->arrived == self->taken && !self->broken)
        ucp_worker_progress(self->worker);
    self->taken++;
}

static void serve(end *self, int report, int wakeup)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ucp_listener_params_t params = {.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                                                  UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                                    .sockaddr = {(struct sockaddr *)&here, sizeof here},
                                    .conn_handler = {on_knock, self}};
    ucp_listener_attr_t attributes = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucp_listener_h listener;

    open_end(self, wakeup);
    check(ucp_listener_create(self->worker, &params, &listener), "listener");
    check(ucp_listener_query(listener, &attributes), "listener");
    if (write(report, &attributes.sockaddr, sizeof here) != (ssize_t)sizeof here)
        _exit(1);
    while (self->knock == NULL)
        ucp_worker_progress(self->worker);
    join(self, (ucp_ep_params_t){.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
                                 .conn_request = self->knock});
    for (size_t i = 0; i < SHAPES; i++) {
        for (int n = 0; n < shapes[i].count && !self->broken; n++) {
            hear(self);
            say(self, shapes[i].back);
        }
    }
    for (;;) /* until it is killed */
        ucp_worker_progress(self->worker);
}

static int by_size(const void *one, const void *two)
{
    double a = *(const double *)one, b = *(const double *)two;
    return (a > b) - (a < b);
}

static void measure(end *self)
{
    static double samples[8192];

    for (size_t i = 0; i < SHAPES && !self->broken; i++) {
        int warm = shapes[i].count / 10;
        for (int n = -warm; n < shapes[i].count - warm; n++) {
            int64_t start = ligi_now_ns();
            say(self, shapes[i].bytes);
            hear(self);
            if (n >= 0)
                samples[n] = (double)(ligi_now_ns() - start) / 1e3;
        }
        qsort(samples, (size_t)(shapes[i].count - warm), sizeof *samples, by_size);
        printf("{\"size\": \"%s\", \"p50_us\": %.2f}\n", shapes[i].name,
               samples[(shapes[i].count - warm) / 2]);
    }
}

int main(int argc, char **argv)
{
    int wakeup = argc > 1 && strcmp(argv[1], "wakeup=1") == 0, pipes[2];
    struct sockaddr_in there;
    end self = {.out = malloc(BIG), .in = malloc(BIG)};

    if (self.out == NULL || self.in == NULL || pipe(pipes) != 0)
        return 1;
    memset(self.out, 1, BIG);
    memset(self.in, 2, BIG);
    pid_t child = fork();
    if (child == 0)
        serve(&self, pipes[1], wakeup);
    close(pipes[1]);
    if (read(pipes[0], &there, sizeof there) != (ssize_t)sizeof there)
        return 1;
    open_end(&self, wakeup);
    join(&self,
         (ucp_ep_params_t){.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
                           .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
                           .sockaddr = {(struct sockaddr *)&there, sizeof there}});
    measure(&self);
    fflush(stdout);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return self.broken;
}
