/* Any bytes as what a peer may send: prefixes, hellos, goodbyes, cards, and a whole conversation
 * with an endpoint that listens. */
#include "net/frame/frame.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "net/service.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PAYLOAD_MAX 65536

typedef struct victim {
    ligi_net *net;
    int port;
    uint8_t memory[PAYLOAD_MAX];
    struct iovec iov;
} victim;

static lig_status met(void *context, ligi_link *link, const ligi_hello *hello, ligi_reply *reply)
{
    (void)context;
    (void)link;
    reply->bytes = hello->bytes;
    if (hello->bytes > 0)
        memcpy(reply->data, hello->data, hello->bytes);
    return LIG_OK;
}

static lig_status head(void *context, ligi_link *link, const ligi_arrival *arrival,
                       ligi_landing *landing)
{
    victim *self = context;
    volatile uint8_t seen = 0;

    (void)link;
    for (size_t i = 0; i < arrival->head_bytes; i++)
        seen ^= ((const uint8_t *)arrival->head)[i];
    self->iov = (struct iovec){self->memory, arrival->payload_bytes};
    landing->iov = &self->iov;
    landing->count = seen & 1;
    return LIG_OK;
}

static void arrived(void *context, ligi_link *link, void *token)
{
    const ligi_send send = {.head = "thanks", .head_bytes = 6};

    (void)context;
    (void)token;
    ligi_net_send(link, &send, NULL);
}

static void sent(void *context, ligi_link *link, void *token, lig_status status)
{
    (void)context;
    (void)link;
    (void)token;
    (void)status;
}

static void lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    (void)context;
    (void)status;
    if (strlen(sentence) == 0)
        abort();
    ligi_link_close(link, NULL);
}

static const ligi_net_hooks hooks = {met, head, arrived, sent, lost, NULL};

static int open_victim(victim *self)
{
    const ligi_net_options options = {.payload_bytes_max = PAYLOAD_MAX, .spin_ns = -1};
    char address[LIGI_ADDRESS_BYTES_MAX];

    if (ligi_net_open(&self->net, &options) != LIG_OK ||
        ligi_net_serve(self->net, LIGI_SERVICE_TEST, &hooks, self) != LIG_OK ||
        ligi_net_listen(self->net, "tcp://127.0.0.1:0", address) != LIG_OK)
        return -1;
    self->port = (int)strtol(strrchr(address, ':') + 1, NULL, 10);
    return 0;
}

/* A few messages with right prefixes and the fuzzer's bytes inside, so that it need not guess all.
 */
static void converse(int fd, const uint8_t *data, size_t size)
{
    uint8_t prefix[LIGI_PREFIX_BYTES], answer[4096];
    ligi_writer writer = {0};
    ligi_hello hello = {.data = "fuzz", .bytes = 4};

    if (size > 0 && data[0] % 4 != 0) {
        ligi_hello_encode(&hello, LIGI_SERVICE_TEST, &writer);
        ligi_frame_prefix first = {.kind = LIGI_KIND_HELLO, .head_bytes = (uint32_t)writer.bytes};
        ligi_frame_prefix_encode(&first, prefix);
        if (send(fd, prefix, sizeof prefix, MSG_NOSIGNAL) < 0 ||
            send(fd, writer.data, writer.bytes, MSG_NOSIGNAL) < 0)
            size = 0;
    }
    ligi_writer_fini(&writer);
    if (size > 8 && data[0] % 4 == 2) {
        ligi_frame_prefix second = {.kind = 1 + data[1] % 3,
                                    .head_bytes = data[2],
                                    .payload_bytes = (uint64_t)data[3] << (data[4] % 32)};
        ligi_frame_prefix_encode(&second, prefix);
        if (send(fd, prefix, sizeof prefix, MSG_NOSIGNAL) < 0)
            size = 0;
    }
    if (size > 0 && send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return;
    (void)!recv(fd, answer, sizeof answer, MSG_DONTWAIT);
}

static void attack(victim *self, const uint8_t *data, size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)self->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ligi_net_stats stats;

    if (fd < 0)
        return;
    const struct linger hard = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
        ligi_net_poll(self->net);
        converse(fd, data, size);
        for (int i = 0; i < 4; i++)
            ligi_net_poll(self->net);
    }
    close(fd);
    do {
        ligi_net_poll(self->net);
        ligi_net_stats_get(self->net, &stats);
    } while (stats.link_count > 0);
}

static void decode_all(const uint8_t *data, size_t size)
{
    char text[LIGI_BYE_TEXT_MAX + 1];
    ligi_hello hello;
    ligi_card card;
    ligi_frame_prefix prefix;
    lig_status status;
    uint32_t service;

    if (size >= LIGI_PREFIX_BYTES)
        ligi_frame_prefix_decode(data, &prefix);
    if (ligi_hello_decode(data, size, &hello, &service) == LIG_OK && hello.bytes > size)
        abort();
    ligi_bye_decode(data, size, &status, text);
    if (ligi_card_decode(data, size, &card) == LIG_OK)
        for (size_t i = 0; i < card.count; i++)
            if (strlen(card.addresses[i]) >= LIGI_ADDRESS_BYTES_MAX)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static victim one; /* opened once: an endpoint must outlive all that is thrown at it */

    decode_all(data, size);
    if (one.net == NULL && open_victim(&one) != 0)
        abort();
    attack(&one, data, size);
    return 0;
}
