#include "group/group.h"

#include "base/clock.h"
#include "group/coordinator.h"
#include "group/group_state.h"
#include "group/member.h"
#include "group/rendezvous/coordinator_choice.h"
#include "group/rendezvous/host_names.h"
#include "group/rendezvous/rendezvous_exchange.h"
#include "group/roster/local_pause.h"
#include "net/link/link.h"
#include "net/progress.h"
#include "net/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIVENESS_MS_DEFAULT 10000
#define SLICE_NS INT64_C(100000000)
#define SENTENCE_NS INT64_C(2000000000) /* how long an ended connection may take to report it */

/* --- messages within the process ----------------------------------------------------------------
 */

void ligi_group_inner(ligi_group *group, int to_coordinator, const ligi_writer *writer)
{
    ligi_inner *inner = NULL;
    lig_status status = writer->status;
    if (status == LIG_OK)
        status = ligi_alloc(&inner, sizeof *inner + writer->bytes, "a message of the group");
    if (status != LIG_OK) {
        ligi_member_end(group, LIGI_CHANGE_ORPHANED, status);
        return;
    }
    *inner = (ligi_inner){.to_coordinator = to_coordinator, .bytes = writer->bytes};
    memcpy(inner->data, writer->data, writer->bytes);
    if (group->inner_last != NULL)
        group->inner_last->next = inner;
    else
        group->inner_first = inner;
    group->inner_last = inner;
}

static ligi_inner *take_inner(ligi_group *group)
{
    ligi_inner *inner = group->inner_first;
    if (inner == NULL)
        return NULL;
    group->inner_first = inner->next;
    if (group->inner_first == NULL)
        group->inner_last = NULL;
    return inner;
}

static int work_inner(ligi_group *group)
{
    ligi_inner *inner = take_inner(group);
    if (inner == NULL)
        return 0;
    lig_status status = inner->to_coordinator
                            ? ligi_coordinator_take_own(group, inner->data, inner->bytes)
                            : ligi_member_take(group, inner->data, inner->bytes);
    free(inner);
    if (status != LIG_OK)
        ligi_member_end(group, LIGI_CHANGE_ORPHANED, status);
    return 1;
}

static void pump(ligi_group *group)
{
    if (group->pumping || group->coordinator == NULL)
        return;
    group->pumping = 1;
    while (ligi_coordinator_work(group) || work_inner(group))
        ;
    group->pumping = 0;
}

/* --- hooks ----------------------------------------------------------------------------------- */

/* The link to the coordinator, on a member that is not the coordinator itself. */
static int is_upward(const ligi_group *group, const ligi_link *link)
{
    return group->coordinator == NULL && ligi_link_owner(link) == group;
}

static lig_status on_met(void *context, ligi_link *link, const ligi_hello *hello, ligi_reply *reply)
{
    ligi_group *group = context;
    (void)hello, (void)reply;
    if (is_upward(group, link)) {
        group->link = link;
        return ligi_member_ask(group);
    }
    if (group->coordinator == NULL)
        return lig_fail(LIG_E_INVALID, "this process does not run the rendezvous of its group");
    return ligi_coordinator_met(group, link);
}

static lig_status on_head(void *context, ligi_link *link, const ligi_arrival *arrival,
                          ligi_landing *landing)
{
    ligi_group *group = context;
    lig_status status = LIG_OK;
    (void)landing;
    if (arrival->payload_bytes > 0)
        return lig_fail(LIG_E_CORRUPT, "a message of a group has no payload");
    if (is_upward(group, link))
        status = ligi_member_take(group, arrival->head, arrival->head_bytes);
    else if (group->coordinator != NULL)
        status = ligi_coordinator_take(group, link, arrival->head, arrival->head_bytes);
    pump(group);
    return status;
}

/* Advice if no member of the group answers at the address. */
static void advise(const ligi_group *group, char *text, size_t text_bytes)
{
    if (group->displaced[0] != '\0')
        snprintf(
            text, text_bytes,
            "this process would run the rendezvous, but %s: free the address or choose another",
            group->displaced);
    else
        snprintf(text, text_bytes,
                 "start the scheduler, or member 0, which runs the rendezvous, or choose another "
                 "address");
}

/* Before the roster arrives, only the error text matters; afterwards the member has lost its
 * group. */
static void lose_coordinator(ligi_group *group, ligi_link *link, lig_status status,
                             const char *sentence)
{
    char said[512], advice[512];
    snprintf(said, sizeof said, "%s", sentence);
    advise(group, advice, sizeof advice);
    ligi_link_close(link, NULL);
    group->link = NULL;
    if (group->phase == LIGI_PHASE_CONNECTING && status == LIG_E_TIMEOUT)
        status = lig_fail(status, "no group at %s: %s; %s", group->address, said, advice);
    else if (group->phase == LIGI_PHASE_CONNECTING)
        status = lig_fail(status, "no group at %s: %s", group->address, said);
    else
        status = lig_fail(LIG_E_PEER, "lost the coordinator at %s: %s", group->address, said);
    ligi_member_end(group, LIGI_CHANGE_ORPHANED, status);
}

