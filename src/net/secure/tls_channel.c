#include "net/secure/tls_channel.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"
#include "net/secure/tls_handshake.h"

#define SLACK_BYTES ((size_t)256)         /* kept for a goodbye and a change of keys */
#define BUFFER_BYTES ((size_t)256 * 1024) /* encrypted bytes, each way */
/* The peer decrypts one chunk while the next is encrypted: small at first, so that it starts early,
 * then larger, since a system call costs as much as some kilobytes. */
#define FLUSH_FIRST ((size_t)32 * 1024)
#define FLUSH_BYTES ((size_t)64 * 1024)
#define REKEY_BYTES (UINT64_C(64) << 30)

/* Encrypted bytes [at, filled) on their way from or to the socket. */
typedef struct secure_buffer {
    uint8_t *data; /* BUFFER_BYTES, made at the end of the handshake */
    size_t at, filled;
} secure_buffer;

struct ligi_tls_channel {
    const ligi_openssl *openssl;
    ligi_tls_keys *keys;
    const ligi_gcm *gcm;
    int fd;
    ligi_tls_channel_end end;
    unsigned which; /* key: available, then in use */
    int started, handshake_done;
    int ended;                    /* the socket has reported its end */
    int bye;                      /* the peer has sent close_notify */
    int owes;                     /* our key must change, as the peer requested */
    ligi_tls_handshake handshake; /* until handshake_done */
    ligi_tls_key sealing, opening;
    secure_buffer in, out;
    uint64_t key_bytes, rekey_bytes;
    uint8_t *stage;  /* small pieces are coalesced here into one record */
    uint8_t *opened; /* data of a record that did not fit its destination: [opened_at,
                      * opened_end) */
    size_t opened_at, opened_end;
    char peer[128];
};

lig_status ligi_tls_channel_open(ligi_tls_keys *keys, const ligi_gcm *gcm, int fd,
                                 ligi_tls_channel_end end, const char *peer,
                                 ligi_tls_channel **secure)
{
    ligi_tls_channel *made;

    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a secure connection"));
    made->openssl = ligi_tls_keys_openssl(keys);
    made->keys = keys;
    made->gcm = gcm;
    made->fd = fd;
    made->end = end;
    made->rekey_bytes = REKEY_BYTES;
    snprintf(made->peer, sizeof made->peer, "%s", peer);
    *secure = made;
    return LIG_OK;
}

lig_status ligi_tls_channel_use(ligi_tls_channel *secure, unsigned which)
{
    if (!ligi_tls_keys_has(secure->keys, which))
        return ligi_tls_fail_early();
    secure->which = which;
    return LIG_OK;
}

unsigned ligi_tls_channel_used(const ligi_tls_channel *secure)
{
    return secure->which;
}

void ligi_tls_channel_rekey_after(ligi_tls_channel *secure, uint64_t bytes)
{
    secure->rekey_bytes = bytes;
}

/* --- the socket --- */

/* *got is 0 if nothing is available, or the end was reported. */
static lig_status receive(ligi_tls_channel *secure, void *data, size_t bytes, size_t *got)
{
    ssize_t received;

    *got = 0;
    if (bytes == 0 || secure->ended)
        return LIG_OK;
    do
        received = recv(secure->fd, data, bytes, MSG_DONTWAIT);
    while (received < 0 && errno == EINTR);
    if (received < 0 && errno != EAGAIN)
        return lig_fail(LIG_E_PEER, "connection to %s failed: %s", secure->peer, strerror(errno));
    secure->ended = received == 0;
    *got = received > 0 ? (size_t)received : 0;
    return LIG_OK;
}

static lig_status transmit(ligi_tls_channel *secure, const void *data, size_t bytes, size_t *put)
{
    ssize_t sent;

    *put = 0;
    do
        sent = send(secure->fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN)
        return lig_fail(LIG_E_PEER, "connection to %s failed: %s", secure->peer, strerror(errno));
    *put = sent > 0 ? (size_t)sent : 0;
    return LIG_OK;
}

/* --- the handshake --- */

