#include "base/boot.h"
#include "base/clock.h"
#include "net/link/key_binding.h"
#include "net/link/link.h"
#include "net/link/link_receive.h"
#include "net/link/link_send.h"
#include "net/net_state.h"
#include "net/progress.h"
#include "net/progress_thread.h"
#include "net/secure/secret_memory.h"
#include "net/service.h"
#include "net/transport_list.h"
#include "net/transport_load.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const ligi_host host_functions = {
    .abi = LIGI_TRANSPORT_ABI,
    .size = sizeof(ligi_host),
    .link_accept = ligi_link_accept,
    .link_queue = ligi_link_queue,
    .link_queue_end = ligi_link_queue_end,
    .link_gone = ligi_link_gone,
    .link_begin = ligi_link_begin,
    .link_take = ligi_link_take,
    .link_landed = ligi_link_landed,
    .link_fail = ligi_link_fail,
    .link_dead = ligi_link_dead,
    .link_heard = ligi_link_heard,
    .net_watch = ligi_net_watch,
    .net_rewatch = ligi_net_rewatch,
    .net_forget = ligi_net_forget,
    .net_alarm = ligi_net_alarm,
    .net_wake = ligi_net_wake,
    .net_secret = ligi_net_secret,
    .net_limits = ligi_net_limits,
    .link_address = ligi_link_address,
    .options_fill = ligi_options_fill,
    .options_fini = ligi_options_fini,
    .fail = lig_fail,
    .net_prove = ligi_net_prove,
    .link_key = ligi_link_key,
    .link_proved = ligi_link_proved,
};

lig_status ligi_net_mine(const ligi_net *net)
{
    if (ligi_fork_mark_here(net->here))
        return LIG_OK;
    return lig_fail(LIG_E_CLOSED,
                    "the endpoint belongs to the parent process (forked): open another one");
}

void ligi_net_lock(ligi_net *net)
{
    if (!ligi_fork_mark_here(net->here) || pthread_mutex_trylock(&net->lock) == 0)
        return;
    atomic_fetch_add(&net->wanting, 1);
    pthread_mutex_lock(&net->lock);
    atomic_fetch_sub(&net->wanting, 1);
}

void ligi_net_unlock(ligi_net *net)
{
    if (ligi_fork_mark_here(net->here))
        pthread_mutex_unlock(&net->lock);
}

void ligi_net_enter(ligi_net *net)
{
    ligi_net_lock(net);
    net->depth++;
}

void ligi_net_leave(ligi_net *net)
{
    if (--net->depth == 0 && net->dead != NULL)
        ligi_net_bury(net);
    ligi_net_unlock(net);
}

const void *ligi_net_secret(const ligi_net *net, size_t *bytes)
{
    *bytes = net->options.secret_bytes;
    return net->secret;
}

static lig_status copy_peers(const ligi_net_peer_secret *secrets, size_t count,
                             ligi_net_peer_secret **peers)
{
    size_t bytes = count * sizeof **peers;
    for (size_t i = 0; i < count; i++)
        bytes += secrets[i].bytes;
    LIG_TRY(ligi_secret_memory_alloc(peers, bytes, "secrets"));
    char *at = (char *)(*peers + count);
    for (size_t i = 0; i < count; at += secrets[i++].bytes) {
        memcpy(at, secrets[i].secret, secrets[i].bytes);
        (*peers)[i] = (ligi_net_peer_secret){at, secrets[i].bytes, secrets[i].tag};
    }
    return LIG_OK;
}

/* Transports derive their keys again when the binding changes. */
lig_status ligi_net_accept_secrets(ligi_net *net, const ligi_net_peer_secret *secrets, size_t count)
{
    ligi_net_peer_secret *peers;
    LIG_TRY(ligi_net_mine(net));
    LIG_TRY(copy_peers(secrets, count, &peers));
    ligi_net_lock(net);
    ligi_secret_memory_free(net->peers);
    net->peers = peers;
    net->peer_count = count;
    net->binding++;
    ligi_net_unlock(net);
    return LIG_OK;
}

const ligi_net_peer_secret *ligi_net_peer_secrets(const ligi_net *net, size_t *count)
{
    *count = net->peer_count;
    return net->peers;
}

const ligi_net_options *ligi_net_limits(const ligi_net *net)
{
    return &net->options;
}

