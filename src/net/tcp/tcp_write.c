#include "net/tcp/tcp_write.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/link/key_binding.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "net/tcp/tcp.h"
#include "net/tcp/tcp_read.h"
#include "net/tcp/tcp_wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define PIECES 64
#define BATCH 16 /* messages in one call */
#define LINGER_NS INT64_C(1000000000)
#define LINGERING_MAX 256
#define LINGER_READS 16 /* in one round: a peer that keeps sending does not delay others */

typedef struct portion {
    uint8_t prefixes[BATCH][LIGI_PREFIX_BYTES];
    struct iovec pieces[PIECES];
    size_t count, messages;
    size_t bytes;
} portion;

static void add_piece(portion *batch, const void *data, size_t bytes)
{
    batch->pieces[batch->count].iov_base = (void *)(uintptr_t)data;
    batch->pieces[batch->count].iov_len = bytes;
    batch->count++;
    batch->bytes += bytes;
}

/* The rest of one message: out->at counts prefix and head, and the payload's iovecs advance as
 * it is sent. */
static void add_message(portion *batch, const ligi_outgoing *out)
{
    uint8_t *prefix = batch->prefixes[batch->messages++];
    uint64_t front = LIGI_PREFIX_BYTES + (uint64_t)out->prefix.head_bytes;

    if (out->at < LIGI_PREFIX_BYTES) {
        ligi_frame_prefix_encode(&out->prefix, prefix);
        add_piece(batch, prefix + out->at, LIGI_PREFIX_BYTES - out->at);
    }
    if (out->at < front && out->prefix.head_bytes > 0) {
        size_t done = out->at > LIGI_PREFIX_BYTES ? out->at - LIGI_PREFIX_BYTES : 0;
        add_piece(batch, out->head + done, out->prefix.head_bytes - done);
    }
    for (size_t i = 0; i < out->count && batch->count < PIECES; i++)
        add_piece(batch, out->iov[i].iov_base, out->iov[i].iov_len);
}

static void gather(ligi_link *link, portion *batch)
{
    ligi_outgoing *end = ligi_link_queue_end(link);

    batch->count = batch->messages = batch->bytes = 0;
    for (ligi_outgoing *out = ligi_link_queue(link); out != end && out != NULL; out = out->next) {
        if (batch->messages == BATCH || batch->count + 3 > PIECES)
            break;
        add_message(batch, out);
        if (batch->count == PIECES)
            break; /* a message with many pieces may not fit completely */
    }
}

static size_t advance_payload(ligi_outgoing *out, size_t bytes)
{
    size_t used = 0;

    while (out->count > 0 && used < bytes) {
        size_t left = bytes - used;
        size_t step = left < out->iov->iov_len ? left : out->iov->iov_len;
        out->iov->iov_base = (uint8_t *)out->iov->iov_base + step;
        out->iov->iov_len -= step;
        used += step;
        if (out->iov->iov_len > 0)
            break;
        out->iov++;
        out->count--;
    }
    return used;
}

static size_t advance(ligi_outgoing *out, size_t taken)
{
    uint64_t front = LIGI_PREFIX_BYTES + (uint64_t)out->prefix.head_bytes;
    size_t used = 0;

    if (out->at < front)
        used = taken < front - out->at ? taken : (size_t)(front - out->at);
    out->at += used;
    if (out->at >= front) {
        size_t payload = advance_payload(out, taken - used);
        out->at += payload;
        used += payload;
    }
    return used;
}

static int is_whole(const ligi_outgoing *out)
{
    return out->at ==
           LIGI_PREFIX_BYTES + (uint64_t)out->prefix.head_bytes + out->prefix.payload_bytes;
}

/* The whole batch is recorded before any of it is released: `sent` may send, cancel and close. */
static void account(ligi_tcp_wire *wire, size_t taken)
{
    ligi_outgoing *out = ligi_link_queue(wire->link);

    for (; taken > 0; out = out->next)
        taken -= advance(out, taken);
    while (!ligi_link_dead(wire->link) && (out = ligi_link_queue(wire->link)) != NULL &&
           is_whole(out))
        ligi_link_gone(wire->link);
}

static void watch_for(ligi_tcp_wire *wire, int writing)
{
    wire->blocked = writing;
    if (wire->watch.fd >= 0)
        ligi_net_rewatch(wire->self->net, &wire->watch, EPOLLIN | (writing ? EPOLLOUT : 0));
}

