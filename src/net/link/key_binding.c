#include "net/link/key_binding.h"

#include "net/net_state.h"
#include "net/secure/secret_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT_BYTES_MAX = 64 };

lig_status ligi_net_bind(ligi_net *net, ligi_net_key key, const char *context)
{
    char *made;

    LIG_TRY(ligi_net_mine(net));
    size_t bytes = strlen(net->group) + CONTEXT_BYTES_MAX + 2;
    LIG_TRY(ligi_calloc(&made, bytes, 1, "a group's context"));
    snprintf(made, bytes, "%s %s", net->group, context);
    ligi_net_lock(net);
    free(net->contexts[key]);
    net->contexts[key] = made;
    if (key == LIGI_KEY_MEET) {
        free(net->contexts[LIGI_KEY_MEMBER]);
        net->contexts[LIGI_KEY_MEMBER] = NULL;
    }
    net->bound = 1;
    net->binding++;
    ligi_net_unlock(net);
    return LIG_OK;
}

lig_status ligi_net_replace_secret(ligi_net *net, const void *secret, size_t bytes)
{
    void *made;

    LIG_TRY(ligi_net_mine(net));
    if (net->secret == NULL)
        return lig_fail(LIG_E_INVALID, "the endpoint was opened without a secret");
    LIG_TRY(ligi_secret_memory_alloc(&made, bytes, "a secret"));
    memcpy(made, secret, bytes);
    ligi_net_lock(net);
    int same = net->options.secret_bytes == bytes && memcmp(net->secret, made, bytes) == 0;
    void *old = same ? made : net->secret;
    if (!same) {
        net->secret = made;
        net->options.secret = made;
        net->options.secret_bytes = bytes;
        net->binding++;
    }
    ligi_secret_memory_free(old);
    ligi_net_unlock(net);
    return LIG_OK;
}

const char *ligi_net_context(const ligi_net *net, ligi_net_key key, uint32_t *binding)
{
    if (binding != NULL)
        *binding = net->binding;
    return net->contexts[key];
}

ligi_net_key ligi_net_key_of(const ligi_net *net, ligi_service service)
{
    return service == LIGI_SERVICE_GROUP || !net->bound ? LIGI_KEY_MEET : LIGI_KEY_MEMBER;
}

ligi_net_key ligi_link_key(const ligi_link *link)
{
    return ligi_net_key_of(link->net, link->service);
}

void ligi_link_proved(ligi_link *link, ligi_net_key key)
{
    link->keyed = 1;
    link->proved = key;
}

void ligi_link_set_tag(ligi_link *link, uint64_t tag)
{
    link->tag = tag;
}

uint64_t ligi_link_tag(const ligi_link *link)
{
    return link->tag;
}
