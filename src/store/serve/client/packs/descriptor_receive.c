#include "store/serve/client/packs/descriptor_receive.h"

#include "base/error.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { WAIT_SECONDS = 5, TEAM = 4 };
#define SHARED_BYTES (UINT64_C(16) << 20) /* reads from this size on take several threads */

/* --- receiving --- */

static lig_status refused(const char *what)
{
    return lig_fail(LIG_E_UNSUPPORTED, "cannot receive the descriptor of a pack: %s failed: %s",
                    what, strerror(errno));
}

static lig_status connect_socket(const char *name, int *out)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = strlen(name);
    if (bytes == 0 || bytes >= sizeof address.sun_path)
        return lig_fail(LIG_E_CORRUPT, "invalid socket name of %zu bytes", bytes);
    memcpy(address.sun_path + 1, name, bytes); /* the first byte is NUL: an abstract name */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return refused("socket");
    const struct timeval limit = {.tv_sec = WAIT_SECONDS};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, (const struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes)) != 0) {
        lig_status status = refused("connect");
        close(fd);
        return status;
    }
    *out = fd;
    return LIG_OK;
}

static lig_status exchange(int socket, const ligi_served_descriptor *from, int *fd)
{
    char byte;
    union {
        struct cmsghdr header; /* for its alignment */
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    if (send(socket, from->token, sizeof from->token, MSG_NOSIGNAL) != (ssize_t)sizeof from->token)
        return refused("send");
    ssize_t got;
    do
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    const struct cmsghdr *header = got == 1 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header == NULL || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
        header->cmsg_len != CMSG_LEN(sizeof(int)))
        return lig_fail(LIG_E_UNSUPPORTED, "the server sent no descriptor");
    memcpy(fd, CMSG_DATA(header), sizeof *fd);
    return LIG_OK;
}

static lig_status check_file(int fd, uint64_t bytes)
{
    struct stat about;
    int mode = fcntl(fd, F_GETFL);
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && (uint64_t)about.st_size == bytes &&
        mode >= 0 && (mode & O_ACCMODE) == O_RDONLY)
        return LIG_OK;
    return lig_fail(LIG_E_UNSUPPORTED, "the descriptor is not that of a pack");
}

lig_status ligi_descriptor_receive(const ligi_served_descriptor *from, int *out)
{
    int socket = -1, fd = -1;
    LIG_TRY(connect_socket(from->socket, &socket));
    lig_status status = exchange(socket, from, &fd);
    close(socket);
    LIG_TRY(status);
    status = check_file(fd, from->pack_bytes);
    if (status == LIG_OK)
        *out = fd;
    else
        close(fd);
    return status;
}

/* --- reading --- */

typedef struct team_read {
    const ligi_descriptor_pack *pack;
    const lig_range *ranges;
    size_t count;
    pthread_mutex_t lock; /* guards all below */
    size_t range;         /* the next block: of this range */
    uint64_t at;
    ligi_failure failure;
    size_t bad;
} team_read;

typedef struct block {
    const lig_range *range;
    uint64_t at, bytes;
} block;

/* 0: nothing is left, or somebody has failed. */
static int take_block(team_read *self, block *out)
{
    pthread_mutex_lock(&self->lock);
    while (self->range < self->count && self->at >= self->ranges[self->range].bytes) {
        self->range++;
        self->at = 0;
    }
    int taken = self->range < self->count && self->failure.status == LIG_OK;
    if (taken) {
        const lig_range *range = &self->ranges[self->range];
        uint64_t left = range->bytes - self->at;
        *out = (block){range, self->at, left < LIG_BLOCK_BYTES ? left : LIG_BLOCK_BYTES};
        self->at += out->bytes;
    }
    pthread_mutex_unlock(&self->lock);
    return taken;
}

static lig_status read_block(const ligi_descriptor_pack *pack, const block *wanted)
{
    uint8_t *data = (uint8_t *)wanted->range->data + wanted->at;
    uint64_t offset = wanted->range->offset + wanted->at;
    for (uint64_t done = 0; done < wanted->bytes;) {
        ssize_t got = pread(pack->fd, data + done, wanted->bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ligi_fail_errno(errno, "cannot read pack %016llx", (unsigned long long)pack->id);
        if (got == 0)
            return lig_fail(LIG_E_CORRUPT, "pack %016llx is truncated",
                            (unsigned long long)pack->id);
        done += (uint64_t)got;
    }
    if (wanted->range->hashes && ligi_hash64(pack->secret, data, wanted->bytes) !=
                                     wanted->range->hashes[wanted->at / LIG_BLOCK_BYTES])
        return lig_fail(LIG_E_CORRUPT, "pack %016llx: checksum mismatch in the block at %llu",
                        (unsigned long long)pack->id, (unsigned long long)offset);
    return LIG_OK;
}

static void *work(void *context)
{
    team_read *self = context;
    block next;
    while (take_block(self, &next)) {
        lig_status status = read_block(self->pack, &next);
        if (status == LIG_OK)
            continue;
        pthread_mutex_lock(&self->lock);
        if (self->failure.status == LIG_OK) {
            ligi_failure_take(&self->failure, status);
            self->bad = (size_t)(next.range - self->ranges);
        }
        pthread_mutex_unlock(&self->lock);
    }
    return NULL;
}

/* Starts up to TEAM - 1 threads, with all signals blocked. Returns how many could be started. */
static size_t start_team(team_read *self, pthread_t threads[TEAM])
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < self->count; i++)
        bytes += self->ranges[i].bytes;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t wanted = bytes < SHARED_BYTES ? 0
                    : cores < 1          ? 0
                    : cores < TEAM       ? (size_t)(cores - 1)
                                         : TEAM - 1;
    size_t started = 0;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < wanted && pthread_create(&threads[started], NULL, work, self) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

lig_status ligi_descriptor_read(const ligi_descriptor_pack *pack, const lig_range *ranges,
                                size_t count, size_t *bad)
{
    pthread_t threads[TEAM];
    team_read self = {.pack = pack, .ranges = ranges, .count = count};
    pthread_mutex_init(&self.lock, NULL);
    size_t started = start_team(&self, threads);
    work(&self);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&self.lock);
    if (self.failure.status == LIG_OK)
        return LIG_OK;
    *bad = self.bad;
    return ligi_failure_publish(&self.failure);
}