static lig_status flush_ring(ligi_tls_channel *secure)
{
    const ligi_openssl *openssl = secure->openssl;
    char *data;
    size_t put = 1;

    while (put > 0) {
        int bytes = openssl->BIO_nread0(secure->handshake.wire, &data);
        if (bytes <= 0)
            break;
        LIG_TRY(transmit(secure, data, (size_t)bytes, &put));
        openssl->BIO_nread(secure->handshake.wire, &data, (int)put);
    }
    return LIG_OK;
}

static lig_status fill_ring(ligi_tls_channel *secure, size_t *got)
{
    const ligi_openssl *openssl = secure->openssl;
    char *room = NULL;
    int bytes = openssl->BIO_nwrite0(secure->handshake.wire, &room);

    LIG_TRY(receive(secure, room, bytes > 0 ? (size_t)bytes : 0, got));
    if (*got > 0)
        openssl->BIO_nwrite(secure->handshake.wire, &room, (int)*got);
    return LIG_OK;
}

static void drain_ring(const ligi_openssl *openssl, BIO *ring, secure_buffer *buffer)
{
    char *data;
    int bytes;

    while ((bytes = openssl->BIO_nread(ring, &data, INT_MAX)) > 0) {
        memcpy(buffer->data + buffer->filled, data, (size_t)bytes);
        buffer->filled += (size_t)bytes;
    }
}

/* From here on records are handled here. OpenSSL has read no further than the handshake: the rest
 * is data. */
static lig_status become_open(ligi_tls_channel *secure)
{
    const ligi_openssl *openssl = secure->openssl;
    ligi_tls_handshake *handshake = &secure->handshake;
    int server = secure->end == LIGI_SECURE_ACCEPT;

    LIG_TRY(ligi_alloc(&secure->in.data, BUFFER_BYTES, "a secure connection"));
    LIG_TRY(ligi_alloc(&secure->out.data, BUFFER_BYTES, "a secure connection"));
    LIG_TRY(ligi_tls_key_init(secure->gcm, &secure->sealing, handshake->secrets[server], 1));
    LIG_TRY(ligi_tls_key_init(secure->gcm, &secure->opening, handshake->secrets[!server], 0));
    drain_ring(openssl, handshake->inner, &secure->in);
    drain_ring(openssl, handshake->wire, &secure->out);
    secure->which = handshake->which;
    ligi_tls_handshake_fini(handshake);
    secure->handshake_done = 1;
    return LIG_OK;
}

/* One step of the handshake; *again is 1 if more input is available. */
static lig_status handshake_step(ligi_tls_channel *secure, int *again)
{
    size_t got = 0;
    int done;

    *again = 0;
    LIG_TRY(ligi_tls_handshake_step(&secure->handshake, secure->peer, &done));
    if (done)
        return become_open(secure);
    LIG_TRY(flush_ring(secure));
    LIG_TRY(fill_ring(secure, &got));
    if (secure->ended)
        return lig_fail(LIG_E_PEER,
                        "%s ended the connection during the TLS handshake (both ends need the same "
                        "secret, or none)",
                        secure->peer);
    *again = got > 0;
    return LIG_OK;
}

