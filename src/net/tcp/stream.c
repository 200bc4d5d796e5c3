#include "net/tcp/stream.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/error.h"

lig_status ligi_stream_open(ligi_stream *stream, int fd, ligi_tls_keys *keys,
                            ligi_tls_channel_end end, const char *peer)
{
    *stream = (ligi_stream){.fd = fd, .ready = keys == NULL, .peer = peer};
    return keys == NULL ? LIG_OK : ligi_tls_channel_open(keys, fd, end, peer, &stream->secure);
}

void ligi_stream_close(ligi_stream *stream)
{
    ligi_tls_channel_close(stream->secure);
    stream->secure = NULL;
}

void ligi_stream_forget(ligi_stream *stream)
{
    ligi_tls_channel_forget(stream->secure);
    stream->secure = NULL;
}

lig_status ligi_stream_handshake(ligi_stream *stream)
{
    return stream->ready ? LIG_OK : ligi_tls_channel_handshake(stream->secure, &stream->ready);
}

static int is_later(int number)
{
    return number == EAGAIN || number == EWOULDBLOCK || number == EINTR;
}

static lig_status gone(const ligi_stream *stream, int number)
{
    if (number == 0)
        return lig_fail(LIG_E_PEER,
                        "the connection to %s has ended: its process is gone or closed it",
                        stream->peer);
    if (number == ECONNRESET || number == EPIPE)
        return lig_fail(LIG_E_PEER, "the connection to %s was reset: its process is gone",
                        stream->peer);
    return ligi_fail_errno(number, "the connection to %s failed", stream->peer);
}

static size_t room_of(const struct iovec *pieces, size_t count)
{
    size_t room = 0;

    for (size_t i = 0; i < count; i++)
        room += pieces[i].iov_len;
    return room;
}

lig_status ligi_stream_read(ligi_stream *stream, const struct iovec *pieces, size_t count,
                            size_t *got, int *more)
{
    *got = 0;
    *more = 0;
    if (stream->secure != NULL) {
        lig_status status = ligi_tls_channel_recv(stream->secure, pieces, count, got);
        *more = *got > 0;
        return status;
    }
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces, .msg_iovlen = count};
    ssize_t bytes = count == 1 ? recv(stream->fd, pieces->iov_base, pieces->iov_len, MSG_DONTWAIT)
                               : recvmsg(stream->fd, &message, MSG_DONTWAIT);
    if (bytes < 0 && is_later(errno))
        return LIG_OK;
    if (bytes <= 0)
        return gone(stream, bytes < 0 ? errno : 0);
    *got = (size_t)bytes;
    /* Less than there was room for: the socket is empty, and asking again would be a wasted call.
     */
    *more = *got == room_of(pieces, count);
    return LIG_OK;
}

lig_status ligi_stream_write(ligi_stream *stream, const struct iovec *pieces, size_t count,
                             size_t *taken)
{
    *taken = 0;
    if (stream->secure != NULL)
        return ligi_tls_channel_send(stream->secure, pieces, count, taken);
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces, .msg_iovlen = count};
    ssize_t bytes = sendmsg(stream->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (bytes < 0 && (is_later(errno) || errno == ENOBUFS))
        return LIG_OK;
    if (bytes < 0)
        return gone(stream, errno);
    *taken = (size_t)bytes;
    return LIG_OK;
}

int ligi_stream_unsent(const ligi_stream *stream)
{
    return stream->secure != NULL && ligi_tls_channel_unsent(stream->secure);
}

lig_status ligi_stream_flush(ligi_stream *stream)
{
    return stream->secure != NULL ? ligi_tls_channel_flush(stream->secure) : LIG_OK;
}
