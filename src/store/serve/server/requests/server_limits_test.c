/* What one client may hold: more is refused, and the session goes on. */
#include "store/serve/message/served_models.h"
#include "store/serve/message/served_save.h"
#include "store/serve/server/server_raw_testing.h"

#include <ligament/serve.h>

#include <sched.h>
#include <unistd.h>

enum { TENSORS = 5000, REFS = 200, NAME_BYTES = 4000, SAVES = 16 };
#define FLIGHT_BYTES (UINT64_C(128) << 20) /* a quarter of it for what a client holds */

typedef struct fixture {
    lig_server *server;
    lig_store *local;
    raw_client raw;
} fixture;

static int set_up(void **state)
{
    static int number;
    char uri[64];
    lig_server_options options = LIG_SERVER_INIT;
    fixture *self = calloc(1, sizeof *self);
    options.max_bytes_in_flight = FLIGHT_BYTES;
    snprintf(uri, sizeof uri, "mem:limits-%ld-%d", (long)getpid(), ++number);
    assert_ok(lig_store_open(&self->local, uri));
    assert_ok(lig_server_open(&self->server, uri, &options));
    raw_open(&self->raw, lig_server_address(self->server), 1);
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    fixture *self = *state;
    raw_close(&self->raw);
    lig_server_close(self->server);
    lig_store_close(self->local);
    free(self);
    return 0;
}

static uint64_t held_by(const fixture *self)
{
    lig_server_stats stats;
    assert_ok(lig_server_stat(self->server, &stats));
    return stats.held;
}

/* The server keeps no descriptions of tensors for a client that may read every pack. */
static void test_refs_of_large_models(void **state)
{
    fixture *self = *state;
    static lig_tensor tensors[TENSORS];
    static char names[TENSORS][16];
    ligi_writer body = {0};
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        tensors[i] = (lig_tensor){.name = names[i], .data = names[i], .bytes = 1, .ndim = 0};
        tensors[i].dtype = LIG_UINT8;
    }
    assert_ok(lig_store_save(self->local, "m", tensors, TENSORS, NULL));
    ligi_served_selector_put(&body,
                             &(ligi_served_selector){.name = "m", .flags = LIGI_SERVED_HOLD});
    for (int i = 0; i < REFS; i++)
        assert_ok(raw_ask(&self->raw, LIGI_SERVED_RESOLVE, &body));
    assert_int_equal(held_by(self), REFS);
    ligi_writer_fini(&body);
}

static void save_with_ref(raw_client *raw, const char *name)
{
    char meta[2 * NAME_BYTES + 1] = ""; /* longer than what may be left */
    memset(meta, 'x', 2 * NAME_BYTES);
    const int64_t shape[] = {4};
    const lig_tensor tensor = {
        .name = "w", .bytes = 4, .shape = shape, .ndim = 1, .dtype = LIG_UINT8};
    const ligi_served_save save = {.name = name,
                                   .wants = LIGI_SERVED_WHOLE | LIGI_SERVED_WANT_REF,
                                   .meta = meta,
                                   .structure = "",
                                   .tensors = &tensor,
                                   .count = 1};
    ligi_writer body = {0};
    ligi_served_save_put(&body, &save);
    raw->answered = 0;
    raw_send(raw, (ligi_served_head){.op = LIGI_SERVED_SAVE, .id = 999999, .number = 1}, &body,
             "abcd", 4);
    ligi_writer_fini(&body);
}

static void test_what_a_client_holds_has_a_limit(void **state)
{
    fixture *self = *state;
    char name[NAME_BYTES + 1];
    lig_status status = LIG_OK;
    memset(name, 'n', NAME_BYTES);
    name[NAME_BYTES] = '\0';
    for (int i = 0; i < 10000 && status == LIG_OK; i++) {
        memcpy(name,
               (char[]){(char)('a' + i / 1000), (char)('a' + i / 100 % 10),
                        (char)('a' + i / 10 % 10), (char)('a' + i % 10)},
               4);
        status = raw_ask_text(&self->raw, LIGI_SERVED_LOCK, name);
    }
    assert_status(status, LIG_E_LIMIT);
    assert_says("release some");
    uint64_t held = held_by(self);
    assert_true(held > 1000 && held < 10000);
    lig_model *model;
    save_with_ref(&self->raw, "m"); /* refused before it is committed */
    assert_status(raw_wait(&self->raw, 999999), LIG_E_LIMIT);
    assert_status(lig_store_model(self->local, "m", &model), LIG_E_NOTFOUND);
    ligi_writer body = {0};
    ligi_served_number_put(&body, 1);
    raw_send(&self->raw, (ligi_served_head){.op = LIGI_SERVED_RELEASE, .id = 1000000}, &body, NULL,
             0);
    while (held_by(self) == held)
        assert_ok(raw_ask(&self->raw, LIGI_SERVED_PING, NULL));
    assert_ok(raw_ask_text(&self->raw, LIGI_SERVED_LOCK, name));
    ligi_writer_fini(&body);
}

static int has_dones(void *context)
{
    const raw_client *raw = context;
    return raw->dones == SAVES || raw->answered || raw->lost;
}

static void begin_save(raw_client *raw, uint64_t id, uint32_t wants, int64_t bytes)
{
    ligi_writer body = {0};
    char name[32];
    const lig_tensor tensor = {
        .name = "w", .bytes = (uint64_t)bytes, .shape = &bytes, .ndim = 1, .dtype = LIG_UINT8};
    snprintf(name, sizeof name, "part-%d", (int)id);
    const ligi_served_save save = {
        .name = name, .wants = wants, .meta = "", .structure = "", .tensors = &tensor, .count = 1};
    ligi_served_save_put(&body, &save);
    raw_send(raw, (ligi_served_head){.op = LIGI_SERVED_SAVE, .id = id, .number = id}, &body, NULL,
             0);
    ligi_writer_fini(&body);
}

