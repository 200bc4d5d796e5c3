#include "net/transport_list.h"

#include <ligament/net.h>

#include <stdio.h>
#include <string.h>

#include "net/net.h"
#include "net/net_state.h"
#include "net/transport_load.h"

const char *lig_transport_name(size_t index)
{
    size_t built_in = 0;

    while (ligi_transports[built_in] != NULL) {
        if (built_in == index)
            return ligi_transports[index]->scheme;
        built_in++;
    }
    for (size_t i = 0; ligi_transports_loaded[i] != NULL; i++)
        if (built_in + i == index)
            return ligi_transports_loaded[i];
    return NULL;
}

int ligi_transport_known(const char *scheme)
{
    const char *name;
    for (size_t i = 0; (name = lig_transport_name(i)) != NULL; i++)
        if (strcmp(name, scheme) == 0)
            return 1;
    return 0;
}

void ligi_transport_names(char *text, size_t bytes)
{
    const char *name;
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; (name = lig_transport_name(i)) != NULL && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i > 0 ? ", " : "", name);
}

lig_status ligi_transport_find(const char *scheme, const ligi_transport_ops **ops)
{
    char known[128];

    for (size_t i = 0; ligi_transports[i] != NULL; i++) {
        if (strcmp(ligi_transports[i]->scheme, scheme) == 0) {
            *ops = ligi_transports[i];
            return LIG_OK;
        }
    }
    if (ligi_transport_known(scheme))
        return ligi_transport_load(scheme, ops);
    ligi_transport_names(known, sizeof known);
    return lig_fail(LIG_E_NOTFOUND, "unknown transport '%s' (known: %s)", scheme, known);
}

lig_status lig_transport_check(const char *name)
{
    const ligi_net_options plain = {0};
    ligi_transport_slot *slot;
    ligi_net *net;

    LIG_TRY(ligi_net_open(&net, &plain));
    ligi_net_lock(net);
    lig_status status = ligi_net_transport(net, name, &slot);
    ligi_net_unlock(net);
    ligi_net_close(net);
    return status;
}

const char *lig_transport_help(const char *name)
{
    const ligi_transport_ops *ops;
    return ligi_transport_find(name, &ops) == LIG_OK && ops->help != NULL ? ops->help : "";
}

int lig_transport_option_get(const char *name, size_t index, lig_transport_option *option)
{
    static const char *const kinds[] = {"bool", "int", "bytes", "text"};
    const ligi_transport_ops *ops;

    if (ligi_transport_find(name, &ops) != LIG_OK || index >= ops->option_count)
        return 0;
    const ligi_option *found = &ops->options[index];
    *option = (lig_transport_option){.name = found->name,
                                     .kind = kinds[found->kind],
                                     .fallback = found->fallback ? found->fallback : "",
                                     .help = found->help};
    return 1;
}