static lig_status take_options(ligi_net *net, const ligi_net_options *given)
{
    ligi_net_options *into = &net->options;

    *into = *given;
    into->secret = NULL;
    into->group = NULL;
    into->spin_ns = given->spin_ns == 0 ? 20000 : given->spin_ns < 0 ? 0 : given->spin_ns;
    into->hello_ns = given->hello_ns > 0 ? given->hello_ns : INT64_C(10000000000);
    into->turn_ns = given->turn_ns > 0 ? given->turn_ns : INT64_C(5000000000);
    into->payload_bytes_max =
        given->payload_bytes_max ? given->payload_bytes_max : UINT64_C(1) << 40;
    into->queue_max = given->queue_max ? given->queue_max : 4096;
    into->stranger_max = given->stranger_max ? given->stranger_max : 256;
    into->link_max = given->link_max ? given->link_max : 16384;
    LIG_TRY(ligi_strdup(&net->group, given->group));
    LIG_TRY(ligi_strdup(&net->contexts[LIGI_KEY_MEET], given->group));
    into->group = net->group;
    if (given->secret == NULL)
        return LIG_OK;
    LIG_TRY(ligi_secret_memory_alloc(&net->secret, given->secret_bytes, "a secret"));
    memcpy(net->secret, given->secret, given->secret_bytes);
    into->secret = net->secret;
    return LIG_OK;
}

/* If the host has no boot id, no peer is assumed to be on the same host. */
static void set_boot_id(uint8_t id[16])
{
    if (!ligi_boot_id(id) && ligi_random(id, 16) != LIG_OK)
        memset(id, 0, 16);
}

static void free_endpoint(ligi_net *net)
{
    ligi_progress_close(net);
    while (net->free_nodes != NULL) {
        ligi_queued_send *node = net->free_nodes;
        net->free_nodes = (ligi_queued_send *)node->out.next;
        free(node->head_memory);
        free(node);
    }
    ligi_secret_memory_free(net->secret);
    ligi_secret_memory_free(net->peers);
    free(net->group);
    for (size_t i = 0; i < LIGI_KEYS; i++)
        free(net->contexts[i]);
    ligi_fork_mark_destroy(net->here);
    free(net);
}

lig_status ligi_net_open(ligi_net **net, const ligi_net_options *options)
{
    pthread_mutexattr_t attributes;
    ligi_net *made;

    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "an endpoint"));
    made->epoll = made->bell = -1;
    made->next_ns = made->alarm_ns = LIGI_NEVER;
    made->finished_end = &made->finished;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&made->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    set_boot_id(made->boot_id);
    lig_status status = ligi_random(made->net_id, sizeof made->net_id);
    if (status == LIG_OK)
        status = ligi_fork_mark_create(&made->here);
    if (status == LIG_OK)
        status = take_options(made, options);
    if (status == LIG_OK)
        status = ligi_progress_open(made);
    if (status == LIG_OK && options->background)
        status = ligi_progress_thread_start(made);
    if (status != LIG_OK) {
        free_endpoint(made);
        return status;
    }
    *net = made;
    return LIG_OK;
}

/* Frees memory only: the sockets belong to the parent, and a goodbye would end its connections. */
static void close_forked(ligi_net *net)
{
    while (net->links != NULL) {
        ligi_link *link = net->links;
        for (ligi_queued_send *node = link->first; node != NULL;) {
            ligi_queued_send *next = (ligi_queued_send *)node->out.next;
            free(node->iov_memory);
            free(node->head_memory);
            free(node);
            node = next;
        }
        link->corked = 0;
        ligi_link_free(link);
    }
    for (size_t i = 0; i < net->slot_count; i++)
        net->slots[i].ops->close(net->slots[i].self, 1);
    free_endpoint(net);
}

static void end_callers(ligi_net *net)
{
    net->closing = 1;
    pthread_cond_broadcast(&net->changed);
    while (net->callers > 0) {
        struct timespec soon = ligi_deadline(1000000);
        ligi_net_wake(net);
        pthread_cond_timedwait(&net->changed, &net->lock, &soon);
    }
}

void ligi_net_close(ligi_net *net)
{
    if (net == NULL)
        return;
    if (ligi_net_mine(net) != LIG_OK) {
        close_forked(net);
        return;
    }
    ligi_progress_thread_stop(net);
    ligi_net_lock(net);
    end_callers(net);
    for (int i = 0; i < LIGI_SERVICE_COUNT; i++)
        ligi_net_unserve(net, (ligi_service)i);
    net->depth++;
    for (ligi_link *link = net->links; link != NULL; link = link->next)
        ligi_link_close(link, NULL);
    net->depth--;
    ligi_net_bury(net);
    for (size_t i = 0; i < net->slot_count; i++)
        net->slots[i].ops->close(net->slots[i].self, 0);
    ligi_net_unlock(net);
    pthread_cond_destroy(&net->changed);
    pthread_cond_destroy(&net->parked);
    pthread_mutex_destroy(&net->lock);
    free_endpoint(net);
}

