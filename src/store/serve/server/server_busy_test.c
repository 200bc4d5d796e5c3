/* A server at its limits: what it refuses is asked again, and short requests do not wait for slow
 * ones. */
#include "backend/registry.h"
#include "store/serve/message/served_models.h"
#include "store/serve/message/served_reads.h"
#include "store/serve/server/server_raw_testing.h"

#include <ligament/serve.h>
#include <ligament/store.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define SHARE_BYTES (UINT64_C(8) << 20) /* of one client; sixteen of them are all */
enum { HOLDERS = 16, TENSORS = 800, TENSOR_BYTES = 512 };

typedef struct fixture {
    lig_server *server;
    lig_store *local; /* the same store */
    char address[256];
} fixture;

static int set_up(void **state)
{
    char uri[64];
    fixture *self = calloc(1, sizeof *self);
    lig_server_options options = LIG_SERVER_INIT;
    options.max_bytes_in_flight = HOLDERS * SHARE_BYTES;
    options.rate = 1; /* of all replies to reads the first alone leaves soon */
    snprintf(uri, sizeof uri, "mem:busy-%ld", (long)getpid());
    assert_ok(lig_store_open(&self->local, uri));
    assert_ok(lig_server_open(&self->server, uri, &options));
    snprintf(self->address, sizeof self->address, "ligament://%s",
             lig_server_address(self->server));
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    fixture *self = *state;
    lig_server_close(self->server);
    lig_store_close(self->local);
    free(self);
    return 0;
}

static lig_server_stats stats_of(const fixture *self)
{
    lig_server_stats stats;
    assert_ok(lig_server_stat(self->server, &stats));
    return stats;
}

/* Reads that a client does not wait for; `local` has a pack of that size. */
static void hold_share(raw_client *self, const fixture *at, uint8_t number, uint64_t pack)
{
    ligi_writer body = {0};
    ligi_served_range range = {0, SHARE_BYTES};
    ligi_served_read read = {.pack = pack, .ranges = &range, .count = 1};
    raw_open(self, lig_server_address(at->server), number);
    ligi_served_read_put(&body, &read);
    raw_send(self, (ligi_served_head){.op = LIGI_SERVED_READ, .id = 1}, &body, NULL, 0);
    ligi_writer_fini(&body);
}

static uint64_t save_pack(lig_store *store)
{
    static uint8_t data[SHARE_BYTES + 1];
    const int64_t shape[] = {sizeof data};
    const lig_tensor tensor = {.name = "w",
                               .data = data,
                               .bytes = sizeof data,
                               .shape = shape,
                               .ndim = 1,
                               .dtype = LIG_UINT8};
    lig_model *model;
    assert_ok(lig_store_save(store, "pack", &tensor, 1, NULL));
    assert_ok(lig_store_model(store, "pack", &model));
    uint64_t pack = model->tensors[0].pack;
    lig_model_destroy(model);
    return pack;
}

typedef struct saver {
    const fixture *at;
    lig_status status;
    char text[512];
    atomic_int over;
} saver;

/* Its description is long enough to count as bytes in flight. */
static void *save_many(void *context)
{
    static uint8_t data[TENSORS][TENSOR_BYTES];
    static char names[TENSORS][64];
    static const int64_t shape[] = {TENSOR_BYTES};
    lig_tensor tensors[TENSORS];
    saver *self = context;
    char uri[300];
    lig_store *store = NULL;
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "a.layer.with.a.long.name.%d.weight", i);
        memcpy(data[i], &i, sizeof i);
        tensors[i] = (lig_tensor){.name = names[i],
                                  .data = data[i],
                                  .bytes = TENSOR_BYTES,
                                  .shape = shape,
                                  .ndim = 1,
                                  .dtype = LIG_UINT8};
    }
    snprintf(uri, sizeof uri, "%s?retry=600", self->at->address);
    self->status = lig_store_open(&store, uri);
    if (self->status == LIG_OK)
        self->status = lig_store_save(store, "large", tensors, TENSORS, NULL);
    snprintf(self->text, sizeof self->text, "%s", lig_error_text());
    lig_store_close(store);
    self->over = 1;
    return NULL;
}

/* A large save that was refused is sent again. */
static void test_a_large_save_comes_again(void **state)
{
    fixture *self = *state;
    raw_client holders[HOLDERS];
    pthread_t thread;
    uint64_t pack = save_pack(self->local);
    for (int i = 0; i < HOLDERS; i++)
        hold_share(&holders[i], self, (uint8_t)(i + 1), pack);
    while (stats_of(self).bytes_in_flight < HOLDERS * SHARE_BYTES)
        sched_yield();
    saver saving = {.at = self};
    assert_int_equal(pthread_create(&thread, NULL, save_many, &saving), 0);
    while (stats_of(self).refused == 0 && !saving.over)
        sched_yield();
    for (int i = 0; i < HOLDERS; i++)
        raw_close(&holders[i]);
    pthread_join(thread, NULL);
    assert_string_equal(saving.status == LIG_OK ? "" : saving.text, "");
    lig_model *model;
    assert_ok(lig_store_model(self->local, "large", &model));
    assert_int_equal(model->tensor_count, TENSORS);
    lig_model_destroy(model);
}

/* --- a disk that does not answer --- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static atomic_int held_up; /* requests at the gate */
static const lig_volume_ops *mem;

