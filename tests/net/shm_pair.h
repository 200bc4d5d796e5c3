/* Two ends of the shm transport in one program, each looking in turn. */
#ifndef LIGI_SHM_PAIR_H
#define LIGI_SHM_PAIR_H

#include "base/test.h"
#include "net/link/link_connect.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "net/service.h"
#include "net/shm_end.h"

typedef struct pair {
    end server, client;
    char address[LIGI_ADDRESS_BYTES_MAX];
} pair;

static inline void end_connect(end *self, const char *address)
{
    ligi_connect connect = {.address = address, .service = LIGI_SERVICE_TEST};
    assert_ok(ligi_net_connect(self->net, &connect, &self->link));
}

static inline void pair_begin(pair *both, const char *uri)
{
    end_open(&both->server);
    end_open(&both->client);
    assert_ok(ligi_net_listen(both->server.net, uri, both->address));
    end_connect(&both->client, both->address);
}

static inline void pair_close(pair *both)
{
    end_close(&both->client);
    end_close(&both->server);
}

static inline unsigned arrivals(const pair *both)
{
    unsigned client = both->client.arrived_count, server = both->server.arrived_count;
    return client < server ? client : server;
}

static inline unsigned server_arrivals(const pair *both)
{
    return both->server.arrived_count;
}

static inline unsigned server_lost(const pair *both)
{
    return both->server.lost_count;
}

static inline unsigned client_lost(const pair *both)
{
    return both->client.lost_count;
}

static inline unsigned meetings(const pair *both)
{
    return both->client.met_count + both->server.met_count;
}

/* Both ends look in turn until the figure is there; rounds, not time, are what is bounded. */
static inline void pair_until(pair *both, unsigned (*figure)(const pair *both), unsigned wanted)
{
    for (int i = 0; i < 200000 && figure(both) < wanted; i++) {
        if (both->client.net != NULL)
            assert_ok(ligi_net_poll(both->client.net));
        assert_ok(ligi_net_poll(both->server.net));
    }
    if (figure(both) != wanted)
        fail_msg("%u happened, %u should have: %s", figure(both), wanted, lig_error_text());
}

static inline void pair_open(pair *both, const char *uri)
{
    pair_begin(both, uri);
    pair_until(both, meetings, 2);
}

static inline int end_is_lost(void *context)
{
    return ((end *)context)->lost_count > 0;
}

static inline int end_is_met(void *context)
{
    return ((end *)context)->met_count > 0;
}

static inline int end_has_sent(void *context)
{
    return ((end *)context)->sent_count > 0;
}

static inline void send_bytes(end *from, const void *data, size_t bytes, uint32_t flags)
{
    struct iovec piece = {(void *)(uintptr_t)data, bytes};
    ligi_send message = {
        .head = "head", .head_bytes = 4, .iov = &piece, .count = 1, .flags = flags, .token = from};
    int done = 0;
    assert_ok(ligi_net_send(from->link, &message, &done));
    from->sent_count += (unsigned)done;
}

static inline void *alloc_of(end *from, uint64_t bytes)
{
    void *memory;
    assert_ok(ligi_net_alloc(from->net, bytes, &memory));
    return memory;
}

#endif
