#include "store/serve/server/requests/server_descriptors.h"

#include "base/boot.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/progress.h"
#include "store/serve/message/served_reads.h"
#include "store/serve/roles/rights.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define KEPT_NS INT64_C(10000000000)
enum { TOKENS_MAX = 256, STRANGERS_MAX = 64 };

/* A descriptor that waits for its client. */
typedef struct ticket {
    uint8_t token[LIGI_SERVED_TOKEN_BYTES];
    int fd; /* -1: free */
    int64_t end_ns;
} ticket;

/* A connection that has not sent its token. */
typedef struct stranger {
    struct ligi_served_descriptors *owner;
    ligi_watch watch; /* fd -1: free */
    uint8_t token[LIGI_SERVED_TOKEN_BYTES];
    size_t bytes;
    int64_t end_ns;
} stranger;

/* Guarded by the endpoint's lock. */
struct ligi_served_descriptors {
    lig_server *server;
    char name[64];
    ligi_watch watch;
    ticket tickets[TOKENS_MAX];
    stranger strangers[STRANGERS_MAX];
};

/* --- connections --- */

static void hang_up(stranger *who)
{
    int fd = who->watch.fd;
    if (fd < 0)
        return;
    ligi_net_forget(who->owner->server->net, &who->watch);
    close(fd);
}

static void hand_over(int socket, int fd)
{
    char byte = 0;
    struct iovec iov = {&byte, 1};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    /* A client that does not receive it reads ranges instead. */
    (void)sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void serve_token(stranger *who)
{
    struct ligi_served_descriptors *self = who->owner;
    for (size_t i = 0; i < TOKENS_MAX; i++) {
        ticket *one = &self->tickets[i];
        if (one->fd < 0 || memcmp(one->token, who->token, sizeof one->token) != 0)
            continue;
        hand_over(who->watch.fd, one->fd);
        close(one->fd);
        one->fd = -1;
        break;
    }
    hang_up(who);
}

static void on_token(void *context, uint32_t events)
{
    stranger *who = context;
    (void)events;
    ssize_t got = recv(who->watch.fd, who->token + who->bytes, sizeof who->token - who->bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        hang_up(who);
        return;
    }
    who->bytes += (size_t)got;
    if (who->bytes == sizeof who->token)
        serve_token(who);
}

static void on_knock(void *context, uint32_t events)
{
    struct ligi_served_descriptors *self = context;
    (void)events;
    int fd = accept4(self->watch.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    for (size_t i = 0; i < STRANGERS_MAX; i++) {
        stranger *who = &self->strangers[i];
        if (who->watch.fd >= 0)
            continue;
        who->bytes = 0;
        who->end_ns = ligi_now_ns() + KEPT_NS;
        if (ligi_net_watch(self->server->net, &who->watch, fd, EPOLLIN) != LIG_OK)
            close(fd);
        return;
    }
    close(fd);
}

void ligi_served_descriptors_tick(lig_server *server, int64_t now_ns)
{
    struct ligi_served_descriptors *self = server->descriptors;
    if (self == NULL)
        return;
    for (size_t i = 0; i < STRANGERS_MAX; i++)
        if (self->strangers[i].watch.fd >= 0 && self->strangers[i].end_ns < now_ns)
            hang_up(&self->strangers[i]);
    for (size_t i = 0; i < TOKENS_MAX; i++) {
        ticket *one = &self->tickets[i];
        if (one->fd < 0 || one->end_ns >= now_ns)
            continue;
        close(one->fd);
        one->fd = -1;
    }
}

/* --- open and close --- */

static lig_status listen_at(const char *name, int *out)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = strlen(name);
    memcpy(address.sun_path + 1, name, bytes); /* abstract: it begins with a NUL */
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ligi_fail_errno(errno, "socket failed");
    if (bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, STRANGERS_MAX) != 0) {
        lig_status status = ligi_fail_errno(errno, "bind of a Unix socket failed");
        close(fd);
        return status;
    }
    *out = fd;
    return LIG_OK;
}