lig_status ligi_net_transport(ligi_net *net, const char *scheme, ligi_transport_slot **slot)
{
    const ligi_transport_ops *ops;

    for (size_t i = 0; i < net->slot_count; i++) {
        if (strcmp(net->slots[i].ops->scheme, scheme) == 0) {
            *slot = &net->slots[i];
            return LIG_OK;
        }
    }
    LIG_TRY(ligi_transport_find(scheme, &ops));
    if (net->slot_count == LIGI_TRANSPORTS_MAX)
        return lig_fail(LIG_E_LIMIT, "too many transports: the limit is %d (cannot open '%s')",
                        LIGI_TRANSPORTS_MAX, scheme);
    ligi_transport_slot *made = &net->slots[net->slot_count];
    LIG_TRY(ops->open(net, &host_functions, &made->self));
    made->ops = ops;
    net->slot_count++;
    ligi_net_wake(net); /* a sleeping thread has armed only the earlier ones */
    *slot = made;
    return LIG_OK;
}

static lig_status listen_at(ligi_net *net, const ligi_uri *uri, char *address)
{
    ligi_transport_slot *slot;

    if (net->address_count == LIGI_CARD_ADDRESSES_MAX)
        return lig_fail(LIG_E_LIMIT, "too many addresses to listen on: the limit is %d",
                        LIGI_CARD_ADDRESSES_MAX);
    LIG_TRY(ligi_net_transport(net, uri->scheme, &slot));
    LIG_TRY(slot->ops->listen(slot->self, uri, address));
    memcpy(net->addresses[net->address_count++], address, LIGI_ADDRESS_BYTES_MAX);
    return LIG_OK;
}

lig_status ligi_net_listen(ligi_net *net, const char *uri, char address[LIGI_ADDRESS_BYTES_MAX])
{
    ligi_uri parsed;

    LIG_TRY(ligi_net_mine(net));
    LIG_TRY(ligi_uri_parse(&parsed, uri));
    ligi_net_enter(net);
    lig_status status = listen_at(net, &parsed, address);
    ligi_net_leave(net);
    ligi_uri_fini(&parsed);
    return status;
}

/* "tcp://0.0.0.0:7000" with host "10.0.0.7" is "tcp://10.0.0.7:7000". */
static void name_host(const char *address, const char *host, char named[LIGI_ADDRESS_BYTES_MAX])
{
    static const char *const any[] = {"//0.0.0.0:", "//[::]:"};

    snprintf(named, LIGI_ADDRESS_BYTES_MAX, "%s", address);
    for (size_t i = 0; host != NULL && i < sizeof any / sizeof *any; i++) {
        const char *at = strstr(address, any[i]);
        if (at == NULL)
            continue;
        int bracket = strchr(host, ':') != NULL && host[0] != '[';
        snprintf(named, LIGI_ADDRESS_BYTES_MAX, "%.*s//%s%s%s:%s", (int)(at - address), address,
                 bracket ? "[" : "", host, bracket ? "]" : "", at + strlen(any[i]));
    }
}

lig_status ligi_net_card(ligi_net *net, const char *host, void *card, size_t *bytes)
{
    char named[LIGI_CARD_ADDRESSES_MAX][LIGI_ADDRESS_BYTES_MAX];
    ligi_card made = {0};

    LIG_TRY(ligi_net_mine(net));
    ligi_net_lock(net);
    memcpy(made.boot_id, net->boot_id, sizeof made.boot_id);
    memcpy(made.net_id, net->net_id, sizeof made.net_id);
    made.count = net->address_count;
    for (size_t i = 0; i < made.count; i++) {
        name_host(net->addresses[i], host, named[i]);
        made.addresses[i] = named[i];
    }
    lig_status status = ligi_card_encode(&made, card, bytes);
    ligi_net_unlock(net);
    return status;
}

void ligi_net_stats_get(ligi_net *net, ligi_net_stats *stats)
{
    *stats = (ligi_net_stats){0};
    if (ligi_net_mine(net) != LIG_OK)
        return;
    ligi_net_lock(net);
    *stats = net->stats;
    ligi_net_unlock(net);
}
