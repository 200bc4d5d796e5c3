/* A member of the job that says what no node says: the others may give up, and nothing worse. */
#include "base/test.h"
#include "group/barrier_wait.h"
#include "group/group.h"
#include "group/group_info.h"
#include "net/link/link.h"
#include "net/link/link_connect.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "net/service.h"
#include "params/params_scene.h"
#include "params/wire/params_message.h"

enum { KEYS = 64, LENGTH = 4, SCENES = 60, LETTERS = 40 };

static const lig_params_table tables[] = {
    {.name = "sums", .key_count = KEYS / 2, .length = LENGTH},
    {.name = "steps",
     .key_count = KEYS / 2,
     .length = LENGTH,
     .optimizer = {.kind = LIG_PARAMS_ADAGRAD, .lr = 0.5, .eps = 1e-8}}};

/* --- the liar: rank 1, made of net and group alone --- */

typedef struct liar {
    ligi_net *net;
    ligi_group *group;
    ligi_link *link;
    ligi_params_hello hello;
    _Atomic int up, lost, heard;
    unsigned seed;
} liar;

static lig_status on_met(void *context, ligi_link *link, const ligi_hello *hello, ligi_reply *reply)
{
    liar *self = context;
    (void)link;
    (void)hello;
    (void)reply;
    self->up = 1;
    return LIG_OK;
}

static lig_status on_head(void *context, ligi_link *link, const ligi_arrival *arrival,
                          ligi_landing *landing)
{
    (void)context;
    (void)link;
    (void)arrival;
    (void)landing; /* thrown away */
    return LIG_OK;
}

static void on_arrived(void *context, ligi_link *link, void *token)
{
    (void)link;
    (void)token;
    ((liar *)context)->heard++;
}

static void on_sent(void *context, ligi_link *link, void *token, lig_status status)
{
    (void)context;
    (void)link;
    (void)status;
    free(token);
}

static void on_lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    liar *self = context;
    (void)status;
    (void)sentence;
    self->lost = 1;
    self->link = NULL;
    ligi_link_close(link, NULL);
}

static const ligi_net_hooks hooks = {
    .met = on_met, .head = on_head, .arrived = on_arrived, .sent = on_sent, .lost = on_lost};

static int is_up(void *context)
{
    return ((liar *)context)->up || ((liar *)context)->lost;
}

static int has_heard(void *context)
{
    return ((liar *)context)->heard > 0 || ((liar *)context)->lost;
}

static int is_lost(void *context)
{
    return ((liar *)context)->lost;
}

static void liar_join(liar *self, const lig_params_options *options)
{
    char address[LIGI_ADDRESS_BYTES_MAX];
    uint8_t card[LIGI_BLOB_BYTES_MAX];
    size_t bytes = 0;
    assert_ok(ligi_net_open(&self->net, &(ligi_net_options){.background = 1}));
    assert_ok(ligi_net_serve(self->net, LIGI_SERVICE_PARAMS, &hooks, self));
    assert_ok(ligi_net_listen(self->net, "inproc:", address));
    ligi_group_options group = {.role = LIGI_SERVER,
                                .rank = 1,
                                .server_count = 2,
                                .coordinator = LIGI_COORDINATOR_OTHER,
                                .address = options->address,
                                .timeout_ns = SCENE_MINUTE};
    assert_ok(ligi_group_open(&self->group, self->net, &group));
    ligi_params_hello_make(options, &self->hello);
    self->hello.rank = 1;
    self->hello.group_id = ligi_group_id(self->group);
    self->hello.incarnation = ligi_group_incarnation(self->group);
    assert_ok(ligi_group_blob(self->group, LIGI_SERVER, 0, card, &bytes));
    ligi_connect connect = {.card = card,
                            .card_bytes = bytes,
                            .service = LIGI_SERVICE_PARAMS,
                            .hello = &self->hello,
                            .hello_bytes = sizeof self->hello,
                            .timeout_ns = SCENE_MINUTE};
    assert_ok(ligi_net_connect(self->net, &connect, &self->link));
    assert_ok(ligi_net_wait(self->net, is_up, self, SCENE_MINUTE));
}

