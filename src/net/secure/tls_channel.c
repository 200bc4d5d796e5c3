#include "net/secure/tls_channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"
#include "net/secure/tls_keys.h"

#define RECORD_BYTES ((size_t)16384)      /* data in a record, at most */
#define REKEY_RECORDS (UINT64_C(1) << 23) /* AES-GCM's limit is 2^24.5 */

struct ligi_tls_channel {
    const ligi_openssl *openssl;
    ligi_tls_party party;
    ligi_tls_socket socket;
    ligi_tls_channel_end end;
    SSL *ssl; /* NULL until the handshake begins */
    int handshake_done;
    int wants_write;   /* the handshake waits for room in the socket */
    size_t held_bytes; /* of `stage`: a record that the socket has not accepted completely */
    uint64_t key_records, rekey_records;
    uint8_t *stage; /* RECORD_BYTES, allocated when first needed: small pieces that share a record,
                     * and held bytes */
    lig_status failed; /* the first failure after the handshake, or LIG_OK */
    int recv_failed;   /* it was one of receiving */
    char why[320];
    char peer[128];
};

lig_status ligi_tls_channel_open(ligi_tls_keys *keys, int fd, ligi_tls_channel_end end,
                                 const char *peer, ligi_tls_channel **secure)
{
    ligi_tls_channel *made;

    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a secure connection"));
    made->openssl = ligi_openssl_loaded();
    made->party.keys = keys;
    made->socket.fd = fd;
    made->end = end;
    made->rekey_records = REKEY_RECORDS;
    snprintf(made->peer, sizeof made->peer, "%s", peer);
    *secure = made;
    return LIG_OK;
}

lig_status ligi_tls_channel_use(ligi_tls_channel *secure, unsigned which)
{
    if (!ligi_tls_keys_has(secure->party.keys, which))
        return ligi_tls_fail_early();
    secure->party.which = which;
    return LIG_OK;
}

unsigned ligi_tls_channel_used(const ligi_tls_channel *secure)
{
    return secure->party.which;
}

uint64_t ligi_tls_channel_tag(const ligi_tls_channel *secure)
{
    return secure->party.tag;
}

void ligi_tls_channel_rekey_after(ligi_tls_channel *secure, uint64_t records)
{
    secure->rekey_records = records;
}

/* --- errors --- */

/* The first entry of OpenSSL's error queue is the cause. The queue belongs to the thread: it is
 * left empty. */
static unsigned long take_error(const ligi_tls_channel *secure, const char **reason)
{
    unsigned long number = secure->openssl->ERR_peek_error();
    const char *known =
        number != 0 ? secure->openssl->ERR_reason_error_string(number) : "unknown reason";

    *reason = known != NULL ? known : "unknown reason";
    secure->openssl->ERR_clear_error();
    return number;
}

static lig_status fail_memory(const ligi_tls_channel *secure)
{
    return lig_fail(LIG_E_NOMEM, "out of memory for the secure connection to %s", secure->peer);
}

static lig_status fail_proof(const ligi_tls_channel *secure)
{
    const char *reason;

    if (ERR_GET_REASON(take_error(secure, &reason)) == ERR_R_MALLOC_FAILURE)
        return fail_memory(secure);
    return lig_fail(
        LIG_E_DENIED,
        "%s did not prove that it has this group's secret (TLS: %s); both ends need the same "
        "secret, the same group (same rendezvous port), and the same version of Ligament",
        secure->peer, reason);
}

static lig_status fail_socket(const ligi_tls_channel *secure)
{
    const char *reason;

    take_error(secure, &reason);
    return lig_fail(LIG_E_PEER, "connection to %s failed: %s", secure->peer,
                    strerror(secure->socket.error));
}

static int is_alert(int reason)
{
    return reason > SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256;
}

/* Why OpenSSL neither read nor wrote; LIG_OK when it waits for the socket. */
static lig_status why_not(const ligi_tls_channel *secure, int result)
{
    int error = secure->openssl->SSL_get_error(secure->ssl, result);
    const char *reason;

    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return LIG_OK;
    if (error == SSL_ERROR_ZERO_RETURN)
        return lig_fail(LIG_E_PEER, "%s closed the connection", secure->peer);
    if (secure->socket.error != 0)
        return fail_socket(secure);
    int number = ERR_GET_REASON(take_error(secure, &reason));
    if (number == ERR_R_MALLOC_FAILURE)
        return fail_memory(secure);
    if (secure->socket.ended)
        return lig_fail(LIG_E_PEER, "connection to %s was cut without close_notify", secure->peer);
    if (is_alert(number))
        return lig_fail(LIG_E_PEER, "%s ended the connection (TLS: %s)", secure->peer, reason);
    return lig_fail(LIG_E_CORRUPT, "invalid TLS record from %s: %s", secure->peer, reason);
}

