/* For the tests of the shm transport: ends with simple hooks, and strangers who speak to the socket
 * themselves. Included once by a program. */
#ifndef LIGI_SHM_END_H
#define LIGI_SHM_END_H

#include "net/link/link.h"
#include "net/net.h"
#include "net/service.h"
#include "net/shm/ring.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct end {
    ligi_net *net;
    ligi_link *link;
    unsigned met_count, arrived_count, sent_count, lost_count;
    lig_status lost_status;
    uint64_t limit; /* of a payload; 0: none */
    int take;       /* lent pieces are taken; the last stays kept */
    uint8_t *memory, *taken;
    uint64_t bytes, capacity, landing_bytes;
    struct iovec landing;
    ligi_mapping *mapping;
} end;

static inline void end_release(end *self)
{
    if (self->mapping != NULL)
        ligi_mapping_drop(self->mapping);
    self->mapping = NULL;
    self->taken = NULL;
}

static inline lig_status end_met(void *context, ligi_link *link, const ligi_hello *hello,
                                 ligi_reply *reply)
{
    end *self = context;
    (void)hello;
    (void)reply;
    self->link = link;
    self->met_count++;
    return LIG_OK;
}

static inline void end_take(end *self, ligi_piece *piece)
{
    ligi_mapping_keep(piece->mapping);
    end_release(self);
    self->mapping = piece->mapping;
    self->taken = piece->shared;
    piece->taken = 1;
}

static inline lig_status end_head(void *context, ligi_link *link, const ligi_arrival *arrival,
                                  ligi_landing *landing)
{
    end *self = context;
    (void)link;
    self->bytes = arrival->payload_bytes;
    if (self->limit > 0 && self->bytes > self->limit)
        return lig_fail(LIG_E_LIMIT, "a payload of %llu bytes", (unsigned long long)self->bytes);
    for (size_t i = 0; self->take && i < arrival->piece_count; i++) {
        if (arrival->pieces[i].shared == NULL)
            continue;
        end_take(self, &arrival->pieces[i]);
        self->bytes -= arrival->pieces[i].bytes;
    }
    if (self->capacity < self->bytes) {
        free(self->memory);
        self->memory = malloc(self->bytes);
        self->capacity = self->memory != NULL ? self->bytes : 0;
    }
    if (self->memory == NULL && self->bytes > 0)
        return lig_fail(LIG_E_NOMEM, "no memory for the test");
    self->landing = (struct iovec){self->memory, self->bytes};
    self->landing_bytes = self->bytes;
    *landing = (ligi_landing){.iov = &self->landing, .count = self->bytes > 0, .token = self};
    return LIG_OK;
}

static inline void end_arrived(void *context, ligi_link *link, void *token)
{
    end *self = context;
    (void)link;
    (void)token;
    self->arrived_count++;
}

static inline void end_sent(void *context, ligi_link *link, void *token, lig_status status)
{
    end *self = context;
    (void)link;
    (void)token;
    self->sent_count += status == LIG_OK;
}

static inline void end_lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    end *self = context;
    (void)sentence;
    self->lost_count++;
    self->lost_status = status;
    self->link = NULL;
    ligi_link_close(link, NULL);
}

static const ligi_net_hooks end_hooks = {
    .met = end_met, .head = end_head, .arrived = end_arrived, .sent = end_sent, .lost = end_lost};

static inline void end_open(end *self)
{
    ligi_net_options options = {0};
    *self = (end){0};
    if (ligi_net_open(&self->net, &options) != LIG_OK ||
        ligi_net_serve(self->net, LIGI_SERVICE_TEST, &end_hooks, self) != LIG_OK) {
        fprintf(stderr, "%s\n", lig_error_text());
        abort();
    }
}

static inline void end_close(end *self)
{
    ligi_net_close(self->net);
    free(self->memory);
    self->net = NULL;
    self->link = NULL;
    self->memory = NULL;
}

/* --- a stranger --- */

typedef struct stranger {
    int fd;
    uint8_t *memory;
    ligi_ring out;
} stranger;

static const ligi_ring_shape stranger_shape = {LIGI_RING_FIRST_BYTES, LIGI_RING_FULL_BYTES};

static inline void stranger_connect(stranger *self, const char *address)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const char *name = address + strlen("shm:");
    memcpy(at.sun_path + 1, name, strlen(name));
    *self = (stranger){.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name) + 1);
    if (self->fd < 0 || connect(self->fd, (struct sockaddr *)&at, bytes) != 0)
        abort();
}

typedef struct stranger_packet {
    uint32_t magic, what, version, segment;
    uint64_t bytes;
    uint32_t first_bytes, full_bytes;
} stranger_packet;

static inline void stranger_send(const stranger *self, const stranger_packet *said, int fd)
{
    char control[CMSG_SPACE(sizeof fd)] __attribute__((aligned(8))) = {0};
    struct iovec piece = {(void *)(uintptr_t)said, sizeof *said};
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
    (void)!sendmsg(self->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static inline int stranger_memory(size_t bytes, int seals)
{
    int fd = memfd_create("stranger", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 ||
        (seals != 0 && fcntl(fd, F_ADD_SEALS, seals) != 0))
        abort();
    return fd;
}

/* Shows rings as the transport does; `wrong` (0: nothing) says what is not as it should be: 1
 * magic, 2 kind, 3 size, 4 shape, 5 no descriptor. */
static inline void stranger_show(stranger *self, int seals, int wrong)
{
    size_t bytes = 2 * ligi_ring_bytes(stranger_shape);
    stranger_packet said = {.magic = 0x3153474cu + (wrong == 1),
                            .what = wrong == 2 ? 9 : 1,
                            .version = LIGI_NET_VERSION,
                            .bytes = bytes,
                            .first_bytes = stranger_shape.first_bytes,
                            .full_bytes = stranger_shape.full_bytes << (wrong == 4)};
    int fd = stranger_memory(bytes - (wrong == 3) * 4096, seals);

    self->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (self->memory == MAP_FAILED)
        abort();
    ligi_ring_attach(&self->out, self->memory, stranger_shape);
    stranger_send(self, &said, wrong == 5 ? -1 : fd);
    close(fd);
}

/* Shows a segment. */
static inline void stranger_lend(stranger *self, uint32_t segment, size_t bytes)
{
    int fd = stranger_memory(bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    stranger_packet said = {.magic = 0x3153474cu,
                            .what = 2,
                            .version = LIGI_NET_VERSION,
                            .segment = segment,
                            .bytes = bytes};
    stranger_send(self, &said, fd);
    close(fd);
}

/* Writes bytes as a frame (0), with a plausible header before them (1), or into the ring's own
 * books (2). */
static inline void stranger_speak(stranger *self, const uint8_t *data, size_t bytes, int how)
{
    if (how == 2) {
        size_t most = 2 * sizeof(ligi_ring_control);
        memcpy(self->memory, data, bytes < most ? bytes : most);
        return;
    }
    if (how == 1 && bytes >= 16) {
        uint8_t header[16] = {(uint8_t)(1 + data[0] % 3), 0, (uint8_t)(data[2] % 4), 0};
        memcpy(header + 4, data + 4, 2);
        memcpy(header + 8, data + 8, 2);
        ligi_ring_put(&self->out, header, sizeof header);
    }
    ligi_ring_put(&self->out, data, bytes);
    (void)ligi_ring_publish(&self->out);
}

static inline void stranger_close(stranger *self)
{
    if (self->memory != NULL)
        munmap(self->memory, 2 * ligi_ring_bytes(stranger_shape));
    close(self->fd);
}

#endif
