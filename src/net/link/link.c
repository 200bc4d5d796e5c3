#include "net/link/link.h"

#include "base/clock.h"
#include "net/link/link_connect.h"
#include "net/link/link_send.h"
#include "net/net.h"
#include "net/net_state.h"
#include "net/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const ligi_served *ligi_link_served(const ligi_link *link)
{
    return &link->net->services[link->service];
}

lig_status ligi_link_create(ligi_net *net, ligi_state state, const char *address, ligi_link **link)
{
    ligi_link *made;

    if (net->stats.link_count >= net->options.link_max)
        return lig_fail(LIG_E_LIMIT, "'%s': too many open links (the limit is %u)", address,
                        net->options.link_max);
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a link"));
    made->net = net;
    made->state = state;
    made->accepted = state == LIGI_STRANGER;
    made->service = LIGI_SERVICE_COUNT;
    made->heard_ns = ligi_now_ns();
    made->deadline_ns = made->heard_ns + net->options.hello_ns;
    made->next = net->links;
    made->at = &net->links;
    if (net->links != NULL)
        net->links->at = &made->next;
    net->links = made;
    net->stats.link_count++;
    net->stats.stranger_count += made->accepted;
    strncpy(made->address, address, sizeof made->address - 1);
    strncpy(made->name, address, sizeof made->name - 1);
    ligi_net_due(net, made->deadline_ns);
    *link = made;
    return LIG_OK;
}

static void uncork(ligi_link *link)
{
    ligi_link **at = &link->net->corked;

    while (*at != link)
        at = &(*at)->next_corked;
    *at = link->next_corked;
}

void ligi_link_free(ligi_link *link)
{
    if (link->corked)
        uncork(link);
    *link->at = link->next;
    if (link->next != NULL)
        link->next->at = link->at;
    link->net->stats.link_count--;
    free(link->plan);
    free(link->sentence);
    free(link);
}

static void drop_wire(ligi_link *link)
{
    void *wire = link->wire;
    link->wire = NULL;
    if (wire != NULL)
        link->ops->drop(wire, link->graceful);
    link->graceful = 0;
    link->landing = link->arriving = 0;
}

/* The oldest is dropped: a real peer sends its hello at once. */
static void make_room(ligi_net *net)
{
    ligi_link *oldest = NULL;

    if (net->stats.stranger_count < net->options.stranger_max)
        return;
    for (ligi_link *link = net->links; link != NULL; link = link->next)
        if (link->state == LIGI_STRANGER &&
            (oldest == NULL || link->deadline_ns <= oldest->deadline_ns))
            oldest = link;
    if (oldest != NULL)
        ligi_link_fail(oldest, lig_fail(LIG_E_LIMIT, "'%s' sent no hello while %u others connected",
                                        oldest->name, net->options.stranger_max));
}

lig_status ligi_link_accept(ligi_net *net, const ligi_transport_ops *ops, void *wire,
                            const char *peer, ligi_link **link)
{
    ligi_link *made;

    make_room(net);
    LIG_TRY(ligi_link_create(net, LIGI_STRANGER, peer, &made));
    made->ops = ops;
    made->wire = wire;
    *link = made;
    return LIG_OK;
}

void ligi_link_fail(ligi_link *link, lig_status status)
{
    ligi_net *net = link->net;

    if (link->state == LIGI_ENDED || link->closed)
        return;
    net->stats.stranger_count -= link->state == LIGI_STRANGER;
    link->state = LIGI_ENDED;
    link->status = status;
    free(link->sentence);
    link->sentence = NULL;
    if (ligi_strdup(&link->sentence, lig_error_text()) != LIG_OK)
        link->sentence = NULL;
    link->failing = 1;
    link->next_listed = net->failing;
    net->failing = link;
    if (!net->in_round)
        ligi_net_wake(net);
}

int ligi_link_dead(const ligi_link *link)
{
    return link->closed || link->state == LIGI_ENDED;
}

static void list_dead(ligi_link *link)
{
    link->next_listed = link->net->dead;
    link->net->dead = link;
}

static void unlist_failing(ligi_link *link)
{
    ligi_link **at = &link->net->failing;

    while (*at != link)
        at = &(*at)->next_listed;
    *at = link->next_listed;
    link->failing = 0;
}

static void tell_lost(ligi_link *link)
{
    const ligi_served *served = ligi_link_served(link);
    lig_status status = link->status;
    const char *sentence = link->sentence ? link->sentence : "";

    link->told = 1;
    link->net->stats.lost_count++;
    if (served->hooks != NULL)
        served->hooks->lost(served->context, link, status, sentence);
}