/* OpenSSL does not keep failures: called again after one, it may wait for the socket forever. */
static lig_status keep(ligi_tls_channel *secure, lig_status status)
{
    secure->failed = status;
    if (status != LIG_OK)
        snprintf(secure->why, sizeof secure->why, "%s", lig_error_text());
    return status;
}

static lig_status fail_as_before(const ligi_tls_channel *secure)
{
    return lig_fail(secure->failed, "%s", secure->why);
}

/* --- the handshake --- */

static lig_status handshake_step(ligi_tls_channel *secure)
{
    const ligi_openssl *openssl = secure->openssl;

    ligi_tls_socket_flush(&secure->socket);
    openssl->ERR_clear_error();
    int result = openssl->SSL_do_handshake(secure->ssl);
    int error = result == 1 ? SSL_ERROR_NONE : openssl->SSL_get_error(secure->ssl, result);
    secure->wants_write = error == SSL_ERROR_WANT_WRITE;
    if (secure->socket.error != 0)
        return fail_socket(secure);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return LIG_OK;
    if (secure->socket.ended && error != SSL_ERROR_NONE) {
        openssl->ERR_clear_error();
        return lig_fail(LIG_E_PEER,
                        "%s ended the connection during the TLS handshake (both ends need the same "
                        "secret, or none)",
                        secure->peer);
    }
    /* Checks that the connection was authenticated by the key, and nothing else. */
    if (error != SSL_ERROR_NONE || openssl->SSL_version(secure->ssl) != TLS1_3_VERSION ||
        openssl->SSL_session_reused(secure->ssl) != 1)
        return fail_proof(secure);
    secure->handshake_done = 1;
    return LIG_OK;
}

