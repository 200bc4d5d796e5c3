#include "net/shm/wire.h"

#include "base/error.h"
#include "net/link/link.h"
#include "net/progress.h"
#include "net/shm/sealed.h"
#include "net/shm/shm_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* The socket carries packets, so that a descriptor belongs to its packet. A packet of one byte
 * is a signal. */
#define MAGIC 0x3153474cu /* "LGS1" */
#define ROUND_PACKETS 64  /* one peer's in one round */
enum { SHOW_RINGS = 1, SHOW_SEGMENT = 2 };

typedef struct packet {
    uint32_t magic, what;
    uint32_t version, segment;
    uint64_t bytes;
    uint32_t first_bytes, full_bytes;
} packet;

const ligi_ring_shape ligi_shm_shape = {LIGI_RING_FIRST_BYTES, LIGI_RING_FULL_BYTES};

static void socket_ready(void *context, uint32_t events)
{
    ligi_wire *wire = context;
    (void)events;
    if (ligi_link_dead(wire->link))
        return;
    lig_status status = ligi_wire_listen(wire, ROUND_PACKETS);
    if (status != LIG_OK)
        ligi_link_fail(wire->link, status);
}

lig_status ligi_wire_create(ligi_shm *shm, int fd, ligi_wire **wire)
{
    ligi_wire *made;
    lig_status status = ligi_calloc(&made, 1, sizeof *made, "a connection in shared memory");
    if (status != LIG_OK) {
        close(fd);
        return status;
    }
    made->shm = shm;
    made->watch = (ligi_watch){.ready = socket_ready, .context = made, .fd = -1};
    made->socket = fd;
    made->next = shm->wires;
    made->at = &shm->wires;
    if (shm->wires != NULL)
        shm->wires->at = &made->next;
    shm->wires = made;
    *wire = made;
    return LIG_OK;
}

lig_status ligi_wire_watch(ligi_wire *wire)
{
    return ligi_net_watch(wire->shm->net, &wire->watch, wire->socket, EPOLLIN);
}

void ligi_wire_drop(void *context, int graceful)
{
    ligi_wire *wire = context;
    int forked = getpid() != wire->shm->pid;
    (void)graceful; /* the peer can read the contents of the rings after we have closed */

    *wire->at = wire->next;
    if (wire->next != NULL)
        wire->next->at = wire->at;
    if (wire->watch.fd >= 0 && !forked)
        ligi_net_forget(wire->shm->net, &wire->watch);
    /* A child never had the mapping (MADV_DONTFORK): something else may be mapped there. */
    if (wire->memory != NULL && !forked)
        munmap(wire->memory, LIGI_SHM_MEMORY_BYTES);
    close(wire->socket);
    ligi_views_fini(wire);
    free(wire->table);
    free(wire->known);
    free(wire->inbox.front);
    free(wire->inbox.lent);
    free(wire->inbox.pieces);
    free(wire);
}

/* The connecting side writes the first ring and reads the second. */
static lig_status attach(ligi_wire *wire, int fd, int connecting)
{
    void *memory;
    LIG_TRY(ligi_sealed_map(fd, LIGI_SHM_MEMORY_BYTES, NULL, &memory));
    if (madvise(memory, LIGI_SHM_MEMORY_BYTES, MADV_DONTFORK) != 0) {
        lig_status status = ligi_fail_errno(errno, "madvise(MADV_DONTFORK) failed for a ring");
        munmap(memory, LIGI_SHM_MEMORY_BYTES);
        return status;
    }
    uint8_t *rings[2] = {memory, (uint8_t *)memory + ligi_ring_bytes(ligi_shm_shape)};
    ligi_ring_attach(&wire->out, rings[!connecting], ligi_shm_shape);
    ligi_ring_attach(&wire->in, rings[connecting], ligi_shm_shape);
    wire->connecting = connecting;
    wire->memory = memory;
    return LIG_OK;
}

/* 1 when it was sent. Never waits. */
static int send_packet(ligi_wire *wire, const void *data, size_t bytes, int fd)
{
    char control[CMSG_SPACE(sizeof fd)] __attribute__((aligned(8))) = {0};
    struct iovec piece = {(void *)(uintptr_t)data, bytes};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};

    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
    }
    return sendmsg(wire->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)bytes;
}

void ligi_wire_bell(ligi_wire *wire)
{
    /* A full socket contains signals that the peer has not read yet. */
    (void)send_packet(wire, "", 1, -1);
}

