/* What a stranger can send to an end that has a secret: before the handshake, in the middle of it,
 * after it. */
#include "net/secure/tls_channel_testing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void listen_to(scene_end *end)
{
    uint8_t got[64], more[20000];
    struct iovec pieces[2] = {{got, sizeof got}, {more, sizeof more}};
    size_t some = 1;

    while (ligi_tls_channel_recv(end->secure, pieces, 2, &some) == LIG_OK && some > 0)
        ;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    scene scene_;

    if (size < 3)
        return 0;
    size_t cut = (size_t)data[1] << 8 | data[2];
    if (scene_open(&scene_, SCENE_SECRET, "group") == LIG_OK) {
        scene_end *victim = data[0] & 1 ? &scene_.client : &scene_.server;
        if (data[0] & 2)
            scene_meet(&scene_);
        if (data[0] & 4) { /* some of the good words first */
            scene_shake(&scene_.client);
            cut %= 600;
            uint8_t words[600];
            ssize_t got = recv(scene_.client.relay, words, cut, MSG_DONTWAIT);
            if (got > 0)
                (void)!send(scene_.server.relay, words, (size_t)got, MSG_NOSIGNAL);
        }
        (void)!send(victim->relay, data + 3, size - 3, MSG_DONTWAIT | MSG_NOSIGNAL);
        scene_shake(victim);
        if (victim->done)
            listen_to(victim);
    }
    scene_close(&scene_);
    return 0;
}
