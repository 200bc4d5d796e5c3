/* A peer of the shm transport that may do anything: speak after a proper hello or without, show
 * memory, write into the rings' books at any time. The input is a row of steps: what, how many
 * bytes, the bytes. */
#include "base/error.h"
#include "net/frame/frame.h"
#include "net/progress.h"
#include "net/shm_end.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SPEAK, HELLO, SHOW, BOOKS, OTHER_BOOKS, FRAME, STEPS };

static void say_hello(stranger *who)
{
    ligi_hello hello = {0};
    ligi_writer writer = {0};
    uint8_t header[16] = {LIGI_KIND_HELLO};

    ligi_hello_encode(&hello, LIGI_SERVICE_TEST, &writer);
    uint32_t bytes = (uint32_t)writer.bytes;
    memcpy(header + 4, &bytes, sizeof bytes);
    ligi_ring_put(&who->out, header, sizeof header);
    ligi_ring_put(&who->out, writer.data, writer.bytes);
    (void)ligi_ring_publish(&who->out);
    ligi_writer_fini(&writer);
}

/* A message with two lent pieces, of which the input says where they lie. */
static void lend(stranger *who, const uint8_t *data, size_t bytes)
{
    struct {
        uint16_t kind, count;
        uint32_t head_bytes;
        uint64_t payload_bytes;
        struct {
            uint32_t segment, zero;
            uint64_t offset, bytes;
        } pieces[2];
    } frame = {.kind = LIGI_KIND_DATA, .count = 2, .payload_bytes = 8192};
    uint16_t offset = 0;

    if (bytes >= sizeof offset)
        memcpy(&offset, data, sizeof offset);
    for (int i = 0; i < 2; i++) {
        frame.pieces[i].segment = bytes > (size_t)i ? data[i] % 3u : 0;
        frame.pieces[i].offset = i == 0 ? offset : bytes > 3 ? data[3] : 0;
        frame.pieces[i].bytes = 4096;
    }
    ligi_ring_put(&who->out, &frame, sizeof frame);
    (void)ligi_ring_publish(&who->out);
}

static void step(stranger *who, unsigned what, const uint8_t *data, size_t bytes)
{
    size_t books = what == BOOKS ? 0 : ligi_ring_bytes(stranger_shape), room = 0;

    if (ligi_ring_room(&who->out, 4096, &room) != LIG_OK || room < 4096)
        return;
    switch (what) {
    case SPEAK: stranger_speak(who, data, bytes, 0); return;
    case HELLO: say_hello(who); return;
    case SHOW: stranger_lend(who, bytes > 0 ? data[0] % 3u : 1, bytes > 1 ? 16384 : 4096); return;
    case FRAME: lend(who, data, bytes); return;
    default:
        memcpy(who->memory + books + (bytes > 0 ? data[0] % 5u * 128 : 0), data,
               bytes < 16 ? bytes : 16);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static end server;
    static char address[LIGI_ADDRESS_BYTES_MAX];
    stranger who;

    if (server.net == NULL) {
        end_open(&server);
        server.limit = 1 << 20;
        if (ligi_net_listen(server.net, "shm:", address) != LIG_OK)
            abort();
    }
    server.take = size % 2;
    stranger_connect(&who, address);
    stranger_show(&who, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, 0);
    for (size_t at = 0; at + 2 <= size;) {
        unsigned what = data[at] % STEPS;
        size_t bytes = data[at + 1] < size - at - 2 ? data[at + 1] : size - at - 2;
        step(&who, what, data + at + 2, bytes);
        at += 2 + bytes;
        (void)ligi_net_poll(server.net);
    }
    stranger_close(&who);
    (void)ligi_net_poll(server.net);
    (void)ligi_net_poll(server.net);
    end_release(&server);
    return 0;
}
