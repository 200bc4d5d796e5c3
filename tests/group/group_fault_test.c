/* Groups of processes that are killed and frozen. The test itself is no member: it starts members
 * as children, tells them what to do over a socket, and sends the signals. */
#include "base/clock.h"
#include "base/test.h"
#include "freeze.h"
#include "group/barrier_wait.h"
#include "group/group.h"
#include "group/group_info.h"
#include "group/group_state.h"
#include "group/roster/member_names.h"
#include "net/progress.h"
#include "reserved_port.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define S INT64_C(1000000000)
#define MS INT64_C(1000000)
#define LIVENESS_MS 4000 /* longer than a machine that is busy stands still */
enum { LINE = 1024, PROCESSES = 64, ANSWER_MS = 60000 };

/* --- a member -------------------------------------------------------------------------------- */

typedef struct member {
    ligi_net *net;
    ligi_group *group;
    char events[16][LINE];
    int event_count;
} member;

static void on_event(void *context, const ligi_group_event *event)
{
    static const char *const names[] = {"joined", "gone", "expelled", "orphaned"};
    member *self = context;
    if (self->event_count == 16)
        return;
    char *text = self->events[self->event_count++];
    if (event->change <= LIGI_CHANGE_GONE)
        snprintf(text, LINE, "%s %s %u incarnation %u: %s", names[event->change],
                 ligi_role_name(event->member.role), event->member.rank, event->member.incarnation,
                 event->sentence);
    else
        snprintf(text, LINE, "%s: %s", names[event->change], event->sentence);
}

static int has_event(void *context)
{
    return ((member *)context)->event_count > 0;
}

static void next_event(member *self, char *answer)
{
    if (ligi_net_wait(self->net, has_event, self, 30 * S) != LIG_OK) {
        snprintf(answer, LINE, "no event");
        return;
    }
    ligi_net_lock(self->net);
    snprintf(answer, LINE, "%s", self->events[0]);
    memmove(self->events[0], self->events[1], sizeof self->events - sizeof self->events[0]);
    self->event_count--;
    ligi_net_unlock(self->net);
}

static void tell(char *answer, lig_status status)
{
    snprintf(answer, LINE, "%s%s%.900s", lig_status_name(status), status == LIG_OK ? "" : ": ",
             status == LIG_OK ? "" : lig_error_text());
}

static lig_status status_of(ligi_group *group)
{
    ligi_net_lock(group->net);
    lig_status status =
        group->phase == LIGI_PHASE_ENDED ? ligi_failure_publish(&group->failure) : LIG_OK;
    ligi_net_unlock(group->net);
    return status;
}

static void obey(member *self, const char *order, char *answer)
{
    unsigned mask, timeout_ms;
    if (sscanf(order, "barrier %u %u", &mask, &timeout_ms) == 2)
        tell(answer, ligi_group_barrier(self->group, mask, 0, timeout_ms * MS));
    else if (strcmp(order, "event") == 0)
        next_event(self, answer);
    else if (strcmp(order, "status") == 0)
        tell(answer, status_of(self->group));
    else if (strcmp(order, "who") == 0)
        snprintf(answer, LINE, "%s %u incarnation %u", ligi_role_name(ligi_group_role(self->group)),
                 ligi_group_rank(self->group), ligi_group_incarnation(self->group));
    else
        snprintf(answer, LINE, "what is '%.100s'?", order);
}

static void live(int channel, const ligi_group_options *options)
{
    member self = {0};
    char order[LINE], answer[LINE];
    lig_status status = ligi_net_open(&self.net, &(ligi_net_options){.background = 1});
    if (status == LIG_OK)
        status = ligi_group_open(&self.group, self.net, options);
    if (status == LIG_OK)
        ligi_group_watch(self.group, on_event, &self);
    tell(answer, status);
    ssize_t got = send(channel, answer, strlen(answer) + 1, MSG_NOSIGNAL);
    while (got > 0 && status == LIG_OK) {
        got = recv(channel, order, sizeof order, 0);
        if (got <= 0 || strcmp(order, "close") == 0)
            break;
        obey(&self, order, answer);
        got = send(channel, answer, strlen(answer) + 1, MSG_NOSIGNAL);
    }
    ligi_group_close(self.group, 10 * S);
    ligi_net_close(self.net);
}

