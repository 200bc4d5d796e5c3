/* Clients that break the protocol, flood, freeze or vanish: they lose their session, and no one
 * else notices. */
#include "base/clock.h"
#include "store/serve/message/served_models.h"
#include "store/serve/message/served_reads.h"
#include "store/serve/message/served_save.h"
#include "store/serve/server/server_raw_testing.h"

#include <ligament/serve.h>

#include <sched.h>
#include <unistd.h>

#define LEASE_NS INT64_C(300000000)

typedef struct fixture {
    lig_server *server;
    lig_store *local; /* the same store */
} fixture;

static int set_up_with(void **state, const lig_server_options *options)
{
    static int number;
    char uri[64];
    fixture *self = calloc(1, sizeof *self);
    snprintf(uri, sizeof uri, "mem:hostile-%ld-%d", (long)getpid(), ++number);
    assert_ok(lig_store_open(&self->local, uri));
    assert_ok(lig_server_open(&self->server, uri, options));
    *state = self;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, NULL);
}

static int set_up_open_to_shutdown(void **state)
{
    lig_server_options options = LIG_SERVER_INIT;
    options.flags = LIG_SERVER_ALLOW_SHUTDOWN;
    return set_up_with(state, &options);
}

static int set_up_impatient(void **state)
{
    lig_server_options options = LIG_SERVER_INIT;
    options.lease_ns = LEASE_NS;
    return set_up_with(state, &options);
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

/* What ends with a session does so on a worker, soon after. */
static void expect_nothing_held(const fixture *self)
{
    lig_server_stats stats = stats_of(self);
    for (long i = 0; i < 100000000 && (stats.held || stats.clients || stats.bytes_in_flight); i++) {
        sched_yield();
        stats = stats_of(self);
    }
    assert_int_equal(stats.held, 0);
    assert_int_equal(stats.clients, 0);
    assert_int_equal(stats.bytes_in_flight, 0);
}

static void save_local(const fixture *self, const char *name)
{
    uint8_t data[100] = {1, 2, 3};
    const int64_t shape[] = {sizeof data};
    lig_tensor tensor = {.name = "w",
                         .data = data,
                         .bytes = sizeof data,
                         .shape = shape,
                         .ndim = 1,
                         .dtype = LIG_UINT8};
    assert_ok(lig_store_save(self->local, name, &tensor, 1, NULL));
}

/* --- at the door --- */

static void test_another_version_is_refused(void **state)
{
    fixture *self = *state;
    raw_client raw;
    ligi_writer bytes = {0};
    ligi_served_hello hello = {.host = ""};
    ligi_served_hello_put(&bytes, &hello);
    bytes.data[8] = 9;
    raw_connect(&raw, lig_server_address(self->server), &bytes);
    assert_true(raw.lost);
    assert_non_null(strstr(raw.sentence, "version 9"));
    assert_non_null(strstr(raw.sentence, "version 2"));
    raw_close(&raw);
    ligi_writer_fini(&bytes);
    expect_nothing_held(self);
}

static void test_a_served_store_is_not_served_again(void **state)
{
    fixture *self = *state;
    lig_server *other;
    char uri[256];
    snprintf(uri, sizeof uri, "ligament://%s", lig_server_address(self->server));
    assert_status(lig_server_open(&other, uri, NULL), LIG_E_UNSUPPORTED);
    assert_says("serve the original store");
    expect_nothing_held(self);
}

static void test_clients_have_a_limit(void **state)
{
    lig_server_options options = LIG_SERVER_INIT;
    raw_client first, second;
    options.max_clients = 1;
    set_up_with(state, &options);
    fixture *self = *state;
    raw_open(&first, lig_server_address(self->server), 1);
    assert_true(first.met);
    raw_open(&second, lig_server_address(self->server), 2);
    assert_true(second.lost);
    assert_non_null(strstr(second.sentence, "--max-clients"));
    raw_close(&second);
    assert_ok(raw_ask(&first, LIGI_SERVED_STAT, NULL));
    raw_close(&first);
    tear_down(state);
}

/* --- garbage --- */

static void test_garbage_ends_the_session(void **state)
{
    fixture *self = *state;
    const ligi_served_head bad[] = {
        {.op = 77, .id = 1},
        {.op = LIGI_SERVED_STAT, .id = 0},
        {.op = LIGI_SERVED_STAT, .id = 1, .flags = LIGI_SERVED_REPLY},
        {.op = LIGI_SERVED_NEED, .id = 1},
        {.op = LIGI_SERVED_RETIRE, .id = 1},
        {.op = LIGI_SERVED_DATA, .id = 1},
    };
    raw_client good;
    raw_open(&good, lig_server_address(self->server), 1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        raw_client raw;
        raw_open(&raw, lig_server_address(self->server), 2);
        raw_send(&raw, bad[i], NULL, NULL, 0);
        raw_expect_lost(&raw);
        raw_close(&raw);
    }
    assert_ok(raw_ask(&good, LIGI_SERVED_STAT, NULL));
    raw_close(&good);
    expect_nothing_held(self);
}

/* A valid head with a body of random bytes: every operation refuses it, or does something
 * harmless. */
static void test_random_bodies(void **state)
{
    fixture *self = *state;
    uint64_t random = 88172645463325252u;
    raw_client raw;
    save_local(self, "m");
    raw_open(&raw, lig_server_address(self->server), 1);
    for (int i = 0; i < 3000; i++) {
        uint8_t bytes[64];
        ligi_writer body = {bytes, (size_t)(i % 64), sizeof bytes, LIG_OK};
        for (size_t k = 0; k < sizeof bytes; k++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            bytes[k] = (uint8_t)(random % 5 == 0 ? random >> 8 : random % 3);
        }
        ligi_served_op op = (ligi_served_op)(LIGI_SERVED_PING + i % LIGI_SERVED_COMMIT);
        if (op >= LIGI_SERVED_NEED || op == LIGI_SERVED_SHUTDOWN || op == LIGI_SERVED_RELEASE ||
            op == LIGI_SERVED_CANCEL || op == LIGI_SERVED_WATCH)
            continue;
        (void)raw_ask(&raw, op, &body);
        assert_false(raw.lost);
    }
    raw_close(&raw);
    expect_nothing_held(self);
}

/* --- floods --- */

static void test_a_flood_is_refused(void **state)
{
    fixture *self = *state;
    raw_client raw, good;
    raw_open(&raw, lig_server_address(self->server), 1);
    raw_open(&good, lig_server_address(self->server), 2);
    for (uint64_t i = 1; i <= 20000 && !raw.lost; i++) {
        raw_send(&raw, (ligi_served_head){.op = LIGI_SERVED_STAT, .id = i}, NULL, NULL, 0);
        if (i % 1000 == 0)
            assert_ok(raw_ask(&good, LIGI_SERVED_STAT, NULL));
    }
    assert_ok(raw_ask(&good, LIGI_SERVED_STAT, NULL));
    raw_close(&raw);
    raw_close(&good);
    expect_nothing_held(self);
}

/* Lists that are larger than what a client may have in flight: one at a time. */
static void test_large_replies_are_counted(void **state)
{
    lig_server_options options = LIG_SERVER_INIT;
    options.max_bytes_in_flight = 128 << 20;
    set_up_with(state, &options);
    fixture *self = *state;
    size_t bytes = 6 << 20;
    char *meta = malloc(bytes + 1);
    memset(meta, ' ', bytes);
    meta[bytes] = '\0';
    for (int i = 0; i < 3; i++) {
        char name[8];
        lig_update update = LIG_UPDATE_INIT;
        snprintf(name, sizeof name, "m%d", i);
        save_local(self, name);
        update.meta = meta;
        assert_ok(lig_store_update(self->local, name, &update));
    }
    raw_client raw;
    ligi_writer body = {0};
    lig_query query = LIG_QUERY_INIT;
    raw_open(&raw, lig_server_address(self->server), 1);
    ligi_served_query_put(&body, &query);
    assert_ok(raw_ask(&raw, LIGI_SERVED_MODELS, &body));
    for (uint64_t i = 10; i < 20; i++)
        raw_send(&raw, (ligi_served_head){.op = LIGI_SERVED_MODELS, .id = i}, &body, NULL, 0);
    while (stats_of(self).refused == 0) /* nothing is read meanwhile */
        sched_yield();
    raw.next_id = 100;
    raw.answered = 0;
    assert_ok(raw_ask(&raw, LIGI_SERVED_STAT, NULL));
    raw_close(&raw);
    ligi_writer_fini(&body);
    free(meta);
    expect_nothing_held(self);
    tear_down(state);
}

/* --- silence --- */

static void test_a_silent_client_is_dropped(void **state)
{
    fixture *self = *state;
    raw_client raw;
    ligi_writer body = {0};
    save_local(self, "m");
    raw_open(&raw, lig_server_address(self->server), 1);
    ligi_served_selector_put(&body,
                             &(ligi_served_selector){.name = "m", .flags = LIGI_SERVED_HOLD});
    assert_ok(raw_ask(&raw, LIGI_SERVED_RESOLVE, &body));
    assert_int_equal(stats_of(self).held, 1);
    raw_expect_lost(&raw);
    assert_non_null(strstr(raw.sentence, "--lease-timeout"));
    raw_close(&raw);
    ligi_writer_fini(&body);
    expect_nothing_held(self);
}

/* A whole one replaces: done twice, it would succeed twice. */
static void put_large_save(ligi_writer *body, const char *name, uint32_t wants, int64_t bytes)
{
    const int64_t shape[] = {bytes};
    const uint32_t flags = wants & LIGI_SERVED_WHOLE ? LIG_SAVE_REPLACE : 0;
    lig_tensor tensor = {
        .name = "w", .bytes = (uint64_t)bytes, .shape = shape, .ndim = 1, .dtype = LIG_UINT8};
    ligi_served_save_put(body, &(ligi_served_save){.name = name,
                                                   .wants = wants,
                                                   .flags = flags,
                                                   .meta = "",
                                                   .structure = "",
                                                   .tensors = &tensor,
                                                   .count = 1});
}

static int has_need(void *context)
{
    const raw_client *raw = context;
    return raw->needs > 0 || raw->answered || raw->lost;
}

static void begin_large_save(raw_client *raw, const char *name)
{
    ligi_writer body = {0};
    put_large_save(&body, name, 0, 20 << 20);
    raw_send(raw, (ligi_served_head){.op = LIGI_SERVED_SAVE, .id = 5, .number = 1}, &body, NULL, 0);
    assert_ok(ligi_net_wait(raw->net, has_need, raw, RAW_NS));
    assert_int_equal(raw->needs > 0, 1);
    ligi_writer_fini(&body);
}

static void expect_no_model(const fixture *self, const char *name)
{
    lig_model *model;
    assert_status(lig_store_model(self->local, name, &model), LIG_E_NOTFOUND);
}

static void test_a_client_vanishes_in_a_save(void **state)
{
    fixture *self = *state;
    raw_client raw;
    raw_open(&raw, lig_server_address(self->server), 1);
    begin_large_save(&raw, "half");
    raw_close(&raw);
    expect_nothing_held(self);
    expect_no_model(self, "half");
}

static void test_a_save_is_cancelled(void **state)
{
    fixture *self = *state;
    raw_client raw;
    ligi_writer body = {0};
    raw_open(&raw, lig_server_address(self->server), 1);
    begin_large_save(&raw, "half");
    ligi_served_number_put(&body, 5);
    raw_send(&raw, (ligi_served_head){.op = LIGI_SERVED_CANCEL, .id = 6}, &body, NULL, 0);
    assert_status(raw_wait(&raw, 5), LIG_E_CLOSED);
    assert_says("cancelled");
    assert_ok(raw_ask(&raw, LIGI_SERVED_STAT, NULL));
    raw_close(&raw);
    ligi_writer_fini(&body);
    expect_no_model(self, "half");
}

/* It is not silent, and still does not send what its save needs. */
static void test_a_save_without_data(void **state)
{
    fixture *self = *state;
    raw_client raw;
    raw_open(&raw, lig_server_address(self->server), 1);
    begin_large_save(&raw, "half");
    raw.next_id = 10;
    while (raw.save_status == LIG_OK)
        assert_ok(raw_ask(&raw, LIGI_SERVED_PING, NULL));
    assert_status(raw.save_status, LIG_E_TIMEOUT);
    assert_ok(raw_ask(&raw, LIGI_SERVED_STAT, NULL));
    raw_close(&raw);
    expect_no_model(self, "half");
}

static void test_data_of_the_wrong_length(void **state)
{
    fixture *self = *state;
    raw_client raw;
    ligi_writer body = {0};
    raw_open(&raw, lig_server_address(self->server), 1);
    begin_large_save(&raw, "half");
    ligi_served_number_put(&body, 1);
    raw_send(&raw, (ligi_served_head){.op = LIGI_SERVED_DATA, .id = 5}, &body, "short", 5);
    raw_expect_lost(&raw);
    raw_close(&raw);
    ligi_writer_fini(&body);
    expect_nothing_held(self);
    expect_no_model(self, "half");
}

/* --- once --- */

static void test_a_change_is_made_once(void **state)
{
    fixture *self = *state;
    raw_client raw;
    ligi_writer body = {0};
    const ligi_served_head head = {.op = LIGI_SERVED_RETIRE, .id = 1, .number = 7};
    save_local(self, "m");
    ligi_served_text_put(&body, "m");
    raw_open(&raw, lig_server_address(self->server), 1);
    raw_send(&raw, head, &body, NULL, 0);
    assert_ok(raw_wait(&raw, 1));
    save_local(self, "m");
    raw_close(&raw);
    raw_open(&raw, lig_server_address(self->server), 1); /* the same client, another session */
    raw_send(&raw, head, &body, NULL, 0);
    assert_ok(raw_wait(&raw, 1));
    lig_model *model;
    assert_ok(lig_store_model(self->local, "m", &model));
    lig_model_destroy(model);
    raw_close(&raw);
    raw_open(&raw, lig_server_address(self->server), 2); /* another client */
    raw_send(&raw, head, &body, NULL, 0);
    assert_ok(raw_wait(&raw, 1));
    expect_no_model(self, "m");
    raw_send(&raw, (ligi_served_head){.op = LIGI_SERVED_RETIRE, .id = 2, .number = 8}, &body, NULL,
             0);
    assert_status(raw_wait(&raw, 2), LIG_E_NOTFOUND);
    raw_close(&raw);
    ligi_writer_fini(&body);
}

static void save_whole(raw_client *raw, uint64_t sequence, const char *name, uint8_t fill)
{
    uint8_t data[1000];
    ligi_writer body = {0};
    memset(data, fill, sizeof data);
    put_large_save(&body, name, LIGI_SERVED_WHOLE | LIGI_SERVED_WANT_MODEL, sizeof data);
    raw->answered = 0;
    raw_send(raw, (ligi_served_head){.op = LIGI_SERVED_SAVE, .id = sequence, .number = sequence},
             &body, data, sizeof data);
    assert_ok(raw_wait(raw, sequence));
    ligi_writer_fini(&body);
}

static uint64_t saved_id(const raw_client *raw)
{
    ligi_served_saved saved = {0};
    assert_ok(ligi_served_saved_get(raw->reply_body, raw->reply.body_bytes, &saved));
    return saved.id;
}

static void test_a_save_is_made_once(void **state)
{
    fixture *self = *state;
    lig_store_stats before, after;
    raw_client raw;
    raw_open(&raw, lig_server_address(self->server), 1);
    save_whole(&raw, 1, "m", 1);
    uint64_t id = saved_id(&raw);
    assert_ok(lig_store_stat(self->local, &before));
    save_whole(&raw, 1, "m", 1);
    assert_int_equal(saved_id(&raw), id);
    assert_ok(lig_store_stat(self->local, &after));
    assert_int_equal(before.version, after.version);
    for (uint64_t i = 2; i < 300; i++) { /* past the window: the first is forgotten */
        char name[16];
        snprintf(name, sizeof name, "m%llu", (unsigned long long)i);
        save_whole(&raw, i, name, (uint8_t)i);
    }
    save_whole(&raw, 299, "m299", (uint8_t)299);
    raw_close(&raw);
}

/* --- locks --- */

static void test_locks_are_between_clients(void **state)
{
    fixture *self = *state;
    raw_client first, second;
    uint64_t number;
    ligi_writer body = {0};
    raw_open(&first, lig_server_address(self->server), 1);
    raw_open(&second, lig_server_address(self->server), 2);
    lig_status status = raw_ask_text(&first, LIGI_SERVED_LOCK, "run");
    if (status == LIG_E_UNSUPPORTED) { /* the volume has no locks */
        raw_close(&first);
        raw_close(&second);
        skip();
    }
    assert_ok(status);
    assert_ok(ligi_served_number_get(first.reply_body, first.reply.body_bytes, &number));
    assert_status(raw_ask_text(&second, LIGI_SERVED_LOCK, "run"), LIG_E_BUSY);
    assert_says("process 1 on host testing");
    assert_ok(raw_ask_text(&first, LIGI_SERVED_LOCK, "run"));
    ligi_served_number_put(&body, number);
    raw_send(&first, (ligi_served_head){.op = LIGI_SERVED_RELEASE, .id = 99}, &body, NULL, 0);
    assert_ok(raw_ask(&first, LIGI_SERVED_STAT, NULL));
    assert_status(raw_ask_text(&second, LIGI_SERVED_LOCK, "run"), LIG_E_BUSY);
    raw_close(&first);
    for (status = LIG_E_BUSY; status == LIG_E_BUSY;)
        status = raw_ask_text(&second, LIGI_SERVED_LOCK, "run");
    assert_ok(status);
    raw_close(&second);
    ligi_writer_fini(&body);
    expect_nothing_held(self);
}

/* --- the rate --- */

/* Each reply waits until the bytes before it have had their time. */
static void test_the_rate_delays_replies(void **state)
{
    lig_server_options options = LIG_SERVER_INIT;
    options.rate = 10 << 20;
    set_up_with(state, &options);
    fixture *self = *state;
    size_t bytes = 2 << 20;
    uint8_t *data = calloc(1, bytes);
    const int64_t shape[] = {(int64_t)bytes};
    lig_tensor tensor = {
        .name = "w", .data = data, .bytes = bytes, .shape = shape, .ndim = 1, .dtype = LIG_UINT8};
    lig_model *model;
    assert_ok(lig_store_save(self->local, "m", &tensor, 1, NULL));
    assert_ok(lig_store_model(self->local, "m", &model));
    raw_client raw;
    ligi_writer body = {0};
    ligi_served_range range = {model->tensors[0].offset, bytes};
    ligi_served_read read = {.pack = model->tensors[0].pack, .ranges = &range, .count = 1};
    raw_open(&raw, lig_server_address(self->server), 1);
    ligi_served_read_put(&body, &read);
    int64_t begin = ligi_now_ns();
    for (int i = 0; i < 3; i++)
        assert_ok(raw_ask(&raw, LIGI_SERVED_READ, &body));
    assert_true(ligi_now_ns() - begin >= 400000000); /* a limit that must hold, not a speed */
    raw_close(&raw);
    ligi_writer_fini(&body);
    lig_model_destroy(model);
    free(data);
    expect_nothing_held(self);
    tear_down(state);
}

/* --- the end --- */

static void test_a_stop_interrupts_what_takes_too_long(void **state)
{
    fixture *self = *state;
    raw_client raw;
    raw_open(&raw, lig_server_address(self->server), 1);
    begin_large_save(&raw, "half");
    assert_status(lig_server_stop(self->server, 1000000), LIG_E_TIMEOUT);
    assert_says("interrupted");
    raw_expect_lost(&raw);
    raw_close(&raw);
    expect_no_model(self, "half");
}

static void test_a_client_asks_for_the_end(void **state)
{
    fixture *self = *state;
    raw_client raw;
    raw_open(&raw, lig_server_address(self->server), 1);
    assert_status(lig_server_wait(self->server, 0), LIG_E_TIMEOUT);
    assert_ok(raw_ask(&raw, LIGI_SERVED_SHUTDOWN, NULL));
    assert_ok(lig_server_wait(self->server, LIG_FOREVER));
    assert_ok(
        lig_server_stop(self->server, INT64_C(20000000000))); /* its own request may still run */
    raw_expect_lost(&raw);
    raw_close(&raw);
}

static void test_only_an_allowed_shutdown(void **state)
{
    fixture *self = *state;
    lig_server_options options = LIG_SERVER_INIT;
    lig_server *server;
    raw_client raw;
    raw_open(&raw, lig_server_address(self->server), 1);
    assert_status(raw_ask(&raw, LIGI_SERVED_SHUTDOWN, NULL), LIG_E_DENIED);
    assert_says("--allow-shutdown");
    assert_status(lig_server_wait(self->server, 0), LIG_E_TIMEOUT);
    raw_close(&raw);
    options.flags = 2;
    assert_status(lig_server_open(&server, "mem:", &options), LIG_E_INVALID);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_another_version_is_refused),
        TEST(test_a_served_store_is_not_served_again),
        cmocka_unit_test(test_clients_have_a_limit),
        TEST(test_garbage_ends_the_session),
        TEST(test_random_bodies),
        TEST(test_a_flood_is_refused),
        cmocka_unit_test(test_large_replies_are_counted),
        cmocka_unit_test_setup_teardown(test_a_silent_client_is_dropped, set_up_impatient,
                                        tear_down),
        TEST(test_a_client_vanishes_in_a_save),
        TEST(test_a_save_is_cancelled),
        cmocka_unit_test_setup_teardown(test_a_save_without_data, set_up_impatient, tear_down),
        TEST(test_data_of_the_wrong_length),
        TEST(test_a_change_is_made_once),
        TEST(test_a_save_is_made_once),
        TEST(test_locks_are_between_clients),
        cmocka_unit_test(test_the_rate_delays_replies),
        TEST(test_a_stop_interrupts_what_takes_too_long),
        cmocka_unit_test_setup_teardown(test_a_client_asks_for_the_end, set_up_open_to_shutdown,
                                        tear_down),
        TEST(test_only_an_allowed_shutdown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
