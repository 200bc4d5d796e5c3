/* A member of the job that saves and loads with the others, and meanwhile says things about it that
 * no node says. The others may fail, or lose it, and nothing worse; what was saved is sound. */
#include "net/link/link_send.h"
#include "net/progress.h"
#include "params/params_peers.h"
#include "params/snapshot/snapshot_message.h"
#include "params/state/node.h"
#include "params/state/node_wait.h"

enum { KEYS = 64, LENGTH = 3, JOBS = 40, LETTERS = 200, ROOM = 1024, SAVES = 4 };

typedef struct scene {
    peers_store at;
    uint64_t seed;
} scene;

static uint64_t next(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Right more often than not, so that it is not always the first check that speaks. */
static uint64_t some_note(uint64_t *seed, uint8_t verb, uint8_t *out)
{
    ligi_snapshot_front front = {.call = (uint32_t)(1 + next(seed) % (2 * SAVES)),
                                 .step = (uint32_t)(next(seed) % 4),
                                 .unit = next(seed) % 2,
                                 .at = next(seed) % 3 ? 0 : next(seed) % 9,
                                 .total = next(seed) % 40,
                                 .count = (uint32_t)(next(seed) % 9),
                                 .status = (uint16_t)(next(seed) % 20 ? 0 : next(seed) % 20),
                                 .more = (uint16_t)(next(seed) % 2)};
    uint64_t rest = front.count;
    for (int i = 0; i < ROOM; i++)
        out[i] = (uint8_t)next(seed);
    for (uint32_t i = 0; i < front.count; i++) {
        int64_t key = (int64_t)(next(seed) % (next(seed) % 20 ? KEYS : 2 * KEYS));
        memcpy(out + sizeof front + 8 * i, &key, sizeof key);
    }
    if (verb == LIGI_SNAPSHOT_GET)
        rest = 0;
    else if (verb == LIGI_SNAPSHOT_OWNED || verb == LIGI_SNAPSHOT_TAKEN)
        rest = (front.count + 7) / 8;
    else if (verb > LIGI_SNAPSHOT_GET)
        rest = (uint64_t)front.count * (verb == LIGI_SNAPSHOT_OWN ? 8 : 8 + LENGTH * 4);
    memcpy(out, &front, sizeof front);
    return sizeof front + rest + (next(seed) % 60 == 0);
}

static void *say_anything(void *context)
{
    static uint8_t notes[LETTERS][ROOM];
    lig_params *node = ((peers *)context)->context;
    uint64_t seed = ((peers *)context)->rank;
    for (int i = 0; i < LETTERS && !atomic_load(&node->session.broken); i++) {
        ligi_params_message message = {.version = LIGI_PARAMS_MESSAGE_VERSION,
                                       .kind = LIGI_PARAMS_SNAPSHOT,
                                       .verb = (uint8_t)(1 + next(&seed) % 8),
                                       .origin = 1};
        struct iovec piece = {notes[i], some_note(&seed, message.verb, notes[i])};
        ligi_send send = {
            .head = &message, .head_bytes = sizeof message, .iov = &piece, .count = 1};
        int done = 1;
        ligi_node_lock(node);
        ligi_link *link = node->peers[0].base.link;
        if (link)
            (void)ligi_net_send(link, &send, &done);
        ligi_node_unlock(node);
        ligi_net_poll(node->session.net);
    }
    return NULL;
}

static int run(peers *job, lig_params *node)
{
    scene *made = job->context;
    peers liar = {.context = node, .rank = (uint32_t)made->seed};
    pthread_t thread;
    if (job->rank == 1)
        peer_true(pthread_create(&thread, NULL, say_anything, &liar) == 0);
    lig_status status = LIG_OK;
    for (int i = 0; i < SAVES && status != LIG_E_PEER; i++) {
        status = lig_params_save(node, made->at.uri, "m", INT64_C(300000000));
        if (status != LIG_E_PEER)
            status = lig_params_load(node, made->at.uri, "m", INT64_C(300000000));
    }
    if (job->rank == 1)
        pthread_join(thread, NULL);
    return 0;
}

static void test_notes(void **state)
{
    (void)state;
    lig_params_table table = {.key_count = KEYS, .length = LENGTH};
    lig_store *store;
    lig_report *report;
    scene made = {0};
    peers_store_open(&made.at);
    for (made.seed = 1; made.seed <= JOBS; made.seed++) {
        peers job = {.options = LIG_PARAMS_OPTIONS_INIT, .run = run, .context = &made};
        job.options.node_count = 2;
        job.options.tables = &table;
        job.options.table_count = 1;
        job.options.flags = made.seed % 3 == 0 ? LIG_PARAMS_HASHED : 0;
        job.options.transport = made.seed % 2 ? "shm" : "tcp";
        job.options.timeout_ns = PEERS_TIMEOUT_NS;
        peers_run(&job);
    }
    assert_ok(lig_store_open(&store, made.at.uri));
    assert_ok(lig_store_check(store, 0, &report));
    assert_int_equal(report->problem_count, 0);
    lig_report_destroy(report);
    lig_store_close(store);
    peers_store_close(&made.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_notes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
