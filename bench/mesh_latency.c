/* push_pull + respond between two processes: mesh_latency [transport] [spin_us] prints one line a
 * size, as JSON: median and 99th percentile of a round trip, and bytes a second both ways.
 *
 *   mesh_latency shm            8 B, 4 KiB, 64 KiB, 1 MiB, 64 MiB, the reply as large as the push
 *   mesh_latency shm 20 empty   the pushed tensor lies in shared memory, the reply has 8 bytes
 *   mesh_latency shm 20 plain 8 3000000     one size, so many rounds: to profile it */
#include <ligament/mesh.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

static void need(lig_status status)
{
    if (status == LIG_OK)
        return;
    fprintf(stderr, "%s\n", lig_error_text());
    exit(1);
}

static lig_mesh *open_mesh(uint32_t role, const char *address, const char *transport,
                           int64_t spin_ns)
{
    lig_mesh_options options = LIG_MESH_OPTIONS_INIT;
    lig_mesh *mesh;
    options.role = role;
    options.rank = 0;
    options.address = address;
    options.transport = transport;
    options.spin_ns = spin_ns;
    need(lig_mesh_open(&mesh, &options));
    return mesh;
}

static void serve(lig_mesh *mesh)
{
    for (;;) {
        lig_mesh_arrival arrival;
        size_t count;
        lig_status status =
            lig_mesh_get_batch(mesh, LIG_MESH_ALL, LIG_FOREVER, &arrival, 1, &count);
        if (status == LIG_E_CLOSED || status == LIG_E_PEER)
            break;
        need(status);
        lig_tensor answer = arrival.pulls[0];
        answer.data = arrival.tensors[0].data;
        need(lig_mesh_respond(mesh, arrival.handler, &answer, 1, 10 * SECOND));
    }
    lig_mesh_stop(mesh, 10 * SECOND);
    lig_mesh_close(mesh);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void *memory(lig_mesh *mesh, int shared, size_t bytes)
{
    void *data = NULL;
    if (shared)
        need(lig_mesh_empty(mesh, bytes, &data));
    else if (posix_memalign(&data, 4096, bytes < 4096 ? 4096 : bytes) != 0)
        exit(1);
    memset(data, 1, bytes);
    return data;
}

static void measure(lig_mesh *mesh, size_t bytes, int shared, size_t rounds)
{
    if (rounds == 0)
        rounds = bytes <= 65536 || shared ? 20000 : bytes <= 1 << 20 ? 500 : 12;
    size_t back = shared ? 8 : bytes;
    uint64_t *times = calloc(rounds, sizeof *times);
    void *push = memory(mesh, shared, bytes), *pull = memory(mesh, 0, back);
    int64_t elements = (int64_t)bytes, answers = (int64_t)back;
    lig_tensor from = {
        .data = push, .bytes = bytes, .shape = &elements, .ndim = 1, .dtype = LIG_UINT8};
    lig_tensor to = {.data = pull, .bytes = back, .shape = &answers, .ndim = 1, .dtype = LIG_UINT8};
    uint64_t key = 1, handler, began = lig_mesh_nanosecond();
    lig_mesh_request request = {&from, &key, 1, &to, &key, 1};
    for (size_t i = 0; i < rounds + rounds / 10 + 2; i++) {
        uint64_t start = lig_mesh_nanosecond();
        need(lig_mesh_push_pull(mesh, &request, &handler));
        need(lig_mesh_wait(mesh, handler, 10 * SECOND));
        times[i % rounds] = lig_mesh_nanosecond() - start;
        if (i == rounds / 10 + 1)
            began = lig_mesh_nanosecond();
    }
    double seconds = (double)(lig_mesh_nanosecond() - began) / 1e9;
    qsort(times, rounds, sizeof *times, compare);
    printf("{\"bytes\": %zu, \"p50_us\": %.3f, \"p99_us\": %.3f, \"bytes_per_s\": %.0f}\n", bytes,
           (double)times[rounds / 2] / 1e3, (double)times[rounds * 99 / 100] / 1e3,
           (double)(bytes + back) * (double)rounds / seconds);
    fflush(stdout);
    if (shared)
        lig_mesh_free(mesh, push);
    else
        free(push);
    free(pull);
    free(times);
}

int main(int count, char **arguments)
{
    static const size_t sizes[] = {8, 4096, 65536, 1 << 20, 64 << 20};
    const char *transport = count > 1 ? arguments[1] : "auto";
    int64_t spin_ns = count > 2 ? atol(arguments[2]) * 1000 : 20000;
    int shared = count > 3 && strcmp(arguments[3], "empty") == 0;
    char address[64];
    snprintf(address, sizeof address, "shm:mesh-latency-%d", (int)getpid());
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(open_mesh(LIG_MESH_SERVER, address, transport, spin_ns));
        return 0;
    }
    lig_mesh *mesh = open_mesh(LIG_MESH_WORKER, address, transport, spin_ns);
    for (size_t i = 0; count <= 5 && i < sizeof sizes / sizeof *sizes; i++)
        measure(mesh, sizes[i], shared, 0);
    if (count > 5)
        measure(mesh, strtoul(arguments[4], NULL, 10), shared, strtoul(arguments[5], NULL, 10));
    lig_mesh_stop(mesh, 10 * SECOND);
    lig_mesh_close(mesh);
    int ended;
    waitpid(child, &ended, 0);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : 1;
}
