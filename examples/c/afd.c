/* Runs the attention and the feed-forward layers of a transformer in separate processes: the C
 * version of examples/python/afd.py.
 *
 * Without a launcher, it starts a server and two workers itself; under `ligament launch -w 2 -s 1
 * -- ./afd` it takes the role in DMLC_ROLE. Three micro-batches are in flight. The result is
 * compared with the same model in one process, and worker 0 prints the time spent in each part of
 * a request. */
#define _GNU_SOURCE
#include <ligament/ligament.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAYERS = 4, WIDTH = 64, TOKENS = 16, MICRO_BATCHES = 3, STEPS = 20, WORKERS = 2 };
#define SECOND INT64_C(1000000000)

typedef float states[TOKENS][WIDTH];

static const char *const parts[] = {"send",    "to the server", "queue",        "compute",
                                    "respond", "back",          "wait notified"};

static void need(lig_status status)
{
    if (status == LIG_OK)
        return;
    fprintf(stderr, "%s\n", lig_error_text());
    exit(1);
}

/* Weights computed from their indexes, so that they are the same in every process. */
static float weight(int layer, int i, int j)
{
    uint32_t mixed = (uint32_t)(layer * 7919 + i * 104729 + j * 1299709);
    mixed = (mixed ^ (mixed >> 13)) * 1274126177u;
    return ((float)(mixed >> 8) / (float)(1 << 24) - 0.5f) / 4;
}

static void multiply(int layer, const states in, states out)
{
    for (int t = 0; t < TOKENS; t++)
        for (int j = 0; j < WIDTH; j++) {
            float sum = 0;
            for (int i = 0; i < WIDTH; i++)
                sum += in[t][i] * weight(layer, i, j);
            out[t][j] = sum;
        }
}

/* Every token attends to those before it with equal weights, which suffices for an example. */
static void attention(int layer, const states in, states out)
{
    states seen;
    for (int i = 0; i < WIDTH; i++) {
        float sum = 0;
        for (int t = 0; t < TOKENS; t++) {
            sum += in[t][i];
            seen[t][i] = sum / (float)(t + 1);
        }
    }
    multiply(layer, (const float (*)[WIDTH])seen, out);
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < WIDTH; i++)
            out[t][i] += in[t][i];
}

static void feed_forward(int layer, const states in, states out)
{
    multiply(1000 + layer, in, out);
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < WIDTH; i++)
            out[t][i] = in[t][i] + (out[t][i] > 0 ? out[t][i] : 0);
}

static lig_tensor view(void *data)
{
    static const int64_t shape[2] = {TOKENS, WIDTH};
    return (lig_tensor){
        .data = data, .bytes = sizeof(states), .shape = shape, .ndim = 2, .dtype = LIG_FLOAT32};
}

static void serve(lig_mesh *mesh, uint32_t workers)
{
    lig_mesh_arrival *batch = calloc(workers, sizeof *batch);
    for (;;) {
        size_t count;
        lig_status status =
            lig_mesh_get_batch(mesh, LIG_MESH_ALL, LIG_FOREVER, batch, workers, &count);
        if (status == LIG_E_CLOSED) /* the workers have stopped */
            break;
        need(status);
        for (size_t i = 0; i < count; i++) {
            states out;
            feed_forward((int)(batch[i].keys[0] >> 8), batch[i].tensors[0].data, out);
            lig_tensor answer = view(out);
            need(lig_mesh_respond(mesh, batch[i].handler, &answer, 1, 10 * SECOND));
        }
    }
    free(batch);
}

static void compare(const states input, const states got)
{
    states x, y;
    memcpy(x, input, sizeof x);
    for (int layer = 0; layer < LAYERS; layer++) {
        attention(layer, (const float (*)[WIDTH])x, y);
        feed_forward(layer, (const float (*)[WIDTH])y, x);
    }
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < WIDTH; i++)
            if (fabsf(x[t][i] - got[t][i]) > 1e-4f * (1 + fabsf(x[t][i]))) {
                fprintf(stderr, "token %d differs from the one-process model\n", t);
                exit(1);
            }
}

/* One layer of all micro-batches: each is sent as soon as its attention is computed. */
static void layer_of_all(lig_mesh *mesh, int layer, states *state, states *pushed, double *spent)
{
    uint64_t handlers[MICRO_BATCHES], stamps[LIG_MESH_STAMPS];
    for (int i = 0; i < MICRO_BATCHES; i++) {
        attention(layer, (const float (*)[WIDTH])state[i], pushed[i]);
        lig_tensor push = view(pushed[i]), pull = view(state[i]);
        uint64_t key = (uint64_t)layer << 8 | (uint64_t)i;
        lig_mesh_request request = {&push, &key, 1, &pull, &key, 1};
        need(lig_mesh_push_pull(mesh, &request, &handlers[i]));
    }
    for (int i = 0; i < MICRO_BATCHES; i++) {
        need(lig_mesh_wait(mesh, handlers[i], 10 * SECOND));
        need(lig_mesh_fetch_trace(mesh, handlers[i], stamps));
        for (int p = 0; p < LIG_MESH_STAMPS - 1; p++)
            spent[p] += (double)(stamps[p + 1] - stamps[p]);
    }
}