/* 1 when the peer has sent something, or ended. */
static int has_spoken(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

/* The peer gets an alert, even one that speaks no TLS, for which OpenSSL sends none. Whether it
 * still arrives does not matter. */
static lig_status part(ligi_tls_channel *secure, lig_status status)
{
    static const uint8_t alert[] = {LIGI_TLS_ALERT, 3, 3, 0, 2, 2, 40};
    ligi_failure failure;
    size_t put;

    ligi_failure_take(&failure, status);
    if (ligi_tls_channel_unsent(secure))
        (void)ligi_tls_channel_flush(secure);
    else if (status == LIG_E_DENIED)
        (void)transmit(secure, alert, sizeof alert, &put);
    return ligi_failure_publish(&failure);
}

lig_status ligi_tls_channel_handshake(ligi_tls_channel *secure, int *done)
{
    lig_status status = LIG_OK;
    int again = 1;

    *done = 0;
    if (!secure->started) {
        if (secure->end == LIGI_SECURE_ACCEPT && !has_spoken(secure->fd))
            return LIG_OK;
        LIG_TRY(ligi_tls_handshake_init(&secure->handshake, secure->keys, secure->end));
        secure->handshake.which = secure->which;
        secure->started = 1;
    }
    while (status == LIG_OK && again && !secure->handshake_done)
        status = handshake_step(secure, &again);
    if (status != LIG_OK)
        return part(secure, status);
    LIG_TRY(ligi_tls_channel_flush(secure));
    *done = secure->handshake_done;
    return LIG_OK;
}

static lig_status fail_handshake(const ligi_tls_channel *secure)
{
    return lig_fail(LIG_E_INTERNAL, "the TLS handshake with %s is not complete", secure->peer);
}

/* --- receiving --- */

/* KeyUpdate is the only handshake message allowed after the handshake (RFC 8446, section 4.6.3);
 * tickets are neither requested nor accepted. */
static lig_status hear_handshake(ligi_tls_channel *secure, const uint8_t *data, size_t bytes)
{
    static const uint8_t update[4] = {24, 0, 0, 1};

    if (bytes != 5 || memcmp(data, update, sizeof update) != 0 || data[4] > 1)
        return lig_fail(LIG_E_CORRUPT, "unexpected TLS handshake message from %s", secure->peer);
    secure->owes |= data[4];
    return ligi_tls_key_next(&secure->opening);
}

static lig_status hear_alert(ligi_tls_channel *secure, const uint8_t *data, size_t bytes)
{
    if (bytes == 2 && data[1] == 0) {
        secure->bye = 1;
        return LIG_OK;
    }
    return lig_fail(LIG_E_PEER, "%s ended the connection (TLS alert %u)", secure->peer,
                    bytes == 2 ? data[1] : 0u);
}

/* Whether a complete record is buffered, and its length; reads from the socket if not. */
static lig_status next_record(ligi_tls_channel *secure, size_t *record_bytes)
{
    secure_buffer *in = &secure->in;

    for (;;) {
        size_t have = in->filled - in->at, got;
        *record_bytes = 0;
        if (have >= LIGI_TLS_HEADER) {
            size_t whole;
            LIG_TRY(ligi_tls_length(in->data + in->at, &whole));
            *record_bytes = have >= whole ? whole : 0;
        }
        if (*record_bytes > 0)
            return LIG_OK;
        if (in->at > 0 && BUFFER_BYTES - in->at < LIGI_TLS_MAX) {
            memmove(in->data, in->data + in->at, have); /* less than a record */
            in->at = 0;
            in->filled = have;
        }
        if (have == 0)
            in->at = in->filled = 0;
        LIG_TRY(receive(secure, in->data + in->filled, BUFFER_BYTES - in->filled, &got));
        if (got == 0)
            return LIG_OK;
        in->filled += got;
    }
}

/* Decrypts the buffered record: directly into `data` if it fits, otherwise into a buffer. *put is
 * the number of bytes in `data`. */
static lig_status open_record(ligi_tls_channel *secure, size_t record_bytes, void *data,
                              size_t room, size_t *put)
{
    size_t bytes = ligi_tls_data_bytes(record_bytes);
    int type;

    *put = 0;
    if (secure->opened == NULL)
        LIG_TRY(ligi_alloc(&secure->opened, LIGI_TLS_DATA_MAX, "a secure connection"));
    void *target = bytes <= room ? data : secure->opened;
    LIG_TRY(ligi_tls_open(&secure->opening, secure->in.data + secure->in.at, record_bytes, target,
                          &type));
    secure->in.at += record_bytes;
    if (type == LIGI_TLS_HANDSHAKE)
        return hear_handshake(secure, target, bytes);
    if (type == LIGI_TLS_ALERT)
        return hear_alert(secure, target, bytes);
    if (type != LIGI_TLS_DATA)
        return lig_fail(LIG_E_CORRUPT, "unexpected TLS record type from %s: %d", secure->peer,
                        type);
    if (target == data) {
        *put = bytes;
    } else {
        secure->opened_at = 0;
        secure->opened_end = bytes;
    }
    return LIG_OK;
}

/* Fills one piece as far as bytes are available. */
static lig_status recv_piece(ligi_tls_channel *secure, uint8_t *data, size_t bytes, size_t *got)
{
    *got = 0;
    while (*got < bytes) {
        size_t record_bytes, put, left = secure->opened_end - secure->opened_at;
        if (left > 0) {
            put = left < bytes - *got ? left : bytes - *got;
            memcpy(data + *got, secure->opened + secure->opened_at, put);
            secure->opened_at += put;
            *got += put;
            continue;
        }
        if (secure->bye)
            return lig_fail(LIG_E_PEER, "%s closed the connection", secure->peer);
        LIG_TRY(next_record(secure, &record_bytes));
        if (record_bytes == 0) {
            if (secure->ended)
                return lig_fail(LIG_E_PEER, "connection to %s was cut without close_notify",
                                secure->peer);
            return LIG_OK;
        }
        LIG_TRY(open_record(secure, record_bytes, data + *got, bytes - *got, &put));
        *got += put;
    }
    return LIG_OK;
}

lig_status ligi_tls_channel_recv(ligi_tls_channel *secure, const struct iovec *pieces, size_t count,
                                 size_t *got)
{
    lig_status status = LIG_OK;

    *got = 0;
    if (!secure->handshake_done)
        return fail_handshake(secure);
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        size_t part;
        status = recv_piece(secure, pieces[i].iov_base, pieces[i].iov_len, &part);
        *got += part;
        if (part < pieces[i].iov_len)
            break;
    }
    /* Data before the end is delivered first; the next call reports the end again. */
    return status == LIG_E_PEER && *got > 0 ? LIG_OK : status;
}

