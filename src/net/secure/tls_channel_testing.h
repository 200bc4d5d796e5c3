/* Two ends of a secure connection in one thread, with an intermediary. For tls_channel_test.c and
 * tls_channel_fuzz.c. */
#ifndef LIGI_TLS_CHANNEL_TESTING_H
#define LIGI_TLS_CHANNEL_TESTING_H

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/secure/tls_channel.h"
#include "net/secure/tls_keys.h"

#define SCENE_SECRET "0123456789abcdef0123456789abcdef"

typedef struct scene_end {
    ligi_tls_keys *keys;
    ligi_tls_channel *secure;
    int fd, relay; /* the connection's socket, and the intermediary's end of it */
    int done;
    lig_status status; /* the first failure */
    char text[256];
} scene_end;

typedef struct scene {
    scene_end client, server;
    uint8_t flight[2][4096]; /* the first bytes of the client and of the server, as seen by the
                              * intermediary */
    size_t flight_bytes[2];
} scene;

static inline lig_status scene_end_open(scene_end *end, ligi_tls_channel_end kind,
                                        const char *secret, const char *group)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        return lig_fail(LIG_E_IO, "no socket pair");
    end->fd = pair[0];
    end->relay = pair[1];
    LIG_TRY(ligi_tls_keys_open(secret, strlen(secret), group, &end->keys));
    return ligi_tls_channel_open(end->keys, end->fd, kind,
                                 kind == LIGI_SECURE_CONNECT ? "the server" : "the client",
                                 &end->secure);
}

static inline lig_status scene_open(scene *scene_, const char *client_secret,
                                    const char *client_group)
{
    *scene_ = (scene){.client.fd = -1, .client.relay = -1, .server.fd = -1, .server.relay = -1};
    LIG_TRY(scene_end_open(&scene_->client, LIGI_SECURE_CONNECT, client_secret, client_group));
    return scene_end_open(&scene_->server, LIGI_SECURE_ACCEPT, SCENE_SECRET, "group");
}

static inline void scene_end_close(scene_end *end)
{
    ligi_tls_channel_close(end->secure);
    ligi_tls_keys_close(end->keys);
    if (end->fd >= 0)
        close(end->fd);
    if (end->relay >= 0)
        close(end->relay);
    end->secure = NULL;
    end->keys = NULL;
    end->fd = end->relay = -1;
}

static inline void scene_close(scene *scene_)
{
    scene_end_close(&scene_->client);
    scene_end_close(&scene_->server);
}

/* Forwards the bytes of one end; the first 4096 are recorded. */
static inline size_t scene_relay(scene *scene_, int to_server)
{
    scene_end *from = to_server ? &scene_->client : &scene_->server;
    scene_end *to = to_server ? &scene_->server : &scene_->client;
    uint8_t bytes[4096], *seen = scene_->flight[!to_server];
    size_t *seen_bytes = &scene_->flight_bytes[!to_server];
    ssize_t got = recv(from->relay, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    ssize_t sent = got > 0 ? send(to->relay, bytes, (size_t)got, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;

    if (sent <= 0)
        return 0;
    (void)!recv(from->relay, bytes, (size_t)sent, MSG_DONTWAIT);
    size_t part = (size_t)sent < sizeof scene_->flight[0] - *seen_bytes
                      ? (size_t)sent
                      : sizeof scene_->flight[0] - *seen_bytes;
    memcpy(seen + *seen_bytes, bytes, part);
    *seen_bytes += part;
    return (size_t)sent;
}

static inline void scene_shake(scene_end *end)
{
    if (end->status != LIG_OK || end->done)
        return;
    end->status = ligi_tls_channel_handshake(end->secure, &end->done);
    if (end->status != LIG_OK) {
        size_t bytes = strlen(lig_error_text());
        bytes = bytes < sizeof end->text ? bytes : sizeof end->text - 1;
        memcpy(end->text, lig_error_text(), bytes);
    }
}

/* Forwards until both ends are idle. */
static inline void scene_meet(scene *scene_)
{
    size_t moved = 1;

    while (moved > 0) {
        scene_shake(&scene_->client);
        moved = scene_relay(scene_, 1);
        scene_shake(&scene_->server);
        moved += scene_relay(scene_, 0);
    }
}

#endif