static lig_status gated_size(void *self, uint64_t id, uint64_t *bytes)
{
    held_up++;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return mem->pack_size(self, id, bytes);
}

static int set_up_gated(void **state)
{
    static lig_volume_ops volume;
    static lig_backend_ops backend;
    fixture *self = calloc(1, sizeof *self);
    mem = lig_backend_find("mem")->volume;
    volume = *mem;
    volume.pack_size = gated_size;
    backend = *lig_backend_find("mem");
    backend.volume = &volume;
    assert_ok(ligi_backend_register("gated", &backend));
    assert_ok(lig_store_open(&self->local, "gated:gate"));
    assert_ok(lig_server_open(&self->server, "gated:gate", NULL));
    *state = self;
    return 0;
}

static void resolve(raw_client *self, const char *name)
{
    ligi_writer body = {0};
    ligi_served_selector_put(&body, &(ligi_served_selector){.name = name});
    assert_status(raw_ask(self, LIGI_SERVED_RESOLVE, &body), LIG_E_NOTFOUND);
    ligi_writer_fini(&body);
}

/* The thread that receives waits for the disk: others are answered all the same, and so are other
 * requests of the same client. */
static void test_nobody_waits_for_a_slow_request(void **state)
{
    fixture *self = *state;
    const char *address = lig_server_address(self->server);
    raw_client slow, other, late;
    ligi_writer body = {0};
    raw_open(&slow, address, 1);
    raw_open(&other, address, 2);
    ligi_served_number_put(&body, 1);
    pthread_mutex_lock(&gate);
    slow.next_id = 1;
    raw_send(&slow, (ligi_served_head){.op = LIGI_SERVED_PACK_SIZE, .id = 1}, &body, NULL, 0);
    while (held_up == 0)
        sched_yield();
    for (int i = 0; i < 100; i++) {
        assert_ok(raw_ask(&other, LIGI_SERVED_PING, NULL));
        resolve(&other, "nothing");
    }
    assert_ok(raw_ask(&slow, LIGI_SERVED_PING, NULL));
    raw_open(&late, address, 3);
    resolve(&late, "nothing");
    pthread_mutex_unlock(&gate);
    assert_status(raw_wait(&slow, 1), LIG_E_NOTFOUND);
    resolve(&other, "nothing");
    ligi_writer_fini(&body);
    raw_close(&slow);
    raw_close(&other);
    raw_close(&late);
}

/* Messages without a reply, queued until the workers are free: the limit of a client, nearly. */
static void flood(raw_client *self)
{
    enum { MESSAGES = 60000, AT_ONCE = 500 };
    ligi_writer body = {0};
    ligi_served_number_put(&body, 1);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        raw_send(self, (ligi_served_head){.op = LIGI_SERVED_RELEASE, .id = 1000 + i}, &body, NULL,
                 0);
        if (i % AT_ONCE == AT_ONCE - 1)
            assert_ok(raw_ask(self, LIGI_SERVED_PING, NULL));
    }
    ligi_writer_fini(&body);
}

/* The other client waits for a minute at most. */
static void test_a_flood_of_silent_messages(void **state)
{
    enum { FLOODS = 8, SLOW = 20 };
    fixture *self = *state;
    raw_client floods[FLOODS], other;
    ligi_writer body = {0};
    ligi_served_number_put(&body, 1);
    held_up = 0;
    for (int i = 0; i < FLOODS; i++)
        raw_open(&floods[i], lig_server_address(self->server), (uint8_t)(i + 1));
    raw_open(&other, lig_server_address(self->server), FLOODS + 1);
    pthread_mutex_lock(&gate);
    for (uint64_t i = 1; i <= SLOW; i++)
        raw_send(&other, (ligi_served_head){.op = LIGI_SERVED_PACK_SIZE, .id = i}, &body, NULL, 0);
    while (held_up < 16) /* all workers */
        sched_yield();
    for (int i = 0; i < FLOODS; i++)
        flood(&floods[i]);
    pthread_mutex_unlock(&gate);
    other.next_id = SLOW;
    assert_ok(raw_ask(&other, LIGI_SERVED_STAT, NULL));
    for (int i = 0; i < FLOODS; i++)
        raw_close(&floods[i]);
    raw_close(&other);
    ligi_writer_fini(&body);
}

/* The progress of a check is reported to clients that ask for it. */
static void test_a_check_tells_its_progress(void **state)
{
    fixture *self = *state;
    raw_client client;
    ligi_writer body = {0};
    (void)save_pack(self->local);
    raw_open(&client, lig_server_address(self->server), 1);
    ligi_served_number_put(&body, LIGI_SERVED_TELL);
    assert_ok(raw_ask(&client, LIGI_SERVED_CHECK, &body));
    assert_true(client.dones > 0);
    client.dones = 0;
    body.bytes = 0;
    ligi_served_number_put(&body, 0);
    assert_ok(raw_ask(&client, LIGI_SERVED_CHECK, &body));
    assert_int_equal(client.dones, 0);
    ligi_writer_fini(&body);
    raw_close(&client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_large_save_comes_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nobody_waits_for_a_slow_request, set_up_gated,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_flood_of_silent_messages, set_up_gated, tear_down),
        cmocka_unit_test_setup_teardown(test_a_check_tells_its_progress, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
