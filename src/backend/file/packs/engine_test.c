#include "backend/file/packs/engine.h"

#include "base/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct bench { /* an engine and a file that is open twice, past the page cache and through
                          it */
    ligi_engine *engine;
    char path[64];
    int direct, plain;
} bench;

static int start(void **state)
{
    bench *self = calloc(1, sizeof *self);

    snprintf(self->path, sizeof self->path, "/tmp/ligament-XXXXXX");
    self->plain = mkostemp(self->path, O_CLOEXEC);
    self->direct = open(self->path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (self->direct < 0)
        self->direct = open(self->path, O_RDWR | O_CLOEXEC);
    *state = self;
    return self->plain < 0 || self->direct < 0 || ligi_engine_create(&self->engine) != LIG_OK;
}

static int stop(void **state)
{
    bench *self = *state;

    ligi_engine_destroy(self->engine, 0);
    close(self->plain);
    close(self->direct);
    unlink(self->path);
    free(self);
    return 0;
}

static ligi_io io_of(bench *self, int write, uint64_t offset, uint64_t bytes)
{
    int slot = ligi_engine_take(self->engine);

    assert_true(slot >= 0);
    return (ligi_io){
        .fd = self->direct,
        .plain_fd = self->plain,
        .write = write,
        .slot = slot,
        .data = ligi_engine_slot(self->engine, slot),
        .bytes = bytes,
        .offset = offset,
        .need = bytes,
        .token = offset,
    };
}

static void write_and_read(bench *self, uint64_t step, uint64_t bytes)
{
    ligi_io io;

    for (uint64_t i = 0; i < LIGI_SLOT_COUNT; i++) {
        io = io_of(self, 1, i * step, bytes);
        memset(io.data, (int)i + 1, bytes);
        assert_ok(ligi_engine_start(self->engine, &io));
    }
    assert_int_equal(ligi_engine_take(self->engine), -1);
    assert_int_equal(ligi_engine_flying(self->engine), LIGI_SLOT_COUNT);
    while (ligi_engine_flying(self->engine) > 0) {
        assert_ok(ligi_engine_finish(self->engine, &io));
        ligi_engine_free(self->engine, io.slot);
    }
    for (uint64_t i = 0; i < LIGI_SLOT_COUNT; i++) {
        io = io_of(self, 0, i * step, bytes);
        memset(io.data, 0, bytes);
        assert_ok(ligi_engine_start(self->engine, &io));
    }
    while (ligi_engine_flying(self->engine) > 0) {
        assert_ok(ligi_engine_finish(self->engine, &io));
        const uint8_t *data = io.data;
        assert_int_equal(data[0], io.token / step + 1);
        assert_int_equal(data[bytes - 1], io.token / step + 1);
        ligi_engine_free(self->engine, io.slot);
    }
}

static void aligned_transfers(void **state)
{
    bench *self = *state;

    write_and_read(self, 8192, 8192);
    ligi_engine_ring(self->engine);
    write_and_read(self, LIG_BLOCK_BYTES, LIG_BLOCK_BYTES);
}

/* O_DIRECT refuses these; the plain file takes them. */
static void odd_transfers(void **state)
{
    bench *self = *state;

    write_and_read(self, 1001, 1001);
    ligi_engine_ring(self->engine);
    write_and_read(self, 1001, 1001);
}

static void reads_past_the_end(void **state)
{
    bench *self = *state;
    ligi_io io;

    assert_int_equal(ftruncate(self->plain, 5000), 0);
    for (int i = 0; i < 2; i++) {
        io = io_of(self, 0, 0, 8192);
        io.need = 5000;
        assert_ok(ligi_engine_start(self->engine, &io));
        assert_ok(ligi_engine_finish(self->engine, &io));
        ligi_engine_free(self->engine, io.slot);
        io = io_of(self, 0, 0, 8192);
        io.need = 5001;
        assert_ok(ligi_engine_start(self->engine, &io));
        assert_status(ligi_engine_finish(self->engine, &io), LIG_E_CORRUPT);
        ligi_engine_free(self->engine, io.slot);
        ligi_engine_ring(self->engine);
    }
}

static void errors_have_numbers(void **state)
{
    bench *self = *state;
    ligi_io io;

    for (int i = 0; i < 2; i++) {
        io = io_of(self, 1, 0, 4096);
        io.fd = io.plain_fd = open(self->path, O_RDONLY | O_CLOEXEC);
        assert_ok(ligi_engine_start(self->engine, &io));
        assert_status(ligi_engine_finish(self->engine, &io), LIG_E_IO);
        assert_int_equal(lig_error_number(), EBADF);
        close(io.fd);
        ligi_engine_drain(self->engine);
        ligi_engine_ring(self->engine);
    }
}

static void drained_engines_are_as_new(void **state)
{
    bench *self = *state;

    ligi_engine_ring(self->engine);
    for (uint64_t i = 0; i < LIGI_SLOT_COUNT; i++) {
        ligi_io io = io_of(self, 1, i * 4096, 4096);
        assert_ok(ligi_engine_start(self->engine, &io));
    }
    ligi_engine_drain(self->engine);
    assert_int_equal(ligi_engine_flying(self->engine), 0);
    write_and_read(self, 4096, 4096);
}

#define engine_test(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        engine_test(aligned_transfers),          engine_test(odd_transfers),
        engine_test(reads_past_the_end),         engine_test(errors_have_numbers),
        engine_test(drained_engines_are_as_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
