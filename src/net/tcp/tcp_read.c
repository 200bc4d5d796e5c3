#include "net/tcp/tcp_read.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/link/link.h"
#include "net/link/link_receive.h"
#include "net/tcp/tcp_wire.h"
#include "net/tcp/tcp_write.h"

#include <string.h>

#define BUFFER_FIRST 4352 /* a hello and its prefix */
#define BUFFER_BYTES 16384
#define PIECES 64
#define PORTION (UINT64_C(1) << 20) /* bytes for one link before the next one is served */

static size_t held(const ligi_tcp_wire *wire)
{
    return wire->end - wire->start;
}

/* Room for `need` bytes from `start` on, and as a rule for more. */
static lig_status make_room(ligi_tcp_wire *wire, size_t need)
{
    size_t want = wire->capacity == 0 ? BUFFER_FIRST : BUFFER_BYTES;

    if (wire->start > 0) {
        memmove(wire->buffer, wire->buffer + wire->start, held(wire));
        wire->end -= wire->start;
        wire->start = 0;
    }
    if (need > want)
        want = need;
    if (want <= wire->capacity)
        return LIG_OK;
    return ligi_grow(&wire->buffer, &wire->capacity, want, 1, "a connection's buffer");
}

static void advance(ligi_tcp_wire *wire, size_t bytes)
{
    wire->left -= bytes;
    while (wire->iov != NULL && bytes > 0) {
        size_t step = bytes < wire->iov->iov_len ? bytes : wire->iov->iov_len;
        wire->iov->iov_base = (uint8_t *)wire->iov->iov_base + step;
        wire->iov->iov_len -= step;
        bytes -= step;
        if (wire->iov->iov_len == 0) {
            wire->iov++;
            wire->count--;
        }
    }
}

static void land_held(ligi_tcp_wire *wire)
{
    size_t bytes = held(wire) < wire->left ? held(wire) : (size_t)wire->left;

    while (bytes > 0) {
        size_t step = bytes;
        if (wire->iov != NULL) {
            step = bytes < wire->iov->iov_len ? bytes : wire->iov->iov_len;
            if (step > 0)
                memcpy(wire->iov->iov_base, wire->buffer + wire->start, step);
        }
        if (step == 0) {
            wire->iov++;
            wire->count--;
            continue;
        }
        advance(wire, step);
        wire->start += step;
        bytes -= step;
    }
}

static lig_status take_prefix(ligi_tcp_wire *wire, int *enough)
{
    *enough = held(wire) >= LIGI_PREFIX_BYTES;
    if (!*enough)
        return LIG_OK;
    LIG_TRY(ligi_frame_prefix_decode(wire->buffer + wire->start, &wire->prefix));
    LIG_TRY(ligi_link_begin(wire->link, &wire->prefix));
    wire->start += LIGI_PREFIX_BYTES;
    wire->step = LIGI_TCP_HEAD;
    return LIG_OK;
}

static lig_status take_head(ligi_tcp_wire *wire, int *enough)
{
    ligi_incoming in = {0};

    *enough = held(wire) >= wire->prefix.head_bytes;
    if (!*enough)
        return LIG_OK;
    in.head = wire->buffer + wire->start;
    LIG_TRY(ligi_link_take(wire->link, &in));
    wire->start += wire->prefix.head_bytes;
    wire->iov = in.iov;
    wire->count = in.count;
    wire->left = in.bytes;
    wire->step = LIGI_TCP_PAYLOAD;
    return LIG_OK;
}

static lig_status take_payload(ligi_tcp_wire *wire, int *enough)
{
    land_held(wire);
    *enough = wire->left == 0;
    if (!*enough)
        return LIG_OK;
    wire->iov = NULL;
    wire->count = 0;
    wire->step = LIGI_TCP_PREFIX;
    ligi_link_landed(wire->link);
    return LIG_OK;
}

