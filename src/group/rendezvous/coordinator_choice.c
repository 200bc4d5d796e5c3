#include "group/rendezvous/coordinator_choice.h"

#include "base/clock.h"
#include "group/coordinator.h"
#include "group/group_state.h"
#include "group/rendezvous/host_names.h"
#include "net/link/key_binding.h"
#include "net/link/link_connect.h"
#include "net/progress.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* On all interfaces if the host name in the address resolves to loopback here; that requires a
 * secret, and without one the group is limited to this host. */
static lig_status listen_at(ligi_group *group, const char *address, char *at)
{
    char wide[LIGI_ADDRESS_BYTES_MAX], name[LIGI_ADDRESS_BYTES_MAX];
    if (!ligi_group_widen(address, wide))
        return ligi_net_listen(group->net, address, at);
    lig_status status = ligi_net_listen(group->net, wide, at);
    if (status == LIG_E_DENIED)
        return ligi_net_listen(group->net, address, at);
    if (status == LIG_OK) {
        char port[16];
        snprintf(port, sizeof port, "%s", strrchr(at, ':'));
        ligi_group_host_of(address, name, sizeof name);
        snprintf(at, LIGI_ADDRESS_BYTES_MAX, "tcp://%.200s%s", name, port);
    }
    return status;
}

/* All members have the same secret, module and port. The host is not included: a host has several
 * names, and members may use different ones. */
static lig_status bind_meeting(ligi_group *group, const char *address)
{
    char context[64], port[16];
    ligi_group_port_of(address, port, sizeof port);
    snprintf(context, sizeof context, "meet %s", port);
    return ligi_net_bind(group->net, LIGI_KEY_MEET, context);
}

/* Nobody is admitted between listen and bind: the kernel may choose the port. */
static lig_status listen_and_bind(ligi_group *group, const char *address, char *at)
{
    ligi_net_lock(group->net);
    lig_status status = listen_at(group, address, at);
    if (status == LIG_OK)
        status = bind_meeting(group, at);
    ligi_net_unlock(group->net);
    return status;
}

lig_status ligi_group_coordinate(ligi_group *group, const ligi_group_options *options,
                                 const char *address)
{
    char at[LIGI_ADDRESS_BYTES_MAX];
    ligi_net_lock(group->net); /* the hooks are already running */
    lig_status status = LIG_OK;
    if (group->coordinator == NULL)
        status = ligi_coordinator_create(group, options);
    ligi_net_unlock(group->net);
    LIG_TRY(status);
    LIG_TRY(listen_and_bind(group, address, at));
    ligi_net_lock(group->net);
    memcpy(group->address, at, sizeof group->address);
    if (group->card_host[0] == '\0')
        ligi_group_host_of(group->address, group->card_host, sizeof group->card_host);
    ligi_net_unlock(group->net);
    return LIG_OK;
}

/* The lock is not held during connect, which may resolve a name: met and lost identify the link by
 * its owner. */
lig_status ligi_group_follow(ligi_group *group, const char *address, int64_t timeout_ns)
{
    int64_t left = group->begun_ns + timeout_ns - ligi_now_ns();
    ligi_connect connect = {.address = address,
                            .service = LIGI_SERVICE_GROUP,
                            .timeout_ns = left > 1 ? left : 1,
                            .retry = 1,
                            .owner = group};
    ligi_link *link;
    LIG_TRY(bind_meeting(group, address));
    ligi_net_lock(group->net);
    snprintf(group->address, sizeof group->address, "%s", address);
    ligi_coordinator_destroy(group->coordinator);
    group->coordinator = NULL;
    ligi_net_unlock(group->net);
    return ligi_net_connect(group->net, &connect, &link);
}

/* The address is in use, or does not belong to this machine. */
static int taken(lig_status status)
{
    int number = lig_error_number();
    return status == LIG_E_EXISTS || number == EADDRINUSE || number == EADDRNOTAVAIL;
}

/* Member 0 of the servers, or of the workers if there are none. A single member needs no rank for
 * that. */
static int is_first(const ligi_group_options *options)
{
    int server = options->server_count > 0;
    uint32_t count = server ? options->server_count : options->worker_count;
    return options->role == (server ? LIGI_SERVER : LIGI_WORKER) &&
           (options->rank == 0 || (options->rank == LIGI_RANK_ANY && count == 1));
}

/* The address is in use: by a scheduler, or by an unrelated program. If nobody of the group answers
 * there, the error text says so. */
static lig_status step_aside(ligi_group *group, const char *address, int64_t timeout_ns)
{
    ligi_net_lock(group->net);
    snprintf(group->displaced, sizeof group->displaced, "%s", lig_error_text());
    ligi_net_unlock(group->net);
    return ligi_group_follow(group, address, timeout_ns);
}

lig_status ligi_group_rendezvous(ligi_group *group, const ligi_group_options *options,
                                 int64_t timeout_ns)
{
    int scheduler = options->role == LIGI_SCHEDULER, first = is_first(options);
    ligi_group_seat seat = options->coordinator;
    if (seat == LIGI_COORDINATOR_BY_ROLE)
        seat = scheduler ? LIGI_COORDINATOR_SELF : LIGI_COORDINATOR_OTHER;
    if (seat == LIGI_COORDINATOR_OTHER || (seat == LIGI_COORDINATOR_FIRST && !scheduler && !first))
        return ligi_group_follow(group, options->address, timeout_ns);
    lig_status status = ligi_group_coordinate(group, options, options->address);
    if (status != LIG_OK && seat == LIGI_COORDINATOR_FIRST && taken(status))
        return step_aside(group, options->address, timeout_ns);
    return status;
}