/* As far as it goes; 1 when the socket is full. */
static int push(ligi_tcp_wire *wire)
{
    lig_status status = LIG_OK;
    int full = 0;
    portion batch;

    while (!full && status == LIG_OK) {
        gather(wire->link, &batch);
        if (batch.count == 0)
            break;
        size_t taken;
        status = ligi_stream_write(&wire->stream, batch.pieces, batch.count, &taken);
        full = taken < batch.bytes;
        if (status == LIG_OK)
            account(wire, taken);
    }
    if (status == LIG_E_PEER)
        wire->broken = 1; /* an unread goodbye may precede it: reading shows */
    else if (status != LIG_OK)
        ligi_link_fail(wire->link, status);
    return status == LIG_OK && (full || ligi_stream_unsent(&wire->stream));
}

void ligi_tcp_wire_send(void *context)
{
    ligi_tcp_wire *wire = context;

    if (wire->connecting || !wire->stream.ready || wire->blocked || wire->broken)
        return;
    if (push(wire)) {
        watch_for(wire, 1);
        wire->self->full = wire;
    }
}

/* epoll reports room when a third of the buffer is free; trying the socket finds it sooner. */
int ligi_tcp_wire_retry(ligi_tcp_wire *wire)
{
    const ligi_outgoing *before = ligi_link_queue(wire->link);
    uint64_t at = before != NULL ? before->at : 0;

    int full = push(wire);
    if (!full) {
        watch_for(wire, 0);
        wire->self->full = NULL;
    }
    const ligi_outgoing *after = ligi_link_queue(wire->link);
    return after != before || (after != NULL && after->at != at);
}

static void unblock(ligi_tcp_wire *wire)
{
    lig_status status = ligi_stream_flush(&wire->stream);

    if (status != LIG_OK) {
        wire->broken = 1;
        watch_for(wire, 0);
        return;
    }
    if (!push(wire))
        watch_for(wire, 0);
}

static lig_status finish_connect(ligi_tcp_wire *wire)
{
    const char *address = ligi_link_address(wire->link);
    socklen_t bytes = sizeof(int);
    int number = 0;

    if (getsockopt(wire->fd, SOL_SOCKET, SO_ERROR, &number, &bytes) != 0)
        number = errno;
    switch (number) {
    case 0: break;
    case EINPROGRESS: return LIG_OK;
    case ECONNREFUSED: return lig_fail(LIG_E_PEER, "nothing is listening on '%s'", address);
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ECONNRESET:
        ligi_fail_errno(number, "cannot connect to '%s'", address);
        return ligi_fail_again(LIG_E_PEER, "%s", lig_error_text());
    default: return ligi_fail_errno(number, "cannot connect to '%s'", address);
    }
    wire->connecting = 0;
    watch_for(wire, 0);
    return LIG_OK;
}

/* Connects, then starts the TLS handshake, then sends the queue. */
static lig_status come_up(ligi_tcp_wire *wire)
{
    if (wire->connecting)
        LIG_TRY(finish_connect(wire));
    if (wire->connecting)
        return LIG_OK;
    LIG_TRY(ligi_stream_handshake(&wire->stream));
    if (wire->stream.ready && wire->stream.secure != NULL) {
        ligi_link_proved(wire->link, (ligi_net_key)ligi_tls_channel_used(wire->stream.secure));
        ligi_link_set_tag(wire->link, ligi_tls_channel_tag(wire->stream.secure));
    }
    watch_for(wire, ligi_stream_unsent(&wire->stream));
    if (wire->stream.ready) {
        wire->blocked = 0;
        ligi_tcp_wire_send(wire);
    }
    return LIG_OK;
}

/* Bytes held by TLS are sent before the end of the stream. */
static void linger_write(ligi_tcp_wire *wire)
{
    int unsent = ligi_stream_flush(&wire->stream) == LIG_OK && ligi_stream_unsent(&wire->stream);

    watch_for(wire, unsent);
    if (unsent)
        return;
    ligi_stream_close(&wire->stream);
    shutdown(wire->fd, SHUT_WR);
}

static void linger_read(ligi_tcp_wire *wire)
{
    uint8_t unwanted[4096];
    ssize_t bytes = 1;

    for (int i = 0; i < LINGER_READS && bytes > 0; i++)
        bytes = recv(wire->fd, unwanted, sizeof unwanted, MSG_DONTWAIT);
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR))
        ligi_tcp_wire_destroy(wire);
}

