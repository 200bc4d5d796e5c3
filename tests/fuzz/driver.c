/* Runs a fuzz target where the compiler has no libFuzzer, with the same options for what is used
 * here:
 *
 *     X_fuzz FILE...                                             runs each file once
 *     X_fuzz [-runs=N] [-seed=N] [-max_total_time=S] [FOLDER]    mutates the files of FOLDER (or
 *                                  starts from nothing) N times, S seconds at most
 *
 * Under a sanitizer a finding leaves its input in the file crash-input. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

enum { INPUT_BYTES = 1 << 16, SEED_LIMIT = 512 };

typedef struct seed {
    uint8_t *data;
    size_t size;
} seed;

typedef struct options {
    uint64_t runs, random, seconds;
} options;

/* What is being run, for the death callback, which takes no argument. */
static seed current;

static uint64_t next_random(options *run)
{
    uint64_t z = (run->random += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int read_seed(const char *path, seed *filled)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return 0;
    filled->data = malloc(INPUT_BYTES);
    filled->size = filled->data != NULL ? fread(filled->data, 1, INPUT_BYTES, file) : 0;
    fclose(file);
    /* No larger than the input: a read past its end is to be seen. */
    uint8_t *exact =
        filled->data != NULL ? realloc(filled->data, filled->size + (filled->size == 0)) : NULL;
    filled->data = exact != NULL ? exact : filled->data;
    return filled->data != NULL;
}

static size_t read_folder(const char *path, seed *seeds)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    size_t count = 0;

    while (folder != NULL && count < SEED_LIMIT && (entry = readdir(folder)) != NULL) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.' && read_seed(name, &seeds[count]))
            count++;
    }
    if (folder != NULL)
        closedir(folder);
    return count;
}

/* Values at which sizes and counts tend to break. */
static uint64_t edge_value(options *run)
{
    static const uint64_t edges[] = {
        0,     1,      2,         7,          8,         255,        256,
        65535, 65536,  INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_MAX - 7,
        4096,  1 << 20};
    return edges[next_random(run) % (sizeof edges / sizeof edges[0])];
}

static size_t mutate_once(options *run, uint8_t *data, size_t size)
{
    size_t at = size > 0 ? next_random(run) % size : 0;
    size_t span = next_random(run) % 64;
    uint64_t edge = edge_value(run);

    switch (next_random(run) % 6) {
    case 0: /* one bit */
        if (size > 0)
            data[at] ^= (uint8_t)(1u << (next_random(run) % 8));
        return size;
    case 1: /* one byte */
        if (size > 0)
            data[at] = (uint8_t)next_random(run);
        return size;
    case 2: /* an edge value of one to eight bytes */
        span = (size_t)1 << (next_random(run) % 4);
        if (at + span <= size)
            memcpy(data + at, &edge, span);
        return size;
    case 3: /* cut */ return at;
    case 4: /* insert */
        if (size + span > INPUT_BYTES)
            return size;
        memmove(data + at + span, data + at, size - at);
        for (size_t i = 0; i < span; i++)
            data[at + i] = (uint8_t)next_random(run);
        return size + span;
    default: /* remove */
        span = span < size - at ? span : size - at;
        memmove(data + at, data + at + span, size - at - span);
        return size - span;
    }
}

static void keep_current(void)
{
    FILE *file = current.data != NULL ? fopen("crash-input", "wb") : NULL;
    if (file == NULL)
        return;
    fwrite(current.data, 1, current.size, file);
    fclose(file);
}

static void run_mutations(options *run, const seed *seeds, size_t seed_count)
{
    uint8_t *work = malloc(INPUT_BYTES), *exact;
    time_t end = time(NULL) + (time_t)run->seconds;
    uint64_t done = 0;

    for (; work != NULL && done < run->runs && (run->seconds == 0 || time(NULL) < end); done++) {
        size_t size = 0;
        if (seed_count > 0) {
            const seed *from = &seeds[next_random(run) % seed_count];
            size = from->size;
            memcpy(work, from->data, size);
        }
        for (uint64_t n = 1 + next_random(run) % 8; n > 0; n--)
            size = mutate_once(run, work, size);
        /* Exactly as large as the input, so that the sanitizer sees the first byte read past its
         * end. */
        exact = malloc(size > 0 ? size : 1);
        if (exact == NULL)
            break;
        memcpy(exact, work, size);
        current = (seed){exact, size};
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    current = (seed){NULL, 0};
    printf("%llu runs from %zu seeds\n", (unsigned long long)done, seed_count);
    free(work);
}

static int take_option(options *run, const char *text)
{
    const char *value = strchr(text, '=');
    if (text[0] != '-' || value == NULL)
        return 0;
    uint64_t number = strtoull(value + 1, NULL, 10);
    if (strncmp(text, "-runs=", 6) == 0)
        run->runs = number;
    else if (strncmp(text, "-seed=", 6) == 0)
        run->random = number;
    else if (strncmp(text, "-max_total_time=", 16) == 0)
        run->seconds = number;
    return 1; /* libFuzzer's other options have no meaning here */
}

int main(int argc, char **argv)
{
    options run = {.runs = 100000, .random = 1};
    seed *seeds = calloc(SEED_LIMIT, sizeof *seeds);
    size_t count = 0;
    int files = 0;

    for (int i = 1; seeds != NULL && i < argc; i++) {
        struct stat info;
        seed one;
        if (take_option(&run, argv[i]))
            continue;
        if (stat(argv[i], &info) == 0 && S_ISDIR(info.st_mode)) {
            count = count == 0 ? read_folder(argv[i], seeds) : count;
        } else if (read_seed(argv[i], &one)) {
            LLVMFuzzerTestOneInput(one.data, one.size);
            free(one.data);
            files++;
        } else {
            fprintf(stderr, "%s: cannot be read\n", argv[i]);
            return 1;
        }
    }
    if (__sanitizer_set_death_callback != NULL)
        __sanitizer_set_death_callback(keep_current);
    if (seeds != NULL && files == 0)
        run_mutations(&run, seeds, count);
    for (size_t i = 0; seeds != NULL && i < count; i++)
        free(seeds[i].data);
    free(seeds);
    return 0;
}
