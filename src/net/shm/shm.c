/* Shared memory between processes of one host: the transport's table, and polling of the rings. */
#include "net/shm/wire.h"

#include "base/error.h"
#include "net/link/link.h"
#include "net/shm/shm_listen.h"
#include "net/shm/shm_receive.h"
#include "net/shm/shm_send.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static lig_status open_shm(ligi_net *net, const ligi_host *host, void **self)
{
    ligi_shm *made;
    (void)host;
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "the shm transport"));
    lig_status status = ligi_segments_create(0, &made->segments);
    if (status != LIG_OK) {
        free(made);
        return status;
    }
    made->net = net;
    made->pid = getpid();
    made->spare = eventfd(0, EFD_CLOEXEC);
    *self = made;
    return LIG_OK;
}

static void close_shm(void *self, int forked)
{
    ligi_shm *shm = self;
    while (shm->wires != NULL)
        ligi_wire_drop(shm->wires, 0);
    ligi_shm_unlisten(shm, forked);
    if (shm->spare >= 0)
        close(shm->spare);
    ligi_segments_destroy(shm->segments);
    free(shm);
}

static int reaches(void *self, const char *address, int same_host)
{
    (void)self;
    (void)address;
    return same_host;
}

static int in_use(const ligi_wire *wire)
{
    return wire->memory != NULL && !ligi_link_dead(wire->link);
}

/* The peer has closed its socket. Its last bytes are read first: its goodbye is among them. A peer
 * that keeps writing is cut off after a while. */
static int see_end(ligi_wire *wire, int happened)
{
    uint64_t most = (uint64_t)ligi_shm_shape.first_bytes + ligi_shm_shape.full_bytes;
    if (ligi_link_dead(wire->link))
        return 1;
    if (happened > 0 && wire->in.at - wire->ended_at <= most)
        return 1;
    ligi_link_fail(wire->link, lig_fail(LIG_E_PEER, "connection to %s lost: its end was closed",
                                        ligi_link_name(wire->link)));
    return 1;
}

static int look_at(ligi_wire *wire)
{
    int happened = 0;
    if (wire->memory != NULL) {
        uint64_t before = wire->out.at;
        happened = ligi_shm_receive(wire);
        if (wire->want != 0 && !ligi_link_dead(wire->link))
            ligi_shm_send(wire);
        happened += wire->out.at != before;
    }
    return wire->ended ? see_end(wire, happened) : happened;
}

/* The common case, detected by one read of the ring. */
static int is_still(const ligi_wire *wire)
{
    return wire->drained && wire->want == 0 && !wire->ended && ligi_ring_still(&wire->in);
}

static int poll_shm(void *self)
{
    ligi_shm *shm = self;
    int happened = 0;
    for (ligi_wire *wire = shm->wires; wire != NULL; wire = wire->next)
        if (!is_still(wire) && !ligi_link_dead(wire->link))
            happened += look_at(wire);
    return happened;
}

static int arm_shm(void *self)
{
    ligi_shm *shm = self;
    int happened = 0;
    for (ligi_wire *wire = shm->wires; wire != NULL; wire = wire->next) {
        if (!in_use(wire))
            continue;
        wire->sleeping = 1;
        wire->drained = 0; /* the ring is read once more after this */
        happened |= wire->ended;
        happened |= ligi_ring_reader_sleeps(&wire->in, ligi_shm_awaits(wire));
        if (wire->want != 0)
            happened |= ligi_ring_writer_sleeps(&wire->out, wire->want);
    }
    return happened;
}

static void disarm_shm(void *self)
{
    ligi_shm *shm = self;
    for (ligi_wire *wire = shm->wires; wire != NULL; wire = wire->next) {
        if (!wire->sleeping)
            continue;
        wire->sleeping = 0;
        ligi_ring_reader_awake(&wire->in);
        ligi_ring_writer_awake(&wire->out);
    }
}

static lig_status alloc_shm(void *self, uint64_t bytes, void **memory)
{
    ligi_shm *shm = self;
    return ligi_segments_alloc(shm->segments, bytes, memory);
}

static lig_status reserve_shm(void *self, uint64_t bytes, void **memory)
{
    ligi_shm *shm = self;
    return ligi_segments_reserve(shm->segments, bytes, memory);
}

static int free_shm(void *self, void *memory)
{
    (void)self;
    ligi_segments_free(memory);
    return 1;
}

const ligi_transport_ops ligi_transport_shm = {
    .abi = LIGI_TRANSPORT_ABI,
    .size = sizeof(ligi_transport_ops),
    .scheme = "shm",
    .help = "shared memory between processes of one user on one host",
    .options = ligi_shm_options,
    .option_count = LIGI_SHM_OPTION_COUNT,
    .rank = 60,
    .near = "shm:",
    .open = open_shm,
    .close = close_shm,
    .listen = ligi_shm_listen,
    .reaches = reaches,
    .connect = ligi_shm_connect,
    .send = ligi_shm_send,
    .divert = ligi_shm_divert,
    .drop = ligi_wire_drop,
    .poll = poll_shm,
    .arm = arm_shm,
    .disarm = disarm_shm,
    .alloc = alloc_shm,
    .reserve = reserve_shm,
    .free = free_shm,
};
