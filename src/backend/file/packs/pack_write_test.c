#include "backend/file/packs/pack_folder.h"
#include "file_volume.h"

#define LARGE_BYTES (4 * LIG_BLOCK_BYTES)
#define LENT 2 /* a kept piece is read until the next put has returned */

static const uint64_t sizes[] = {4096,        LARGE_BYTES, LARGE_BYTES, LARGE_BYTES + 100,
                                 LARGE_BYTES, 100,         LARGE_BYTES, LARGE_BYTES / 2,
                                 LARGE_BYTES, LARGE_BYTES, LARGE_BYTES, LARGE_BYTES};
#define PIECES (sizeof sizes / sizeof sizes[0])

static void fill(uint8_t *bytes, uint64_t count, uint64_t number)
{
    for (uint64_t i = 0; i < count; i++) {
        number = number * UINT64_C(6364136223846793005) + 1;
        bytes[i] = (uint8_t)(number >> 56);
    }
}

/* Pieces 3 and 5 end off a page: the next one follows at once, or at the next page. */
static uint64_t place(size_t piece, uint64_t at)
{
    return piece == 4 ? at : (at + 4095) / 4096 * 4096;
}

static uint64_t put_all(void *volume, lig_range *ranges, uint64_t (*hashes)[8])
{
    uint8_t *memory[LENT];
    uint64_t at = 0, id;
    void *writer;

    for (size_t i = 0; i < LENT; i++)
        assert_int_equal(posix_memalign((void **)&memory[i], 4096, 2 * LARGE_BYTES), 0);
    assert_ok(OPS->pack_create(volume, PIECES * LARGE_BYTES, test_secret, &writer));
    for (size_t i = 0; i < PIECES; i++) {
        at = place(i, at);
        fill(memory[i % LENT], sizes[i], i);
        const lig_piece piece = {.data = memory[i % LENT],
                                 .bytes = sizes[i],
                                 .offset = at,
                                 .hashes = hashes[i],
                                 .flags = LIG_PIECE_KEPT};
        assert_ok(OPS->pack_put(writer, &piece));
        ranges[i] = (lig_range){.bytes = sizes[i], .offset = at, .hashes = hashes[i]};
        at += sizes[i];
    }
    assert_ok(OPS->pack_seal(writer, &id));
    OPS->pack_close(writer);
    for (size_t i = 0; i < LENT; i++)
        free(memory[i]);
    return id;
}

static void kept_pieces_are_written(void **state)
{
    const char *const options[] = {"cache=0", "cache=0&uring=0", "direct=0", "cache=64MiB"};
    lig_range ranges[PIECES];
    uint64_t hashes[PIECES][8];
    uint8_t *expected = malloc(2 * LARGE_BYTES);
    void *volume;
    size_t bad;

    for (size_t k = 0; k < sizeof options / sizeof options[0]; k++) {
        assert_ok(open_at(*state, options[k], &volume));
        uint64_t id = put_all(volume, ranges, hashes);
        for (size_t i = 0; i < PIECES; i++)
            ranges[i].data = malloc(sizes[i]);
        assert_ok(OPS->pack_read(volume, id, test_secret, ranges, PIECES, &bad));
        for (size_t i = 0; i < PIECES; i++) {
            fill(expected, sizes[i], i);
            assert_memory_equal(ranges[i].data, expected, sizes[i]);
            free(ranges[i].data);
        }
        close_at(volume);
    }
    free(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(kept_pieces_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