static void on_lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    ligi_group *group = context;
    if (is_upward(group, link))
        lose_coordinator(group, link, status, sentence);
    else if (group->coordinator != NULL)
        ligi_coordinator_lost(group, link, status, sentence);
    else
        ligi_link_close(link, NULL);
    pump(group);
}

static int64_t on_tick(void *context, int64_t now_ns)
{
    ligi_group *group = context;
    ligi_member_tick(group, now_ns);
    if (group->coordinator != NULL) {
        lig_status status = ligi_coordinator_tick(group, now_ns);
        if (status != LIG_OK)
            ligi_member_end(group, LIGI_CHANGE_ORPHANED, status);
    }
    pump(group);
    return now_ns + ligi_pause_beat_ns(group->liveness_ns) / 2;
}

static const ligi_net_hooks hooks = {
    .met = on_met,
    .head = on_head,
    .lost = on_lost,
    .tick = on_tick,
};

/* --- opening --------------------------------------------------------------------------------- */

static lig_status check_options(const ligi_group_options *options)
{
    if (options->timeout_ns <= 0)
        return lig_fail(LIG_E_INVALID, "joining a group needs a finite timeout");
    if (options->address == NULL && options->exchange == NULL)
        return lig_fail(LIG_E_INVALID,
                        "a group needs a rendezvous address or an exchange function");
    if (options->exchange != NULL && options->exchange_index >= options->exchange_count)
        return lig_fail(LIG_E_INVALID, "invalid process index %u of %u in the exchange",
                        options->exchange_index, options->exchange_count);
    return LIG_OK;
}

/* As in the roster of a coordinator, which also checks the counts. */
static lig_status make_seats(ligi_group *group, const ligi_group_options *options)
{
    ligi_roster roster;
    LIG_TRY(ligi_roster_init(&roster, options));
    group->seat_count = roster.seat_count;
    lig_status status =
        ligi_calloc(&group->seats, group->seat_count, sizeof *group->seats, "a group's members");
    for (size_t i = 0; status == LIG_OK && i < group->seat_count; i++)
        group->seats[i].member = roster.seats[i].member;
    ligi_roster_fini(&roster);
    return status;
}

static void fill_join(ligi_group *group, const ligi_group_options *options)
{
    ligi_join *join = &group->join;
    join->role = options->role;
    join->rank = options->role == LIGI_SCHEDULER ? 0 : options->rank;
    join->server_count = options->server_count;
    join->worker_count = options->worker_count;
    join->group_size = options->group_size > 0 ? options->group_size : 1;
    join->pid = (uint32_t)getpid();
    if (gethostname(join->host, sizeof join->host) != 0 || join->host[0] == '\0')
        snprintf(join->host, sizeof join->host, "localhost");
    join->host[sizeof join->host - 1] = '\0';
    if (options->host != NULL)
        snprintf(group->card_host, sizeof group->card_host, "%s", options->host);
}

static lig_status create(ligi_group **out, ligi_net *net, const ligi_group_options *options)
{
    ligi_group *group;
    LIG_TRY(check_options(options));
    LIG_TRY(ligi_calloc(&group, 1, sizeof *group, "a group"));
    group->net = net;
    group->patience = options->patience;
    group->patience_context = options->patience_context;
    group->begun_ns = group->tick_ns = group->awake_ns = ligi_now_ns();
    group->liveness_ns =
        (int64_t)(options->liveness_ms > 0 ? options->liveness_ms : LIVENESS_MS_DEFAULT) * 1000000;
    fill_join(group, options);
    lig_status status = make_seats(group, options);
    if (status == LIG_OK)
        *out = group;
    else
        free(group);
    return status;
}

static void destroy(ligi_group *group)
{
    ligi_inner *inner;
    while ((inner = take_inner(group)) != NULL)
        free(inner);
    ligi_coordinator_destroy(group->coordinator);
    free(group->seats);
    free(group);
}

lig_status ligi_group_wait(ligi_group *group, int (*until)(void *), void *context,
                           int64_t timeout_ns)
{
    if (group->patience == NULL)
        return ligi_net_wait(group->net, until, context, timeout_ns);
    for (int64_t left = timeout_ns;;) {
        int64_t slice = left < 0 || left > SLICE_NS ? SLICE_NS : left;
        lig_status status = ligi_net_wait(group->net, until, context, slice);
        left -= left < 0 ? 0 : slice;
        if (status != LIG_E_TIMEOUT || left == 0)
            return status;
        if (!group->patience(group->patience_context))
            return lig_fail(LIG_E_CLOSED, "cancelled by the caller");
    }
}

/* --- waiting for all ------------------------------------------------------------------------- */

