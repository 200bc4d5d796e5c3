#include "group/listen_addresses.h"

#include "group/group.h"
#include "net/net.h"
#include "net/transport.h"
#include "net/transport_list.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* The table of an address's scheme, if it is built in. Others reach further than this host. */
static const ligi_transport_ops *built_in(const char *address)
{
    size_t bytes = strcspn(address, ":");
    for (size_t i = 0; ligi_transports[i] != NULL; i++)
        if (strlen(ligi_transports[i]->scheme) == bytes &&
            strncmp(ligi_transports[i]->scheme, address, bytes) == 0)
            return ligi_transports[i];
    return NULL;
}

static int only_this_host(const ligi_transport_ops *ops)
{
    return ops->far4 == NULL;
}

static int is_local(const char *address)
{
    const ligi_transport_ops *ops = built_in(address);
    return ops != NULL && only_this_host(ops);
}

/* A name may begin like an address of this host: 127.example.org. */
static int is_loopback(const char *host)
{
    struct in_addr address;
    if (strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0)
        return 1;
    return strncmp(host, "127.", 4) == 0 && inet_pton(AF_INET, host, &address) == 1;
}

static int is_near(const char *address)
{
    const char *start = strstr(address, "://");
    start = start ? start + 3 : address;
    size_t bytes = start[0] == '[' ? strcspn(start, "]") + 1 : strcspn(start, ":/?");
    char host[sizeof "255.255.255.255"]; /* at least as long as the searched string */
    snprintf(host, sizeof host, "%.*s", bytes < sizeof host ? (int)bytes : 0, start);
    return is_loopback(host) || is_local(address);
}

static int is_auto(const char *transport)
{
    return strcmp(transport, "auto") == 0;
}

lig_status ligi_group_check_transport(const char *transport)
{
    char known[128];
    if (is_auto(transport) || ligi_transport_known(transport))
        return LIG_OK;
    ligi_transport_names(known, sizeof known);
    return lig_fail(LIG_E_UNSUPPORTED, "unknown transport '%s': expected auto or one of %s",
                    transport, known);
}

ligi_fabric ligi_group_fabric(const char *transport, int trusted, int any_device)
{
    const ligi_transport_ops *ops;
    int named_clear =
        !is_auto(transport) && ligi_transport_find(transport, &ops) == LIG_OK && ops->clear;
    if (named_clear || (trusted && any_device))
        return LIGI_FABRIC_ANY;
    return trusted ? LIGI_FABRIC_DEVICE : LIGI_FABRIC_STRANGE;
}

int ligi_group_shares_memory(const char *transport)
{
    const ligi_transport_ops *ops;
    return is_auto(transport) ||
           (ligi_transport_find(transport, &ops) == LIG_OK && ops->reserve != NULL);
}

typedef struct listening {
    ligi_net *net;
    int near, six;
    int count; /* transports that listen */
} listening;

static lig_status listen_on(listening *to, const ligi_transport_ops *ops)
{
    const char *far = to->six ? ops->far6 : ops->far4;
    char chosen[LIGI_ADDRESS_BYTES_MAX];
    LIG_TRY(ligi_net_listen(to->net, to->near || only_this_host(ops) ? ops->near : far, chosen));
    to->count++;
    return LIG_OK;
}

/* On one host an unencrypted fabric has no advantage, and elsewhere it must be trusted. */
static int is_worthwhile(const listening *to, const ligi_transport_ops *ops)
{
    int trusted = ligi_net_limits(to->net)->fabric != LIGI_FABRIC_STRANGE;
    return !ops->clear || (!to->near && trusted);
}

/* Transports in shared objects bring in large libraries, so they are not even loaded unless other
 * hosts are to be reached and the fabric is trusted. */
static lig_status listen_on_all(listening *to)
{
    int load = !to->near && ligi_net_limits(to->net)->fabric != LIGI_FABRIC_STRANGE;
    lig_status status = LIG_OK;
    const ligi_transport_ops *ops;
    for (size_t i = 0; ligi_transports[i] != NULL; i++)
        if (is_worthwhile(to, ligi_transports[i]))
            status = listen_on(to, ligi_transports[i]);
    for (size_t i = 0; load && ligi_transports_loaded[i] != NULL; i++)
        if (ligi_transport_find(ligi_transports_loaded[i], &ops) == LIG_OK)
            status = listen_on(to, ops);
    return to->count > 0 ? LIG_OK : status;
}

lig_status ligi_group_listen(ligi_net *net, const char *transport, const char *address, int secret)
{
    const char *given = address ? address : ""; /* an exchange has no address */
    const ligi_transport_ops *ops;
    listening to = {
        .net = net, .near = !secret || is_near(given), .six = strchr(given, '[') != NULL};
    LIG_TRY(ligi_group_check_transport(transport));
    if (is_auto(transport))
        return listen_on_all(&to);
    LIG_TRY(ligi_transport_find(transport, &ops));
    return listen_on(&to, ops);
}

lig_status ligi_group_uri(const char *given, char uri[LIGI_GROUP_URI_BYTES])
{
    int bare = strstr(given, "://") == NULL && !is_local(given);
    int length = snprintf(uri, LIGI_GROUP_URI_BYTES, "%s%s", bare ? "tcp://" : "", given);
    if (length < 0 || length >= LIGI_GROUP_URI_BYTES)
        return lig_fail(LIG_E_LIMIT, "address too long: the limit is %d bytes",
                        LIGI_GROUP_URI_BYTES);
    return LIG_OK;
}