/* --- the stage ------------------------------------------------------------------------------- */

typedef struct process {
    pid_t pid;
    int channel;
} process;

typedef struct stage {
    uint32_t server_count, worker_count;
    char address[64];
    int port; /* bound and not listened on: kept from others, free for the coordinator */
    process all[PROCESSES];
    int count;
} stage;

static void raise_stage(stage *self, uint32_t servers, uint32_t workers)
{
    *self = (stage){.server_count = servers, .worker_count = workers};
    self->port = reserve_port(self->address);
}

static process *enter(stage *self, ligi_role role, uint32_t rank)
{
    int pair[2];
    process *one = &self->all[self->count++];
    assert_true(self->count <= PROCESSES);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(pair[0]);
        close(self->port);
        for (int i = 0; i + 1 < self->count; i++)
            if (self->all[i].channel >= 0)
                close(self->all[i].channel);
        live(pair[1], &(ligi_group_options){.role = role,
                                            .rank = rank,
                                            .server_count = self->server_count,
                                            .worker_count = self->worker_count,
                                            .coordinator = LIGI_COORDINATOR_BY_ROLE,
                                            .address = self->address,
                                            .liveness_ms = LIVENESS_MS,
                                            .timeout_ns = 30 * S});
        _exit(0);
    }
    close(pair[1]);
    *one = (process){pid, pair[0]};
    return one;
}

static void order(process *one, const char *text)
{
    send(one->channel, text, strlen(text) + 1, MSG_NOSIGNAL);
}

/* What it answers; a minute without an answer is a hang, which is what these tests are about. */
static const char *answer(process *one)
{
    static char text[LINE];
    struct pollfd ready = {.fd = one->channel, .events = POLLIN};
    int got = poll(&ready, 1, ANSWER_MS);
    if (got == 0)
        fail_msg("process %d does not answer", (int)one->pid);
    ssize_t bytes = recv(one->channel, text, sizeof text - 1, 0);
    if (bytes <= 0)
        snprintf(text, sizeof text, "dead");
    return text;
}

static const char *ask(process *one, const char *text)
{
    order(one, text);
    return answer(one);
}

static void expect(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, text);
}

static void bury(process *one)
{
    int status;
    if (one->pid == 0)
        return;
    kill(one->pid, SIGKILL);
    assert_int_equal(waitpid(one->pid, &status, 0), one->pid);
    close(one->channel);
    *one = (process){0, -1};
}

/* Scheduler, servers, workers in this order, all released. */
static void cast(stage *self)
{
    enter(self, LIGI_SCHEDULER, 0);
    for (uint32_t i = 0; i < self->server_count; i++)
        enter(self, LIGI_SERVER, i);
    for (uint32_t i = 0; i < self->worker_count; i++)
        enter(self, LIGI_WORKER, i);
    for (int i = 0; i < self->count; i++)
        assert_string_equal(answer(&self->all[i]), "ok");
}

static void strike(stage *self)
{
    for (int i = 0; i < self->count; i++)
        bury(&self->all[i]);
    close(self->port);
}

/* --- the tests ------------------------------------------------------------------------------- */

static void test_killed_worker_and_its_successor(void **state)
{
    (void)state;
    stage self;
    raise_stage(&self, 1, 2);
    cast(&self);
    process *server = &self.all[1], *stays = &self.all[2], *dies = &self.all[3];
    order(stays, "barrier 2 30000");
    kill(dies->pid, SIGKILL);
    expect(answer(stays), "peer: barrier cannot complete: worker 1 (");
    expect(ask(server, "event"), "gone worker 1 incarnation 1");
    expect(ask(stays, "event"), "gone worker 1 incarnation 1");
    expect(ask(stays, "barrier 2 30000"), "worker 1");
    process *again = enter(&self, LIGI_WORKER, 1);
    assert_string_equal(answer(again), "ok");
    assert_string_equal(ask(again, "who"), "worker 1 incarnation 2");
    expect(ask(server, "event"), "joined worker 1 incarnation 2");
    order(stays, "barrier 2 30000");
    assert_string_equal(ask(again, "barrier 2 30000"), "ok");
    assert_string_equal(answer(stays), "ok");
    strike(&self);
}