static lig_status open_socket(struct ligi_served_descriptors *self)
{
    uint64_t random;
    int fd;
    LIG_TRY(ligi_random(&random, sizeof random));
    snprintf(self->name, sizeof self->name, "ligament-%ld-%016llx", (long)self->server->pid,
             (unsigned long long)random);
    LIG_TRY(listen_at(self->name, &fd));
    ligi_net_lock(self->server->net);
    lig_status status = ligi_net_watch(self->server->net, &self->watch, fd, EPOLLIN);
    ligi_net_unlock(self->server->net);
    if (status != LIG_OK)
        close(fd);
    return status;
}

lig_status ligi_served_descriptors_open(lig_server *server)
{
    struct ligi_served_descriptors *self;
    if (server->store->volume->ops->pack_descriptor == NULL)
        return LIG_OK;
    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "descriptors"));
    self->server = server;
    self->watch = (ligi_watch){.ready = on_knock, .context = self, .fd = -1};
    for (size_t i = 0; i < TOKENS_MAX; i++)
        self->tickets[i].fd = -1;
    for (size_t i = 0; i < STRANGERS_MAX; i++)
        self->strangers[i] = (stranger){
            .owner = self, .watch = {.ready = on_token, .context = &self->strangers[i], .fd = -1}};
    lig_status status = open_socket(self);
    if (status == LIG_OK)
        server->descriptors = self;
    else
        free(self);
    return status;
}

/* In a forked child the endpoint is the parent's. */
void ligi_served_descriptors_close(lig_server *server)
{
    struct ligi_served_descriptors *self = server->descriptors;
    if (self == NULL)
        return;
    int forked = server->pid != getpid(), fd = self->watch.fd;
    if (!forked) {
        ligi_net_lock(server->net);
        for (size_t i = 0; i < STRANGERS_MAX; i++)
            hang_up(&self->strangers[i]);
        ligi_net_forget(server->net, &self->watch);
        server->descriptors = NULL;
        ligi_net_unlock(server->net);
    }
    for (size_t i = 0; i < STRANGERS_MAX; i++)
        if (self->strangers[i].watch.fd >= 0)
            close(self->strangers[i].watch.fd);
    for (size_t i = 0; i < TOKENS_MAX; i++)
        if (self->tickets[i].fd >= 0)
            close(self->tickets[i].fd);
    if (fd >= 0)
        close(fd);
    free(self);
}

int ligi_served_descriptors_work(const ligi_served_session *session)
{
    return session->same_host && session->server->descriptors != NULL &&
           !ligi_served_role_is_limited(&session->role);
}

/* --- the request --- */

/* The oldest is dropped: its client has not connected. */
static void keep_ticket(struct ligi_served_descriptors *self, const uint8_t *token, int fd)
{
    ticket *into = &self->tickets[0];
    for (size_t i = 0; i < TOKENS_MAX && into->fd >= 0; i++)
        if (self->tickets[i].fd < 0 || self->tickets[i].end_ns < into->end_ns)
            into = &self->tickets[i];
    if (into->fd >= 0)
        close(into->fd);
    memcpy(into->token, token, sizeof into->token);
    into->fd = fd;
    into->end_ns = ligi_now_ns() + KEPT_NS;
}

lig_status ligi_served_descriptor_run(ligi_served_call *call)
{
    const ligi_volume *volume = call->store->volume;
    struct ligi_served_descriptors *self = call->server->descriptors;
    ligi_served_descriptor reply = {0};
    uint64_t pack;
    int fd;
    LIG_TRY(ligi_served_number_get(call->job->body, call->job->head.body_bytes, &pack));
    if (!ligi_served_descriptors_work(call->session))
        return lig_fail(
            LIG_E_UNSUPPORTED,
            "descriptors are for clients on the server's host, and for stores in files");
    LIG_TRY(ligi_random(reply.token, sizeof reply.token));
    LIG_TRY(volume->ops->pack_size(volume->self, pack, &reply.pack_bytes));
    LIG_TRY(volume->ops->pack_descriptor(volume->self, pack, &fd));
    ligi_net_lock(call->server->net);
    keep_ticket(self, reply.token, fd);
    ligi_net_unlock(call->server->net);
    reply.socket = self->name;
    ligi_served_descriptor_put(&call->body, &reply);
    return LIG_OK;
}
