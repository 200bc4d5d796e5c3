/* Requests that are sent again: done once, and answered as the first time. */
#include "store/handle.h"
#include "store/serve/message/served_save.h"
#include "store/serve/server/requests/server_changes.h"
#include "store/serve/server/server_raw_testing.h"

#include <ligament/serve.h>

#include <fcntl.h>
#include <unistd.h>

enum { MANY = 70 }; /* more than one commit removes */
#define HOUR_NS INT64_C(3600000000000)
#define KEY "a0123456789abcdef0123456789abcdef"

typedef struct fixture {
    char secrets[64];
    lig_server *server;
    lig_store *local;
    raw_client raw;
} fixture;

static int set_up(void **state)
{
    static int number;
    static const char role[] = "alice write " KEY " team/*\n";
    char place[64], uri[128];
    lig_server_options options = LIG_SERVER_INIT;
    fixture *self = calloc(1, sizeof *self);
    snprintf(self->secrets, sizeof self->secrets, "/tmp/ligament-once-XXXXXX");
    int fd = mkstemp(self->secrets);
    assert_true(fd >= 0 && write(fd, role, strlen(role)) == (ssize_t)strlen(role));
    close(fd);
    snprintf(place, sizeof place, "mem:once-%ld-%d", (long)getpid(), ++number);
    options.secret_file = self->secrets;
    options.undelete_ns = HOUR_NS;
    assert_ok(lig_store_open(&self->local, place));
    self->local->undelete_ns = HOUR_NS;
    assert_ok(lig_server_open(&self->server, place, &options));
    snprintf(uri, sizeof uri, "tcp://%s", lig_server_address(self->server));
    raw_open_as(&self->raw, uri, KEY, 1, NULL);
    assert_true(self->raw.met);
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    fixture *self = *state;
    raw_close(&self->raw);
    lig_server_close(self->server);
    lig_store_close(self->local);
    unlink(self->secrets);
    free(self);
    return 0;
}

static void save(lig_store *store, const char *name)
{
    int64_t shape = 4;
    lig_tensor tensor = {
        .name = "w", .data = "abcd", .bytes = 4, .shape = &shape, .ndim = 1, .dtype = LIG_UINT8};
    assert_ok(lig_store_save(store, name, &tensor, 1, NULL));
}

static lig_status again(raw_client *raw, ligi_served_op op, const ligi_writer *body)
{
    raw->next_sequence--;
    return raw_ask(raw, op, body);
}

/* Those that were retired before are kept: nobody has asked for their end. */
static void test_a_repeated_removal_removes_nothing(void **state)
{
    fixture *self = *state;
    ligi_writer body = {0};
    char name[16];
    ligi_served_text_put(&body, "team/m");
    for (int i = 0; i < MANY; i++) {
        save(self->local, "team/m");
        assert_ok(lig_store_retire(self->local, "team/m"));
    }
    save(self->local, "team/m");
    assert_ok(raw_ask(&self->raw, LIGI_SERVED_RETIRE_NOW, &body));
    assert_ok(again(&self->raw, LIGI_SERVED_RETIRE_NOW, &body));
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "kept-%d", i);
        assert_ok(lig_store_restore(self->local, "team/m", name));
    }
    assert_status(lig_store_restore(self->local, "team/m", "more"), LIG_E_NOTFOUND);
    ligi_writer_fini(&body);
}

static void ask_save(raw_client *raw, const ligi_served_save *what, ligi_served_op op)
{
    ligi_writer body = {0};
    ligi_served_save_put(&body, what);
    raw->answered = 0;
    raw_send(raw,
             (ligi_served_head){
                 .op = (uint16_t)op, .id = ++raw->next_id, .number = ++raw->next_sequence},
             &body, what->count ? "abcd" : NULL, what->count ? 4 : 0);
    assert_ok(raw_wait(raw, raw->next_id));
    ligi_writer_fini(&body);
}

static uint64_t held_by(const fixture *self)
{
    lig_server_stats stats;
    assert_ok(lig_server_stat(self->server, &stats));
    return stats.held;
}

/* The parts of a limited role end with its connection, and the join may come again afterwards. */
static void test_a_join_is_repeated_without_its_parts(void **state)
{
    fixture *self = *state;
    const int64_t shape[] = {4};
    const lig_tensor tensor = {
        .name = "w", .bytes = 4, .shape = shape, .ndim = 1, .dtype = LIG_UINT8};
    ligi_served_save what = {.name = "team/m",
                             .wants = LIGI_SERVED_WHOLE | LIGI_SERVED_PART,
                             .meta = "",
                             .structure = "",
                             .tensors = &tensor,
                             .count = 1};
    ligi_served_saved saved = {0};
    ligi_writer body = {0}, part = {0};
    ask_save(&self->raw, &what, LIGI_SERVED_SAVE);
    assert_ok(ligi_served_saved_get(self->raw.reply_body, self->raw.reply.body_bytes, &saved));
    ligi_put_bytes(&part, saved.part_data, saved.part_bytes);
    lig_part_data data = {part.data, part.bytes};
    what = (ligi_served_save){
        .name = "team/m", .meta = "", .structure = "", .parts = &data, .part_count = 1};
    ask_save(&self->raw, &what, LIGI_SERVED_JOIN);
    ligi_served_number_put(&body, saved.part);
    raw_send(&self->raw, (ligi_served_head){.op = LIGI_SERVED_RELEASE, .id = 1000}, &body, NULL, 0);
    while (held_by(self))
        assert_ok(raw_ask(&self->raw, LIGI_SERVED_PING, NULL));
    self->raw.next_sequence--;
    ask_save(&self->raw, &what, LIGI_SERVED_JOIN);
    ligi_writer_fini(&body);
    ligi_writer_fini(&part);
}

/* A commit has seen the record of the request, which then did not reach the disk. */
static lig_status see_and_fail(ligi_served_call *call, void *context)
{
    (void)context;
    call->store->once->repeated = 1;
    return lig_fail(LIG_E_IO, "the log was not synced");
}

static void test_only_a_durable_record_counts(void **state)
{
    fixture *self = *state;
    ligi_served_session session = {0};
    ligi_served_job job = {.session = &session, .head = {.number = 1}};
    ligi_served_call call = {.store = self->local, .session = &session, .job = &job};
    struct ligi_once once;
    assert_status(ligi_served_once(&call, &once, see_and_fail, NULL), LIG_E_IO);
    assert_says("not synced");
    assert_false(once.repeated);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_repeated_removal_removes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_join_is_repeated_without_its_parts, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_only_a_durable_record_counts, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