/* --- sending --- */

static size_t room(const secure_buffer *buffer)
{
    return BUFFER_BYTES - buffer->filled;
}

lig_status ligi_tls_channel_flush(ligi_tls_channel *secure)
{
    secure_buffer *out = &secure->out;
    size_t put = 1;

    if (secure->started && !secure->handshake_done)
        return flush_ring(secure);
    while (out->at < out->filled && put > 0) {
        LIG_TRY(transmit(secure, out->data + out->at, out->filled - out->at, &put));
        out->at += put;
    }
    if (out->at == out->filled)
        out->at = out->filled = 0;
    return LIG_OK;
}

static lig_status seal(ligi_tls_channel *secure, ligi_tls_type type, const void *data, size_t bytes)
{
    secure_buffer *out = &secure->out;

    LIG_TRY(ligi_tls_seal(&secure->sealing, type, data, bytes, out->data + out->filled));
    out->filled += bytes + LIGI_TLS_MORE;
    return LIG_OK;
}

/* A key is changed long before its limit, and when the peer requests it. */
static lig_status account(ligi_tls_channel *secure, size_t bytes)
{
    static const uint8_t update[5] = {24, 0, 0, 1, 0};

    secure->key_bytes += bytes;
    if (secure->key_bytes < secure->rekey_bytes && !secure->owes)
        return LIG_OK;
    secure->key_bytes = 0;
    secure->owes = 0;
    LIG_TRY(seal(secure, LIGI_TLS_HANDSHAKE, update, sizeof update));
    return ligi_tls_key_next(&secure->sealing);
}

/* 1 if a whole record fits. Bytes that the socket has not taken are moved to the front. */
static int make_room(ligi_tls_channel *secure)
{
    secure_buffer *out = &secure->out;
    size_t need = LIGI_TLS_MAX + SLACK_BYTES, have = out->filled - out->at;

    if (room(out) < need && have < BUFFER_BYTES / 4) {
        memmove(out->data, out->data + out->at, have);
        out->at = 0;
        out->filled = have;
    }
    return room(out) >= need;
}

/* A place in a list of pieces. */
typedef struct secure_cursor {
    const struct iovec *pieces;
    size_t count, at;
} secure_cursor;

static void skip_empty(secure_cursor *cursor)
{
    while (cursor->count > 0 && cursor->at == cursor->pieces->iov_len) {
        cursor->pieces++;
        cursor->count--;
        cursor->at = 0;
    }
}

