/* The limit of talk between two processes of one host: a line of shared memory handed to and fro,
 * the bare ring of the shm transport (no frames, no sockets, no dispatch), and memcpy.
 *
 *     ring_limit [rounds=N] [repeat=N] [spin_us=N]
 *
 * prints one line of JSON. Latencies are round trips in microseconds, for each way of waiting:
 * "spin" never sleeps, "bell" spins spin_us and then sleeps in poll on a Unix socket (the
 * transport's way), "event" the same on an eventfd, "futex" on the ring's flag itself. Rates are
 * GB/s of one direction: a large message from memory into memory, answered by 8 bytes. */
#include "base/clock.h"
#include "net/shm/ring.h"

#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SPIN, BELL, EVENT, FUTEX, WAYS };
enum { CHUNK = 128 << 10, ROUNDS_MAX = 1000000 };
#define LARGE (UINT64_C(64) << 20)

static const char *const way_names[WAYS] = {"spin", "bell", "event", "futex"};
static const ligi_ring_shape shape = {LIGI_RING_FIRST_BYTES, LIGI_RING_FULL_BYTES};

typedef struct side {
    ligi_ring out, in;
    int bell, event, other_event, way;
    uint64_t spin_ns;
} side;

typedef struct limit {
    uint8_t *shared; /* the line, then two rings */
    uint8_t *data;   /* LARGE bytes */
    uint64_t rounds, repeat, spin_us;
    int bells[2], events[2];
    uint64_t *times;
} limit;