static void test_frozen_worker_learns_that_it_is_out(void **state)
{
    (void)state;
    stage self;
    raise_stage(&self, 1, 2);
    cast(&self);
    process *server = &self.all[1], *frozen = &self.all[3];
    freeze(frozen->pid);
    expect(ask(server, "event"), "gone worker 1 incarnation 1: it was silent for");
    process *again = enter(&self, LIGI_WORKER, 1);
    assert_string_equal(answer(again), "ok");
    kill(frozen->pid, SIGCONT);
    expect(ask(frozen, "event"), "expelled: this process, worker 1 on ");
    expect(ask(frozen, "barrier 2 30000"), "peer: this process, worker 1 on ");
    expect(ask(frozen, "status"), "was expelled from the group in epoch 2: it was silent for");
    assert_string_equal(ask(again, "status"), "ok");
    order(frozen, "close");
    assert_string_equal(answer(frozen), "dead");
    strike(&self);
}

/* A short freeze is none of the group's business. */
static void test_successor_of_a_frozen_worker_waits_for_the_seat(void **state)
{
    (void)state;
    stage self;
    raise_stage(&self, 1, 1);
    cast(&self);
    process *server = &self.all[1], *frozen = &self.all[2];
    process *early = enter(&self, LIGI_WORKER, 0);
    expect(answer(early), "exists: the rank is taken: worker 0 on ");
    freeze(frozen->pid);
    process *again = enter(&self, LIGI_WORKER, 0);
    assert_string_equal(answer(again), "ok");
    assert_string_equal(ask(again, "who"), "worker 0 incarnation 2");
    expect(ask(server, "event"), "gone worker 0 incarnation 1");
    expect(ask(server, "event"), "joined worker 0 incarnation 2");
    strike(&self);
}

static void end_coordinator(int signal)
{
    stage self;
    raise_stage(&self, 1, 2);
    cast(&self);
    order(&self.all[2], "barrier 2 30000");
    kill(self.all[0].pid, signal);
    expect(answer(&self.all[2]), "the coordinator at ");
    expect(ask(&self.all[1], "event"), signal == SIGSTOP ? "expelled: the coordinator at "
                                                         : "orphaned: lost the coordinator at ");
    expect(ask(&self.all[3], "barrier 2 30000"), "the coordinator at ");
    if (signal == SIGSTOP) {
        kill(self.all[0].pid, SIGCONT);
        for (int i = 1; i < self.count; i++)
            order(&self.all[i], "close");
        order(&self.all[0], "close");
        assert_string_equal(answer(&self.all[0]), "dead");
    }
    strike(&self);
}

static void test_end_of_the_coordinator(void **state)
{
    (void)state;
    end_coordinator(SIGKILL);
    end_coordinator(SIGSTOP);
}

/* Everybody waits at barriers while one is hit; whatever happens, every call ends. */
static void hit_one(stage *self, unsigned *seed)
{
    int victim = rand_r(seed) % self->count, signal = rand_r(seed) % 2 ? SIGKILL : SIGSTOP;
    for (int i = 0; i < self->count; i++)
        if (i != victim || rand_r(seed) % 2)
            order(&self->all[i], rand_r(seed) % 3 ? "barrier 7 20000" : "barrier 7 300");
    if (rand_r(seed) % 2)
        usleep((unsigned)rand_r(seed) % 3000);
    kill(self->all[victim].pid, signal);
    for (int i = 0; i < self->count; i++) {
        if (i == victim)
            continue;
        const char *text = ask(&self->all[i], "status");
        assert_int_not_equal(strlen(text), 0);
    }
    if (signal == SIGSTOP)
        kill(self->all[victim].pid, SIGCONT);
}

static void test_random_hits(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 12; round++) {
        unsigned seed = round * 7919 + 1;
        stage self;
        raise_stage(&self, 1, 2);
        cast(&self);
        hit_one(&self, &seed);
        for (int i = self.count - 1; i >= 0; i--)
            order(&self.all[i], "close");
        for (int i = 0; i < self.count; i++)
            while (strcmp(answer(&self.all[i]), "dead") != 0)
                ;
        strike(&self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_worker_and_its_successor),
        cmocka_unit_test(test_frozen_worker_learns_that_it_is_out),
        cmocka_unit_test(test_successor_of_a_frozen_worker_waits_for_the_seat),
        cmocka_unit_test(test_end_of_the_coordinator),
        cmocka_unit_test(test_random_hits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
