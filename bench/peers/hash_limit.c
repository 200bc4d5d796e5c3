/* The limit for telling whether tensors are new: XXH3-128 of all bytes, on a few threads, and
 * nothing else.
 *
 *     hash_limit BYTES [threads=N] [repeat=N]
 *
 * prints one line of JSON: {"bytes": .., "threads": .., "hash_s": [..]} */
#include "base/clock.h"
#include "base/hash.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 16, BLOCK = 1 << 20 };

typedef struct part {
    const uint8_t *data;
    size_t bytes;
    uint64_t sum; /* so that no compiler leaves the work out */
} part;

static double now(void)
{
    return (double)ligi_now_ns() * 1e-9;
}

static void *work(void *argument)
{
    part *mine = argument;
    for (size_t at = 0; at < mine->bytes; at += BLOCK) {
        size_t bytes = mine->bytes - at < BLOCK ? mine->bytes - at : BLOCK;
        mine->sum += ligi_hash128_plain(mine->data + at, bytes).low;
    }
    return NULL;
}

static double hash_once(const uint8_t *data, size_t bytes, size_t threads)
{
    pthread_t handles[THREADS_MAX];
    part parts[THREADS_MAX];
    size_t share = bytes / threads, started = 0;
    double begin = now();
    for (size_t i = 0; i < threads; i++) {
        parts[i] = (part){data + i * share, i + 1 < threads ? share : bytes - i * share, 0};
        started += pthread_create(&handles[i], NULL, work, &parts[i]) == 0;
    }
    for (size_t i = 0; i < started; i++)
        pthread_join(handles[i], NULL);
    return started == threads ? now() - begin : -1;
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 0, threads = 2, repeat = 3;
    for (int i = 2; i < argc; i++) {
        if (strncmp(argv[i], "threads=", 8) == 0)
            threads = strtoul(argv[i] + 8, NULL, 10);
        if (strncmp(argv[i], "repeat=", 7) == 0)
            repeat = strtoul(argv[i] + 7, NULL, 10);
    }
    uint8_t *data = bytes ? malloc(bytes) : NULL;
    if (data == NULL || threads == 0 || threads > THREADS_MAX) {
        fprintf(stderr, "usage: hash_limit BYTES [threads=1..%d] [repeat=N]\n", THREADS_MAX);
        free(data);
        return 2;
    }
    for (size_t i = 0; i < bytes; i += 64)
        data[i] = (uint8_t)(i >> 6);
    printf("{\"bytes\": %zu, \"threads\": %zu, \"hash_s\": [", bytes, threads);
    for (size_t i = 0; i < repeat; i++)
        printf("%s%.6f", i ? ", " : "", hash_once(data, bytes, threads));
    printf("]}\n");
    free(data);
    return 0;
}
