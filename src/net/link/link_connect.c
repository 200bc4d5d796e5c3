#include "net/link/link_connect.h"

#include "base/clock.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/link/transport_choice.h"
#include "net/net.h"
#include "net/net_state.h"
#include "net/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_FIRST_NS INT64_C(10000000)
#define PAUSE_MAX_NS INT64_C(250000000)

/* Some addresses neither answer nor refuse (a firewall, a fabric to which only one end is
 * connected): leave time for the next one. */
static void set_turn(ligi_link *link)
{
    ligi_connect_plan *plan = link->plan;
    int64_t now = ligi_now_ns(), half = (link->deadline_ns - now) / 2;
    int64_t turn = link->net->options.turn_ns;

    plan->turn_ns = LIGI_NEVER;
    if (plan->next + 1 < plan->count)
        plan->turn_ns = now + (turn < half ? turn : half);
    ligi_net_due(link->net, plan->turn_ns);
}

static lig_status attempt(ligi_link *link, const char *address)
{
    ligi_connect_plan *plan = link->plan;
    ligi_transport_slot *slot;
    ligi_uri uri;

    LIG_TRY(ligi_uri_parse(&uri, address));
    lig_status status = ligi_net_transport(link->net, uri.scheme, &slot);
    if (status == LIG_OK) {
        ligi_link_take_back_hello(link);
        status = ligi_link_put_hello(link, plan->hello, plan->hello_bytes);
    }
    if (status == LIG_OK) {
        link->ops = slot->ops;
        snprintf(link->address, sizeof link->address, "%s", address);
        status = slot->ops->connect(slot->self, &uri, link, &link->wire);
    }
    ligi_uri_fini(&uri);
    return status;
}

static lig_status no_more(ligi_link *link, lig_status status)
{
    ligi_connect_plan *plan = link->plan;

    if (!plan->retry || (status != LIG_E_PEER && status != LIG_E_NOTFOUND)) {
        if (plan->count > 1)
            return lig_fail(status, "no answer from any of the %zu addresses of %s; the last: %s",
                            plan->count, link->name, plan->last);
        return lig_fail(status, "%s", plan->last);
    }
    plan->next = 0;
    plan->again_ns = ligi_now_ns() + plan->pause_ns;
    if (plan->pause_ns < PAUSE_MAX_NS)
        plan->pause_ns *= 2;
    ligi_net_due(link->net, plan->again_ns);
    return LIG_OK;
}

lig_status ligi_link_connect_next(ligi_link *link)
{
    ligi_connect_plan *plan = link->plan;
    lig_status status = link->status != LIG_OK ? link->status : LIG_E_PEER;

    plan->again_ns = LIGI_NEVER;
    for (; plan->next < plan->count; plan->next++) {
        status = attempt(link, plan->addresses[plan->next]);
        if (status == LIG_OK) {
            set_turn(link);
            return LIG_OK;
        }
        snprintf(plan->last, sizeof plan->last, "%s", lig_error_text());
    }
    return no_more(link, status);
}

static lig_status resolve(ligi_net *net, const char *address, ligi_connect_plan *plan)
{
    ligi_transport_slot *slot = NULL;
    ligi_uri uri;

    LIG_TRY(ligi_uri_parse(&uri, address));
    ligi_net_lock(net);
    lig_status status = ligi_net_transport(net, uri.scheme, &slot);
    ligi_net_unlock(net);
    if (status == LIG_OK && slot->ops->resolve != NULL)
        status = slot->ops->resolve(&uri, plan->addresses[0]);
    else if (status == LIG_OK && strlen(address) < LIGI_ADDRESS_BYTES_MAX)
        snprintf(plan->addresses[0], LIGI_ADDRESS_BYTES_MAX, "%s", address);
    else if (status == LIG_OK)
        status = lig_fail(LIG_E_LIMIT, "address longer than %d bytes", LIGI_ADDRESS_BYTES_MAX - 1);
    ligi_uri_fini(&uri);
    plan->count = 1;
    return status;
}

static lig_status begin(ligi_net *net, const ligi_connect *connect, ligi_connect_plan *plan,
                        ligi_link **link)
{
    ligi_link *made;

    if ((unsigned)connect->service >= LIGI_SERVICE_COUNT ||
        net->services[connect->service].hooks == NULL)
        return lig_fail(LIG_E_INVALID, "service %d of a link is not served here", connect->service);
    LIG_TRY(ligi_link_create(net, LIGI_CONNECTING, plan->addresses[0], &made));
    made->plan = plan;
    made->service = connect->service;
    made->owner = connect->owner;
    if (connect->timeout_ns > 0) {
        made->deadline_ns = ligi_now_ns() + connect->timeout_ns;
        ligi_net_due(net, made->deadline_ns);
    }
    lig_status status = ligi_link_connect_next(made);
    if (status != LIG_OK) {
        ligi_link_take_back_hello(made);
        made->plan = NULL;
        ligi_link_free(made);
        return status;
    }
    *link = made;
    return LIG_OK;
}

static lig_status prepare(ligi_net *net, const ligi_connect *connect, ligi_connect_plan *plan)
{
    if (connect->hello_bytes > sizeof plan->hello)
        return lig_fail(LIG_E_LIMIT, "hello of %zu bytes: the limit is %d", connect->hello_bytes,
                        LIGI_HELLO_BYTES_MAX);
    if (connect->hello_bytes > 0)
        memcpy(plan->hello, connect->hello, connect->hello_bytes);
    plan->hello_bytes = connect->hello_bytes;
    plan->retry = connect->retry;
    plan->pause_ns = PAUSE_FIRST_NS;
    if (connect->address != NULL)
        return resolve(net, connect->address, plan);
    ligi_net_lock(net);
    lig_status status = ligi_link_choose(net, connect, plan);
    ligi_net_unlock(net);
    return status;
}

lig_status ligi_net_connect(ligi_net *net, const ligi_connect *connect, ligi_link **link)
{
    ligi_connect_plan *plan;

    LIG_TRY(ligi_net_mine(net));
    LIG_TRY(ligi_calloc(&plan, 1, sizeof *plan, "a connection"));
    lig_status status = prepare(net, connect, plan);
    if (status == LIG_OK) {
        ligi_net_enter(net);
        status = begin(net, connect, plan, link);
        ligi_net_wake(net); /* a sleeping thread waits only for the earlier connections */
        ligi_net_leave(net);
    }
    if (status != LIG_OK)
        free(plan);
    return status;
}
