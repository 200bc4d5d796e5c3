/* What comes to a coordinator's door and is no member. */
#include "group/group_testing.h"

typedef struct stranger {
    ligi_net *net;
    int ended;
    lig_status status;
    char sentence[256];
} stranger;

static lig_status stranger_met(void *context, ligi_link *link, const ligi_hello *hello,
                               ligi_reply *reply)
{
    (void)context, (void)link, (void)hello, (void)reply;
    return LIG_OK;
}

static lig_status stranger_head(void *context, ligi_link *link, const ligi_arrival *arrival,
                                ligi_landing *landing)
{
    (void)context, (void)link, (void)arrival, (void)landing;
    return LIG_OK;
}

static void stranger_lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    stranger *self = context;
    self->status = status;
    snprintf(self->sentence, sizeof self->sentence, "%s", sentence);
    self->ended = 1;
    ligi_link_close(link, NULL);
}

static void stranger_arrived(void *context, ligi_link *link, void *token)
{
    (void)context, (void)link, (void)token;
}

static void stranger_sent(void *context, ligi_link *link, void *token, lig_status status)
{
    (void)context, (void)link, (void)token, (void)status;
}

static int is_ended(void *context)
{
    return ((stranger *)context)->ended;
}

/* Says `count` heads to the coordinator, and is shown out with that sentence. */
static void intrude(const char *address, const ligi_send *sends, size_t count, const char *part)
{
    static const ligi_net_hooks hooks = {.met = stranger_met,
                                         .head = stranger_head,
                                         .arrived = stranger_arrived,
                                         .sent = stranger_sent,
                                         .lost = stranger_lost};
    stranger self = {0};
    ligi_link *link;
    assert_ok(ligi_net_open(&self.net, &(ligi_net_options){0}));
    assert_ok(ligi_net_serve(self.net, LIGI_SERVICE_GROUP, &hooks, &self));
    assert_ok(ligi_net_connect(
        self.net, &(ligi_connect){.address = address, .service = LIGI_SERVICE_GROUP}, &link));
    for (size_t i = 0; i < count; i++) {
        int done;
        assert_ok(ligi_net_send(link, &sends[i], &done));
    }
    assert_ok(ligi_net_wait(self.net, is_ended, &self, 20 * S));
    if (strstr(self.sentence, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, self.sentence);
    ligi_net_close(self.net);
}

static void test_strangers_are_shown_out(void **state)
{
    (void)state;
    troupe cast;
    make(&cast, "inproc:strangers", 1, 1);
    add_all(&cast);
    for (size_t i = 0; i < cast.count; i++)
        cast.actors[i].options.liveness_ms = 4000;
    open_all(&cast);
    static const uint8_t beat[] = {1, 32}, nonsense[] = {1, 200, 3}, future[] = {9, 32};
    static uint8_t join[] = {1, 1, 1, 7, 0, 0, 0, 1, 0, 0, 0,   1, 0, 0,
                             0, 1, 0, 0, 0, 5, 0, 0, 0, 1, 'h', 0, 0};
    char payload[100] = {0};
    struct iovec piece = {payload, sizeof payload};
    const ligi_send sends[] = {{.head = beat, .head_bytes = sizeof beat},
                               {.head = nonsense, .head_bytes = sizeof nonsense},
                               {.head = future, .head_bytes = sizeof future},
                               {.head = join, .head_bytes = sizeof join},
                               {.head = beat, .head_bytes = 0},
                               {.head = beat, .head_bytes = 2, .iov = &piece, .count = 1}};
    intrude(cast.address, &sends[0], 1, "joins too late");
    intrude(cast.address, &sends[1], 1, "makes no sense");
    intrude(cast.address, &sends[2], 1, "version 9");
    intrude(cast.address, &sends[3], 1, "refused");
    intrude(cast.address, &sends[4], 1, "makes no sense");
    intrude(cast.address, &sends[5], 1, "has no payload");
    intrude(cast.address, sends, 0, "it has not asked to join");
    for (size_t i = 0; i < cast.count; i++) {
        cast.actors[i].mask = LIGI_WORKERS | LIGI_SERVERS;
        cast.actors[i].timeout_ns = 20 * S;
    }
    all_do(&cast, run_barrier);
    for (size_t i = 0; i < cast.count; i++)
        assert_string_equal(cast.actors[i].text, "");
    close_all(&cast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_strangers_are_shown_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