lig_status ligi_wire_offer(ligi_wire *wire)
{
    int fd;
    packet rings = {.magic = MAGIC,
                    .what = SHOW_RINGS,
                    .version = LIGI_NET_VERSION,
                    .bytes = LIGI_SHM_MEMORY_BYTES,
                    .first_bytes = ligi_shm_shape.first_bytes,
                    .full_bytes = ligi_shm_shape.full_bytes};

    LIG_TRY(ligi_sealed_create(LIGI_SHM_MEMORY_BYTES, &fd));
    lig_status status = attach(wire, fd, 1);
    if (status == LIG_OK && !send_packet(wire, &rings, sizeof rings, fd))
        status = lig_fail(LIG_E_PEER, "%s disconnected before shared memory could be sent to it",
                          ligi_link_name(wire->link));
    close(fd);
    return status;
}

static int is_known(const ligi_wire *wire, uint32_t segment)
{
    for (size_t i = wire->known_count; i-- > 0;)
        if (wire->known[i] == segment)
            return 1;
    return 0;
}

int ligi_wire_show(ligi_wire *wire, const ligi_segment_place *place)
{
    packet shown = {.magic = MAGIC,
                    .what = SHOW_SEGMENT,
                    .version = LIGI_NET_VERSION,
                    .segment = place->segment,
                    .bytes = place->segment_bytes};

    if (is_known(wire, place->segment))
        return 1;
    if (wire->known_count >= LIGI_SHM_SEGMENTS_MAX ||
        ligi_grow(&wire->known, &wire->known_capacity, wire->known_count + 1, sizeof *wire->known,
                  "the table of segments shared with a peer") != LIG_OK ||
        !send_packet(wire, &shown, sizeof shown, place->fd))
        return 0;
    wire->known[wire->known_count++] = place->segment;
    return 1;
}

static lig_status take_rings(ligi_wire *wire, const packet *said, int fd)
{
    if (wire->memory != NULL)
        return lig_fail(LIG_E_CORRUPT, "protocol error: %s shares its rings twice",
                        ligi_link_name(wire->link));
    if (said->version != LIGI_NET_VERSION || said->first_bytes != ligi_shm_shape.first_bytes ||
        said->full_bytes != ligi_shm_shape.full_bytes || said->bytes != LIGI_SHM_MEMORY_BYTES)
        return lig_fail(LIG_E_DENIED,
                        "%s has version %u with rings of %u and %u bytes, this process version %d "
                        "with %u and %u",
                        ligi_link_name(wire->link), said->version, said->first_bytes,
                        said->full_bytes, LIGI_NET_VERSION, ligi_shm_shape.first_bytes,
                        ligi_shm_shape.full_bytes);
    LIG_TRY(ligi_sealed_check(fd, said->bytes));
    return attach(wire, fd, 0);
}

static lig_status take_packet(ligi_wire *wire, const packet *said, size_t bytes, int fd)
{
    if (bytes == 1 && fd < 0)
        return LIG_OK;
    if (bytes != sizeof *said || said->magic != MAGIC || fd < 0)
        return lig_fail(LIG_E_CORRUPT, "protocol error: %s sent an unexpected packet of %zu bytes",
                        ligi_link_name(wire->link), bytes);
    if (said->what == SHOW_RINGS)
        return take_rings(wire, said, fd);
    /* A connecting end has not been answered yet when the first segment of an accepted peer can
     * arrive: a peer that shares memory earlier violates the protocol. */
    if (said->what == SHOW_SEGMENT && (wire->connecting || ligi_link_up(wire->link)))
        return ligi_views_add(wire, fd, said->segment, said->bytes);
    return lig_fail(LIG_E_CORRUPT, "protocol error: %s sent a packet of kind %u",
                    ligi_link_name(wire->link), said->what);
}

/* The first descriptor; the others are closed. -1: none. */
static int take_descriptor(struct msghdr *message)
{
    int first = -1;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head != NULL;
         head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
            if (first < 0)
                first = fd;
            else
                close(fd);
        }
    }
    return first;
}

lig_status ligi_wire_listen(ligi_wire *wire, int most)
{
    for (int i = 0; i < most && !wire->ended; i++) {
        packet said;
        char control[CMSG_SPACE(4 * sizeof(int))] __attribute__((aligned(8)));
        struct iovec piece = {&said, sizeof said};
        struct msghdr message = {.msg_iov = &piece,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof control};
        ssize_t bytes = recvmsg(wire->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return LIG_OK;
        if (bytes <= 0) {
            wire->ended = 1;
            wire->ended_at = wire->in.at;
            ligi_net_forget(wire->shm->net, &wire->watch);
            return LIG_OK;
        }
        int fd = take_descriptor(&message);
        lig_status status = take_packet(wire, &said, (size_t)bytes, fd);
        if (fd >= 0)
            close(fd);
        LIG_TRY(status);
    }
    return LIG_OK;
}
