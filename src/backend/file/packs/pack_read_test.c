#include "backend/file/packs/pack_folder.h"
#include "backend/file/packs/page_cache.h"
#include "file_volume.h"

#define PIECE_BYTES (LIG_BLOCK_BYTES / 4)
#define PIECE_COUNT ((size_t)160) /* 40 MiB: enough for several threads */

typedef struct pack {
    uint8_t *source, *target;
    uint64_t hashes[PIECE_COUNT];
    lig_range ranges[PIECE_COUNT];
    uint64_t id;
} pack;

static void fill(uint8_t *bytes, size_t count)
{
    uint64_t number = 1;

    for (size_t i = 0; i < count; i++) {
        number = number * UINT64_C(6364136223846793005) + 1;
        bytes[i] = (uint8_t)(number >> 56);
    }
}

static void make_pack(void *volume, pack *self)
{
    void *writer;

    self->source = malloc(PIECE_COUNT * PIECE_BYTES);
    self->target = calloc(PIECE_COUNT, PIECE_BYTES);
    fill(self->source, PIECE_COUNT * PIECE_BYTES);
    assert_ok(OPS->pack_create(volume, PIECE_COUNT * PIECE_BYTES, test_secret, &writer));
    for (size_t i = 0; i < PIECE_COUNT; i++) {
        const lig_piece piece = {.data = self->source + i * PIECE_BYTES,
                                 .bytes = PIECE_BYTES,
                                 .offset = i * PIECE_BYTES,
                                 .hashes = &self->hashes[i]};
        assert_ok(OPS->pack_put(writer, &piece));
        self->ranges[i] = (lig_range){.data = self->target + i * PIECE_BYTES,
                                      .bytes = PIECE_BYTES,
                                      .offset = i * PIECE_BYTES,
                                      .hashes = &self->hashes[i]};
    }
    assert_ok(OPS->pack_seal(writer, &self->id));
    OPS->pack_close(writer);
}

static void read_by_several_threads(void **state)
{
    const char *const options[] = {"cache=64MiB", "cache=0", "direct=0", "cache=0&uring=0"};
    static pack self;
    size_t bad = 0;
    void *volume;

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        assert_ok(open_at(*state, options[i], &volume));
        make_pack(volume, &self);
        assert_ok(OPS->pack_read(volume, self.id, test_secret, self.ranges, PIECE_COUNT, &bad));
        assert_memory_equal(self.target, self.source, PIECE_COUNT * PIECE_BYTES);
        for (size_t k = 0; k < PIECE_COUNT; k += 53) { /* whichever thread meets it */
            self.hashes[k] ^= 1;
            assert_status(
                OPS->pack_read(volume, self.id, test_secret, self.ranges, PIECE_COUNT, &bad),
                LIG_E_CORRUPT);
            assert_says("checksum mismatch");
            assert_int_equal(bad, k);
            self.hashes[k] ^= 1;
        }
        close_at(volume);
        free(self.source);
        free(self.target);
    }
}

/* Another reader of the same pack: the walk continues through the page cache, in threads. */
static void reads_along_with_others(void **state)
{
    static pack self;
    size_t bad = 0;
    void *volume;
    int other;

    assert_ok(open_at(*state, "", &volume));
    make_pack(volume, &self);
    assert_ok(ligi_file_pack_open(volume, self.id, O_RDONLY, &other));
    posix_fadvise(other, 0, 0, POSIX_FADV_DONTNEED);
    ligi_page_cache_announce(other);
    assert_ok(OPS->pack_read(volume, self.id, test_secret, self.ranges, PIECE_COUNT, &bad));
    assert_memory_equal(self.target, self.source, PIECE_COUNT * PIECE_BYTES);
    ligi_file *file = volume;
    if (file->direct)
        assert_true(ligi_page_cache_bytes(other, 0, PIECE_COUNT * PIECE_BYTES) > 0);
    close(other);
    close_at(volume);
    free(self.source);
    free(self.target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {folder_test(read_by_several_threads),
                                       folder_test(reads_along_with_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
