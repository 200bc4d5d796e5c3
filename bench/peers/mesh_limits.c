/* What a bare TCP connection on this host gives, and how much of it src/net passes on: two
 * processes, the same wait mode (poll for 20 us, then sleep in epoll), in turns. With secret=1 both
 * are encrypted: the bare side is a loop of SSL_write and SSL_read.
 *
 *     mesh_limits [rounds=N] [scheme=tcp] [spin_us=20] [secret=1] [pin=1] [probe=1]
 *
 * prints one line of JSON a figure: round trips of 8 B, 4 KiB and 64 KiB in microseconds (p50,
 * p99), bandwidth of 1 and 64 MiB one way in GB/s, and the ratio to the bare figure. With probe=1
 * it measures nothing and says by its status whether it could. */
#include "base/clock.h"
#include "net/link/link_connect.h"
#include "net/link/link_send.h"
#include "net/net.h"
#include "net/progress.h"
#include "net/secure/tls_keys.h"
#include "net/service.h"
#include "net/transport.h"
#include "net/transport_load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS_MAX 64
#define BIG ((size_t)64 << 20)

typedef struct shape {
    const char *name;
    size_t bytes, back;
    int count, warm;
} shape;

static const shape shapes[] = {
    {"8B", 8, 8, 4000, 400},
    {"4KiB", 4096, 4096, 3000, 300},
    {"64KiB", 65536, 65536, 1000, 100},
    {"1MiB", (size_t)1 << 20, 8, 300, 30},
    {"64MiB", BIG, 8, 12, 2},
};
#define SHAPES (sizeof shapes / sizeof *shapes)

typedef struct setup {
    int rounds, secret, pin, probe;
    int64_t spin_ns;
    const char *scheme;
    uint8_t *out, *in;
    double *samples;
} setup;

typedef struct figure {
    double p50, p99, mean;
} figure;

/* --- bare --- */

typedef struct bare {
    int fd, epoll;
    int64_t spin_ns;
    SSL *ssl; /* NULL: not encrypted */
    ligi_tls_party party;
    ligi_tls_socket socket;
} bare;

static const uint8_t secret[32] = "not secret, but for a benchmark";

static void bare_wait(bare *self, uint32_t events)
{
    struct epoll_event event = {.events = events};

    epoll_ctl(self->epoll, EPOLL_CTL_MOD, self->fd, &event);
    epoll_wait(self->epoll, &event, 1, -1);
}

static ssize_t plain_step(bare *self, uint8_t *data, size_t bytes, int out)
{
    ssize_t step = out ? send(self->fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                       : recv(self->fd, data, bytes, MSG_DONTWAIT);
    return step > 0 ? step : step == 0 || errno != EAGAIN ? -1 : 0;
}

static ssize_t tls_step(bare *self, uint8_t *data, size_t bytes, int out)
{
    const ligi_openssl *openssl = ligi_openssl_loaded();
    size_t step = 0, record = bytes < 16384 ? bytes : 16384;
    int result = out ? openssl->SSL_write_ex(self->ssl, data, record, &step)
                     : openssl->SSL_read_ex(self->ssl, data, bytes, &step);
    int error = result == 1 ? SSL_ERROR_NONE : openssl->SSL_get_error(self->ssl, result);
    if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
        return -1;
    return (ssize_t)step;
}

static int bare_move(bare *self, uint8_t *data, size_t bytes, int out)
{
    int64_t end = ligi_now_ns() + self->spin_ns;

    for (size_t at = 0; at < bytes;) {
        ssize_t step = self->ssl != NULL ? tls_step(self, data + at, bytes - at, out)
                                         : plain_step(self, data + at, bytes - at, out);
        if (step < 0)
            return -1;
        if (step > 0) {
            at += (size_t)step;
            end = ligi_now_ns() + self->spin_ns;
        } else if (ligi_now_ns() >= end) {
            bare_wait(self, out ? EPOLLOUT : EPOLLIN);
        }
    }
    return 0;
}

static int bare_encrypt(bare *self, ligi_tls_channel_end end)
{
    const ligi_openssl *openssl;
    int result = 0;

    self->socket.fd = self->fd;
    if (ligi_openssl_load(&openssl) != LIG_OK ||
        ligi_tls_keys_open(secret, sizeof secret, "bare", &self->party.keys) != LIG_OK ||
        ligi_tls_keys_connection(&self->party, &self->socket, end, &self->ssl) != LIG_OK)
        return -1;
    while (result != 1 && self->socket.error == 0 && !self->socket.ended) {
        result = openssl->SSL_do_handshake(self->ssl);
        if (result != 1)
            bare_wait(self, EPOLLIN);
    }
    return result == 1 ? 0 : -1;
}

static void bare_close(bare *self)
{
    if (self->ssl != NULL)
        ligi_openssl_loaded()->SSL_free(self->ssl);
    ligi_tls_keys_close(self->party.keys);
    close(self->epoll);
    close(self->fd);
}

static void bare_open(bare *self, int fd, int64_t spin_ns)
{
    struct epoll_event event = {.events = EPOLLIN};
    const int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *self = (bare){.fd = fd, .epoll = epoll_create1(EPOLL_CLOEXEC), .spin_ns = spin_ns};
    epoll_ctl(self->epoll, EPOLL_CTL_ADD, fd, &event);
}

static void stay_on(const setup *bench, int processor)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (bench->pin)
        sched_setaffinity(0, sizeof set, &set);
}

