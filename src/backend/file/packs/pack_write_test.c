#include "backend/file/names.h"
#include "backend/file/packs/pack_folder.h"
#include "file_volume.h"

#include <limits.h>
#include <sys/resource.h>

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

/* A piece has more blocks than there can be transfers, and its end needs a buffer. */
static void a_large_kept_piece_is_written(void **state)
{
    const uint64_t bytes = 40 * LIG_BLOCK_BYTES + 100;
    const char *const options[] = {"cache=0", "cache=0&uring=0"};
    uint8_t *memory, *back = malloc(bytes);
    void *volume, *writer;
    uint64_t id;
    size_t bad;

    assert_int_equal(posix_memalign((void **)&memory, 4096, bytes), 0);
    fill(memory, bytes, 1);
    for (size_t k = 0; k < sizeof options / sizeof options[0]; k++) {
        lig_piece piece = {.data = memory, .bytes = bytes, .flags = LIG_PIECE_KEPT};
        assert_ok(open_at(*state, options[k], &volume));
        assert_ok(OPS->pack_create(volume, 2 * bytes, test_secret, &writer));
        assert_ok(OPS->pack_put(writer, &piece));
        piece.offset = (bytes + 4095) / 4096 * 4096;
        assert_ok(OPS->pack_put(writer, &piece));
        assert_ok(OPS->pack_seal(writer, &id));
        OPS->pack_close(writer);
        for (size_t i = 0; i < 2; i++) {
            const lig_range range = {
                .data = back, .bytes = bytes, .offset = i ? piece.offset : 0};
            assert_ok(OPS->pack_read(volume, id, test_secret, &range, 1, &bad));
            assert_memory_equal(back, memory, bytes);
        }
        close_at(volume);
    }
    free(memory);
    free(back);
}

/* The temporary of a pack that is being written. */
static int open_temporary(const char *folder)
{
    char path[PATH_MAX];
    int fd = -1;

    snprintf(path, sizeof path, "%s/packs", folder);
    DIR *packs = opendir(path);
    assert_non_null(packs);
    for (struct dirent *entry; (entry = readdir(packs)) != NULL;)
        if (strncmp(entry->d_name, LIGI_NAME_TEMPORARY, sizeof LIGI_NAME_TEMPORARY - 1) == 0)
            fd = openat(dirfd(packs), entry->d_name, O_RDONLY | O_CLOEXEC);
    closedir(packs);
    assert_true(fd >= 0);
    return fd;
}

/* The caller uses its memory again as soon as close has returned. */
static void nothing_is_read_after_close(void **state)
{
    const uint64_t bytes = 16 * LIG_BLOCK_BYTES;
    uint8_t *memory, *back = malloc(bytes), *zeros = calloc(1, bytes);
    void *volume, *writer;

    assert_int_equal(posix_memalign((void **)&memory, 4096, bytes), 0);
    assert_ok(open_at(*state, "cache=0", &volume));
    for (int round = 0; round < 8; round++) {
        const lig_piece piece = {.data = memory, .bytes = bytes, .flags = LIG_PIECE_KEPT};
        fill(memory, bytes, (uint64_t)round);
        assert_ok(OPS->pack_create(volume, bytes, test_secret, &writer));
        int fd = open_temporary(*state);
        assert_ok(OPS->pack_put(writer, &piece));
        OPS->pack_close(writer);
        memset(memory, 0xee, bytes);
        ssize_t got = pread(fd, back, bytes, 0);
        close(fd);
        fill(memory, bytes, (uint64_t)round);
        for (uint64_t at = 0; at < (got > 0 ? (uint64_t)got : 0); at += 4096)
            assert_true(memcmp(back + at, memory + at, 4096) == 0 ||
                        memcmp(back + at, zeros, 4096) == 0);
    }
    close_at(volume);
    free(memory);
    free(back);
    free(zeros);
}

/* Transfers that are under way when the disk is full. */
static void a_failed_transfer_fails_the_pack(void **state)
{
    const uint64_t bytes = 8 * LIG_BLOCK_BYTES;
    const struct rlimit little = {2 * LIG_BLOCK_BYTES, RLIM_INFINITY};
    struct rlimit before;
    uint8_t *memory;
    void *volume, *writer;
    uint64_t id;

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(posix_memalign((void **)&memory, 4096, bytes), 0);
    fill(memory, bytes, 1);
    assert_ok(open_at(*state, "cache=0", &volume));
    lig_piece piece = {.data = memory, .bytes = bytes, .flags = LIG_PIECE_KEPT};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_ok(OPS->pack_create(volume, 4 * bytes, test_secret, &writer));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    lig_status status = OPS->pack_put(writer, &piece);
    piece.offset = bytes;
    if (status == LIG_OK)
        status = OPS->pack_put(writer, &piece);
    assert_status(status, LIG_E_IO);
    assert_int_equal(lig_error_number(), EFBIG);
    assert_says("cannot write a pack");
    assert_status(OPS->pack_seal(writer, &id), LIG_E_IO);
    assert_int_equal(lig_error_number(), EFBIG);
    OPS->pack_close(writer);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    piece.offset = 0;
    assert_ok(OPS->pack_create(volume, bytes, test_secret, &writer));
    assert_ok(OPS->pack_put(writer, &piece));
    assert_ok(OPS->pack_seal(writer, &id));
    OPS->pack_close(writer);
    close_at(volume);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(kept_pieces_are_written),
        folder_test(a_large_kept_piece_is_written),
        folder_test(nothing_is_read_after_close),
        folder_test(a_failed_transfer_fails_the_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