static void begin_in_parts(raw_client *raw, uint64_t id)
{
    begin_save(raw, id, LIGI_SERVED_IN_PARTS, 1 << 20);
}

static void cancel(raw_client *raw, uint64_t message, uint64_t id)
{
    ligi_writer body = {0};
    ligi_served_number_put(&body, id);
    raw_send(raw, (ligi_served_head){.op = LIGI_SERVED_CANCEL, .id = message}, &body, NULL, 0);
    ligi_writer_fini(&body);
}

/* Each has a thread and buffers until the client ends it. */
static void test_saves_in_parts_have_a_limit(void **state)
{
    fixture *self = *state;
    raw_client *raw = &self->raw;
    for (uint64_t id = 1; id <= SAVES; id++)
        begin_in_parts(raw, id);
    assert_ok(ligi_net_wait(raw->net, has_dones, raw, RAW_NS));
    assert_int_equal(raw->dones, SAVES);
    begin_in_parts(raw, SAVES + 1);
    assert_status(raw_wait(raw, SAVES + 1), LIG_E_BUSY);
    assert_says("unfinished saves");
    cancel(raw, 100, 1);
    assert_status(raw_wait(raw, 1), LIG_E_CLOSED);
    raw->answered = 0;
    raw->dones = SAVES - 1;
    begin_in_parts(raw, SAVES + 2);
    assert_ok(ligi_net_wait(raw->net, has_dones, raw, RAW_NS));
    assert_int_equal(raw->dones, SAVES);
}

static uint64_t in_flight(const fixture *self)
{
    lig_server_stats stats;
    assert_ok(lig_server_stat(self->server, &stats));
    return stats.bytes_in_flight;
}

static int is_needed(void *context)
{
    const raw_client *raw = context;
    return raw->needs > 0 || raw->lost;
}

/* A large save has 20 MiB in flight; together they have half of the limit, and the next one waits
 * until another has ended. */
static void test_saves_count_as_bytes_in_flight(void **state)
{
    enum { FIT = 3, LARGE = 32 << 20 };
    fixture *self = *state;
    raw_client *raw = &self->raw, other;
    raw_open(&other, lig_server_address(self->server), 2);
    for (uint64_t id = 1; id <= FIT; id++) {
        begin_save(raw, id, 0, LARGE);
        while (in_flight(self) < id * (20 << 20))
            sched_yield();
        assert_int_equal(in_flight(self), id * (20 << 20));
    }
    begin_save(&other, 1, 0, LARGE);
    for (int i = 0; i < 100; i++)
        assert_ok(raw_ask(&other, LIGI_SERVED_PING, NULL));
    assert_int_equal(other.needs, 0);
    assert_int_equal(in_flight(self), FIT * (20 << 20));
    cancel(raw, 100, 2);
    assert_status(raw_wait(raw, 2), LIG_E_CLOSED);
    assert_ok(ligi_net_wait(other.net, is_needed, &other, RAW_NS));
    assert_false(other.lost);
    raw_close(&other);
    raw_close(raw);
    while (in_flight(self) > 0)
        sched_yield();
    raw_open(raw, lig_server_address(self->server), 1);
}

static void assert_flight(const fixture *self, uint64_t mebibytes)
{
    while (in_flight(self) < mebibytes << 20)
        sched_yield();
    assert_int_equal(in_flight(self), mebibytes << 20);
}

static void assert_waits(raw_client *raw)
{
    for (int i = 0; i < 100; i++)
        assert_ok(raw_ask(raw, LIGI_SERVED_PING, NULL));
    assert_int_equal(raw->needs, 0);
}

/* A large save is not overtaken by smaller ones, which could go on for ever; but nobody waits for
 * one that waits only for other saves of its client. */
static void test_saves_wait_in_order(void **state)
{
    enum { LARGE = 32 << 20, SMALL = 1 << 20 };
    fixture *self = *state;
    raw_client *raw = &self->raw, small, large, last;
    raw_open(&small, lig_server_address(self->server), 2);
    raw_open(&large, lig_server_address(self->server), 3);
    raw_open(&last, lig_server_address(self->server), 4);
    for (uint64_t id = 1; id <= 3; id++) {
        begin_save(raw, id, 0, LARGE);
        assert_flight(self, id * 20);
    }
    begin_save(raw, 4, 0, SMALL);
    assert_flight(self, 61);
    begin_save(raw, 5, 0, SMALL); /* a client may have four */
    begin_save(&small, 12, 0, SMALL);
    assert_flight(self, 62);
    begin_save(&large, 13, 0, LARGE);
    assert_waits(&large);
    begin_save(&last, 14, 0, SMALL);
    assert_waits(&last);
    assert_int_equal(in_flight(self), 62 << 20);
    cancel(raw, 100, 2);
    assert_status(raw_wait(raw, 2), LIG_E_CLOSED);
    assert_flight(self, 64);
    assert_ok(ligi_net_wait(large.net, is_needed, &large, RAW_NS));
    assert_ok(ligi_net_wait(last.net, is_needed, &last, RAW_NS));
    raw_close(&small);
    raw_close(&large);
    raw_close(&last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_refs_of_large_models, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_a_client_holds_has_a_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_saves_in_parts_have_a_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_saves_count_as_bytes_in_flight, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_saves_wait_in_order, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