void ligi_tcp_wire_ready(void *context, uint32_t events)
{
    ligi_tcp_wire *wire = context;

    if (wire->link == NULL) {
        if ((events & EPOLLOUT) && wire->blocked)
            linger_write(wire);
        linger_read(wire);
        return;
    }
    if (ligi_link_dead(wire->link))
        return;
    if (wire->connecting || !wire->stream.ready) {
        lig_status status = come_up(wire);
        if (status != LIG_OK) {
            ligi_link_fail(wire->link, status);
            return;
        }
        if (!wire->stream.ready)
            return;
        events |= EPOLLIN; /* the handshake may have read more than its own bytes */
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        ligi_tcp_wire_read(wire);
    if ((events & EPOLLOUT) && wire->blocked && !ligi_link_dead(wire->link))
        unblock(wire);
}

static void set_socket(int fd)
{
    const int on = 1, idle = 30, pause = 10, count = 3;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pause, sizeof pause);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static void list(ligi_tcp_wire *wire, ligi_tcp_wire **into)
{
    wire->next = *into;
    wire->at = into;
    if (*into != NULL)
        (*into)->at = &wire->next;
    *into = wire;
}

static void unlist(ligi_tcp_wire *wire)
{
    *wire->at = wire->next;
    if (wire->next != NULL)
        wire->next->at = wire->at;
}

lig_status ligi_tcp_wire_create(ligi_tcp *self, int fd, const char *peer, ligi_tls_channel_end end,
                                ligi_tcp_wire **wire)
{
    ligi_tcp_wire *made;
    lig_status status = ligi_calloc(&made, 1, sizeof *made, "a connection");

    if (status == LIG_OK) {
        status = ligi_tcp_refresh_keys(self);
        if (status == LIG_OK)
            status = ligi_stream_open(&made->stream, fd, self->keys, end, peer);
        if (status != LIG_OK)
            free(made);
    }
    if (status != LIG_OK) {
        close(fd);
        return status;
    }
    set_socket(fd);
    made->watch = (ligi_watch){.ready = ligi_tcp_wire_ready, .context = made, .fd = -1};
    made->self = self;
    made->fd = fd;
    list(made, &self->wires);
    *wire = made;
    return LIG_OK;
}

lig_status ligi_tcp_wire_start(ligi_tcp_wire *wire, ligi_link *link)
{
    wire->link = link;
    wire->stream.peer = ligi_link_name(link);
    wire->blocked = wire->connecting;
    if (wire->connecting && wire->stream.secure != NULL)
        LIG_TRY(ligi_tls_channel_use(wire->stream.secure, ligi_link_key(link)));
    return ligi_net_watch(wire->self->net, &wire->watch, wire->fd,
                          EPOLLIN | (wire->connecting ? EPOLLOUT : 0));
}

static void forget_favour(ligi_tcp_wire *wire)
{
    if (wire->self->hot == wire)
        wire->self->hot = NULL;
    if (wire->self->full == wire)
        wire->self->full = NULL;
}

void ligi_tcp_wire_destroy(ligi_tcp_wire *wire)
{
    ligi_tcp *self = wire->self;

    forget_favour(wire);
    self->hungry_count -= (size_t)wire->hungry;
    self->lingering_count -= wire->link == NULL && wire->linger_ns != 0;
    ligi_net_forget(self->net, &wire->watch);
    ligi_stream_close(&wire->stream);
    close(wire->fd);
    unlist(wire);
    free(wire->buffer);
    free(wire);
}

/* Closing a socket with unread bytes resets the connection and loses the goodbye: so the peer's
 * bytes are read and discarded until it closes its end. What TLS holds was reported as sent, and
 * goes first even if a full socket left no room for a goodbye. */
static int should_linger(const ligi_tcp_wire *wire, int graceful)
{
    if (wire->watch.fd < 0 || wire->self->lingering_count >= LINGERING_MAX)
        return 0;
    return ligi_stream_unsent(&wire->stream) ? wire->stream.ready && !wire->broken : graceful;
}

void ligi_tcp_wire_drop(void *context, int graceful)
{
    ligi_tcp_wire *wire = context;
    ligi_tcp *self = wire->self;

    wire->link = NULL;
    if (!should_linger(wire, graceful)) {
        ligi_tcp_wire_destroy(wire);
        return;
    }
    forget_favour(wire);
    self->hungry_count -= (size_t)wire->hungry;
    wire->hungry = 0;
    linger_write(wire);
    unlist(wire);
    list(wire, &self->lingering);
    self->lingering_count++;
    wire->linger_ns = ligi_now_ns() + LINGER_NS;
    ligi_net_alarm(self->net, wire->linger_ns);
}

void ligi_tcp_linger_look(ligi_tcp *self, int64_t now_ns)
{
    ligi_tcp_wire *wire = self->lingering;

    while (wire != NULL) {
        ligi_tcp_wire *next = wire->next;
        if (wire->linger_ns <= now_ns)
            ligi_tcp_wire_destroy(wire);
        else
            ligi_net_alarm(self->net, wire->linger_ns);
        wire = next;
    }
}

lig_status ligi_tcp_wire_local(void *context, char host[LIGI_ADDRESS_BYTES_MAX])
{
    ligi_tcp_wire *wire = context;
    ligi_tcp_address address = {.bytes = sizeof address.storage};

    if (getsockname(wire->fd, (struct sockaddr *)&address.storage, &address.bytes) != 0)
        return ligi_fail_errno(errno, "getsockname failed");
    ligi_tcp_address_host(&address, host);
    return LIG_OK;
}