static void bare_serve(setup *bench, int listening)
{
    bare self;

    stay_on(bench, 1);
    bare_open(&self, accept4(listening, NULL, NULL, SOCK_CLOEXEC), bench->spin_ns);
    if (bench->secret && bare_encrypt(&self, LIGI_SECURE_ACCEPT) != 0)
        _exit(1);
    for (size_t i = 0; i < SHAPES; i++)
        for (int n = 0; n < shapes[i].count + shapes[i].warm; n++)
            if (bare_move(&self, bench->in, shapes[i].bytes, 0) != 0 ||
                bare_move(&self, bench->out, shapes[i].back, 1) != 0)
                _exit(1);
    _exit(0);
}

/* --- net --- */

typedef struct talk {
    setup *bench;
    ligi_net *net;
    ligi_link *link;
    struct iovec iov;
    size_t arrived, answered, sent, unsent;
    const shape *shape;
    int up, lost, echo;
} talk;

static void answer(talk *self)
{
    struct iovec iov = {self->bench->out, self->shape->back};
    ligi_send send = {.head = "answer", .head_bytes = 6, .iov = &iov, .count = 1};
    int done;

    if (ligi_net_send(self->link, &send, &done) != LIG_OK)
        self->lost = 1;
    else
        self->unsent += !done;
}

static lig_status met(void *context, ligi_link *link, const ligi_hello *hello, ligi_reply *reply)
{
    talk *self = context;
    (void)hello;
    (void)reply;
    self->link = link;
    self->up = 1;
    return LIG_OK;
}

static lig_status head(void *context, ligi_link *link, const ligi_arrival *arrival,
                       ligi_landing *landing)
{
    talk *self = context;
    (void)link;
    self->iov = (struct iovec){self->bench->in, arrival->payload_bytes};
    landing->iov = &self->iov;
    landing->count = 1;
    return LIG_OK;
}

static void arrived(void *context, ligi_link *link, void *token)
{
    talk *self = context;
    (void)link;
    (void)token;
    self->arrived++;
}

static void sent(void *context, ligi_link *link, void *token, lig_status status)
{
    talk *self = context;
    (void)link;
    (void)token;
    (void)status;
    self->sent++;
}

static void lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    talk *self = context;
    (void)link;
    (void)status;
    if (!self->echo)
        fprintf(stderr, "%s\n", sentence);
    self->lost = 1;
}

static const ligi_net_hooks hooks = {met, head, arrived, sent, lost, NULL};

static int is_up(void *context)
{
    talk *self = context;
    return self->up || self->lost;
}

static int is_answered(void *context)
{
    talk *self = context;
    return self->arrived > self->answered || self->lost;
}

static int is_lost(void *context)
{
    return ((talk *)context)->lost;
}

static lig_status talk_open(talk *self, setup *bench)
{
    const ligi_net_options options = {.spin_ns = bench->spin_ns > 0 ? bench->spin_ns : -1,
                                      .background = 1,
                                      .secret = bench->secret ? secret : NULL,
                                      .secret_bytes = sizeof secret};

    *self = (talk){.bench = bench};
    LIG_TRY(ligi_net_open(&self->net, &options));
    return ligi_net_serve(self->net, LIGI_SERVICE_TEST, &hooks, self);
}