/* All complete messages in the buffer. */
static lig_status digest(ligi_tcp_wire *wire)
{
    lig_status status = LIG_OK;
    int enough = 1;

    while (enough && status == LIG_OK && !ligi_link_dead(wire->link)) {
        switch (wire->step) {
        case LIGI_TCP_PREFIX: status = take_prefix(wire, &enough); break;
        case LIGI_TCP_HEAD: status = take_head(wire, &enough); break;
        default: status = take_payload(wire, &enough); break;
        }
    }
    if (wire->start == wire->end)
        wire->start = wire->end = 0;
    return status;
}

static size_t needed(const ligi_tcp_wire *wire)
{
    size_t need = wire->step == LIGI_TCP_HEAD ? wire->prefix.head_bytes : LIGI_PREFIX_BYTES;

    return need > held(wire) ? need : held(wire) + 1;
}

/* The remaining pieces of the payload, and the buffer after them for what follows. An unwanted
 * payload goes through the buffer, too. */
static size_t places(ligi_tcp_wire *wire, struct iovec pieces[PIECES])
{
    size_t used = 0, rest = 0;

    if (wire->step == LIGI_TCP_PAYLOAD && wire->iov != NULL) {
        for (; rest < wire->count && used < PIECES - 1; rest++)
            if (wire->iov[rest].iov_len > 0)
                pieces[used++] = wire->iov[rest];
        if (rest < wire->count)
            return used;
    }
    pieces[used].iov_base = wire->buffer + wire->end;
    pieces[used].iov_len = wire->capacity - wire->end;
    return used + 1;
}

static lig_status read_once(ligi_tcp_wire *wire, size_t *got, int *more)
{
    struct iovec pieces[PIECES];

    *got = 0;
    *more = 0;
    if (wire->step != LIGI_TCP_PAYLOAD || wire->capacity == 0 || wire->end == wire->capacity)
        LIG_TRY(make_room(wire, needed(wire)));
    size_t count = places(wire, pieces);
    LIG_TRY(ligi_stream_read(&wire->stream, pieces, count, got, more));
    size_t direct = 0;
    if (wire->step == LIGI_TCP_PAYLOAD && wire->iov != NULL)
        direct = *got < wire->left ? *got : (size_t)wire->left;
    advance(wire, direct);
    wire->end += *got - direct;
    return *got > 0 ? digest(wire) : LIG_OK;
}

static void set_hungry(ligi_tcp_wire *wire, int hungry)
{
    wire->self->hungry_count += (size_t)hungry - (size_t)wire->hungry;
    wire->hungry = hungry;
}

/* A peer with a secret answers our plain hello with a TLS alert, and closes. */
static lig_status explain(const ligi_tcp_wire *wire, lig_status status)
{
    static const uint8_t alert = 21;

    if (status != LIG_E_PEER || wire->stream.secure != NULL || wire->step != LIGI_TCP_PREFIX ||
        held(wire) == 0 || wire->buffer[wire->start] != alert)
        return status;
    return lig_fail(LIG_E_DENIED,
                    "%s requires a secret, but this process has none (?secret_file= or "
                    "LIGAMENT_SECRET_FILE)",
                    ligi_link_address(wire->link));
}

int ligi_tcp_wire_read(ligi_tcp_wire *wire)
{
    uint64_t total = 0;
    size_t got = 1;
    int more = 1;
    lig_status status = LIG_OK;

    while (status == LIG_OK && more && total < PORTION && !ligi_link_dead(wire->link)) {
        status = read_once(wire, &got, &more);
        total += got;
    }
    if (ligi_link_dead(wire->link))
        more = 0;
    set_hungry(wire, more && wire->stream.secure != NULL && status == LIG_OK);
    if (total > 0) {
        ligi_link_heard(wire->link, ligi_now_ns());
        wire->self->hot = wire;
        wire->self->hot_misses = 0;
    }
    if (status != LIG_OK)
        ligi_link_fail(wire->link, explain(wire, status));
    else if (ligi_stream_unsent(&wire->stream) && !ligi_link_dead(wire->link))
        ligi_tcp_wire_send(wire); /* TLS wrote its own message, which the socket did not accept */
    return total > 0;
}

void ligi_tcp_wire_divert(void *context)
{
    ligi_tcp_wire *wire = context;

    wire->iov = NULL;
    wire->count = 0;
}
