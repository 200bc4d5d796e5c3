/* The limit: moves bytes between a few reused buffers and a file by io_uring with O_DIRECT, and
 * nothing else. Durable write (to the end of fsync) and cold read.
 *
 *     limit FOLDER BYTES [block=BYTES] [depth=N] [repeat=N] [prealloc=0|1] [pause=MS] [file=PATH]
 *
 * With `file` it reads that one and writes nothing. It prints one line of JSON: {"bytes": ..,
 * "block": .., "depth": .., "prealloc": .., "write_s": [..], "read_s": [..]} */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#if !defined(LIGI_HAVE_URING) && __has_include(<liburing.h>)
#define LIGI_HAVE_URING 1
#endif

#if LIGI_HAVE_URING
#include <liburing.h>

#define DEPTH_MAX 64
#define REPEAT_MAX 100
#define ALIGN 4096
#define HUGE (UINT64_C(2) << 20)

typedef struct limit {
    char path[4096];
    uint64_t bytes, block;
    unsigned depth, repeat, pause;
    int prealloc, fixed, foreign;
    struct io_uring ring;
    struct iovec buffers[DEPTH_MAX];
} limit;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int say(const char *what, int number)
{
    fprintf(stderr, "limit: %s: %s\n", what, strerror(number));
    return 1;
}

static int submit(limit *self, int fd, int write, unsigned slot, uint64_t offset)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&self->ring);
    uint64_t left = self->bytes - offset;
    unsigned length = (unsigned)(left < self->block ? left : self->block);
    void *data = self->buffers[slot].iov_base;

    length = (length + ALIGN - 1) & ~(unsigned)(ALIGN - 1);
    if (self->fixed && write)
        io_uring_prep_write_fixed(entry, fd, data, length, offset, (int)slot);
    else if (self->fixed)
        io_uring_prep_read_fixed(entry, fd, data, length, offset, (int)slot);
    else if (write)
        io_uring_prep_write(entry, fd, data, length, offset);
    else
        io_uring_prep_read(entry, fd, data, length, offset);
    io_uring_sqe_set_data64(entry, slot);
    int submitted = io_uring_submit(&self->ring);
    return submitted < 0 ? say("submit", -submitted) : 0;
}

/* Keeps `depth` transfers in flight from the first byte to the last. */
static int transfer(limit *self, int fd, int write)
{
    uint64_t next = 0;
    unsigned flying = 0;
    struct io_uring_cqe *done;

    while (flying < self->depth && next < self->bytes) {
        if (submit(self, fd, write, flying, next) != 0)
            return 1;
        flying++;
        next += self->block;
    }
    while (flying > 0) {
        int failed = io_uring_wait_cqe(&self->ring, &done);
        if (failed == -EINTR)
            continue;
        if (failed < 0 || done->res <= 0)
            return say("transfer", failed < 0 ? -failed : -done->res);
        unsigned slot = (unsigned)io_uring_cqe_get_data64(done);
        io_uring_cqe_seen(&self->ring, done);
        flying--;
        if (next >= self->bytes)
            continue;
        if (submit(self, fd, write, slot, next) != 0)
            return 1;
        flying++;
        next += self->block;
    }
    return 0;
}

/* A shared disk gives more to those who rest in between: the limit must rest as long as what is
 * compared with it. */
static void rest(const limit *self)
{
    sync();
    (void)!poll(NULL, 0, (int)self->pause);
}

static int write_once(limit *self, double *seconds)
{
    unlink(self->path);
    rest(self);
    double start = now();
    int fd = open(self->path, O_CREAT | O_EXCL | O_RDWR | O_DIRECT | O_CLOEXEC, 0644);
    if (fd < 0)
        return say(self->path, errno);
    if (self->prealloc && fallocate(fd, 0, 0, (off_t)self->bytes) != 0)
        return say("fallocate", errno);
    int failed = transfer(self, fd, 1);
    if (!failed && (ftruncate(fd, (off_t)self->bytes) != 0 || fsync(fd) != 0))
        failed = say("fsync", errno);
    close(fd);
    *seconds = now() - start;
    return failed;
}