static void settle_one(ligi_link *link)
{
    if (link->plan != NULL && !link->final) {
        snprintf(link->plan->last, sizeof link->plan->last, "%s",
                 link->sentence ? link->sentence : "");
        drop_wire(link);
        link->plan->next++;
        link->state = LIGI_CONNECTING;
        lig_status status = ligi_link_connect_next(link);
        if (status == LIG_OK)
            return;
        ligi_link_fail(link, status);
        unlist_failing(link);
    }
    free(link->plan);
    link->plan = NULL;
    ligi_link_cancel_all(link, link->status);
    drop_wire(link);
    if (link->closed)
        return;
    if (link->accepted && link->service == LIGI_SERVICE_COUNT) {
        link->closed = 1;
        list_dead(link);
        return;
    }
    tell_lost(link);
}

void ligi_net_settle(ligi_net *net)
{
    while (net->failing != NULL) {
        ligi_link *link = net->failing;
        net->failing = link->next_listed;
        link->failing = 0;
        settle_one(link);
    }
}

void ligi_net_bury(ligi_net *net)
{
    while (net->dead != NULL) {
        ligi_link *link = net->dead;
        net->dead = link->next_listed;
        drop_wire(link);
        ligi_link_free(link);
    }
}

void ligi_link_close(ligi_link *link, const char *reason)
{
    if (link == NULL)
        return;
    ligi_net *net = link->net;
    if (ligi_net_mine(net) != LIG_OK)
        return; /* freed with the endpoint */
    ligi_net_enter(net);
    if (!link->closed && !link->closing) {
        link->closing = 1; /* `sent` may send again */
        ligi_link_say_bye(link, LIG_E_CLOSED, reason ? reason : "");
        ligi_link_cancel_all(link, LIG_E_CLOSED);
        if (link->failing)
            unlist_failing(link);
        net->stats.stranger_count -= link->state == LIGI_STRANGER;
        link->state = LIGI_ENDED;
        link->closed = 1;
        list_dead(link);
    }
    ligi_net_leave(net);
}

void ligi_link_set_owner(ligi_link *link, void *owner)
{
    link->owner = owner;
}

void *ligi_link_owner(const ligi_link *link)
{
    return link->owner;
}

void ligi_link_set_name(ligi_link *link, const char *name)
{
    ligi_net_lock(link->net);
    memset(link->name, 0, sizeof link->name);
    strncpy(link->name, name, sizeof link->name - 1);
    ligi_net_unlock(link->net);
}

const char *ligi_link_name(const ligi_link *link)
{
    return link->name;
}

const char *ligi_link_address(const ligi_link *link)
{
    return link->address;
}

int ligi_link_maps_memory(const ligi_link *link)
{
    return link->ops != NULL && link->ops->reserve != NULL;
}

const char *ligi_link_scheme(const ligi_link *link)
{
    return link->ops != NULL ? link->ops->scheme : "";
}

int ligi_link_near(const ligi_link *link)
{
    return link->ops != NULL && link->ops->far4 == NULL;
}

int ligi_link_up(const ligi_link *link)
{
    return link->state == LIGI_UP && !link->closed;
}

size_t ligi_link_queued(const ligi_link *link)
{
    return link->queued;
}

int64_t ligi_link_heard_ns(const ligi_link *link)
{
    return link->heard_ns;
}

void ligi_link_heard(ligi_link *link, int64_t now_ns)
{
    link->heard_ns = now_ns;
}

lig_status ligi_link_local_host(const ligi_link *link, char host[LIGI_ADDRESS_BYTES_MAX])
{
    lig_status status = LIG_OK;

    host[0] = '\0';
    LIG_TRY(ligi_net_mine(link->net));
    ligi_net_lock(link->net);
    if (link->wire != NULL && link->ops->local_host != NULL)
        status = link->ops->local_host(link->wire, host);
    ligi_net_unlock(link->net);
    return status;
}

void ligi_mapping_keep(ligi_mapping *mapping)
{
    __atomic_add_fetch(&mapping->refs, 1, __ATOMIC_RELAXED);
}

void ligi_mapping_drop(ligi_mapping *mapping)
{
    if (__atomic_sub_fetch(&mapping->refs, 1, __ATOMIC_ACQ_REL) == 0)
        mapping->end(mapping);
}