static uint64_t now(void)
{
    return (uint64_t)ligi_now_ns();
}

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void wake(side *self, _Atomic uint32_t *flag)
{
    uint64_t one = 1;
    if (self->way == BELL)
        (void)!send(self->bell, &one, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    else if (self->way == EVENT)
        (void)!write(self->other_event, &one, sizeof one);
    else
        syscall(SYS_futex, flag, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void doze(side *self, _Atomic uint32_t *flag)
{
    struct pollfd bell = {.fd = self->way == BELL ? self->bell : self->event, .events = POLLIN};
    uint64_t count;
    if (self->way == FUTEX) {
        syscall(SYS_futex, flag, FUTEX_WAIT, 1, NULL, NULL, 0);
        return;
    }
    (void)!poll(&bell, 1, -1);
    (void)!read(bell.fd, &count, sizeof count);
}

/* Waits in the configured mode. Returns 1 when it is time to sleep. */
static int tired(const side *self, unsigned turn, uint64_t *until)
{
    pause_cpu();
    if (self->way == SPIN || turn % 16 != 15)
        return 0;
    *until = *until != 0 ? *until : now() + self->spin_ns;
    if (now() < *until)
        return 0;
    *until = 0;
    return 1;
}

static size_t ready(side *self, size_t want)
{
    size_t bytes = 0;
    uint64_t until = 0;

    for (unsigned turn = 0;; turn++) {
        if (ligi_ring_ready(&self->in, want, &bytes) != LIG_OK)
            exit(1);
        if (bytes >= want)
            return bytes;
        if (!tired(self, turn, &until))
            continue;
        if (!ligi_ring_reader_sleeps(&self->in, want))
            doze(self, &self->in.control->reader_sleeps);
        ligi_ring_reader_awake(&self->in);
    }
}

static size_t room(side *self, size_t want)
{
    size_t bytes = 0;
    uint64_t until = 0;

    for (unsigned turn = 0;; turn++) {
        if (ligi_ring_room(&self->out, want, &bytes) != LIG_OK)
            exit(1);
        if (bytes >= want)
            return bytes;
        if (!tired(self, turn, &until))
            continue;
        if (!ligi_ring_writer_sleeps(&self->out, want))
            doze(self, &self->out.control->writer_sleeps);
        ligi_ring_writer_awake(&self->out);
    }
}

static void send_all(side *self, const uint8_t *data, size_t bytes)
{
    if (bytes > LIGI_RING_FIRST_BYTES / 2)
        ligi_ring_grow(&self->out);
    for (size_t at = 0; at < bytes;) {
        size_t piece = bytes - at < CHUNK ? bytes - at : CHUNK;
        (void)room(self, piece);
        int timed = ligi_ring_paced(&self->out, piece);
        uint64_t began = timed ? now() : 0;
        ligi_ring_put(&self->out, data + at, piece);
        if (timed)
            ligi_ring_pace(&self->out, piece, (int64_t)(now() - began));
        if (ligi_ring_publish(&self->out))
            wake(self, &self->out.control->reader_sleeps);
        at += piece;
    }
}

static void receive_all(side *self, uint8_t *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t piece = bytes - at < CHUNK ? bytes - at : CHUNK;
        size_t there = ready(self, bytes - at < 4096 ? piece : 1);
        piece = piece < there ? piece : there;
        ligi_ring_get(&self->in, data + at, piece);
        if (ligi_ring_release(&self->in))
            wake(self, &self->in.control->writer_sleeps);
        at += piece;
    }
}

static void side_init(const limit *self, int which, int way, side *end)
{
    uint8_t *rings[2] = {self->shared + 4096, self->shared + 4096 + ligi_ring_bytes(shape)};

    ligi_ring_attach(&end->out, rings[which], shape);
    ligi_ring_attach(&end->in, rings[1 - which], shape);
    end->bell = self->bells[which];
    end->event = self->events[which];
    end->other_event = self->events[1 - which];
    end->way = way;
    end->spin_ns = self->spin_us * 1000;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void print_times(limit *self, uint64_t rounds)
{
    qsort(self->times, rounds, sizeof *self->times, by_value);
    printf("{\"p50\": %.3f, \"p99\": %.3f}", (double)self->times[rounds / 2] / 1e3,
           (double)self->times[rounds * 99 / 100] / 1e3);
}

/* `bytes` to the other process, `back` from it. */
static void talk(limit *self, int way, size_t bytes, size_t back, uint64_t rounds)
{
    side end;

    memset(self->shared, 0, 4096 + 2 * ligi_ring_bytes(shape));
    pid_t child = fork();
    if (child < 0)
        exit(1);
    side_init(self, child == 0, way, &end);
    for (uint64_t round = 0; round < rounds + rounds / 10; round++) {
        uint64_t begin = now();
        if (child == 0)
            receive_all(&end, self->data, bytes);
        else
            send_all(&end, self->data, bytes);
        if (child == 0)
            send_all(&end, self->data, back);
        else
            receive_all(&end, self->data, back);
        if (round >= rounds / 10)
            self->times[round - rounds / 10] = now() - begin;
    }
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
}

/* What no ring can beat: two processes hand one line of memory to each other. */
static void hand_line(limit *self)
{
    _Atomic uint64_t *line = (_Atomic uint64_t *)(void *)self->shared;

    memset(self->shared, 0, 4096);
    pid_t child = fork();
    if (child < 0)
        exit(1);
    for (uint64_t round = 0; round < self->rounds; round++) {
        uint64_t begin = now(), mine = 2 * round + (child == 0);
        while (atomic_load_explicit(line, memory_order_acquire) != mine)
            pause_cpu();
        atomic_store_explicit(line, mine + 1, memory_order_release);
        self->times[round] = now() - begin;
    }
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
}

static void print_latencies(limit *self)
{
    static const size_t sizes[] = {8, 4096, 65536};

    printf("\"line\": ");
    hand_line(self);
    print_times(self, self->rounds);
    for (int way = 0; way < WAYS; way++)
        for (size_t i = 0; i < 3; i++) {
            printf(", \"ring_%s_%zu\": ", way_names[way], sizes[i]);
            fflush(stdout);
            talk(self, way, sizes[i], sizes[i], self->rounds);
            print_times(self, self->rounds);
        }
}

static void print_rates(limit *self)
{
    static const uint64_t sizes[] = {UINT64_C(1) << 20, LARGE};

    for (size_t i = 0; i < 2; i++) {
        uint64_t rounds = self->repeat * (LARGE / sizes[i]);
        rounds = rounds < 400 ? rounds : 400;
        talk(self, BELL, sizes[i], 8, rounds);
        qsort(self->times, rounds, sizeof *self->times, by_value);
        printf(", \"ring_gbs_%llu\": %.2f", (unsigned long long)sizes[i],
               (double)sizes[i] / (double)self->times[rounds / 2]);
        uint8_t *copy = aligned_alloc(4096, sizes[i]);
        if (copy == NULL)
            exit(1);
        memset(copy, 1, sizes[i]);
        for (uint64_t round = 0; round < rounds; round++) {
            uint64_t begin = now();
            memcpy(copy, self->data, sizes[i]);
            __asm__ volatile("" : : "r"(copy) : "memory");
            self->times[round] = now() - begin;
        }
        qsort(self->times, rounds, sizeof *self->times, by_value);
        printf(", \"memcpy_gbs_%llu\": %.2f", (unsigned long long)sizes[i],
               (double)sizes[i] / (double)self->times[rounds / 2]);
        free(copy);
    }
}

static int read_arguments(limit *self, int count, char **arguments)
{
    for (int i = 1; i < count; i++) {
        unsigned long long value;
        if (sscanf(arguments[i], "rounds=%llu", &value) == 1 && value > 0 && value <= ROUNDS_MAX)
            self->rounds = value;
        else if (sscanf(arguments[i], "repeat=%llu", &value) == 1 && value > 0 && value <= 1000)
            self->repeat = value;
        else if (sscanf(arguments[i], "spin_us=%llu", &value) == 1 && value <= 1000000)
            self->spin_us = value;
        else
            return fprintf(stderr, "ring_limit: '%s' is not an argument\n", arguments[i]);
    }
    return 0;
}

int main(int count, char **arguments)
{
    limit self = {.rounds = 50000, .repeat = 11, .spin_us = 20};
    size_t bytes = 4096 + 2 * ligi_ring_bytes(shape);

    if (read_arguments(&self, count, arguments) != 0)
        return 2;
    self.shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    self.data = aligned_alloc(4096, LARGE);
    self.times = calloc(ROUNDS_MAX, sizeof *self.times);
    self.events[0] = eventfd(0, EFD_CLOEXEC);
    self.events[1] = eventfd(0, EFD_CLOEXEC);
    if (self.shared == MAP_FAILED || self.data == NULL || self.times == NULL ||
        self.events[1] < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, self.bells) != 0)
        return 1;
    memset(self.data, 1, LARGE);
    printf("{");
    print_latencies(&self);
    print_rates(&self);
    printf("}\n");
    return 0;
}