/* 1 when the peer has sent something, or ended. */
static int has_spoken(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

/* Sends an alert (handshake_failure), even to a peer that does not use TLS, for which OpenSSL sends
 * none. It does not matter whether it arrives. */
static void send_alert(const ligi_tls_channel *secure)
{
    static const uint8_t alert[] = {21, 3, 3, 0, 2, 2, 40};
    (void)!send(secure->socket.fd, alert, sizeof alert, MSG_DONTWAIT | MSG_NOSIGNAL);
}

lig_status ligi_tls_channel_handshake(ligi_tls_channel *secure, int *done)
{
    *done = 0;
    if (secure->ssl == NULL) {
        if (secure->end == LIGI_SECURE_ACCEPT && !has_spoken(secure->socket.fd))
            return LIG_OK;
        LIG_TRY(
            ligi_tls_keys_connection(&secure->party, &secure->socket, secure->end, &secure->ssl));
    }
    uint64_t before = secure->socket.written;
    lig_status status = secure->handshake_done ? LIG_OK : handshake_step(secure);
    if (status == LIG_E_DENIED && secure->socket.written == before &&
        secure->socket.spill_bytes == 0)
        send_alert(secure);
    *done = status == LIG_OK && secure->handshake_done;
    return status;
}

static lig_status fail_handshake(const ligi_tls_channel *secure)
{
    return lig_fail(LIG_E_INTERNAL, "the TLS handshake with %s is not complete", secure->peer);
}

/* --- receiving --- */

/* Fills one piece as far as bytes are available. */
static lig_status recv_piece(ligi_tls_channel *secure, const struct iovec *piece, size_t *got)
{
    *got = 0;
    while (*got < piece->iov_len) {
        size_t part = 0;
        int result = secure->openssl->SSL_read_ex(secure->ssl, (char *)piece->iov_base + *got,
                                                  piece->iov_len - *got, &part);
        if (result != 1)
            return why_not(secure, result);
        *got += part;
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
    /* After a failure of sending, data that the peer sent before it closed can still be read. */
    if (secure->recv_failed)
        return fail_as_before(secure);
    secure->openssl->ERR_clear_error();
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        size_t part;
        status = recv_piece(secure, &pieces[i], &part);
        *got += part;
        if (part < pieces[i].iov_len)
            break;
    }
    if (status == LIG_OK)
        return LIG_OK;
    secure->recv_failed = 1;
    keep(secure, status);
    return *got > 0 ? LIG_OK : status; /* data before the end is delivered first */
}

/* --- sending --- */

static lig_status make_stage(ligi_tls_channel *secure)
{
    return secure->stage != NULL ? LIG_OK
                                 : ligi_alloc(&secure->stage, RECORD_BYTES, "a secure connection");
}

/* OpenSSL announces the change before the next record, and answers the peer's automatically. */
static lig_status account(ligi_tls_channel *secure)
{
    if (++secure->key_records < secure->rekey_records)
        return LIG_OK;
    secure->key_records = 0;
    if (secure->openssl->SSL_key_update(secure->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
        return why_not(secure, 0);
    return LIG_OK;
}

/* One record; *sent is 0 when the socket is full: OpenSSL then wants the same bytes again. */
static lig_status write_record(ligi_tls_channel *secure, const void *data, size_t bytes, int *sent)
{
    size_t put;

    secure->openssl->ERR_clear_error();
    int result = secure->openssl->SSL_write_ex(secure->ssl, data, bytes, &put);
    *sent = result == 1;
    return *sent ? account(secure) : why_not(secure, result);
}

static int is_full(const ligi_tls_channel *secure)
{
    return secure->held_bytes > 0 || secure->socket.spill_bytes > 0;
}

/* The spill, then the held record. */
static lig_status flush(ligi_tls_channel *secure)
{
    int sent = 0;

    ligi_tls_socket_flush(&secure->socket);
    if (secure->socket.error != 0)
        return fail_socket(secure);
    if (secure->held_bytes == 0 || secure->socket.spill_bytes > 0)
        return LIG_OK;
    LIG_TRY(write_record(secure, secure->stage, secure->held_bytes, &sent));
    if (sent)
        secure->held_bytes = 0;
    return LIG_OK;
}

lig_status ligi_tls_channel_flush(ligi_tls_channel *secure)
{
    return secure->failed != LIG_OK ? fail_as_before(secure) : keep(secure, flush(secure));
}

/* A position in a list of pieces. */
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
static lig_status gather(ligi_tls_channel *secure, secure_cursor *cursor, const uint8_t **data,
                         size_t *bytes)
{
    size_t left = cursor->pieces->iov_len - cursor->at, filled = 0;

    if (left >= RECORD_BYTES || cursor->count == 1) {
        *data = (const uint8_t *)cursor->pieces->iov_base + cursor->at;
        *bytes = left < RECORD_BYTES ? left : RECORD_BYTES;
        cursor->at += *bytes;
        return LIG_OK;
    }
    LIG_TRY(make_stage(secure));
    while (filled < RECORD_BYTES && cursor->count > 0) {
        left = cursor->pieces->iov_len - cursor->at;
        size_t part = RECORD_BYTES - filled;
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

/* The caller may free accepted bytes, or cancel others, before the socket has room. */
static lig_status hold(ligi_tls_channel *secure, const uint8_t *data, size_t bytes)
{
    LIG_TRY(make_stage(secure));
    if (data != secure->stage)
        memcpy(secure->stage, data, bytes);
    secure->held_bytes = bytes;
    return LIG_OK;
}

/* Stops at a full socket: only OpenSSL's own messages may follow what was spilled or is held. */
static lig_status send_records(ligi_tls_channel *secure, secure_cursor *cursor, size_t *taken)
{
    LIG_TRY(flush(secure));
    for (skip_empty(cursor); cursor->count > 0 && !is_full(secure); skip_empty(cursor)) {
        const uint8_t *data;
        size_t bytes;
        int sent;
        LIG_TRY(gather(secure, cursor, &data, &bytes));
        LIG_TRY(write_record(secure, data, bytes, &sent));
        if (!sent)
            LIG_TRY(hold(secure, data, bytes));
        *taken += bytes;
    }
    return LIG_OK;
}

lig_status ligi_tls_channel_send(ligi_tls_channel *secure, const struct iovec *pieces, size_t count,
                                 size_t *taken)
{
    secure_cursor cursor = {pieces, count, 0};

    *taken = 0;
    if (!secure->handshake_done)
        return fail_handshake(secure);
    if (secure->failed != LIG_OK)
        return fail_as_before(secure);
    return keep(secure, send_records(secure, &cursor, taken));
}

int ligi_tls_channel_unsent(const ligi_tls_channel *secure)
{
    return is_full(secure) || secure->wants_write;
}

void ligi_tls_channel_close(ligi_tls_channel *secure)
{
    if (secure != NULL && secure->handshake_done && secure->failed == LIG_OK && !is_full(secure))
        (void)secure->openssl->SSL_shutdown(secure->ssl); /* close_notify, without waiting */
    ligi_tls_channel_forget(secure);
}

void ligi_tls_channel_forget(ligi_tls_channel *secure)
{
    if (secure == NULL)
        return;
    if (secure->ssl != NULL) {
        secure->openssl->SSL_free(secure->ssl);
        secure->openssl->ERR_clear_error();
    }
    if (secure->stage != NULL)
        explicit_bzero(secure->stage, RECORD_BYTES);
    free(secure->stage);
    explicit_bzero(secure, sizeof *secure);
    free(secure);
}
