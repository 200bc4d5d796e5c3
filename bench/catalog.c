/* Commits of a file volume against the disk: a bare append with fdatasync of the same bytes, one
 * process that commits, eight that do, and what opening and rebuilding cost.
 *
 *   catalog FOLDER [ROUNDS] [COMMITS]
 *
 * Each round interleaves the three; printed are the medians, and the ratios. */
#include "backend/registry.h"
#include "base/clock.h"
#include "peers/median.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RECORD_BYTES 5900
#define ROUNDS_MAX 99

extern const lig_backend_ops ligi_backend_file;
#define OPS (ligi_backend_file.volume)

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, lig_error_text());
    exit(1);
}

static double bare(const char *folder, int count)
{
    static uint8_t bytes[RECORD_BYTES];
    char path[512];
    snprintf(path, sizeof path, "%s/bare", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        die(path);
    for (int i = 0; i < count; i++) /* its blocks are there, as those of a segment */
        if (pwrite(fd, bytes, sizeof bytes, (off_t)i * RECORD_BYTES) != RECORD_BYTES)
            die(path);
    if (fsync(fd) != 0)
        die(path);
    int64_t begin = ligi_now_ns();
    for (int i = 0; i < count; i++) {
        memset(bytes, i + 1, sizeof bytes);
        if (pwrite(fd, bytes, sizeof bytes, (off_t)i * RECORD_BYTES) != RECORD_BYTES ||
            fdatasync(fd) != 0)
            die(path);
    }
    double seconds = (double)(ligi_now_ns() - begin) / 1e9;
    close(fd);
    unlink(path);
    return count / seconds;
}

/* What the save of a small model with a graph puts (docs/formats.md): its tables, and sizes as a store
 * writes them. Ids count up; names and layers are hashes. */
static const struct {
    uint8_t table;
    enum { FIXED, ID, HASH } key;
    uint32_t bytes;
} stored[] = {
    {1, FIXED, 223}, /* header */
    {2, ID, 76},     /* model */
    {3, HASH, 11},   /* name */
    {6, ID, 5240},   /* tensors */
    {8, HASH, 13},   /* posting */
    {10, ID, 97},    /* graph */
};
#define STORED (sizeof stored / sizeof *stored)
#define KEY_BYTES 17

static size_t make_key(size_t at, uint64_t id, uint8_t key[KEY_BYTES])
{
    uint64_t part = stored[at].key == HASH ? id * UINT64_C(0x9E3779B97F4A7C15) : id;

    memset(key, 0, KEY_BYTES);
    key[0] = stored[at].table;
    for (int i = 0; i < 8; i++)
        key[1 + i] = (uint8_t)(part >> (56 - 8 * i));
    return stored[at].key == FIXED ? 1 : stored[at].key == ID ? 9 : KEY_BYTES;
}

/* Under the lock the version is the next id, as in a store. */
static void commit_one(void *volume)
{
    static uint8_t value[RECORD_BYTES];
    uint8_t keys[STORED][KEY_BYTES];
    lig_catalog_op ops[STORED];
    uint64_t version;
    void *snapshot;

    if (OPS->catalog_lock != NULL && OPS->catalog_lock(volume, INT64_C(30000000000)) != LIG_OK)
        die("lock");
    if (OPS->catalog_begin(volume, &snapshot, &version) != LIG_OK)
        die("begin");
    OPS->catalog_end(snapshot);
    for (size_t i = 0; i < STORED; i++)
        ops[i] = (lig_catalog_op){keys[i], make_key(i, version, keys[i]), value, stored[i].bytes};
    lig_catalog_edit edit = {.version = version, .ops = ops, .op_count = STORED};
    if (OPS->catalog_commit(volume, &edit) != LIG_OK)
        die("commit");
}

static void commit_many(const char *folder, int count, int begin_fd)
{
    void *volume;
    char byte;
    if (ligi_backend_file.open(&volume, folder) != LIG_OK)
        die("open");
    if (begin_fd >= 0 && read(begin_fd, &byte, 1) < 0)
        die("pipe");
    for (int i = 0; i < count; i++)
        commit_one(volume);
    ligi_backend_file.close(volume);
}

static double commits(const char *folder, int processes, int count)
{
    int begin[2], failed = 0;
    void *kept;
    if (pipe(begin) != 0 || ligi_backend_file.open(&kept, folder) != LIG_OK)
        die("open");
    for (int i = 0; i < processes; i++) {
        pid_t child = fork();
        if (child == 0) {
            close(begin[1]);
            commit_many(folder, count, begin[0]);
            _exit(0);
        }
    }
    usleep(200000); /* all are open and wait */
    int64_t start = ligi_now_ns();
    close(begin[0]);
    close(begin[1]);
    for (int i = 0, status; i < processes; i++)
        failed |= wait(&status) < 0 || status != 0;
    double seconds = (double)(ligi_now_ns() - start) / 1e9;
    ligi_backend_file.close(kept);
    if (failed)
        die("a process");
    return processes * count / seconds;
}

static double open_once(const char *folder)
{
    void *volume;
    int64_t begin = ligi_now_ns();
    if (ligi_backend_file.open(&volume, folder) != LIG_OK)
        die("open");
    double milliseconds = (double)(ligi_now_ns() - begin) / 1e6;
    ligi_backend_file.close(volume);
    return milliseconds;
}

static void measure_open(const char *folder, int rounds)
{
    char index[512];
    double current[ROUNDS_MAX], rebuilt[ROUNDS_MAX];
    snprintf(index, sizeof index, "%s/index.mdb", folder);
    for (int i = 0; i < rounds; i++) {
        current[i] = open_once(folder);
        unlink(index);
        rebuilt[i] = open_once(folder);
    }
    printf("open with a current index: %.2f ms\n", median(current, rounds));
    printf("open after the index was removed: %.2f ms\n", median(rebuilt, rounds));
}

int main(int count, char **arguments)
{
    double one[ROUNDS_MAX], eight[ROUNDS_MAX], limit[ROUNDS_MAX];
    char folder[400];
    if (count < 2)
        return 2;
    int rounds = count > 2 ? atoi(arguments[2]) : 7, number = count > 3 ? atoi(arguments[3]) : 1000;
    rounds = rounds < 1 || rounds > ROUNDS_MAX ? 7 : rounds;
    snprintf(folder, sizeof folder, "%s/catalog-bench", arguments[1]);
    for (int i = 0; i < rounds; i++) {
        limit[i] = bare(arguments[1], number);
        one[i] = commits(folder, 1, number);
        eight[i] = commits(folder, 8, number / 4 + 1);
        printf("round %d: bare %.0f/s, 1 process %.0f/s, 8 processes %.0f/s\n", i + 1, limit[i],
               one[i], eight[i]);
    }
    printf("spread of bare: %.2f x\n", median(limit, rounds) ? limit[rounds - 1] / limit[0] : 0);
    double bare_rate = median(limit, rounds), rate = median(one, rounds);
    printf("1 process: %.2f x bare (bar: 0.7); 8 processes: %.2f x 1 process (bar: 2)\n",
           rate / bare_rate, median(eight, rounds) / rate);
    measure_open(folder, rounds);
    printf("%d commits in %s (remove it)\n", rounds * (number + 8 * (number / 4 + 1)), folder);
    return 0;
}
