/* The list of transports for display: those built in, and those in shared objects. */
#include <ligament/net.h>

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

static lig_status find(const char *name, const ligi_transport_ops **ops)
{
    for (size_t i = 0; ligi_transports[i] != NULL; i++) {
        if (strcmp(ligi_transports[i]->scheme, name) == 0) {
            *ops = ligi_transports[i];
            return LIG_OK;
        }
    }
    return ligi_transport_load(name, ops);
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
    return find(name, &ops) == LIG_OK && ops->help != NULL ? ops->help : "";
}

int lig_transport_option_get(const char *name, size_t index, lig_transport_option *option)
{
    static const char *const kinds[] = {"bool", "int", "bytes", "text"};
    const ligi_transport_ops *ops;

    if (find(name, &ops) != LIG_OK || index >= ops->option_count)
        return 0;
    const ligi_option *found = &ops->options[index];
    *option = (lig_transport_option){.name = found->name,
                                     .kind = kinds[found->kind],
                                     .fallback = found->fallback ? found->fallback : "",
                                     .help = found->help};
    return 1;
}
