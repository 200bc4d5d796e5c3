#include "net/shm/shm_listen.h"

#include "base/boot.h"
#include "base/error.h"
#include "net/link/link.h"
#include "net/progress.h"
#include "net/shm/shm_send.h"
#include "net/shm/wire.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct options {
    int64_t uid, backlog;
} options;

const ligi_option ligi_shm_options[LIGI_SHM_OPTION_COUNT] = {
    {"uid", LIGI_OPTION_INT, "-1", "the user whose processes may connect; -1: the current user",
     offsetof(options, uid)},
    {"backlog", LIGI_OPTION_INT, "128", "connections that may wait to be accepted",
     offsetof(options, backlog)},
};

typedef struct ligi_shm_listener {
    struct ligi_shm_listener *next;
    ligi_shm *shm;
    ligi_watch watch;
    int fd;
    int64_t uid;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* to be removed; "" for none */
    dev_t device;
    ino_t inode;
} ligi_shm_listener;

/* "shm:name" is an abstract name that exists as long as its socket, "shm:/folder/name" a file. */
static const char *name_of(const ligi_uri *uri)
{
    const char *name = uri->rest;
    return name[0] == '/' && name[1] == '/' ? name + 2 : name;
}

static lig_status check_name(const char *name)
{
    struct sockaddr_un probe;
    size_t bytes = strlen(name);
    if (bytes == 0 || bytes + 2 > sizeof probe.sun_path)
        return lig_fail(LIG_E_INVALID,
                        "'shm:%s': expected a name of 1 to %zu bytes, or a shorter path", name,
                        sizeof probe.sun_path - 2);
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)name[i] <= ' ' || strchr("?%&#", name[i]) != NULL)
            return lig_fail(LIG_E_INVALID,
                            "'shm:%s': a name must not contain blanks, ?, %%, & or #", name);
    return LIG_OK;
}

static socklen_t fill_address(const char *name, struct sockaddr_un *address)
{
    size_t bytes = strlen(name), abstract = name[0] != '/';
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path + abstract, name, bytes);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes + 1);
}

static lig_status make_socket(int *fd)
{
    *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return *fd >= 0 ? LIG_OK : ligi_fail_errno(errno, "socket failed");
}

/* The peer's identity, from the kernel. */
static lig_status check_user(int fd, int64_t allowed, const char *what, pid_t *pid)
{
    struct ucred who;
    socklen_t bytes = sizeof who;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0)
        return ligi_fail_errno(errno, "%s: cannot determine its user", what);
    if (allowed < 0)
        allowed = geteuid();
    if ((int64_t)who.uid != allowed)
        return lig_fail(LIG_E_DENIED,
                        "%s: process %d belongs to user %u, but only user %lld may connect (uid=)",
                        what, who.pid, who.uid, (long long)allowed);
    *pid = who.pid;
    return LIG_OK;
}

static void let_in(ligi_shm_listener *listener, int fd)
{
    ligi_shm *shm = listener->shm;
    ligi_wire *wire;
    char peer[64];
    pid_t pid;

    if (check_user(fd, listener->uid, "a connection", &pid) != LIG_OK) {
        close(fd);
        return;
    }
    if (ligi_wire_create(shm, fd, &wire) != LIG_OK)
        return;
    snprintf(peer, sizeof peer, "process %d of this host", pid);
    lig_status status = ligi_wire_watch(wire);
    if (status == LIG_OK)
        status = ligi_link_accept(shm->net, &ligi_transport_shm, wire, peer, &wire->link);
    if (status != LIG_OK)
        ligi_wire_drop(wire, 0);
}

/* Out of descriptors the connection cannot be accepted, and the listener would stay readable. */
static void turn_away(ligi_shm_listener *listener)
{
    ligi_shm *shm = listener->shm;
    if (shm->spare < 0)
        return;
    close(shm->spare);
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    shm->spare = eventfd(0, EFD_CLOEXEC);
}

static void knock(void *context, uint32_t events)
{
    ligi_shm_listener *listener = context;
    (void)events;
    for (int i = 0; i < 64; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            let_in(listener, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE)
            turn_away(listener);
        return;
    }
}

/* The socket file of a dead process is removed; one with a listener is not. */
static int is_stale(const struct sockaddr_un *address, socklen_t bytes)
{
    int fd;
    if (make_socket(&fd) != LIG_OK)
        return 0;
    int refused =
        connect(fd, (const struct sockaddr *)address, bytes) != 0 && errno == ECONNREFUSED;
    close(fd);
    return refused;
}

static lig_status bind_name(ligi_shm_listener *listener, const char *name)
{
    struct sockaddr_un address;
    struct stat file;
    socklen_t bytes = fill_address(name, &address);
    const struct sockaddr *at = (const struct sockaddr *)&address;

    /* The socket file gets the mode of the socket: it is never accessible to others, not even
     * before. */
    if (name[0] == '/' && fchmod(listener->fd, 0600) != 0)
        return ligi_fail_errno(errno, "'shm:%s': fchmod failed", name);
    int bound = bind(listener->fd, at, bytes);
    if (bound != 0 && errno == EADDRINUSE && name[0] == '/' && is_stale(&address, bytes) &&
        lstat(name, &file) == 0 && S_ISSOCK(file.st_mode) && unlink(name) == 0)
        bound = bind(listener->fd, at, bytes);
    if (bound != 0 && errno == EADDRINUSE)
        return lig_fail(LIG_E_EXISTS, "'shm:%s': address already in use", name);
    if (bound != 0)
        return ligi_fail_errno(errno, "cannot listen on 'shm:%s'", name);
    if (name[0] == '/' && lstat(name, &file) == 0) {
        memcpy(listener->path, name, strlen(name) + 1);
        listener->device = file.st_dev;
        listener->inode = file.st_ino;
    }
    return LIG_OK;
}