static lig_status listen_near(setup *bench, talk *self, char address[LIGI_ADDRESS_BYTES_MAX])
{
    char uri[LIGI_ADDRESS_BYTES_MAX] = "";
    const ligi_transport_ops *ops = NULL;

    for (size_t i = 0; ligi_transports[i] != NULL; i++)
        if (strcmp(ligi_transports[i]->scheme, bench->scheme) == 0)
            ops = ligi_transports[i];
    if (ops == NULL)
        LIG_TRY(ligi_transport_load(bench->scheme, &ops));
    snprintf(uri, sizeof uri, "%s", ops->near);
    LIG_TRY(talk_open(self, bench));
    lig_status status = ligi_net_listen(self->net, uri, address);
    if (status != LIG_OK)
        ligi_net_close(self->net);
    return status;
}

static int probe(setup *bench)
{
    char address[LIGI_ADDRESS_BYTES_MAX];
    talk self;

    if (listen_near(bench, &self, address) != LIG_OK) {
        fprintf(stderr, "%s\n", lig_error_text());
        return 1;
    }
    ligi_net_close(self.net);
    return 0;
}

static void net_serve(setup *bench, int report)
{
    char address[LIGI_ADDRESS_BYTES_MAX] = "";
    talk self;

    stay_on(bench, 1);
    if (listen_near(bench, &self, address) != LIG_OK) {
        fprintf(stderr, "%s\n", lig_error_text());
        _exit(1); /* the other end finds the pipe closed */
    }
    self.echo = 1;
    if (write(report, address, sizeof address) != (ssize_t)sizeof address)
        _exit(1);
    for (size_t i = 0; i < SHAPES; i++) {
        self.shape = &shapes[i];
        for (int n = 0; n < shapes[i].count + shapes[i].warm && !self.lost; n++) {
            ligi_net_wait(self.net, is_answered, &self, LIG_FOREVER);
            self.answered++;
            answer(&self);
        }
    }
    ligi_net_wait(self.net, is_lost, &self, LIG_FOREVER);
    ligi_net_close(self.net);
    _exit(0);
}

/* --- measuring --- */

static int by_size(const void *one, const void *two)
{
    double a = *(const double *)one, b = *(const double *)two;
    return (a > b) - (a < b);
}

static figure summary(double *samples, int count)
{
    figure result = {0};

    for (int i = 0; i < count; i++)
        result.mean += samples[i] / count;
    qsort(samples, (size_t)count, sizeof *samples, by_size);
    result.p50 = samples[count / 2];
    result.p99 = samples[(int)(count * 0.99)];
    return result;
}

static int measure_bare(setup *bench, figure figures[SHAPES])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), status;
    bare self;

    bind(listening, (struct sockaddr *)&address, sizeof address);
    listen(listening, 1);
    getsockname(listening, (struct sockaddr *)&address, &bytes);
    pid_t child = fork();
    if (child == 0)
        bare_serve(bench, listening);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        return -1;
    bare_open(&self, fd, bench->spin_ns);
    if (bench->secret && bare_encrypt(&self, LIGI_SECURE_CONNECT) != 0)
        return -1;
    for (size_t i = 0; i < SHAPES; i++) {
        for (int n = -shapes[i].warm; n < shapes[i].count; n++) {
            int64_t start = ligi_now_ns();
            if (bare_move(&self, bench->out, shapes[i].bytes, 1) != 0 ||
                bare_move(&self, bench->in, shapes[i].back, 0) != 0)
                return -1;
            if (n >= 0)
                bench->samples[n] = (double)(ligi_now_ns() - start) / 1e3;
        }
        figures[i] = summary(bench->samples, shapes[i].count);
    }
    bare_close(&self);
    close(listening);
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : -1;
}

static int talk_once(talk *self, const shape *kind)
{
    struct iovec iov = {self->bench->out, kind->bytes};
    ligi_send send = {.head = "question", .head_bytes = 8, .iov = &iov, .count = 1};
    int done;

    if (ligi_net_send(self->link, &send, &done) != LIG_OK)
        return -1;
    ligi_net_wait(self->net, is_answered, self, LIG_FOREVER);
    self->answered++;
    return self->lost ? -1 : 0;
}

