#include "group/addresses.h"

#include "group/group.h"
#include "group/group_info.h"
#include "net/link/link_connect.h"
#include "net/net.h"
#include "net/transport.h"

#include <stdio.h>
#include <string.h>

static int is_near(const char *address)
{
    const char *host = strstr(address, "://");
    host = host ? host + 3 : address;
    return strncmp(host, "localhost", 9) == 0 || strncmp(host, "127.", 4) == 0 ||
           strncmp(host, "[::1]", 5) == 0 || strncmp(host, "inproc:", 7) == 0 ||
           strncmp(host, "shm:", 4) == 0;
}

typedef struct place {
    const char *transport;
    int clear; /* does not encrypt: chosen automatically only if the fabric is trusted */
    const char *near, *four, *six;
} place;

/* Naming UCX explicitly declares the network trusted. */
static const place places[] = {
    {"inproc", 0, "inproc:", "inproc:", "inproc:"},
    {"shm", 0, "shm:", "shm:", "shm:"},
    {"tcp", 0, "tcp://127.0.0.1:0", "tcp://0.0.0.0:0", "tcp://[::]:0"},
    {"ucx", 1, "ucx://127.0.0.1:0", "ucx://0.0.0.0:0?trusted=1", "ucx://[::]:0?trusted=1"},
};
enum { PLACES = sizeof places / sizeof *places };

lig_status ligi_group_check_transport(const char *transport)
{
    if (strcmp(transport, "auto") == 0)
        return LIG_OK;
    for (size_t i = 0; i < PLACES; i++)
        if (strcmp(places[i].transport, transport) == 0)
            return LIG_OK;
    return lig_fail(LIG_E_UNSUPPORTED,
                    "unknown transport '%s': expected auto, inproc, shm, tcp or ucx", transport);
}

ligi_fabric ligi_group_fabric(const char *transport, int trusted, int any_device)
{
    if (strcmp(transport, "ucx") == 0 || (trusted && any_device))
        return LIGI_FABRIC_ANY;
    return trusted ? LIGI_FABRIC_DEVICE : LIGI_FABRIC_STRANGE;
}

/* On one host a fabric transport has no advantage. */
static int takes(const ligi_net *net, const char *transport, const place *at, int near)
{
    if (strcmp(transport, "auto") != 0)
        return strcmp(transport, at->transport) == 0;
    return !at->clear || (!near && ligi_net_limits(net)->fabric != LIGI_FABRIC_STRANGE);
}

lig_status ligi_group_listen(ligi_net *net, const char *transport, const char *address, int secret)
{
    const char *given = address ? address : ""; /* an exchange has no address */
    char chosen[LIGI_ADDRESS_BYTES_MAX];
    int automatic = strcmp(transport, "auto") == 0, count = 0;
    int near = !secret || is_near(given), six = strchr(given, '[') != NULL;
    lig_status status = LIG_OK;
    LIG_TRY(ligi_group_check_transport(transport));
    for (size_t i = 0; i < PLACES; i++) {
        const place *at = &places[i];
        if (!takes(net, transport, at, near))
            continue;
        status = ligi_net_listen(net, near ? at->near : six ? at->six : at->four, chosen);
        if (status != LIG_OK && !automatic)
            return status;
        count += status == LIG_OK;
    }
    return count > 0 ? LIG_OK : status;
}

lig_status ligi_group_uri(const char *given, char uri[LIGI_GROUP_URI_BYTES])
{
    int bare = strstr(given, "://") == NULL && strncmp(given, "inproc:", 7) != 0 &&
               strncmp(given, "shm:", 4) != 0;
    int length = snprintf(uri, LIGI_GROUP_URI_BYTES, "%s%s", bare ? "tcp://" : "", given);
    if (length < 0 || length >= LIGI_GROUP_URI_BYTES)
        return lig_fail(LIG_E_LIMIT, "address too long: the limit is %d bytes",
                        LIGI_GROUP_URI_BYTES);
    return LIG_OK;
}

lig_status ligi_group_connect(ligi_group *group, ligi_net *net, uint32_t rank,
                              const ligi_connect *how, uint32_t *incarnation, ligi_link **link)
{
    uint8_t card[LIGI_BLOB_BYTES_MAX];
    ligi_connect connect = *how;
    ligi_member member;
    LIG_TRY(ligi_group_member(group, LIGI_SERVER, rank, &member));
    *incarnation = member.incarnation;
    LIG_TRY(ligi_group_blob(group, LIGI_SERVER, rank, card, &connect.card_bytes));
    connect.card = card;
    return ligi_net_connect(net, &connect, link);
}