static void listener_free(ligi_shm_listener *listener, int forked)
{
    struct stat file;
    if (!forked && listener->path[0] != '\0' && lstat(listener->path, &file) == 0 &&
        file.st_dev == listener->device && file.st_ino == listener->inode)
        unlink(listener->path);
    if (listener->fd >= 0)
        close(listener->fd);
    free(listener);
}

static lig_status listener_open(ligi_shm_listener *listener, const char *name,
                                const options *chosen)
{
    listener->uid = chosen->uid;
    LIG_TRY(make_socket(&listener->fd));
    LIG_TRY(bind_name(listener, name));
    if (listen(listener->fd, (int)chosen->backlog) != 0)
        return ligi_fail_errno(errno, "cannot listen on 'shm:%s'", name);
    listener->watch = (ligi_watch){.ready = knock, .context = listener, .fd = -1};
    return ligi_net_watch(listener->shm->net, &listener->watch, listener->fd, EPOLLIN);
}

static lig_status read_options(const ligi_uri *uri, options *chosen)
{
    LIG_TRY(ligi_options_fill(ligi_shm_options, LIGI_SHM_OPTION_COUNT, uri, NULL, chosen));
    if (chosen->uid < -1 || chosen->uid > UINT32_MAX || chosen->backlog < 1 ||
        chosen->backlog > 65535)
        return lig_fail(LIG_E_INVALID, "'shm:%s': uid must be -1 to %u, backlog 1 to 65535",
                        uri->rest, UINT32_MAX);
    return LIG_OK;
}

static lig_status make_up_name(char *name, size_t bytes)
{
    uint64_t random[2];
    LIG_TRY(ligi_random(random, sizeof random));
    snprintf(name, bytes, "ligament-%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    return LIG_OK;
}

lig_status ligi_shm_listen(void *self, const ligi_uri *uri, char address[LIGI_ADDRESS_BYTES_MAX])
{
    ligi_shm *shm = self;
    ligi_shm_listener *made;
    const char *name = name_of(uri);
    char made_up[64];
    options chosen;

    LIG_TRY(read_options(uri, &chosen));
    if (name[0] == '\0') {
        LIG_TRY(make_up_name(made_up, sizeof made_up));
        name = made_up;
    }
    LIG_TRY(check_name(name));
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a listener"));
    made->shm = shm;
    made->fd = -1;
    lig_status status = listener_open(made, name, &chosen);
    if (status != LIG_OK) {
        listener_free(made, 0);
        return status;
    }
    made->next = shm->listeners;
    shm->listeners = made;
    snprintf(address, LIGI_ADDRESS_BYTES_MAX, "shm:%s", name);
    return LIG_OK;
}

void ligi_shm_unlisten(ligi_shm *shm, int forked)
{
    while (shm->listeners != NULL) {
        ligi_shm_listener *listener = shm->listeners;
        shm->listeners = listener->next;
        if (!forked)
            ligi_net_forget(shm->net, &listener->watch);
        listener_free(listener, forked);
    }
}

static lig_status reach(const char *name, int64_t uid, int *fd)
{
    struct sockaddr_un address;
    socklen_t bytes = fill_address(name, &address);
    pid_t pid;

    LIG_TRY(make_socket(fd));
    lig_status status = LIG_OK;
    if (connect(*fd, (const struct sockaddr *)&address, bytes) != 0) {
        int nobody = errno == ECONNREFUSED || errno == ENOENT || errno == EAGAIN;
        status = nobody ? lig_fail(LIG_E_PEER, "%s at 'shm:%s'",
                                   errno == EAGAIN ? "too many connections are waiting"
                                                   : "nothing is listening",
                                   name)
                        : ligi_fail_errno(errno, "cannot connect to 'shm:%s'", name);
    }
    if (status == LIG_OK)
        status = check_user(*fd, uid, "the listener", &pid);
    if (status != LIG_OK)
        close(*fd);
    return status;
}

lig_status ligi_shm_connect(void *self, const ligi_uri *uri, ligi_link *link, void **wire)
{
    const char *name = name_of(uri);
    ligi_wire *made;
    options chosen;
    int fd;

    LIG_TRY(read_options(uri, &chosen));
    LIG_TRY(check_name(name));
    LIG_TRY(reach(name, chosen.uid, &fd));
    LIG_TRY(ligi_wire_create(self, fd, &made));
    made->link = link;
    lig_status status = ligi_wire_offer(made);
    if (status == LIG_OK)
        status = ligi_wire_watch(made);
    if (status != LIG_OK) {
        ligi_wire_drop(made, 0);
        return status;
    }
    *wire = made;
    ligi_shm_send(made);
    return LIG_OK;
}
