/* No reply tells a role with a prefix where the store is. */
#include "store/serve/message/served_changes.h"
#include "store/serve/message/served_models.h"
#include "store/serve/server/server_raw_testing.h"

#include <ligament/serve.h>

#include <fcntl.h>
#include <unistd.h>

#define KEY "a0123456789abcdef0123456789abcdef"
#define NAME "team/none"

typedef struct fixture {
    char folder[64], address[256];
    lig_server *server;
} fixture;

static int set_up(void **state)
{
    static const char roles[] = "alice write " KEY " team/*\n";
    fixture *self = calloc(1, sizeof *self);
    lig_server_options options = LIG_SERVER_INIT;
    char place[128], secrets[128];
    snprintf(self->folder, sizeof self->folder, "/tmp/ligament-place-XXXXXX");
    assert_non_null(mkdtemp(self->folder));
    snprintf(place, sizeof place, "file://%s/store", self->folder);
    snprintf(secrets, sizeof secrets, "%s/secrets", self->folder);
    int fd = open(secrets, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, roles, sizeof roles - 1), sizeof roles - 1);
    close(fd);
    options.secret_file = secrets;
    assert_ok(lig_server_open(&self->server, place, &options));
    snprintf(self->address, sizeof self->address, "tcp://%s", lig_server_address(self->server));
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    fixture *self = *state;
    char command[128];
    lig_server_close(self->server);
    snprintf(command, sizeof command, "rm -rf '%s'", self->folder);
    int failed = system(command);
    free(self);
    return failed;
}

/* Bodies of different operations: most operations refuse all but one of them. */
static int put_body(int kind, ligi_writer *body)
{
    lig_update change = LIG_UPDATE_INIT;
    change.meta = "{}";
    switch (kind) {
    case 0: return 1;
    case 1: ligi_served_text_put(body, NAME); return 1;
    case 2: ligi_served_number_put(body, 7); return 1;
    case 3: ligi_served_selector_put(body, &(ligi_served_selector){.name = NAME}); return 1;
    case 4: ligi_served_selector_put(body, &(ligi_served_selector){.id = 7}); return 1;
    case 5: ligi_served_alias_put(body, &(ligi_served_alias){"team/x", NAME}); return 1;
    case 6: ligi_served_alias_put(body, &(ligi_served_alias){NAME, ""}); return 1;
    case 7: ligi_served_update_put(body, &(ligi_served_update){NAME, change}); return 1;
    default: return 0;
    }
}

static void test_errors(void **state)
{
    fixture *self = *state;
    size_t named = 0; /* texts that told the place before */
    for (uint32_t op = 1; op < LIGI_SERVED_OP_END; op++) {
        ligi_writer body = {0};
        if (ligi_served_op_silent(op) || op == LIGI_SERVED_WATCH) /* which may wait */
            continue;
        for (int kind = 0; put_body(kind, &body); kind++, body.bytes = 0) {
            raw_client raw;
            raw_open_as(&raw, self->address, KEY, 3, NULL);
            lig_status status = raw_ask(&raw, (ligi_served_op)op, &body);
            named += status != LIG_OK && strstr(lig_error_text(), "in the store") != NULL;
            assert_true(status == LIG_OK || strstr(lig_error_text(), self->folder) == NULL);
            raw_close(&raw);
        }
        ligi_writer_fini(&body);
    }
    assert_true(named >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_errors, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
