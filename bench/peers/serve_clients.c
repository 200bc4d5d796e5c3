/* Many clients of one store, or of a Redis server: each a thread with a connection of its own.
 *
 *     serve_clients URI|redis:PORT read|save|mixed CLIENTS SECONDS
 *
 * prints one line of JSON. `read`: one tensor of 4 KiB. `save`: a model of 16 KiB, in place of the
 * client's one before. `mixed`: of eight requests one is a save, one a look at a model's
 * description, the others are reads. A save of Redis is SET, a read GET. */
#include <ligament/ligament.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 4096, SAVE_BYTES = 16384, CLIENTS_MAX = 256, SAMPLES_MAX = 1 << 20 };

typedef enum action { READ, SAVE, LOOK } action;

typedef struct bench {
    const char *uri, *mode;
    uint16_t port; /* of Redis; 0: a store */
    double seconds;
    pthread_barrier_t start;
} bench;

typedef struct client {
    bench *all;
    int number, connection;
    lig_store *store;
    char name[32];
    uint64_t *samples; /* ns */
    size_t count, errors;
    uint64_t took_ns;
    uint8_t bytes[SAVE_BYTES + 128];
} client;

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* --- a store --- */

static lig_tensor tensor_of(client *self, uint64_t bytes, int64_t *shape)
{
    *shape = (int64_t)bytes;
    return (lig_tensor){.name = "w",
                        .data = self->bytes,
                        .bytes = bytes,
                        .shape = shape,
                        .ndim = 1,
                        .dtype = LIG_UINT8};
}

static int failed(lig_status status)
{
    if (status != LIG_OK)
        fprintf(stderr, "serve_clients: %s\n", lig_error_text());
    return status != LIG_OK;
}

static int store_save(client *self, const char *name, uint64_t bytes)
{
    int64_t shape;
    lig_tensor tensor = tensor_of(self, bytes, &shape);
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    memcpy(self->bytes, &self->count, sizeof self->count); /* other bytes every time */
    memcpy(self->bytes + sizeof self->count, &self->number, sizeof self->number);
    return failed(lig_store_save(self->store, name, &tensor, 1, &options));
}

static int store_act(client *self, action what)
{
    int64_t shape;
    lig_model *model;
    if (what == SAVE)
        return store_save(self, self->name, SAVE_BYTES);
    if (what == READ) {
        lig_tensor tensor = tensor_of(self, READ_BYTES, &shape);
        return failed(lig_store_load(self->store, "read", &tensor, 1));
    }
    if (failed(lig_store_model(self->store, "read", &model)))
        return 1;
    lig_model_destroy(model);
    return 0;
}

/* --- Redis --- */

static int exchange(int fd, const void *request, size_t bytes, size_t reply_bytes)
{
    char reply[READ_BYTES + 64];
    const char *at = request;
    while (bytes) {
        ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
        if (sent <= 0)
            return 1;
        at += sent;
        bytes -= (size_t)sent;
    }
    for (size_t got = 0; got < reply_bytes;) {
        ssize_t part = recv(fd, reply + got, reply_bytes - got, 0);
        if (part <= 0 || (got == 0 && reply[0] == '-'))
            return 1;
        got += (size_t)part;
    }
    return 0;
}

static int redis_set(client *self, const char *key, size_t bytes)
{
    char *request = (char *)self->bytes;
    int head = snprintf(request, sizeof self->bytes, "*3\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu\r\n",
                        strlen(key), key, bytes);
    memcpy(request + head + bytes, "\r\n", 2);
    return exchange(self->connection, request, (size_t)head + bytes + 2, strlen("+OK\r\n"));
}

static int redis_act(client *self, action what)
{
    static const char get[] = "*2\r\n$3\r\nGET\r\n$4\r\nread\r\n";
    if (what == SAVE)
        return redis_set(self, self->name, SAVE_BYTES);
    return exchange(self->connection, get, strlen(get), strlen("$4096\r\n\r\n") + READ_BYTES);
}