static void work(lig_mesh *mesh)
{
    states inputs[MICRO_BATCHES], state[MICRO_BATCHES];
    double spent[LIG_MESH_STAMPS] = {0}, all = 0;
    void *shared;
    need(lig_mesh_empty(mesh, sizeof(states[MICRO_BATCHES]), &shared));
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < MICRO_BATCHES; i++)
            for (int t = 0; t < TOKENS; t++)
                for (int j = 0; j < WIDTH; j++)
                    inputs[i][t][j] = 4 * weight(step * 10 + i + 5000, t, j);
        memcpy(state, inputs, sizeof state);
        for (int layer = 0; layer < LAYERS; layer++)
            layer_of_all(mesh, layer, state, shared, spent);
        for (int i = 0; i < MICRO_BATCHES; i++)
            compare((const float (*)[WIDTH])inputs[i], (const float (*)[WIDTH])state[i]);
    }
    lig_mesh_free(mesh, shared);
    if (lig_mesh_rank(mesh) != 0)
        return;
    int requests = STEPS * LAYERS * MICRO_BATCHES;
    printf("%d requests, equal to the one-process model; mean by part:\n", requests);
    for (int p = 0; p < LIG_MESH_STAMPS - 1; p++) {
        printf("  %-14s %9.1f us\n", parts[p], spent[p] / 1e3 / requests);
        all += spent[p];
    }
    printf("  %-14s %9.1f us\n", "request", all / 1e3 / requests);
}

static int play(const lig_mesh_options *options)
{
    lig_mesh *mesh;
    need(lig_mesh_open(&mesh, options));
    if (options->role == LIG_MESH_SERVER)
        serve(mesh, options->worker_count);
    else if (options->role == LIG_MESH_WORKER)
        work(mesh);
    need(lig_mesh_stop(mesh, 60 * SECOND));
    lig_mesh_close(mesh);
    return 0;
}

static uint32_t number(const char *name, uint32_t fallback)
{
    const char *text = getenv(name);
    return text ? (uint32_t)strtoul(text, NULL, 10) : fallback;
}

static int play_launched(const char *role)
{
    char address[300];
    const char *host = getenv("DMLC_PS_ROOT_URI");
    if (!host) {
        fprintf(stderr, "DMLC_ROLE is set and DMLC_PS_ROOT_URI is not: use `ligament launch`\n");
        return 1;
    }
    snprintf(address, sizeof address, "%s:%u", host, number("DMLC_PS_ROOT_PORT", 0));
    lig_mesh_options options = LIG_MESH_OPTIONS_INIT;
    const char *path = getenv("LIGAMENT_SECRET_FILE");
    char *secret = NULL;
    options.role = strcmp(role, "server") == 0   ? LIG_MESH_SERVER
                   : strcmp(role, "worker") == 0 ? LIG_MESH_WORKER
                                                 : LIG_MESH_SCHEDULER;
    options.rank = number("DMLC_NODE_RANK", LIG_MESH_ANY_RANK);
    options.worker_count = number("DMLC_NUM_WORKER", 1);
    options.server_count = number("DMLC_NUM_SERVER", 1);
    options.address = address;
    if (path)
        need(lig_secret_read(path, &secret, &options.secret_bytes));
    options.secret = secret;
    int status = play(&options);
    lig_secret_free(secret);
    return status;
}

int main(void)
{
    const char *role = getenv("DMLC_ROLE");
    if (role)
        return play_launched(role);
    char address[64];
    snprintf(address, sizeof address, "shm:afd-%d", (int)getpid());
    lig_mesh_options options = LIG_MESH_OPTIONS_INIT;
    options.address = address;
    options.worker_count = WORKERS;
    for (uint32_t i = 0; i <= WORKERS; i++) {
        options.role = i < WORKERS ? LIG_MESH_WORKER : LIG_MESH_SERVER;
        options.rank = i < WORKERS ? i : 0;
        if (fork() == 0)
            return play(&options);
    }
    int failed = 0, ended;
    while (wait(&ended) > 0)
        failed |= !WIFEXITED(ended) || WEXITSTATUS(ended) != 0;
    return failed;
}
