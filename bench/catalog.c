/* Commits of a file volume against the disk: a bare append with fdatasync of the same bytes, one
 * process that commits, eight that do, and what opening and rebuilding cost.
 *
 *   catalog FOLDER [ROUNDS] [COMMITS]
 *
 * Each round interleaves the three; printed are the medians, and the ratios. */
#include "backend/registry.h"
#include "base/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define VALUE_BYTES 4400
#define KEYS 6
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

/* One commit as a save of a small model makes it: a large value and some small ones. */
static void commit_one(void *volume, uint64_t number)
{
    static uint8_t large[VALUE_BYTES], small[200];
    uint8_t keys[KEYS][16];
    lig_catalog_op ops[KEYS];
    uint64_t version;
    void *snapshot;

    for (int i = 0; i < KEYS; i++) {
        memset(keys[i], i + 2, sizeof keys[i]);
        memcpy(keys[i] + 8, &number, sizeof number);
        ops[i] = (lig_catalog_op){keys[i], sizeof keys[i], i ? small : large,
                                  i ? sizeof small : sizeof large};
    }
    if (OPS->catalog_lock != NULL && OPS->catalog_lock(volume, INT64_C(30000000000)) != LIG_OK)
        die("lock");
    if (OPS->catalog_begin(volume, &snapshot, &version) != LIG_OK)
        die("begin");
    OPS->catalog_end(snapshot);
    lig_catalog_edit edit = {.version = version, .ops = ops, .op_count = KEYS};
    if (OPS->catalog_commit(volume, &edit) != LIG_OK)
        die("commit");
}

static void commit_many(const char *folder, uint64_t first, int count, int begin_fd)
{
    void *volume;
    char byte;
    if (ligi_backend_file.open(&volume, folder) != LIG_OK)
        die("open");
    if (begin_fd >= 0 && read(begin_fd, &byte, 1) < 0)
        die("pipe");
    for (int i = 0; i < count; i++)
        commit_one(volume, first + (uint64_t)i);
    ligi_backend_file.close(volume);
}

static double commits(const char *folder, int processes, int count, uint64_t *next)
{
    int begin[2], failed = 0;
    void *kept;
    if (pipe(begin) != 0 || ligi_backend_file.open(&kept, folder) != LIG_OK)
        die("open");
    for (int i = 0; i < processes; i++) {
        pid_t child = fork();
        if (child == 0) {
            close(begin[1]);
            commit_many(folder, *next + (uint64_t)i * (uint64_t)count, count, begin[0]);
            _exit(0);
        }
    }
    *next += (uint64_t)processes * (uint64_t)count;
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

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
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
    uint64_t next = 1;
    if (count < 2)
        return 2;
    int rounds = count > 2 ? atoi(arguments[2]) : 7, number = count > 3 ? atoi(arguments[3]) : 1000;
    rounds = rounds < 1 || rounds > ROUNDS_MAX ? 7 : rounds;
    snprintf(folder, sizeof folder, "%s/catalog-bench", arguments[1]);
    for (int i = 0; i < rounds; i++) {
        limit[i] = bare(arguments[1], number);
        one[i] = commits(folder, 1, number, &next);
        eight[i] = commits(folder, 8, number / 4 + 1, &next);
        printf("round %d: bare %.0f/s, 1 process %.0f/s, 8 processes %.0f/s\n", i + 1, limit[i],
               one[i], eight[i]);
    }
    printf("spread of bare: %.2f x\n", median(limit, rounds) ? limit[rounds - 1] / limit[0] : 0);
    double bare_rate = median(limit, rounds), rate = median(one, rounds);
    printf("1 process: %.2f x bare (bar: 0.7); 8 processes: %.2f x 1 process (bar: 2)\n",
           rate / bare_rate, median(eight, rounds) / rate);
    measure_open(folder, rounds);
    printf("%llu commits in %s (remove it)\n", (unsigned long long)next - 1, folder);
    return 0;
}