static int is_released(void *context)
{
    const ligi_group *group = context;
    return group->phase >= LIGI_PHASE_RELEASED;
}

static int has_tried(void *context)
{
    const ligi_group *group = context;
    return group->phase != LIGI_PHASE_CONNECTING;
}

static lig_status fail_timeout(const ligi_group *group, int64_t timeout_ns)
{
    long long passed = (long long)(timeout_ns / 1000000);
    if (group->waiting[0] == '\0')
        return lig_fail(
            LIG_E_TIMEOUT,
            "timeout after %lld ms: not all members of the group at %s have confirmed it", passed,
            group->address);
    return lig_fail(LIG_E_TIMEOUT, "timeout after %lld ms: the group at %s is still waiting for %s",
                    passed, group->address, group->waiting);
}

static lig_status wait_for_all(ligi_group *group, int64_t timeout_ns)
{
    int64_t left = group->begun_ns + timeout_ns - ligi_now_ns();
    lig_status status = ligi_group_wait(group, is_released, group, left > 0 ? left : 0);
    /* The link to the coordinator has the same timeout, and its error says what was tried. */
    if (status == LIG_E_TIMEOUT) {
        lig_status tried = ligi_group_wait(group, has_tried, group, SENTENCE_NS);
        status = tried == LIG_OK ? LIG_E_TIMEOUT : tried;
    }
    ligi_net_lock(group->net);
    if (group->phase == LIGI_PHASE_RELEASED)
        status = LIG_OK;
    else if (group->phase == LIGI_PHASE_ENDED)
        status = ligi_failure_publish(&group->failure);
    else if (status == LIG_E_TIMEOUT)
        status = fail_timeout(group, timeout_ns);
    ligi_net_unlock(group->net);
    return status;
}

static lig_status join_group(ligi_group *group, const ligi_group_options *options)
{
    if (options->exchange != NULL)
        LIG_TRY(ligi_group_rendezvous_by_exchange(group, options, options->timeout_ns));
    else
        LIG_TRY(ligi_group_rendezvous(group, options, options->timeout_ns));
    if (group->coordinator != NULL) {
        ligi_net_lock(group->net);
        lig_status status = ligi_member_ask(group);
        ligi_net_unlock(group->net);
        LIG_TRY(status);
        ligi_net_hurry(group->net, LIGI_SERVICE_GROUP);
    }
    return wait_for_all(group, options->timeout_ns);
}

/* The host name on the card. The coordinator would see a member on its own host under a loopback
 * address if the host name resolves to that. */
static void name_self(ligi_group *group, const ligi_group_options *options)
{
    char wide[LIGI_ADDRESS_BYTES_MAX], name[LIGI_ADDRESS_BYTES_MAX];
    memcpy(name, group->card_host, sizeof name);
    if (ligi_group_is_name(name) ||
        (name[0] == '\0' && options->address != NULL && ligi_group_widen(options->address, wide)))
        ligi_group_own_number(name, group->card_host, sizeof group->card_host);
}

lig_status ligi_group_open(ligi_group **group, ligi_net *net, const ligi_group_options *options)
{
    ligi_group *made;
    LIG_TRY(create(&made, net, options));
    name_self(made, options);
    lig_status status = ligi_net_serve(net, LIGI_SERVICE_GROUP, &hooks, made);
    if (status != LIG_OK) {
        destroy(made);
        return status;
    }
    status = join_group(made, options);
    if (status == LIG_OK) {
        *group = made;
        return LIG_OK;
    }
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    ligi_net_lock(net);
    if (made->coordinator != NULL)
        ligi_coordinator_close(made, failure.text);
    ligi_net_unlock(net);
    ligi_net_unserve(net, LIGI_SERVICE_GROUP);
    destroy(made);
    return ligi_failure_publish(&failure);
}

/* --- closing --------------------------------------------------------------------------------- */

static int is_alone(void *context)
{
    const ligi_group *group = context;
    return group->phase == LIGI_PHASE_ENDED ||
           ligi_roster_others(&group->coordinator->roster, LIGI_SELF) == 0;
}

lig_status ligi_group_linger(ligi_group *group, int64_t timeout_ns)
{
    return group->coordinator ? ligi_net_wait(group->net, is_alone, group, timeout_ns) : LIG_OK;
}

void ligi_group_close(ligi_group *group, int64_t linger_ns)
{
    if (group == NULL)
        return;
    if (linger_ns != 0)
        (void)ligi_group_linger(group, linger_ns);
    ligi_net_lock(group->net);
    group->hook = NULL;
    if (group->coordinator != NULL)
        ligi_coordinator_close(group, "it has stopped");
    ligi_link_close(group->link, "it has stopped");
    group->link = NULL;
    ligi_net_unlock(group->net);
    ligi_net_unserve(group->net, LIGI_SERVICE_GROUP);
    destroy(group);
}
