/* A volume alone: `count` pieces of `bytes` each are put, sealed and made durable, then read cold
 * into place, checksums included. Compare with limit.c on the same bytes.
 *
 *     volume FOLDER COUNT BYTES [shift=N] [repeat=N] [options=QUERY] [scheme=NAME] [commits=N]
 *
 * prints one line of JSON. `scheme` is that of another volume (FOLDER is then its place, as in
 * //pool/prefix); `commits` are made one after the other, 1000 bytes each. Memory of the destination starts `shift` bytes after a page (64, as
 * torch's does). */
#include "backend/registry.h"
#include "base/clock.h"
#include "remote/service_credentials.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPEAT_MAX 100
#define COMMITS_MAX 1000

typedef struct bench {
    const char *folder, *options, *scheme;
    size_t commits;
    uint64_t count, bytes, stride;
    size_t shift, repeat;
    const lig_volume_ops *ops;
    void *volume;
    uint8_t *source, *target;
    uint64_t *hashes; /* of all pieces, in order */
    uint64_t blocks;  /* of one piece */
    uint8_t secret[LIG_SECRET_BYTES];
} bench;

static double now(void)
{
    return (double)ligi_now_ns() * 1e-9;
}

static lig_status write_once(bench *self, uint64_t *id, double *seconds)
{
    const lig_volume_ops *ops = self->ops;
    void *pack;

    double start = now();
    LIG_TRY(ops->pack_create(self->volume, self->count * self->stride, self->secret, &pack));
    lig_status status = LIG_OK;
    for (uint64_t i = 0; i < self->count && status == LIG_OK; i++) {
        const lig_piece piece = {.data = self->source + i * self->bytes,
                                 .bytes = self->bytes,
                                 .offset = i * self->stride,
                                 .hashes = self->hashes + i * self->blocks};
        status = ops->pack_put(pack, &piece);
    }
    if (status == LIG_OK)
        status = ops->pack_seal(pack, id);
    ops->pack_close(pack);
    *seconds = now() - start;
    return status;
}

static lig_status read_once(bench *self, uint64_t id, double *seconds)
{
    lig_range *ranges = calloc(self->count, sizeof *ranges);
    size_t bad;

    for (uint64_t i = 0; i < self->count; i++) {
        ranges[i].data = self->target + i * self->bytes;
        ranges[i].bytes = self->bytes;
        ranges[i].offset = i * self->stride;
        ranges[i].hashes = self->hashes + i * self->blocks;
    }
    double start = now();
    lig_status status =
        self->ops->pack_read(self->volume, id, self->secret, ranges, self->count, &bad);
    *seconds = now() - start;
    free(ranges);
    return status;
}

static void evict(const bench *self, uint64_t id)
{
    char path[4200];

    snprintf(path, sizeof path, "%s/packs/%016llx.pack", self->folder, (unsigned long long)id);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void warm(const bench *self, uint64_t id)
{
    char path[4200];
    static char buffer[1 << 20];

    snprintf(path, sizeof path, "%s/packs/%016llx.pack", self->folder, (unsigned long long)id);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && read(fd, buffer, sizeof buffer) > 0) {
    }
    if (fd >= 0)
        close(fd);
}

static int parse(bench *self, int count, char **words)
{
    char *end;

    if (count < 4)
        return 1;
    self->folder = words[1];
    self->count = strtoull(words[2], &end, 10);
    self->bytes = strtoull(words[3], &end, 10);
    for (int i = 4; i < count; i++) {
        char *value = strchr(words[i], '=');
        if (value == NULL)
            return 1;
        *value++ = '\0';
        if (strcmp(words[i], "shift") == 0)
            self->shift = strtoull(value, &end, 10);
        else if (strcmp(words[i], "repeat") == 0)
            self->repeat = strtoull(value, &end, 10);
        else if (strcmp(words[i], "options") == 0)
            self->options = value;
        else if (strcmp(words[i], "scheme") == 0)
            self->scheme = value;
        else if (strcmp(words[i], "commits") == 0)
            self->commits = strtoull(value, &end, 10);
        else
            return 1;
    }
    return self->count == 0 || self->bytes == 0 || self->repeat == 0 || self->repeat > REPEAT_MAX ||
           self->commits > COMMITS_MAX;
}

