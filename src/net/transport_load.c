#include "net/transport_load.h"

#include "base/loaded_library.h"
#include "net/link/key_binding.h"
#include "net/net.h"
#include "net/secure/tls_keys.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "net/secure/tls_channel.h"
#include "net/transport.h"

lig_status ligi_transport_load(const char *scheme, const ligi_transport_ops **ops)
{
    char name[64];
    size_t i = 0;

    /* A scheme may come from a peer's card: no other name reaches dlopen. */
    while (ligi_transports_loaded[i] != NULL && strcmp(scheme, ligi_transports_loaded[i]) != 0)
        i++;
    if (ligi_transports_loaded[i] == NULL)
        return lig_fail(LIG_E_NOTFOUND, "unknown transport '%s'", scheme);
    snprintf(name, sizeof name, "libligament_%s.so", scheme);
    void *library = ligi_library_beside(name);
    if (library == NULL)
        return lig_fail(
            LIG_E_UNSUPPORTED,
            "the transport '%s' was not built with this library, or is not installed beside it: %s",
            scheme, dlerror());
    const ligi_transport_ops *found = dlsym(library, "lig_transport_entry");
    if (found == NULL || found->abi != LIGI_TRANSPORT_ABI || found->size != sizeof *found)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "%s does not match this library: install both from one build", name);
    *ops = found;
    return LIG_OK;
}

lig_status ligi_net_prove(const ligi_net *net, ligi_net_key key, const struct iovec *words,
                          uint8_t proof[LIGI_PROOF_BYTES])
{
    const char *context = ligi_net_context(net, key, NULL);
    struct iovec secret = {0};

    secret.iov_base = (void *)ligi_net_secret(net, &secret.iov_len);
    if (secret.iov_base == NULL)
        return lig_fail(LIG_E_INTERNAL, "internal error: a proof was requested without a secret");
    if (context == NULL)
        return ligi_tls_fail_early();
    return ligi_tls_prove(&secret, context, words, proof);
}