static int read_once(limit *self, double *seconds)
{
    rest(self);
    double start = now();
    int fd = open(self->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0)
        return say(self->path, errno);
    int failed = transfer(self, fd, 0);
    close(fd);
    *seconds = now() - start;
    return failed;
}

static int parse(limit *self, int count, char **words)
{
    char *end;

    if (count < 3)
        return 1;
    snprintf(self->path, sizeof self->path, "%s/limit-%ld", words[1], (long)getpid());
    self->bytes = strtoull(words[2], &end, 10);
    for (int i = 3; i < count; i++) {
        char *value = strchr(words[i], '=');
        if (value == NULL)
            return 1;
        *value++ = '\0';
        if (strcmp(words[i], "file") == 0) {
            snprintf(self->path, sizeof self->path, "%s", value);
            self->foreign = 1;
            continue;
        }
        uint64_t number = strtoull(value, &end, 10);
        if (strcmp(words[i], "block") == 0)
            self->block = number;
        else if (strcmp(words[i], "depth") == 0)
            self->depth = (unsigned)number;
        else if (strcmp(words[i], "repeat") == 0)
            self->repeat = (unsigned)number;
        else if (strcmp(words[i], "pause") == 0)
            self->pause = (unsigned)number;
        else if (strcmp(words[i], "prealloc") == 0)
            self->prealloc = (int)number;
        else
            return 1;
    }
    return self->bytes == 0 || self->block % ALIGN != 0 || self->block == 0 || self->depth == 0 ||
           self->depth > DEPTH_MAX || self->repeat == 0 || self->repeat > REPEAT_MAX;
}

static int prepare(limit *self)
{
    int failed = io_uring_queue_init(DEPTH_MAX, &self->ring, 0);
    if (failed < 0)
        return say("io_uring", -failed);
    /* Huge pages: a transfer of scattered small ones is cut at the device's number of segments. */
    uint64_t bytes = (self->depth * self->block + HUGE - 1) / HUGE * HUGE;
    uint8_t *base = aligned_alloc(HUGE, bytes);
    if (base == NULL)
        return say("memory", ENOMEM);
    madvise(base, bytes, MADV_HUGEPAGE);
    for (unsigned i = 0; i < self->depth; i++) {
        self->buffers[i].iov_len = self->block;
        self->buffers[i].iov_base = base + i * self->block;
        memset(self->buffers[i].iov_base, (int)i + 1, self->block);
    }
    self->fixed = io_uring_register_buffers(&self->ring, self->buffers, self->depth) == 0;
    return 0;
}

static void show(const char *name, const double *seconds, unsigned count, const char *end)
{
    printf("\"%s\": [", name);
    for (unsigned i = 0; i < count; i++)
        printf("%s%.6f", i == 0 ? "" : ", ", seconds[i]);
    printf("]%s", end);
}

int main(int count, char **words)
{
    static limit self = {.block = 1 << 20, .depth = 16, .repeat = 5, .prealloc = 1};
    double write_s[REPEAT_MAX], read_s[REPEAT_MAX];

    if (parse(&self, count, words) != 0) {
        fprintf(stderr, "limit FOLDER BYTES [block=BYTES] [depth=N] [repeat=N] [prealloc=0|1] "
                        "[pause=MS] [file=PATH]\n");
        return 2;
    }
    if (prepare(&self) != 0)
        return 1;
    int failed = 0;
    for (unsigned i = 0; i < self.repeat && !failed; i++)
        failed = (!self.foreign && write_once(&self, &write_s[i]) != 0) ||
                 read_once(&self, &read_s[i]) != 0;
    if (!self.foreign)
        unlink(self.path);
    if (failed)
        return 1;
    printf("{\"bytes\": %llu, \"block\": %llu, \"depth\": %u, \"prealloc\": %d, ",
           (unsigned long long)self.bytes, (unsigned long long)self.block, self.depth,
           self.prealloc);
    show("write_s", write_s, self.foreign ? 0 : self.repeat, ", ");
    show("read_s", read_s, self.repeat, "}\n");
    return 0;
}
#else
int main(void)
{
    fprintf(stderr, "limit: this build has no io_uring\n");
    return 1;
}
#endif