static int redis_connect(client *self)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(self->all->port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    self->connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (self->connection < 0 ||
        connect(self->connection, (const struct sockaddr *)&address, sizeof address) != 0) {
        perror("serve_clients: Redis");
        return 1;
    }
    (void)setsockopt(self->connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return 0;
}

/* --- both --- */

static int open_client(client *self)
{
    snprintf(self->name, sizeof self->name, "client-%d", self->number);
    self->connection = -1;
    self->samples = malloc(SAMPLES_MAX * sizeof *self->samples);
    if (self->samples == NULL)
        return 1;
    if (self->all->port)
        return redis_connect(self) ||
               (self->number == 0 && redis_set(self, "read", READ_BYTES) != 0);
    return failed(lig_store_open(&self->store, self->all->uri)) ||
           (self->number == 0 && store_save(self, "read", READ_BYTES) != 0);
}

static void close_client(client *self)
{
    lig_store_close(self->store);
    if (self->connection >= 0)
        close(self->connection);
    free(self->samples);
}

static action choose(const client *self)
{
    const char *mode = self->all->mode;
    size_t turn = (self->count + (size_t)self->number) % 8;
    if (strcmp(mode, "mixed") != 0)
        return strcmp(mode, "save") == 0 ? SAVE : READ;
    return turn == 0 ? SAVE : turn == 4 ? LOOK : READ;
}

static void *run_client(void *context)
{
    client *self = context;
    pthread_barrier_wait(&self->all->start);
    uint64_t begin = now_ns(), end = begin + (uint64_t)(self->all->seconds * 1e9), at = begin;
    while (at < end && self->count < SAMPLES_MAX) {
        action what = choose(self);
        self->errors += self->all->port ? redis_act(self, what) != 0 : store_act(self, what) != 0;
        uint64_t next = now_ns();
        self->samples[self->count++] = next - at;
        at = next;
    }
    self->took_ns = at - begin;
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static int report(const client *clients, int client_count)
{
    size_t count = 0, errors = 0, at = 0;
    double rate = 0;
    for (int i = 0; i < client_count; i++) {
        count += clients[i].count;
        errors += clients[i].errors;
        rate += (double)clients[i].count / ((double)clients[i].took_ns / 1e9);
    }
    uint64_t *all = malloc((count + 1) * sizeof *all);
    if (all == NULL || count == 0) {
        free(all);
        return 1;
    }
    for (int i = 0; i < client_count; at += clients[i++].count)
        memcpy(all + at, clients[i].samples, clients[i].count * sizeof *all);
    qsort(all, count, sizeof *all, by_value);
    printf("{\"requests\": %zu, \"errors\": %zu, \"per_s\": %.1f, \"p50_us\": %.2f, "
           "\"p99_us\": %.2f}\n",
           count, errors, rate, (double)all[count / 2] / 1e3, (double)all[count * 99 / 100] / 1e3);
    free(all);
    return 0;
}

/* Threads are started once all are connected, so that none waits at the barrier for ever. */
static int run(bench *self, client *clients, int count)
{
    pthread_t threads[CLIENTS_MAX];
    for (int i = 0; i < count; i++) {
        clients[i].all = self;
        clients[i].number = i;
        if (open_client(&clients[i]) != 0)
            return 1;
    }
    pthread_barrier_init(&self->start, NULL, (unsigned)count);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run_client, &clients[i]) != 0)
            abort();
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&self->start);
    return report(clients, count);
}

int main(int argc, char **argv)
{
    int count = argc == 5 ? atoi(argv[3]) : 0;
    if (count < 1 || count > CLIENTS_MAX) {
        fprintf(stderr, "usage: serve_clients URI|redis:PORT read|save|mixed CLIENTS SECONDS\n");
        return 2;
    }
    bench self = {.uri = argv[1], .mode = argv[2], .seconds = strtod(argv[4], NULL)};
    if (strncmp(argv[1], "redis:", 6) == 0)
        self.port = (uint16_t)strtoul(argv[1] + 6, NULL, 10);
    client *clients = calloc((size_t)count, sizeof *clients);
    if (clients == NULL)
        return 1;
    int wrong = run(&self, clients, count);
    for (int i = 0; i < count; i++)
        close_client(&clients[i]);
    free(clients);
    return wrong;
}