static void liar_say(liar *self, ligi_params_message message, size_t tail_bytes,
                     const void *payload, size_t payload_bytes)
{
    uint8_t head[1024] = {0};
    uint8_t *copy = malloc(payload_bytes + 1);
    struct iovec piece = {copy, payload_bytes};
    int done = 1;
    message.version = LIGI_PARAMS_MESSAGE_VERSION;
    memcpy(head, &message, sizeof message);
    if (payload_bytes > 0)
        memcpy(copy, payload, payload_bytes);
    ligi_net_lock(self->net);
    ligi_send send = {.head = head,
                      .head_bytes = sizeof message + tail_bytes,
                      .iov = &piece,
                      .count = payload_bytes > 0,
                      .token = copy};
    lig_status status = self->link ? ligi_net_send(self->link, &send, &done) : LIG_E_PEER;
    ligi_net_unlock(self->net);
    if (status != LIG_OK || done)
        free(copy);
}

static void liar_leave(liar *self)
{
    ligi_group_close(self->group, 0);
    ligi_net_close(self->net);
}

/* --- the honest node: keeps asking the liar for its rows until it is asked to stop --- */

static int play_honest(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    int64_t keys[KEYS], ticket;
    float rows[KEYS * LENGTH];
    PLAY_OK(lig_params_open(&params, &self->options));
    PLAY_OK(lig_params_worker_open(&worker, params, 0));
    for (int64_t i = 0; i < KEYS; i++)
        keys[i] = i;
    memset(rows, 0, sizeof rows);
    PLAY_OK(lig_params_intent(worker, keys, KEYS, 0, 1000));
    lig_status status = LIG_OK;
    while (status == LIG_OK || status == LIG_E_TIMEOUT) {
        status = lig_params_push(worker, keys, KEYS, rows, KEYS * LENGTH, &ticket);
        if (status == LIG_OK)
            status = lig_params_pull(worker, keys, KEYS, rows, KEYS * LENGTH, &ticket);
        if (status == LIG_OK)
            status = lig_params_wait(worker, ticket, 1000000);
        (void)lig_params_advance_clock(worker);
    }
    lig_params_worker_close(worker);
    lig_params_close(params);
    return 0;
}

typedef struct meeting {
    scene now;
    pthread_t thread;
    liar liar;
} meeting;

static void barrier(meeting *self, unsigned seed)
{
    memset(&self->liar, 0, sizeof self->liar);
    self->liar.seed = seed;
    scene_init(&self->now, 2, "inproc", tables, 2);
    self->now.nodes[0].play = play_honest;
    pthread_create(&self->thread, NULL, scene_run_node, &self->now.nodes[0]);
    liar_join(&self->liar, &self->now.nodes[1].options);
    liar_say(&self->liar, (ligi_params_message){.kind = LIGI_PARAMS_SHARE, .origin = 1}, 0, NULL,
             0);
    (void)ligi_group_barrier(self->liar.group, LIGI_SERVERS, 0, SCENE_MINUTE);
}

static void part(meeting *self)
{
    liar_leave(&self->liar);
    pthread_join(self->thread, NULL);
}

/* --- lies --- */

static void fill(liar *self, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(rand_r(&self->seed) >> 7);
}

