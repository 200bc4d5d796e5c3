/* The limit of commits by several processes: records are appended under a lock, which is held for a
 * given time, and share fdatasync. No index, no checks.
 *
 *   commit_limit FOLDER [ROUNDS] [COMMITS]
 *
 * Each round measures one and eight processes for every time; printed are the medians. */
#include "base/bell.h"
#include "base/clock.h"
#include "median.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RECORD_BYTES 5656
#define SPIN_NS INT64_C(40000) /* as in head.c */
#define WAIT_NS INT64_C(1000000000)
#define ROUNDS_MAX 99
#define BITS 32

typedef struct shared_page {
    atomic_uint write, sync; /* 1: held */
    atomic_int_least64_t spinning;
    atomic_uint_least64_t appended, synced;
    ligi_bell write_freed, sync_freed;
} shared_page;

static const int held_us[] = {0, 15, 30, 45, 55};
#define TIMES (sizeof held_us / sizeof *held_us)

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int try_lock(atomic_uint *lock)
{
    unsigned open = 0;
    return atomic_load(lock) == 0 && atomic_compare_exchange_strong(lock, &open, 1);
}

static int spin(shared_page *page)
{
    int64_t now = ligi_now_ns(), end = now + SPIN_NS, other = atomic_load(&page->spinning);
    int got = 0;

    if ((other > now && other <= end) ||
        !atomic_compare_exchange_strong(&page->spinning, &other, end))
        return 0;
    for (; !got && now < end; now = ligi_now_ns())
        got = try_lock(&page->write);
    atomic_store(&page->spinning, 0);
    return got;
}

static void take_write(shared_page *page)
{
    for (;;) {
        uint32_t seen = ligi_bell_seen(&page->write_freed);
        if (try_lock(&page->write) || spin(page))
            return;
        ligi_bell_wait(&page->write_freed, seen, LIGI_BELL_ANYBODY, WAIT_NS);
    }
}

static uint32_t version_bit(uint64_t version)
{
    return UINT32_C(1) << (version % BITS);
}

static void sync_all(shared_page *page, int fd)
{
    uint64_t version = atomic_load(&page->appended);
    uint32_t later = 0;

    if (fdatasync(fd) != 0)
        die("fdatasync");
    atomic_store(&page->synced, version);
    atomic_store(&page->sync, 0);
    ligi_bell_strike(&page->sync_freed);
    for (uint64_t next = atomic_load(&page->appended); next > version; next--)
        later |= version_bit(next);
    ligi_bell_wake(&page->sync_freed, INT_MAX, ~later);
    ligi_bell_wake(&page->sync_freed, 1, later);
}

static void commit(shared_page *page, int fd, int held)
{
    uint8_t record[RECORD_BYTES];

    take_write(page);
    uint64_t version = atomic_load(&page->appended) + 1;
    int64_t end = ligi_now_ns() + INT64_C(1000) * held;
    off_t at = (off_t)(version - 1) * RECORD_BYTES;
    memset(record, (int)version, sizeof record);
    if (pwrite(fd, record, sizeof record, at) != RECORD_BYTES)
        die("pwrite");
    if (atomic_load(&page->synced) == version - 1)
        (void)sync_file_range(fd, at, RECORD_BYTES, SYNC_FILE_RANGE_WRITE);
    while (ligi_now_ns() < end)
        ;
    atomic_store(&page->appended, version);
    atomic_store(&page->write, 0);
    ligi_bell_ring_one(&page->write_freed);
    for (;;) {
        uint32_t seen = ligi_bell_seen(&page->sync_freed);
        if (atomic_load(&page->synced) >= version)
            return;
        if (try_lock(&page->sync))
            sync_all(page, fd);
        else
            ligi_bell_wait(&page->sync_freed, seen, version_bit(version), WAIT_NS);
    }
}

/* Commits a second; the file's blocks exist before, as those of a segment do. */
static double measure(const char *path, int processes, int count, int held)
{
    static const uint8_t zeros[RECORD_BYTES];
    int begin[2], failed = 0;
    char byte;
    shared_page *page =
        mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    if (page == MAP_FAILED || fd < 0 || pipe(begin) != 0)
        die(path);
    for (int i = 0; i < processes * count; i++)
        if (pwrite(fd, zeros, sizeof zeros, (off_t)i * RECORD_BYTES) != RECORD_BYTES)
            die(path);
    if (fsync(fd) != 0)
        die(path);
    for (int i = 0; i < processes; i++)
        if (fork() == 0) {
            close(begin[1]);
            if (read(begin[0], &byte, 1) < 0)
                die("pipe");
            for (int k = 0; k < count; k++)
                commit(page, fd, held);
            _exit(0);
        }
    usleep(100000); /* all of them wait */
    int64_t start = ligi_now_ns();
    close(begin[0]);
    close(begin[1]);
    for (int i = 0, status; i < processes; i++)
        failed |= wait(&status) < 0 || status != 0;
    double seconds = (double)(ligi_now_ns() - start) / 1e9;
    if (failed)
        die("a process");
    close(fd);
    unlink(path);
    munmap(page, sizeof *page);
    return processes * count / seconds;
}

int main(int count, char **arguments)
{
    static double one[TIMES][ROUNDS_MAX], eight[TIMES][ROUNDS_MAX];
    char path[512];

    if (count < 2)
        return 2;
    int rounds = count > 2 ? atoi(arguments[2]) : 7, number = count > 3 ? atoi(arguments[3]) : 800;
    rounds = rounds < 1 || rounds > ROUNDS_MAX ? 7 : rounds;
    snprintf(path, sizeof path, "%s/commit-limit", arguments[1]);
    for (int i = 0; i < rounds; i++)
        for (size_t k = 0; k < TIMES; k++) {
            one[k][i] = measure(path, 1, number, held_us[k]);
            eight[k][i] = measure(path, 8, number / 4 + 1, held_us[k]);
        }
    for (size_t k = 0; k < TIMES; k++) {
        double rate = median(one[k], rounds), together = median(eight[k], rounds);
        printf("lock held for %d us: 1 process %.0f/s, 8 processes %.0f/s (%.2f x)\n", held_us[k],
               rate, together, together / rate);
    }
    return 0;
}