/* The next record's bytes: borrowed if a piece fills it or is the last, otherwise coalesced. */
static lig_status gather(ligi_tls_channel *secure, secure_cursor *cursor, const void **data,
                         size_t *bytes)
{
    size_t left = cursor->pieces->iov_len - cursor->at, filled = 0;

    if (left >= LIGI_TLS_DATA_MAX || cursor->count == 1) {
        *data = (const char *)cursor->pieces->iov_base + cursor->at;
        *bytes = left < LIGI_TLS_DATA_MAX ? left : LIGI_TLS_DATA_MAX;
        cursor->at += *bytes;
        return LIG_OK;
    }
    if (secure->stage == NULL)
        LIG_TRY(ligi_alloc(&secure->stage, LIGI_TLS_DATA_MAX, "a secure connection"));
    while (filled < LIGI_TLS_DATA_MAX && cursor->count > 0) {
        left = cursor->pieces->iov_len - cursor->at;
        size_t part = LIGI_TLS_DATA_MAX - filled;
        part = left < part ? left : part;
        memcpy(secure->stage + filled, (const char *)cursor->pieces->iov_base + cursor->at, part);
        filled += part;
        cursor->at += part;
        skip_empty(cursor);
    }
    *data = secure->stage;
    *bytes = filled;
    return LIG_OK;
}

lig_status ligi_tls_channel_send(ligi_tls_channel *secure, const struct iovec *pieces, size_t count,
                                 size_t *taken)
{
    secure_cursor cursor = {pieces, count, 0};

    *taken = 0;
    if (!secure->handshake_done)
        return fail_handshake(secure);
    for (skip_empty(&cursor); cursor.count > 0; skip_empty(&cursor)) {
        const void *data;
        size_t bytes;
        if (!make_room(secure)) {
            LIG_TRY(ligi_tls_channel_flush(secure));
            if (!make_room(secure))
                return LIG_OK;
        }
        LIG_TRY(gather(secure, &cursor, &data, &bytes));
        LIG_TRY(seal(secure, LIGI_TLS_DATA, data, bytes));
        LIG_TRY(account(secure, bytes));
        *taken += bytes;
        size_t enough = *taken <= FLUSH_FIRST ? FLUSH_FIRST : FLUSH_BYTES;
        if (secure->out.filled - secure->out.at >= enough)
            LIG_TRY(ligi_tls_channel_flush(secure));
    }
    return ligi_tls_channel_flush(secure);
}

int ligi_tls_channel_unsent(const ligi_tls_channel *secure)
{
    char *data;

    if (secure->started && !secure->handshake_done)
        return secure->openssl->BIO_nread0(secure->handshake.wire, &data) > 0;
    return secure->out.at < secure->out.filled;
}

static void say_goodbye(ligi_tls_channel *secure)
{
    static const uint8_t close_notify[2] = {1, 0};
    ligi_failure failure; /* may fail, and close cannot report it */

    ligi_failure_take(&failure, LIG_OK);
    if (room(&secure->out) >= sizeof close_notify + LIGI_TLS_MORE &&
        seal(secure, LIGI_TLS_ALERT, close_notify, sizeof close_notify) == LIG_OK)
        (void)ligi_tls_channel_flush(secure);
}

static void free_wiped(uint8_t *data)
{
    if (data != NULL)
        explicit_bzero(data, LIGI_TLS_DATA_MAX);
    free(data);
}

void ligi_tls_channel_close(ligi_tls_channel *secure)
{
    if (secure != NULL && secure->handshake_done && !secure->ended)
        say_goodbye(secure);
    ligi_tls_channel_forget(secure);
}

void ligi_tls_channel_forget(ligi_tls_channel *secure)
{
    if (secure == NULL)
        return;
    ligi_tls_handshake_fini(&secure->handshake);
    ligi_tls_key_fini(&secure->sealing);
    ligi_tls_key_fini(&secure->opening);
    free(secure->in.data);
    free(secure->out.data);
    free_wiped(secure->stage);
    free_wiped(secure->opened);
    explicit_bzero(secure, sizeof *secure);
    free(secure);
}
