#include "net/link/transport_choice.h"

#include "net/frame/frame.h"
#include "net/net.h"
#include "net/transport_load.h"

#include <stdio.h>
#include <string.h>

static const ligi_transport_ops *ops_loaded(const char *address, size_t scheme_bytes)
{
    const ligi_transport_ops *ops = NULL;
    char scheme[16];

    if (scheme_bytes >= sizeof scheme)
        return NULL;
    memcpy(scheme, address, scheme_bytes);
    scheme[scheme_bytes] = '\0';
    return ligi_transport_load(scheme, &ops) == LIG_OK ? ops : NULL;
}

static const ligi_transport_ops *ops_of(const ligi_net *net, const char *address)
{
    size_t bytes = strcspn(address, ":");

    for (size_t i = 0; i < net->slot_count; i++)
        if (strlen(net->slots[i].ops->scheme) == bytes &&
            strncmp(net->slots[i].ops->scheme, address, bytes) == 0)
            return net->slots[i].ops;
    for (size_t i = 0; ligi_transports[i] != NULL; i++)
        if (strlen(ligi_transports[i]->scheme) == bytes &&
            strncmp(ligi_transports[i]->scheme, address, bytes) == 0)
            return ligi_transports[i];
    return ops_loaded(address, bytes);
}

static int usable(ligi_net *net, const char *address, const char *only, int same_host)
{
    const ligi_transport_ops *ops = ops_of(net, address);
    ligi_transport_slot *slot;

    if (ops == NULL || (only != NULL && strcmp(only, ops->scheme) != 0))
        return 0;
    if (ops->clear && only == NULL && net->options.fabric == LIGI_FABRIC_STRANGE)
        return 0; /* the peer does not trust the fabric that we trust */
    if (ligi_net_transport(net, ops->scheme, &slot) != LIG_OK)
        return 0;
    return ops->reaches == NULL || ops->reaches(slot->self, address, same_host);
}

/* By rank, highest first; equal ranks in the order of the card. */
static void put_ranked(const ligi_net *net, ligi_connect_plan *plan, const char *address)
{
    size_t at = plan->count++;

    while (at > 0 && ops_of(net, plan->addresses[at - 1])->rank < ops_of(net, address)->rank) {
        memcpy(plan->addresses[at], plan->addresses[at - 1], LIGI_ADDRESS_BYTES_MAX);
        at--;
    }
    snprintf(plan->addresses[at], LIGI_ADDRESS_BYTES_MAX, "%s", address);
}

lig_status ligi_link_choose(ligi_net *net, const ligi_connect *connect, ligi_connect_plan *plan)
{
    const char *only = connect->only;
    ligi_card card = {0};

    LIG_TRY(ligi_card_decode(connect->card, connect->card_bytes, &card));
    if (only != NULL && strcmp(only, "auto") == 0)
        only = NULL;
    int same_host = memcmp(card.boot_id, net->boot_id, sizeof card.boot_id) == 0;
    for (size_t i = 0; i < card.count; i++)
        if (usable(net, card.addresses[i], only, same_host))
            put_ranked(net, plan, card.addresses[i]);
    if (plan->count == 0)
        return lig_fail(
            LIG_E_NOTFOUND,
            "none of the peer's %zu addresses (the first: '%s') is reachable from here%s%s",
            card.count, card.count > 0 ? card.addresses[0] : "", only ? " by " : "",
            only ? only : "");
    return LIG_OK;
}
