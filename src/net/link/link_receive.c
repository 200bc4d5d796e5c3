#include "net/link/link_receive.h"

#include "net/link/key_binding.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/net.h"
#include "net/net_state.h"

#include <stdlib.h>
#include <string.h>

static lig_status out_of_order(const ligi_link *link, uint32_t kind)
{
    return lig_fail(LIG_E_CORRUPT, "protocol error: %s sent a message of kind %u %s", link->name,
                    kind, link->state == LIGI_UP ? "here" : "before its hello");
}

static lig_status check_kind(const ligi_link *link, const ligi_frame_prefix *prefix,
                             uint32_t *head_max)
{
    int known = link->state == LIGI_UP;

    switch (prefix->kind) {
    case LIGI_KIND_HELLO: *head_max = LIGI_HELLO_HEAD_MAX; break;
    case LIGI_KIND_DATA: *head_max = LIGI_HEAD_BYTES_MAX; break;
    case LIGI_KIND_BYE: *head_max = LIGI_BYE_HEAD_MAX; break;
    default: return out_of_order(link, prefix->kind);
    }
    if (prefix->kind == LIGI_KIND_HELLO ? known : prefix->kind == LIGI_KIND_DATA && !known)
        return out_of_order(link, prefix->kind);
    return LIG_OK;
}

lig_status ligi_link_begin(ligi_link *link, const ligi_frame_prefix *prefix)
{
    uint64_t payload_max = link->net->options.payload_bytes_max;
    uint32_t head_max = 0;

    if (ligi_link_dead(link) || link->arriving)
        return lig_fail(LIG_E_INTERNAL, "protocol error: unexpected start of a message from %s",
                        link->name);
    LIG_TRY(check_kind(link, prefix, &head_max));
    if (prefix->kind != LIGI_KIND_DATA)
        payload_max = 0;
    if (prefix->head_bytes > head_max || prefix->payload_bytes > payload_max)
        return lig_fail(LIG_E_LIMIT,
                        "%s announced a message with a head of %u bytes (limit %u) and a payload "
                        "of %llu bytes (limit %llu)",
                        link->name, prefix->head_bytes, head_max,
                        (unsigned long long)prefix->payload_bytes, (unsigned long long)payload_max);
    link->prefix = *prefix;
    link->arriving = 1;
    return LIG_OK;
}

/* This thread's error text is sent to the peer and becomes the reason of the link's failure. */
static lig_status refuse(ligi_link *link, lig_status status)
{
    ligi_failure failure;

    ligi_failure_take(&failure, status);
    link->final = 1;
    link->net->stats.refused_count += link->accepted && link->state != LIGI_UP;
    ligi_link_say_bye(link, status, failure.text);
    return ligi_failure_publish(&failure);
}

static lig_status greet_stranger(ligi_link *link, uint32_t service, const ligi_hello *hello)
{
    ligi_net *net = link->net;
    ligi_reply reply = {0};

    if (service >= LIGI_SERVICE_COUNT || net->services[service].hooks == NULL)
        return lig_fail(LIG_E_NOTFOUND, "%s requests service %u, which is not served here",
                        link->name, service);
    const ligi_served *served = &net->services[service];
    if (link->keyed && link->proved != ligi_net_key_of(net, (ligi_service)service))
        return lig_fail(
            LIG_E_DENIED,
            "%s has the secret but is not a member of this group: it proved the key of %s",
            link->name, link->proved == LIGI_KEY_MEET ? "the rendezvous" : "a member");
    link->service = (ligi_service)service;
    lig_status status = served->hooks->met(served->context, link, hello, &reply);
    if (link->closed)
        return lig_fail(LIG_E_CLOSED, "closed on connect");
    if (status != LIG_OK)
        link->service = LIGI_SERVICE_COUNT; /* the module never owned it */
    if (status == LIG_OK && reply.bytes > sizeof reply.data)
        status = lig_fail(LIG_E_INTERNAL, "hello of %zu bytes is too long", reply.bytes);
    if (status == LIG_OK)
        status = ligi_link_put_hello(link, reply.data, reply.bytes);
    return status;
}

static lig_status greet_known(ligi_link *link, uint32_t service, const ligi_hello *hello)
{
    const ligi_served *served = ligi_link_served(link);
    ligi_reply unused = {0};

    if (service != (uint32_t)link->service)
        return lig_fail(LIG_E_CORRUPT, "protocol error: %s answered for service %u instead of %u",
                        link->name, service, link->service);
    if (served->hooks == NULL)
        return lig_fail(LIG_E_CLOSED, "the service of the link to %s has ended", link->name);
    return served->hooks->met(served->context, link, hello, &unused);
}

