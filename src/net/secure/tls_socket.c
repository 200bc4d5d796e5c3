#include "net/secure/tls_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* OpenSSL's own messages: a key change has 27 bytes, an alert 24. A spill has room for some of them
 * after the one data record that may be as short. */
#define SHORT_BYTES 64

static int is_later(int number)
{
    return number == EAGAIN || number == EWOULDBLOCK || number == ENOBUFS;
}

/* What recv or send returned, in OpenSSL's terms. `direction` is what to wait for. */
static int report(BIO *bio, ligi_tls_socket *self, ssize_t moved, int direction)
{
    const ligi_openssl *openssl = ligi_openssl_loaded();

    openssl->BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (moved >= 0)
        return (int)moved;
    if (is_later(errno))
        openssl->BIO_set_flags(bio, direction | BIO_FLAGS_SHOULD_RETRY);
    else if (self->error == 0)
        self->error = errno;
    return -1;
}

static int socket_read(BIO *bio, char *data, int bytes)
{
    ligi_tls_socket *self = ligi_openssl_loaded()->BIO_get_data(bio);
    ssize_t got;

    do
        got = recv(self->fd, data, (size_t)bytes, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    self->ended |= got == 0 && bytes > 0;
    return report(bio, self, got, BIO_FLAGS_READ);
}

static ssize_t send_now(const ligi_tls_socket *self, const void *data, size_t bytes)
{
    ssize_t put;

    do
        put = send(self->fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    return put;
}

void ligi_tls_socket_flush(ligi_tls_socket *socket)
{
    if (socket->spill_bytes == 0)
        return;
    ssize_t put = send_now(socket, socket->spill, socket->spill_bytes);
    if (put > 0) {
        socket->spill_bytes -= (size_t)put;
        memmove(socket->spill, socket->spill + put, socket->spill_bytes);
    } else if (put < 0 && !is_later(errno) && socket->error == 0) {
        socket->error = errno;
    }
}

/* Like send, but takes a short write though the socket is full. */
static ssize_t send_or_spill(ligi_tls_socket *self, const char *data, size_t bytes)
{
    ligi_tls_socket_flush(self);
    if (self->error != 0) {
        errno = self->error;
        return -1;
    }
    if (self->spill_bytes == 0) {
        ssize_t put = send_now(self, data, bytes);
        if (put >= 0 || !is_later(errno))
            return put;
    }
    if (bytes > SHORT_BYTES || bytes > sizeof self->spill - self->spill_bytes) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(self->spill + self->spill_bytes, data, bytes);
    self->spill_bytes += bytes;
    return (ssize_t)bytes;
}

static int socket_write(BIO *bio, const char *data, int bytes)
{
    ligi_tls_socket *self = ligi_openssl_loaded()->BIO_get_data(bio);
    ssize_t put = send_or_spill(self, data, (size_t)bytes);

    self->written += put > 0 ? (uint64_t)put : 0;
    return report(bio, self, put, BIO_FLAGS_WRITE);
}

static long socket_control(BIO *bio, int command, long number, void *more)
{
    const ligi_tls_socket *self = ligi_openssl_loaded()->BIO_get_data(bio);

    (void)number;
    (void)more;
    if (command == BIO_CTRL_EOF)
        return self->ended;
    return command ==
           BIO_CTRL_FLUSH; /* a spill goes when there is room; no other command is known */
}

BIO_METHOD *ligi_tls_socket_method(const ligi_openssl *openssl)
{
    BIO_METHOD *method = openssl->BIO_meth_new(BIO_TYPE_SOURCE_SINK, "ligament socket");

    if (method == NULL)
        return NULL;
    openssl->BIO_meth_set_read(method, socket_read);
    openssl->BIO_meth_set_write(method, socket_write);
    openssl->BIO_meth_set_ctrl(method, socket_control);
    return method;
}

BIO *ligi_tls_socket_bio(const ligi_openssl *openssl, const BIO_METHOD *method,
                         ligi_tls_socket *socket)
{
    BIO *bio = openssl->BIO_new(method);

    if (bio == NULL)
        return NULL;
    openssl->BIO_set_data(bio, socket);
    openssl->BIO_set_init(bio, 1);
    return bio;
}
