/* TCP: one epoll set, no delay, payloads read directly into their destination. */
#include "net/tcp/tcp.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/link/key_binding.h"
#include "net/link/link.h"
#include "net/net.h"
#include "net/progress.h"
#include "net/secure/tls_keys.h"
#include "net/tcp/tcp_read.h"
#include "net/tcp/tcp_secret_rule.h"
#include "net/tcp/tcp_wire.h"
#include "net/tcp/tcp_write.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ACCEPTS 64     /* in one round */
#define HOT_MISSES 400 /* then epoll alone is asked */
#define PAUSE_NS INT64_C(100000000)
#define CLOSE_MS 100 /* for goodbyes to be read when the endpoint closes */

extern const ligi_transport_ops ligi_transport_tcp;

typedef struct ligi_tcp_listener {
    struct ligi_tcp_listener *next;
    ligi_watch watch;
    ligi_tcp *self;
    uint64_t send_bytes, receive_bytes;
} listener;

typedef struct tcp_options {
    int64_t backlog;
    uint64_t send_bytes, receive_bytes;
} tcp_options;

static const ligi_option options[] = {
    {"backlog", LIGI_OPTION_INT, "1024", "length of the system's queue of unaccepted connections",
     offsetof(tcp_options, backlog)},
    {"send_buffer", LIGI_OPTION_BYTES, "0", "socket buffer size in bytes; 0: the system's default",
     offsetof(tcp_options, send_bytes)},
    {"receive_buffer", LIGI_OPTION_BYTES, "0",
     "socket buffer size in bytes; 0: the system's default", offsetof(tcp_options, receive_bytes)},
};
#define OPTION_COUNT (sizeof options / sizeof *options)

static lig_status check_options(const tcp_options *into)
{
    if (into->backlog < 1 || into->backlog > 65535)
        return lig_fail(LIG_E_INVALID, "tcp: backlog=%lld is not between 1 and 65535",
                        (long long)into->backlog);
    if (into->send_bytes > INT32_MAX || into->receive_bytes > INT32_MAX)
        return lig_fail(LIG_E_INVALID, "tcp: the socket buffer size must be less than 2 GiB");
    return LIG_OK;
}

static lig_status read_options(const ligi_uri *uri, tcp_options *into)
{
    LIG_TRY(ligi_options_fill(options, OPTION_COUNT, uri, NULL, into));
    lig_status status = check_options(into);
    ligi_options_fini(options, OPTION_COUNT, into);
    return status;
}