static void prepare(bench *self)
{
    uint64_t align = self->bytes >= LIG_BLOCK_BYTES ? 4096 : 64, total = self->count * self->bytes;

    self->stride = (self->bytes + align - 1) & ~(align - 1);
    self->blocks = (self->bytes + LIG_BLOCK_BYTES - 1) / LIG_BLOCK_BYTES;
    self->hashes = calloc(self->count * self->blocks, sizeof *self->hashes);
    self->source = (uint8_t *)aligned_alloc(4096, (total + 8191) & ~UINT64_C(4095)) + self->shift;
    self->target = (uint8_t *)aligned_alloc(4096, (total + 8191) & ~UINT64_C(4095)) + self->shift;
    for (uint64_t i = 0; i < total; i++)
        self->source[i] = (uint8_t)(i * 2654435761u >> 13);
    memset(self->target, 1, total);
    memset(self->secret, 7, sizeof self->secret);
}

static void show(const char *name, const double *seconds, size_t count, const char *end)
{
    printf("\"%s\": [", name);
    for (size_t i = 0; i < count; i++)
        printf("%s%.6f", i == 0 ? "" : ", ", seconds[i]);
    printf("]%s", end);
}

static lig_status commit_once(bench *self, uint64_t number, double *seconds)
{
    char key[32], value[1000] = "";
    const lig_catalog_op op = {
        key, (size_t)snprintf(key, sizeof key, "bench%llu", (unsigned long long)number % 64), value,
        sizeof value};
    lig_catalog_edit edit = {.ops = &op, .op_count = 1};
    void *snapshot;

    LIG_TRY(self->ops->catalog_begin(self->volume, &snapshot, &edit.version));
    self->ops->catalog_end(snapshot);
    double start = now();
    LIG_TRY(self->ops->catalog_commit(self->volume, &edit));
    *seconds = now() - start;
    return LIG_OK;
}

static lig_status run(bench *self)
{
    static double commit_s[COMMITS_MAX];
    double write_s[REPEAT_MAX], cold_s[REPEAT_MAX], warm_s[REPEAT_MAX];
    uint64_t total = self->count * self->bytes;
    uint64_t id;

    for (size_t i = 0; i < self->repeat; i++) {
        LIG_TRY(write_once(self, &id, &write_s[i]));
        evict(self, id);
        memset(self->target, 0, total);
        LIG_TRY(read_once(self, id, &cold_s[i]));
        if (memcmp(self->source, self->target, total) != 0)
            return lig_fail(LIG_E_CORRUPT, "what was read is not what was written");
        warm(self, id);
        LIG_TRY(read_once(self, id, &warm_s[i]));
        LIG_TRY(self->ops->pack_remove(self->volume, id));
    }
    for (size_t i = 0; i < self->commits; i++)
        LIG_TRY(commit_once(self, i, &commit_s[i]));
    printf("{\"count\": %llu, \"bytes\": %llu, ", (unsigned long long)self->count,
           (unsigned long long)self->bytes);
    show("write_s", write_s, self->repeat, ", ");
    show("cold_s", cold_s, self->repeat, ", ");
    show("commit_s", commit_s, self->commits, ", ");
    show("warm_s", warm_s, self->repeat, "}\n");
    return LIG_OK;
}

int main(int count, char **words)
{
    bench self = {.options = "", .scheme = "file", .shift = 64, .repeat = 5};
    const lig_backend_ops *backend;
    char config[4200];

    if (parse(&self, count, words) != 0 || set_service_credentials() != LIG_OK) {
        fprintf(stderr, "volume FOLDER COUNT BYTES [shift=N] [repeat=N] [options=QUERY] "
                        "[scheme=NAME] [commits=N]\n");
        return 2;
    }
    prepare(&self);
    snprintf(config, sizeof config, "%s?%s", self.folder, self.options);
    lig_status status = ligi_backend_open_raw(self.scheme, config, &backend, &self.volume);
    if (status == LIG_OK) {
        self.ops = backend->volume;
        status = run(&self);
        ligi_backend_close_raw(backend, self.volume);
    }
    if (status != LIG_OK)
        fprintf(stderr, "volume: %s\n", lig_error_text());
    return status != LIG_OK;
}
