/* The bytes of one connection: the socket itself, or TLS 1.3 with a pre-shared key over it
 * (net/secure). Nothing here blocks: "not yet" is LIG_OK with zero bytes. The socket is borrowed.
 */
#ifndef LIGI_STREAM_H
#define LIGI_STREAM_H

#include "net/secure/tls_channel.h"

typedef struct ligi_stream {
    int fd;
    int ready;                /* bytes can be read and written */
    ligi_tls_channel *secure; /* NULL: plain */
    const char *peer;         /* borrowed: names the other end in error texts */
} ligi_stream;

/* `keys` NULL: plain. */
lig_status ligi_stream_open(ligi_stream *stream, int fd, ligi_tls_keys *keys,
                            ligi_tls_channel_end end, const char *peer);
void ligi_stream_close(ligi_stream *stream);
/* In a forked child: frees memory, and sends nothing to the peer. */
void ligi_stream_forget(ligi_stream *stream);

/* Continues until stream->ready; a plain stream is ready at once. */
lig_status ligi_stream_handshake(ligi_stream *stream);
/* Fills the pieces in order. *got may be 0: not now. *more is 1 if another read may return bytes
 * although the socket is not readable. LIG_E_PEER at the end of the stream. */
lig_status ligi_stream_read(ligi_stream *stream, const struct iovec *pieces, size_t count,
                            size_t *got, int *more);
/* Accepted bytes are no longer borrowed. */
lig_status ligi_stream_write(ligi_stream *stream, const struct iovec *pieces, size_t count,
                             size_t *taken);
/* Accepted bytes that wait for the socket: wait for EPOLLOUT, then flush. */
int ligi_stream_unsent(const ligi_stream *stream);
lig_status ligi_stream_flush(ligi_stream *stream);

#endif