/* A message that passes for one: what stands in it is anything. */
static void lie(liar *self)
{
    _Alignas(8) uint8_t payload[4096];
    ligi_params_message message = {.kind = (uint8_t)(2 + rand_r(&self->seed) % 6),
                                   .verb = (uint8_t)(rand_r(&self->seed) % 3),
                                   .origin = (uint32_t)rand_r(&self->seed) % 2,
                                   .count = 1 + (uint32_t)rand_r(&self->seed) % 6,
                                   .ticket = (uint64_t)rand_r(&self->seed) % 8};
    message.flags = (uint32_t)rand_r(&self->seed) % 16;
    if (message.kind == LIGI_PARAMS_REQUEST || message.kind == LIGI_PARAMS_LOCATION)
        message.flags = 0;
    fill(self, payload, sizeof payload);
    uint64_t front = ligi_params_message_front(&message), row = 4 * LENGTH;
    if (message.kind == LIGI_PARAMS_REQUEST)
        for (uint32_t i = 0; i < message.count; i++)
            ((int64_t *)(void *)payload)[i] = rand_r(&self->seed) % (KEYS + 2) - 1;
    if (message.kind == LIGI_PARAMS_SYNC || message.kind == LIGI_PARAMS_UPDATE ||
        message.kind == LIGI_PARAMS_LOCATION)
        for (uint32_t i = 0; i < message.count; i++)
            ((ligi_sync_item *)(void *)payload)[i] =
                (ligi_sync_item){.key = rand_r(&self->seed) % (KEYS + 2) - 1,
                                 .number = (uint64_t)rand_r(&self->seed) % 4,
                                 .kind = (uint16_t)(1 + rand_r(&self->seed) % 8),
                                 .flags = (uint16_t)(rand_r(&self->seed) % 4)};
    uint64_t rows = (uint64_t)rand_r(&self->seed) % 3 == 0
                        ? (uint64_t)rand_r(&self->seed) % 256
                        : message.count * row * (1 + (uint64_t)rand_r(&self->seed) % 2);
    if (message.kind == LIGI_PARAMS_REQUEST && message.verb == LIGI_PULL)
        rows = 0;
    liar_say(self, message, 0, payload, front + rows);
}

static void test_lies_of_all_kinds(void **unused)
{
    (void)unused;
    for (unsigned seed = 0; seed < SCENES; seed++) {
        meeting now;
        barrier(&now, seed);
        for (int i = 0; i < LETTERS && !now.liar.lost; i++)
            lie(&now.liar);
        part(&now);
    }
}

/* Invalid keys are refused, and the job continues. */
static void test_a_wrong_question_is_answered(void **unused)
{
    (void)unused;
    meeting now;
    _Alignas(8) uint8_t payload[16] = {0};
    int64_t key = KEYS;
    barrier(&now, 1);
    memcpy(payload, &key, sizeof key);
    now.liar.heard = 0;
    ligi_params_message ask = {.kind = LIGI_PARAMS_REQUEST, .origin = 1, .count = 1};
    liar_say(&now.liar, ask, 0, payload, sizeof payload);
    assert_ok(ligi_net_wait(now.liar.net, has_heard, &now.liar, SCENE_MINUTE));
    assert_false(now.liar.lost);
    part(&now);
}

/* Rows in the answer to a push: there is nowhere to put them. */
static void test_a_push_is_answered_with_rows(void **unused)
{
    (void)unused;
    meeting now;
    _Alignas(8) uint8_t payload[8 + 4 * LENGTH] = {0};
    ligi_params_message answer = {.kind = LIGI_PARAMS_RESPONSE,
                                  .verb = LIGI_PUSH,
                                  .flags = LIGI_PARAMS_POSITIONS | LIGI_PARAMS_VALUES,
                                  .origin = 0,
                                  .count = 1};
    barrier(&now, 1);
    assert_ok(ligi_net_wait(now.liar.net, has_heard, &now.liar, SCENE_MINUTE));
    for (answer.ticket = 0; answer.ticket < 8 && !now.liar.lost; answer.ticket++)
        liar_say(&now.liar, answer, 0, payload, sizeof payload);
    assert_ok(ligi_net_wait(now.liar.net, is_lost, &now.liar, SCENE_MINUTE));
    part(&now);
}

static void test_what_is_no_letter_ends_the_job(void **unused)
{
    (void)unused;
    for (int i = 0; i < 4; i++) {
        meeting now;
        ligi_params_message message = {.kind = LIGI_PARAMS_SYNC};
        barrier(&now, 1);
        now.liar.heard = 0;
        message.kind = i == 0 ? 99 : message.kind;
        message.origin = i == 1 ? 2 : message.origin;
        message.count = i == 2 ? UINT32_MAX : message.count;
        liar_say(&now.liar, message, i == 3 ? 900 : 0, NULL, 0);
        assert_ok(ligi_net_wait(now.liar.net, is_lost, &now.liar, SCENE_MINUTE));
        part(&now);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wrong_question_is_answered),
        cmocka_unit_test(test_a_push_is_answered_with_rows),
        cmocka_unit_test(test_what_is_no_letter_ends_the_job),
        cmocka_unit_test(test_lies_of_all_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
