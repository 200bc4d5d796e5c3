#include "group/rendezvous/rendezvous_exchange.h"

#include "group/group.h"
#include "group/group_state.h"
#include "group/rendezvous/coordinator_choice.h"
#include "group/rendezvous/host_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CARD_MAGIC UINT64_C(0x3176676369676c) /* "lgicgv1" */

typedef struct exchanged { /* the same size for all, as an all-gather requires */
    uint64_t magic;
    uint32_t status;                   /* of the listening process */
    char text[LIGI_ADDRESS_BYTES_MAX]; /* its address, or why it has none */
} exchanged;

/* A wildcard address cannot be connected to, neither from the exchange nor from the card. */
static void name_host(ligi_group *group, char *text, size_t text_bytes)
{
    char host[LIGI_ADDRESS_BYTES_MAX];
    const char *port = strrchr(group->address, ':');
    ligi_group_host_of(group->address, host, sizeof host);
    if (host[0] != '\0' || strncmp(group->address, "tcp://", 6) != 0 || port == NULL) {
        snprintf(text, text_bytes, "%s", group->address);
        return;
    }
    ligi_group_own_number(group->join.host, host, sizeof host);
    ligi_net_lock(group->net);
    if (group->card_host[0] == '\0')
        memcpy(group->card_host, host, sizeof group->card_host);
    ligi_net_unlock(group->net);
    snprintf(text, text_bytes, "tcp://%.180s%.60s", group->card_host, port);
}

/* By default on all interfaces if the endpoint has a secret, which that requires, otherwise on this
 * host. */
static lig_status listen_somewhere(ligi_group *group, const ligi_group_options *options)
{
    if (options->address != NULL)
        return ligi_group_coordinate(group, options, options->address);
    lig_status status = ligi_group_coordinate(group, options, "tcp://0.0.0.0:0");
    return status == LIG_E_DENIED ? ligi_group_coordinate(group, options, "tcp://127.0.0.1:0")
                                  : status;
}

static lig_status exchange(ligi_group *group, const ligi_group_options *options, exchanged *all)
{
    exchanged mine = {.magic = CARD_MAGIC};
    lig_status status = LIG_OK;
    if (options->exchange_index == 0) {
        status = listen_somewhere(group, options);
        if (status == LIG_OK)
            name_host(group, mine.text, sizeof mine.text);
        else
            snprintf(mine.text, sizeof mine.text, "%s", lig_error_text());
        mine.status = (uint32_t)status;
    }
    /* A failed process takes part as well, because the others wait for it. */
    LIG_TRY(options->exchange(options->exchange_context, &mine, sizeof mine, all,
                              options->exchange_count));
    if (all[0].magic != CARD_MAGIC)
        return lig_fail(LIG_E_CORRUPT,
                        "the exchange function did not return the data of process 0");
    all[0].text[sizeof all[0].text - 1] = '\0';
    if (all[0].status != LIG_OK)
        return lig_fail((lig_status)(all[0].status <= LIG_E_INTERNAL ? all[0].status : LIG_E_PEER),
                        "process 0 cannot run the rendezvous: %s", all[0].text);
    return status;
}

lig_status ligi_group_rendezvous_by_exchange(ligi_group *group, const ligi_group_options *options,
                                             int64_t timeout_ns)
{
    exchanged *all;
    LIG_TRY(ligi_calloc(&all, options->exchange_count, sizeof *all, "an exchange"));
    lig_status status = exchange(group, options, all);
    if (status == LIG_OK && options->exchange_index != 0)
        status = ligi_group_follow(group, all[0].text, timeout_ns);
    free(all);
    return status;
}
