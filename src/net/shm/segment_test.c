#include "net/shm/segment.h"

#include "base/test.h"
#include "net/shm/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t mib = UINT64_C(1) << 20;

static ligi_segments *segments_of(uint64_t limit_bytes)
{
    ligi_segments *segments;
    assert_ok(ligi_segments_create(limit_bytes, &segments));
    return segments;
}

static int is_zero(const uint8_t *memory, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        if (memory[i] != 0)
            return 0;
    return 1;
}

static void test_blocks_are_found_where_they_lie(void **state)
{
    ligi_segments *segments = segments_of(0);
    ligi_segment_place place, again;
    void *small, *other, *large, *empty;
    int on_stack = 0;
    (void)state;

    assert_ok(ligi_segments_alloc(segments, 100, &small));
    assert_ok(ligi_segments_alloc(segments, 5000, &other));
    assert_ok(ligi_segments_alloc(segments, 40 * mib + 1, &large));
    assert_ok(ligi_segments_alloc(segments, 0, &empty));
    assert_int_equal((uintptr_t)small % LIGI_BLOCK_BYTES, 0);
    assert_true(ligi_segments_find(segments, small, 100, &place));
    assert_true(ligi_segments_find(segments, (uint8_t *)other + 8, 4992, &again));
    assert_int_equal(place.segment, again.segment);
    assert_int_equal(again.offset - place.offset,
                     (uint64_t)((uint8_t *)other - (uint8_t *)small) + 8);
    assert_true(ligi_segments_find(segments, large, 40 * mib + 1, &again));
    assert_int_not_equal(place.segment, again.segment);
    assert_int_equal(again.offset, 0);
    assert_false(ligi_segments_find(segments, large, again.segment_bytes + 1, &again));
    assert_false(ligi_segments_find(segments, large, UINT64_MAX, &again));
    assert_false(ligi_segments_find(segments, &on_stack, sizeof on_stack, &again));
    memset(large, 7, 40 * mib);
    ligi_segments_free(large);
    assert_false(ligi_segments_alive(segments, again.segment));
    assert_true(ligi_segments_alive(segments, place.segment));
    ligi_segments_free(small);
    ligi_segments_free(other);
    ligi_segments_destroy(segments);
    ligi_segments_free(empty);
}

