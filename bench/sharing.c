/* What does a save cost of which most is stored already? Against the bare parts of it in the same
 * run: XXH3-128 of all bytes on two threads, a durable O_DIRECT write of the changed bytes, and one
 * commit.
 *
 *     sharing FOLDER [MIB] [PERCENT] [ROUNDS]
 *
 * prints one line of JSON: {"bytes": .., "changed": .., "hash_s": [..], "write_s": [..], "commit_s": [..],
 * "save_s": [..], "ratio": .., "grown": [..], "bound": ..} */
#include "base/clock.h"
#include "base/hash.h"

#include <ligament/ligament.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TENSORS = 300, ROUNDS_MAX = 50 };

static lig_tensor tensors[TENSORS];
static int64_t lengths[TENSORS];
static char names[TENSORS][16];
static uint8_t secret[LIG_SECRET_BYTES];
static char *memory;
static size_t total;

static double seconds(int64_t since_ns)
{
    return (double)(ligi_now_ns() - since_ns) * 1e-9;
}

static void must(lig_status status, const char *what)
{
    if (status == LIG_OK)
        return;
    fprintf(stderr, "sharing: %s: %s\n", what, lig_error_text());
    exit(1);
}

/* --- the model --- */

/* A quarter of the bytes in one tensor, the rest in equal ones but for twenty small ones. */
static void make_model(size_t bytes)
{
    size_t at = 0, each = bytes * 3 / 4 / (TENSORS - 21) / 64 * 64;
    memory = aligned_alloc(4096, bytes + (1 << 20));
    for (size_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)memory)[i] = i * UINT64_C(0x9E3779B97F4A7C15) + 12345;
    for (int i = 0; i < TENSORS; i++) {
        lengths[i] = (int64_t)(i == 0 ? bytes / 4 / 64 * 64 : i <= 20 ? 4096 : each);
        snprintf(names[i], sizeof names[i], "t%d", i);
        tensors[i] = (lig_tensor){.name = names[i],
                                  .data = memory + at,
                                  .bytes = (uint64_t)lengths[i],
                                  .shape = &lengths[i],
                                  .ndim = 1,
                                  .dtype = LIG_UINT8};
        at += (size_t)lengths[i];
        if (at > bytes + (1 << 20))
            exit(2);
    }
    total = at;
}

/* Changes one byte of so many tensors from `first` on that they have `wanted` bytes. */
static size_t change(int first, size_t wanted, uint64_t number)
{
    size_t changed = 0;
    for (int i = first; i < TENSORS && changed < wanted; i++) {
        memcpy((char *)tensors[i].data + tensors[i].bytes / 2, &number, sizeof number);
        changed += tensors[i].bytes;
    }
    return changed;
}

/* --- the limits --- */

static void *hash_half(void *context)
{
    size_t half = total / 2;
    const char *from = memory + (context ? half : 0);
    for (size_t at = 0; at < half; at += 1 << 20) {
        volatile uint64_t kept =
            ligi_hash128_keyed(secret, from + at, half - at < 1 << 20 ? half - at : 1 << 20).low;
        (void)kept;
    }
    return NULL;
}

static double measure_hash(void)
{
    pthread_t other;
    int64_t begin = ligi_now_ns();
    pthread_create(&other, NULL, hash_half, memory);
    hash_half(NULL);
    pthread_join(other, NULL);
    return seconds(begin);
}

static double measure_write(const char *folder, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/bare", folder);
    bytes = (bytes + 4095) / 4096 * 4096;
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_DIRECT, 0666);
    int64_t begin = ligi_now_ns();
    if (fd < 0 || fallocate(fd, 0, 0, (off_t)bytes) != 0)
        must(LIG_E_IO, path);
    for (size_t at = 0; at < bytes; at += 8 << 20) {
        size_t part = bytes - at < 8 << 20 ? bytes - at : 8 << 20;
        if (pwrite(fd, memory + at, part, (off_t)at) != (ssize_t)part)
            must(LIG_E_IO, path);
    }
    fdatasync(fd);
    double time = seconds(begin);
    close(fd);
    unlink(path);
    return time;
}

static double measure_commit(lig_store *store, double value)
{
    lig_metric metric = {"round", value};
    lig_update update = LIG_UPDATE_INIT;
    update.metrics = &metric, update.metric_count = 1;
    int64_t begin = ligi_now_ns();
    must(lig_store_update(store, "base", &update), "update");
    return seconds(begin);
}

/* --- the save --- */

static double measure_save(lig_store *store, int round)
{
    char name[32];
    lig_save_options options = LIG_SAVE_INIT;
    options.parent = "base";
    snprintf(name, sizeof name, "child%d", round);
    int64_t begin = ligi_now_ns();
    must(lig_store_save(store, name, tensors, TENSORS, &options), "save");
    return seconds(begin);
}

static uint64_t stored_bytes(lig_store *store)
{
    lig_store_stats stats;
    must(lig_store_stat(store, &stats), "stat");
    return stats.stored_bytes;
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void print_list(const char *name, const double *values, int count)
{
    printf("\"%s\": [", name);
    for (int i = 0; i < count; i++)
        printf("%s%.6f", i ? ", " : "", values[i]);
    printf("], ");
}

int main(int argc, char **argv)
{
    static double hash[ROUNDS_MAX], writing[ROUNDS_MAX], commit[ROUNDS_MAX], save[ROUNDS_MAX],
        ratio[ROUNDS_MAX], grown[ROUNDS_MAX];
    size_t bytes = (argc > 2 ? strtoul(argv[2], NULL, 10) : 1024) << 20, changed = 0;
    size_t wanted = bytes / 100 * (argc > 3 ? strtoul(argv[3], NULL, 10) : 5);
    int rounds = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 5;
    char uri[4096];
    lig_store *store;
    if (argc < 2 || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: sharing FOLDER [MIB] [PERCENT] [ROUNDS]\n");
        return 2;
    }
    mkdir(argv[1], 0777);
    snprintf(uri, sizeof uri, "file://%s/store?mode=w", argv[1]);
    make_model(bytes);
    must(lig_store_open(&store, uri), uri);
    must(lig_store_save(store, "base", tensors, TENSORS, NULL), "save");
    for (int i = 0; i < rounds; i++) {
        changed = change(21 + 16 * (i % 16), wanted, (uint64_t)i + 1);
        hash[i] = measure_hash();
        writing[i] = measure_write(argv[1], changed);
        commit[i] = measure_commit(store, i);
        uint64_t before = stored_bytes(store);
        save[i] = measure_save(store, i);
        grown[i] = (double)(stored_bytes(store) - before);
        ratio[i] = save[i] / (hash[i] + writing[i] + commit[i]);
        memset(secret, i, sizeof secret);
    }
    lig_store_close(store);
    printf("{\"bytes\": %zu, \"changed\": %zu, ", total, changed);
    print_list("hash_s", hash, rounds);
    print_list("write_s", writing, rounds);
    print_list("commit_s", commit, rounds);
    print_list("save_s", save, rounds);
    print_list("grown", grown, rounds);
    qsort(ratio, (size_t)rounds, sizeof *ratio, by_size);
    printf("\"bound\": %.0f, \"ratio\": %.3f}\n",
           (double)changed * 1.01 + 65536 + 64.0 * TENSORS, ratio[rounds / 2]);
    free(memory);
    return 0;
}