static int measure_net(setup *bench, figure figures[SHAPES])
{
    char address[LIGI_ADDRESS_BYTES_MAX];
    int pipes[2], status, failed = 0;
    talk self;

    if (pipe(pipes) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0)
        net_serve(bench, pipes[1]);
    close(pipes[1]);
    if (read(pipes[0], address, sizeof address) != (ssize_t)sizeof address) {
        waitpid(child, &status, 0);
        return -1;
    }
    ligi_connect connect = {.address = address, .service = LIGI_SERVICE_TEST};
    if (talk_open(&self, bench) != LIG_OK ||
        ligi_net_connect(self.net, &connect, &self.link) != LIG_OK ||
        ligi_net_wait(self.net, is_up, &self, LIG_FOREVER) != LIG_OK) {
        fprintf(stderr, "%s\n", lig_error_text());
        return -1;
    }
    for (size_t i = 0; i < SHAPES && !failed; i++) {
        for (int n = -shapes[i].warm; n < shapes[i].count && !failed; n++) {
            int64_t start = ligi_now_ns();
            failed = talk_once(&self, &shapes[i]);
            if (n >= 0)
                bench->samples[n] = (double)(ligi_now_ns() - start) / 1e3;
        }
        figures[i] = summary(bench->samples, shapes[i].count);
    }
    ligi_net_close(self.net);
    close(pipes[0]);
    return waitpid(child, &status, 0) == child && status == 0 ? failed : -1;
}

static void report(const setup *bench, figure bares[][SHAPES], figure nets[][SHAPES])
{
    double b50[ROUNDS_MAX], b99[ROUNDS_MAX], n50[ROUNDS_MAX], n99[ROUNDS_MAX], rate[ROUNDS_MAX];

    for (size_t i = 0; i < SHAPES; i++) {
        for (int r = 0; r < bench->rounds; r++) {
            b50[r] = bares[r][i].p50;
            b99[r] = bares[r][i].p99;
            n50[r] = nets[r][i].p50;
            n99[r] = nets[r][i].p99;
            rate[r] = nets[r][i].p50 / bares[r][i].p50;
        }
        double bare50 = summary(b50, bench->rounds).p50, net50 = summary(n50, bench->rounds).p50;
        printf("{\"size\": \"%s\", \"bare_p50_us\": %.2f, \"bare_p99_us\": %.2f, "
               "\"net_p50_us\": %.2f, \"net_p99_us\": %.2f, \"time_ratio\": %.2f",
               shapes[i].name, bare50, summary(b99, bench->rounds).p50, net50,
               summary(n99, bench->rounds).p50, summary(rate, bench->rounds).p50);
        if (shapes[i].bytes >= (size_t)1 << 20)
            printf(", \"bare_gbs\": %.2f, \"net_gbs\": %.2f",
                   (double)shapes[i].bytes / bare50 / 1e3, (double)shapes[i].bytes / net50 / 1e3);
        printf("}\n");
    }
}

int main(int argc, char **argv)
{
    static figure bares[ROUNDS_MAX][SHAPES], nets[ROUNDS_MAX][SHAPES];
    setup bench = {.rounds = 3, .scheme = "tcp", .spin_ns = 20000};

    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "rounds=", 7) == 0)
            bench.rounds = (int)strtol(argv[i] + 7, NULL, 10);
        else if (strncmp(argv[i], "scheme=", 7) == 0)
            bench.scheme = argv[i] + 7;
        else if (strncmp(argv[i], "spin_us=", 8) == 0)
            bench.spin_ns = strtol(argv[i] + 8, NULL, 10) * 1000;
        else if (strcmp(argv[i], "secret=1") == 0)
            bench.secret = 1;
        else if (strcmp(argv[i], "pin=1") == 0)
            bench.pin = 1;
        else if (strcmp(argv[i], "probe=1") == 0)
            bench.probe = 1;
    }
    stay_on(&bench, 0);
    if (bench.rounds < 1 || bench.rounds > ROUNDS_MAX)
        return 2;
    if (bench.probe)
        return probe(&bench);
    bench.out = malloc(BIG);
    bench.in = malloc(BIG);
    bench.samples = malloc(4000 * sizeof *bench.samples);
    if (bench.out == NULL || bench.in == NULL || bench.samples == NULL)
        return 1;
    memset(bench.out, 1, BIG);
    memset(bench.in, 2, BIG);
    for (int r = 0; r < bench.rounds; r++)
        if (measure_bare(&bench, bares[r]) != 0 || measure_net(&bench, nets[r]) != 0)
            return 1;
    report(&bench, bares, nets);
    free(bench.out);
    free(bench.in);
    free(bench.samples);
    return 0;
}