static void set_buffers(int fd, uint64_t send_bytes, uint64_t receive_bytes)
{
    int bytes = (int)send_bytes;

    if (bytes > 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    bytes = (int)receive_bytes;
    if (bytes > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

static lig_status tcp_open(ligi_net *net, const ligi_host *host, void **self)
{
    ligi_tcp *made;
    size_t bytes;

    (void)host;
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "the tcp transport"));
    made->net = net;
    const void *secret = ligi_net_secret(net, &bytes);
    if (secret != NULL) {
        /* Keys of earlier bindings are derived with the first connection. */
        lig_status status =
            ligi_tls_keys_open(secret, bytes, ligi_net_limits(net)->group, &made->keys);
        if (status != LIG_OK) {
            free(made);
            return status;
        }
    }
    made->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    *self = made;
    return LIG_OK;
}

lig_status ligi_tcp_refresh_keys(ligi_tcp *self)
{
    struct iovec secret = {0};
    uint32_t binding;

    (void)ligi_net_context(self->net, LIGI_KEY_MEET, &binding);
    if (self->keys == NULL || self->binding == binding)
        return LIG_OK;
    secret.iov_base = (void *)ligi_net_secret(self->net, &secret.iov_len);
    size_t count;
    const ligi_net_peer_secret *peers = ligi_net_peer_secrets(self->net, &count);
    LIG_TRY(ligi_tls_keys_set_peers(self->keys, peers, count,
                                    ligi_net_context(self->net, LIGI_KEY_MEET, NULL)));
    for (unsigned i = 0; i < LIGI_KEYS; i++)
        LIG_TRY(ligi_tls_keys_set(self->keys, i, &secret,
                                  ligi_net_context(self->net, (ligi_net_key)i, NULL)));
    self->binding = binding;
    return LIG_OK;
}

/* Goodbyes are on their way; peers that read them close their end. */
static void wait_for_lingering(ligi_tcp *self)
{
    int64_t deadline = ligi_now_ns() + CLOSE_MS * INT64_C(1000000);

    while (self->lingering != NULL) {
        int64_t left = (deadline - ligi_now_ns()) / 1000000;
        short events = self->lingering->blocked ? POLLIN | POLLOUT : POLLIN;
        struct pollfd one = {.fd = self->lingering->fd, .events = events};
        if (left <= 0 || poll(&one, 1, (int)left) <= 0)
            return;
        ligi_tcp_wire_ready(self->lingering, EPOLLIN | (one.revents & POLLOUT ? EPOLLOUT : 0));
    }
}

static void tcp_close(void *context, int forked)
{
    ligi_tcp *self = context;

    if (!forked)
        wait_for_lingering(self);
    while (self->wires != NULL || self->lingering != NULL) {
        ligi_tcp_wire *wire = self->wires ? self->wires : self->lingering;
        if (forked) {
            wire->watch.fd = -1; /* the set is shared with the parent */
            ligi_stream_forget(&wire->stream);
        }
        ligi_tcp_wire_destroy(wire);
    }
    while (self->listeners != NULL) {
        listener *one = self->listeners;
        int fd = one->watch.fd;
        self->listeners = one->next;
        if (!forked)
            ligi_net_forget(self->net, &one->watch);
        close(fd);
        free(one);
    }
    ligi_tls_keys_close(self->keys);
    if (self->spare >= 0)
        close(self->spare);
    free(self);
}

/* Out of descriptors: accept with the spare one and close, or the listener would stay readable. */
static int refuse_with_spare(ligi_tcp *self, int listening)
{
    if (self->spare < 0)
        return 0;
    close(self->spare);
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        close(fd);
    self->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fd >= 0;
}

static void admit(listener *one, int fd, const ligi_tcp_address *address)
{
    ligi_tcp *self = one->self;
    char peer[LIGI_ADDRESS_BYTES_MAX];
    ligi_tcp_wire *wire;
    ligi_link *link;

    ligi_tcp_address_print(address, peer);
    set_buffers(fd, one->send_bytes, one->receive_bytes);
    if (ligi_tcp_wire_create(self, fd, peer, LIGI_SECURE_ACCEPT, &wire) != LIG_OK)
        return;
    if (ligi_link_accept(self->net, &ligi_transport_tcp, wire, peer, &link) != LIG_OK) {
        wire->link = NULL;
        ligi_tcp_wire_destroy(wire);
        return;
    }
    lig_status status = ligi_tcp_wire_start(wire, link);
    if (status != LIG_OK)
        ligi_link_fail(link, status);
}

static void pause_listening(ligi_tcp *self)
{
    for (listener *one = self->listeners; one != NULL; one = one->next)
        ligi_net_rewatch(self->net, &one->watch, 0);
    self->resume_ns = ligi_now_ns() + PAUSE_NS;
    ligi_net_alarm(self->net, self->resume_ns);
}

static void knock(void *context, uint32_t events)
{
    listener *one = context;

    (void)events;
    for (int i = 0; i < ACCEPTS; i++) {
        ligi_tcp_address address = {.bytes = sizeof address.storage};
        int fd = accept4(one->watch.fd, (struct sockaddr *)&address.storage, &address.bytes,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            admit(one, fd, &address);
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        if ((errno == EMFILE || errno == ENFILE) && refuse_with_spare(one->self, one->watch.fd))
            continue;
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        pause_listening(one->self);
        return;
    }
}

static lig_status bound_socket(const ligi_tcp_address *address, const tcp_options *wanted, int *out)
{
    const int on = 1, off = 0;
    char text[LIGI_ADDRESS_BYTES_MAX];

    ligi_tcp_address_print(address, text);
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ligi_fail_errno(errno, "socket for '%s' failed", text);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->storage.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    set_buffers(fd, wanted->send_bytes, wanted->receive_bytes);
    if (bind(fd, (const struct sockaddr *)&address->storage, address->bytes) != 0 ||
        listen(fd, (int)wanted->backlog) != 0) {
        lig_status status = ligi_fail_errno(errno, "cannot listen on '%s'", text);
        if (lig_error_number() == EADDRINUSE)
            status = ligi_fail_again(
                LIG_E_EXISTS, "'%s' is in use by another process (port 0 picks a free one)", text);
        close(fd);
        return status;
    }
    *out = fd;
    return LIG_OK;
}

static lig_status tcp_listen(void *context, const ligi_uri *uri, char text[LIGI_ADDRESS_BYTES_MAX])
{
    ligi_tcp *self = context;
    ligi_tcp_address address;
    tcp_options wanted = {0};
    listener *made;
    int fd;

    LIG_TRY(read_options(uri, &wanted));
    LIG_TRY(ligi_tcp_address_parse(uri, 0, &address));
    LIG_TRY(ligi_tcp_check_secret(self, &address));
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a listener"));
    lig_status status = bound_socket(&address, &wanted, &fd);
    if (status != LIG_OK)
        goto free_listener;
    address.bytes = sizeof address.storage;
    getsockname(fd, (struct sockaddr *)&address.storage, &address.bytes);
    made->self = self;
    made->send_bytes = wanted.send_bytes;
    made->receive_bytes = wanted.receive_bytes;
    made->watch = (ligi_watch){.ready = knock, .context = made, .fd = -1};
    status = ligi_net_watch(self->net, &made->watch, fd, EPOLLIN);
    if (status != LIG_OK)
        goto close_socket;
    made->next = self->listeners;
    self->listeners = made;
    ligi_tcp_address_print(&address, text);
    return LIG_OK;

close_socket:
    close(fd);
free_listener:
    free(made);
    return status;
}

static lig_status begin_connect(ligi_tcp *self, const ligi_tcp_address *address,
                                const tcp_options *wanted, const char *peer, ligi_tcp_wire **wire)
{
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ligi_fail_errno(errno, "socket for '%s' failed", peer);
    set_buffers(fd, wanted->send_bytes, wanted->receive_bytes);
    int number =
        connect(fd, (const struct sockaddr *)&address->storage, address->bytes) == 0 ? 0 : errno;
    if (number == ECONNREFUSED) {
        close(fd);
        return lig_fail(LIG_E_PEER, "nothing is listening on '%s'", peer);
    }
    if (number != 0 && number != EINPROGRESS) {
        close(fd);
        ligi_fail_errno(number, "cannot connect to '%s'", peer);
        return ligi_fail_again(LIG_E_PEER, "%s", lig_error_text());
    }
    LIG_TRY(ligi_tcp_wire_create(self, fd, peer, LIGI_SECURE_CONNECT, wire));
    (*wire)->connecting = 1; /* also when it is done already: the first event finds out */
    return LIG_OK;
}

static lig_status tcp_connect(void *context, const ligi_uri *uri, ligi_link *link, void **out)
{
    ligi_tcp *self = context;
    ligi_tcp_address address;
    tcp_options wanted = {0};
    ligi_tcp_wire *wire;

    LIG_TRY(read_options(uri, &wanted));
    LIG_TRY(ligi_tcp_address_parse(uri, 1, &address));
    LIG_TRY(ligi_tcp_check_secret(self, &address));
    LIG_TRY(begin_connect(self, &address, &wanted, ligi_link_address(link), &wire));
    lig_status status = ligi_tcp_wire_start(wire, link);
    if (status != LIG_OK) {
        ligi_tcp_wire_destroy(wire);
        return status;
    }
    *out = wire;
    return LIG_OK;
}

/* A name becomes numbers here; options of the address are kept by the caller's URI alone, so they
 * are put behind it again. */
static lig_status tcp_resolve(const ligi_uri *uri, char text[LIGI_ADDRESS_BYTES_MAX])
{
    ligi_tcp_address address;

    LIG_TRY(ligi_tcp_address_parse(uri, 0, &address));
    ligi_tcp_address_print(&address, text);
    for (size_t i = 0; i < uri->option_count; i++) {
        size_t used = strlen(text);
        int wrote = snprintf(text + used, LIGI_ADDRESS_BYTES_MAX - used, "%c%s=%s", i ? '&' : '?',
                             uri->options[i].key, uri->options[i].value);
        if (wrote < 0 || (size_t)wrote >= LIGI_ADDRESS_BYTES_MAX - used)
            return lig_fail(LIG_E_LIMIT, "'%s': an address has at most %d bytes", text,
                            LIGI_ADDRESS_BYTES_MAX - 1);
    }
    return LIG_OK;
}

static void resume_listening(ligi_tcp *self)
{
    if (ligi_now_ns() < self->resume_ns) {
        ligi_net_alarm(self->net, self->resume_ns);
        return;
    }
    self->resume_ns = 0;
    for (listener *one = self->listeners; one != NULL; one = one->next)
        ligi_net_rewatch(self->net, &one->watch, EPOLLIN);
}

/* While a thread spins, the most recently active connection is read without calling epoll first. */
static int tcp_poll(void *context)
{
    ligi_tcp *self = context;
    int happened = 0;

    if (self->resume_ns != 0)
        resume_listening(self);
    if (self->lingering != NULL)
        ligi_tcp_linger_look(self, ligi_now_ns());
    if (self->hungry_count > 0)
        for (ligi_tcp_wire *wire = self->wires; wire != NULL; wire = wire->next)
            if (wire->hungry)
                happened += ligi_tcp_wire_read(wire);
    ligi_tcp_wire *full = self->full;
    if (full != NULL && full->blocked && !full->broken && full->stream.secure == NULL &&
        !ligi_link_dead(full->link))
        happened += ligi_tcp_wire_retry(full);
    ligi_tcp_wire *hot = self->hot;
    if (hot == NULL || ligi_link_dead(hot->link))
        return happened;
    if (++self->hot_misses > HOT_MISSES) {
        self->hot = NULL;
        return happened;
    }
    return happened + ligi_tcp_wire_read(hot);
}

static int tcp_arm(void *context)
{
    ligi_tcp *self = context;
    return self->hungry_count > 0;
}

const ligi_transport_ops ligi_transport_tcp = {
    .abi = LIGI_TRANSPORT_ABI,
    .size = sizeof(ligi_transport_ops),
    .scheme = "tcp",
    .help = "TCP over IPv4 or IPv6: tcp://host:port; with a secret, TLS 1.3",
    .near = "tcp://127.0.0.1:0",
    .far4 = "tcp://0.0.0.0:0",
    .far6 = "tcp://[::]:0",
    .options = options,
    .option_count = OPTION_COUNT,
    .rank = 10,
    .open = tcp_open,
    .close = tcp_close,
    .listen = tcp_listen,
    .reaches = ligi_tcp_reaches,
    .connect = tcp_connect,
    .resolve = tcp_resolve,
    .send = ligi_tcp_wire_send,
    .divert = ligi_tcp_wire_divert,
    .drop = ligi_tcp_wire_drop,
    .poll = tcp_poll,
    .arm = tcp_arm,
    .local_host = ligi_tcp_wire_local,
};