static void test_what_is_shared_is_the_same_memory(void **state)
{
    ligi_segments *segments = segments_of(0);
    ligi_segment_place place;
    void *memory, *view;
    (void)state;

    assert_ok(ligi_segments_alloc(segments, 64, &memory));
    memcpy(memory, "ours", 5);
    assert_true(ligi_segments_find(segments, memory, 64, &place));
    assert_ok(ligi_sealed_check(place.fd, place.segment_bytes));
    assert_int_equal(ftruncate(place.fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_not_equal(fcntl(place.fd, F_GETFD) & FD_CLOEXEC, 0);
    assert_ok(ligi_sealed_map(place.fd, place.segment_bytes, NULL, &view));
    uint8_t *seen = (uint8_t *)view + place.offset;
    assert_string_equal((char *)seen, "ours");
    ligi_segments_free(memory);
    assert_true(is_zero(seen, 64));
    munmap(view, place.segment_bytes);
    ligi_segments_destroy(segments);
}

static void test_limit(void **state)
{
    ligi_segments *segments = segments_of(10 * mib);
    void *first, *second = NULL;
    (void)state;

    assert_ok(ligi_segments_alloc(segments, 9 * mib, &first));
    assert_status(ligi_segments_alloc(segments, 2 * mib, &second), LIG_E_LIMIT);
    assert_says("free some tensors");
    assert_status(ligi_segments_alloc(segments, UINT64_MAX, &second), LIG_E_LIMIT);
    assert_null(second);
    ligi_segments_free(first);
    assert_ok(ligi_segments_alloc(segments, 2 * mib, &second));
    ligi_segments_free(second);
    ligi_segments_destroy(segments);
}

typedef struct live {
    uint8_t *memory;
    uint64_t bytes;
    uint8_t mark;
} live;

/* Blocks never overlap, are zero when they come, and keep what was written. */
static void test_random_blocks(void **state)
{
    enum { LIVE = 64 };
    live blocks[LIVE] = {0};
    ligi_segments *segments = segments_of(0);
    unsigned seed = 4;
    (void)state;

    for (int step = 0; step < 4000; step++) {
        live *one = &blocks[rand_r(&seed) % LIVE];
        if (one->memory != NULL) {
            for (uint64_t i = 0; i < one->bytes; i++)
                assert_int_equal(one->memory[i], one->mark);
            ligi_segments_free(one->memory);
            one->memory = NULL;
            continue;
        }
        one->bytes = 1 + (uint64_t)rand_r(&seed) % (rand_r(&seed) % 50 == 0 ? 9 * mib : 60000);
        one->mark = (uint8_t)(1 + step % 255);
        void *memory;
        assert_ok(ligi_segments_alloc(segments, one->bytes, &memory));
        one->memory = memory;
        assert_true(is_zero(one->memory, one->bytes));
        memset(one->memory, one->mark, one->bytes);
    }
    uint64_t epoch = ligi_segments_epoch(segments);
    for (int i = 0; i < LIVE; i++)
        if (blocks[i].memory != NULL)
            ligi_segments_free(blocks[i].memory);
    assert_true(ligi_segments_epoch(segments) > epoch);
    ligi_segments_destroy(segments);
}

static void test_forked_child_leaves_it_alone(void **state)
{
    ligi_segments *segments = segments_of(0);
    void *memory;
    int status;
    (void)state;

    assert_ok(ligi_segments_alloc(segments, 4096, &memory));
    memset(memory, 9, 4096);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int same = ((uint8_t *)memory)[5] == 9;
        ligi_segments_free(memory);
        ligi_segments_destroy(segments);
        _exit(same ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(((uint8_t *)memory)[5], 9);
    ligi_segments_free(memory);
    ligi_segments_destroy(segments);
}

static void test_what_is_reserved_is_read_by_others_alone(void **state)
{
    ligi_segments *segments = segments_of(10 * mib);
    ligi_segment_place place;
    void *memory, *view = NULL, *other;
    int read_only = 0;
    (void)state;

    assert_ok(ligi_segments_reserve(segments, UINT64_C(1) << 40, &memory));
    assert_ok(ligi_segments_alloc(segments, 9 * mib, &other)); /* the limit is not touched */
    memcpy((uint8_t *)memory + (UINT64_C(1) << 39), "ours", 5);
    assert_true(ligi_segments_find(segments, memory, UINT64_C(1) << 40, &place));
    assert_ok(ligi_sealed_check(place.fd, place.segment_bytes));
    assert_true(ligi_sealed_map(place.fd, place.segment_bytes, NULL, &view) != LIG_OK);
    assert_ok(ligi_sealed_view(place.fd, place.segment_bytes, &view, &read_only));
    assert_int_equal(read_only, 1);
    assert_string_equal((char *)view + (UINT64_C(1) << 39), "ours");
    assert_int_equal(mprotect(view, 4096, PROT_READ | PROT_WRITE), -1);
    ligi_segments_free(memory);
    assert_string_equal((char *)view + (UINT64_C(1) << 39), "ours");
    munmap(view, place.segment_bytes);
    ligi_segments_free(other);
    assert_status(ligi_segments_reserve(segments, UINT64_MAX, &memory), LIG_E_LIMIT);
    ligi_segments_destroy(segments);
}

static void test_memory_of_a_peer_is_checked(void **state)
{
    int fd, pipes[2];
    (void)state;

    fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_status(ligi_sealed_check(fd, 4096), LIG_E_DENIED);
    assert_says("not sealed");
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL), 0);
    assert_status(ligi_sealed_check(fd, 4096), LIG_E_DENIED);
    close(fd);
    assert_ok(ligi_sealed_create(4096, &fd));
    assert_ok(ligi_sealed_check(fd, 4096));
    assert_status(ligi_sealed_check(fd, 8192), LIG_E_DENIED);
    assert_says("8192 were announced");
    close(fd);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_status(ligi_sealed_check(pipes[0], 0), LIG_E_DENIED);
    assert_says("not a memfd");
    close(pipes[0]);
    close(pipes[1]);
}

/* Such memory can be mapped without a single huge page, and reading it raises SIGBUS then. */
static void test_huge_pages_of_a_peer_are_refused(void **state)
{
    struct stat file;
    int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    (void)state;

    if (fd < 0)
        skip(); /* the kernel has none */
    assert_int_equal(fstat(fd, &file), 0);
    assert_int_equal(ftruncate(fd, file.st_blksize), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    assert_status(ligi_sealed_check(fd, (uint64_t)file.st_blksize), LIG_E_DENIED);
    assert_says("huge pages");
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_found_where_they_lie),
        cmocka_unit_test(test_what_is_shared_is_the_same_memory),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_what_is_reserved_is_read_by_others_alone),
        cmocka_unit_test(test_random_blocks),
        cmocka_unit_test(test_forked_child_leaves_it_alone),
        cmocka_unit_test(test_memory_of_a_peer_is_checked),
        cmocka_unit_test(test_huge_pages_of_a_peer_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
