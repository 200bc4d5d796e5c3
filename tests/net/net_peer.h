/* A process at the other end, for tests that take it away. */
#ifndef NET_PEER_H
#define NET_PEER_H

#include "net/net_side.h"

#include <signal.h>
#include <sys/wait.h>

typedef struct peer {
    pid_t pid;
    char address[LIGI_ADDRESS_BYTES_MAX];
} peer;

static inline void peer_end(const peer *one)
{
    kill(one->pid, SIGKILL);
    waitpid(one->pid, NULL, 0);
}

static inline void open_client(side *client, const peer *one, ligi_link **link)
{
    const ligi_net_options plain = {0};

    assert_ok(side_open(client, NULL, &plain));
    assert_ok(side_connect(client, one->address, "client", link));
    assert_ok(side_wait(client, &client->met, 1));
}

#endif
