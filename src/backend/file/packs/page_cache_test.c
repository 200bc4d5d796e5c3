#include "backend/file/packs/page_cache.h"

#include "backend/file/packs/pack_folder.h"
#include "backend/file/packs/pack_warm.h"
#include "file_volume.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#define PACK_BYTES ((size_t)20 << 20)

static void a_quarter_fits(void **state)
{
    (void)state;
    assert_true(ligi_page_cache_fits(0, 0));
    assert_false(ligi_page_cache_fits(1, 0)); /* unknown */
    assert_true(ligi_page_cache_fits(1 << 20, 4 << 20));
    assert_false(ligi_page_cache_fits((1 << 20) + 1, 4 << 20));
    assert_true(ligi_page_cache_fits(1, ligi_page_cache_available()));
}

static uint64_t make_pack(void *volume)
{
    uint8_t *bytes = calloc(1, PACK_BYTES);
    uint64_t hashes[PACK_BYTES / LIG_BLOCK_BYTES], id;
    const lig_piece piece = {.data = bytes, .bytes = PACK_BYTES, .hashes = hashes};
    void *writer;

    assert_ok(OPS->pack_create(volume, PACK_BYTES, test_secret, &writer));
    assert_ok(OPS->pack_put(writer, &piece));
    assert_ok(OPS->pack_seal(writer, &id));
    OPS->pack_close(writer);
    free(bytes);
    return id;
}

static int64_t cached_bytes(int fd)
{
    return ligi_page_cache_bytes(fd, 0, PACK_BYTES);
}

/* Pages are dropped only when no reader uses them. */
static void forget(int fd)
{
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* The kernel reads in its own time, and on an overlay a page counts only when it has arrived. */
static int gets_warm(int fd)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    for (int i = 0; i < 10000 && cached_bytes(fd) < (int64_t)PACK_BYTES / 2; i++)
        nanosleep(&pause, NULL);
    return cached_bytes(fd) >= (int64_t)PACK_BYTES / 2;
}

static void what_was_loaded_gets_warm(void **state)
{
    const struct {
        const char *options;
        int warms;
    } cases[] = {{"", 1}, {"cache=0", 0}, {"direct=1", 0}, {"direct=0", 0}};
    void *volume;
    int fd;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(open_at(*state, cases[i].options, &volume));
        uint64_t id = make_pack(volume);
        assert_ok(ligi_file_pack_open(volume, id, O_RDONLY, &fd));
        forget(fd);
        int64_t before = cached_bytes(fd);
        OPS->pack_warm(volume, id, 5, PACK_BYTES / 2); /* as a load in two reads does it */
        OPS->pack_warm(volume, id, PACK_BYTES / 2, PACK_BYTES);
        ligi_file_warm_wait(volume);
        ligi_file *self = volume;
        if (before == 0 && self->direct && cases[i].warms)
            assert_true(gets_warm(fd));
        else if (before == 0 && self->direct) /* a file system in memory is always warm */
            assert_true(cached_bytes(fd) < (int64_t)PACK_BYTES / 2);
        OPS->pack_warm(volume, id + 1, 0, PACK_BYTES); /* a pack that does not exist */
        OPS->pack_warm(volume, id, 9, 9);
        OPS->pack_warm(volume, id, 0, PACK_BYTES);
        close_at(volume); /* whether or not it has ended */
        close(fd);
    }
}

static void readers_see_each_other(void **state)
{
    void *volume;
    int first, second;

    assert_ok(open_at(*state, "", &volume));
    uint64_t id = make_pack(volume);
    assert_ok(ligi_file_pack_open(volume, id, O_RDONLY, &first));
    assert_ok(ligi_file_pack_open(volume, id, O_RDONLY, &second));
    ligi_page_cache_announce(first);
    assert_false(ligi_page_cache_shared(first));
    assert_true(ligi_page_cache_shared(second));
    ligi_page_cache_announce(second);
    assert_true(ligi_page_cache_shared(first));
    close(second);
    assert_false(ligi_page_cache_shared(first));
    close(first);
    close_at(volume);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_quarter_fits),
                                       folder_test(what_was_loaded_gets_warm),
                                       folder_test(readers_see_each_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