/* While `met` runs, nothing may be sent before our hello. */
static lig_status take_hello(ligi_link *link, const ligi_incoming *in)
{
    ligi_net *net = link->net;
    ligi_hello hello = {0};
    uint32_t service = 0;

    net->stats.stranger_count -= link->state == LIGI_STRANGER;
    link->state = LIGI_MEETING;
    lig_status status = ligi_hello_decode(in->head, link->prefix.head_bytes, &hello, &service);
    if (status == LIG_OK)
        status = link->accepted ? greet_stranger(link, service, &hello)
                                : greet_known(link, service, &hello);
    if (link->closed)
        return LIG_E_CLOSED;
    if (status != LIG_OK)
        return refuse(link, status);
    free(link->plan);
    link->plan = NULL;
    link->state = LIGI_UP;
    ligi_link_flush(link);
    return LIG_OK;
}

static lig_status take_bye(ligi_link *link, const ligi_incoming *in)
{
    char text[LIGI_BYE_TEXT_MAX + 1];
    lig_status status;

    LIG_TRY(ligi_bye_decode(in->head, link->prefix.head_bytes, &status, text));
    link->final = 1;
    if (link->state != LIGI_UP)
        return lig_fail(status, "%s refused the connection%s%s", link->name, *text ? ": " : "",
                        text);
    if (status == LIG_E_CLOSED)
        return lig_fail(status, "%s closed the connection%s%s", link->name, *text ? ": " : "",
                        text);
    return lig_fail(status, "%s ended the connection%s%s", link->name, *text ? ": " : "", text);
}

static lig_status check_landing(const ligi_link *link, const ligi_landing *landing,
                                ligi_incoming *in)
{
    uint64_t bytes = link->prefix.payload_bytes, room = 0;

    for (size_t i = 0; i < in->piece_count; i++)
        if (in->pieces[i].taken && in->pieces[i].shared != NULL)
            bytes -= in->pieces[i].bytes;
    in->bytes = bytes;
    in->iov = landing->count > 0 ? landing->iov : NULL;
    in->count = landing->count;
    for (size_t i = 0; i < landing->count; i++)
        room += landing->iov[i].iov_len;
    if (landing->count > 0 && room != bytes)
        return lig_fail(LIG_E_INTERNAL, "%llu bytes from %s do not fit the %llu bytes provided",
                        (unsigned long long)bytes, link->name, (unsigned long long)room);
    return LIG_OK;
}

static lig_status take_data(ligi_link *link, ligi_incoming *in)
{
    const ligi_served *served = ligi_link_served(link);
    ligi_landing landing = {0};
    ligi_arrival arrival = {.head = in->head,
                            .head_bytes = link->prefix.head_bytes,
                            .payload_bytes = link->prefix.payload_bytes,
                            .pieces = in->pieces,
                            .piece_count = in->piece_count};

    if (served->hooks == NULL)
        return lig_fail(LIG_E_CLOSED, "the service of the link to %s has ended", link->name);
    lig_status status = served->hooks->head(served->context, link, &arrival, &landing);
    if (ligi_link_dead(link))
        return lig_fail(LIG_E_CLOSED, "the link to %s was closed", link->name);
    if (status == LIG_OK)
        status = check_landing(link, &landing, in);
    if (status != LIG_OK)
        return refuse(link, status);
    link->landing = 1;
    link->landing_token = landing.token;
    return LIG_OK;
}

lig_status ligi_link_take(ligi_link *link, ligi_incoming *in)
{
    in->iov = NULL;
    in->count = 0;
    in->bytes = 0;
    switch (link->prefix.kind) {
    case LIGI_KIND_HELLO: return take_hello(link, in);
    case LIGI_KIND_BYE: return take_bye(link, in);
    default: return take_data(link, in);
    }
}

void ligi_link_landed(ligi_link *link)
{
    const ligi_served *served = ligi_link_served(link);
    ligi_net_stats *stats = &link->net->stats;

    link->arriving = 0;
    if (link->prefix.kind != LIGI_KIND_DATA)
        return;
    link->landing = 0;
    stats->received_count++;
    stats->received_bytes += link->prefix.head_bytes + link->prefix.payload_bytes;
    if (served->hooks != NULL && served->hooks->arrived != NULL)
        served->hooks->arrived(served->context, link, link->landing_token);
}

lig_status ligi_net_divert(ligi_link *link, void *token)
{
    lig_status status = LIG_OK;

    LIG_TRY(ligi_net_mine(link->net));
    ligi_net_enter(link->net);
    if (!link->landing || link->landing_token != token)
        status = lig_fail(LIG_E_NOTFOUND, "no such message from %s is being received", link->name);
    else if (link->wire != NULL)
        link->ops->divert(link->wire);
    ligi_net_leave(link->net);
    return status;
}
