#include "net/tcp/tcp_secret_rule.h"

#include "base/error.h"
#include "base/uri/uri.h"
#include "net/tcp/tcp_address.h"

lig_status ligi_tcp_check_secret(const ligi_tcp *self, const ligi_tcp_address *address)
{
    char text[LIGI_ADDRESS_BYTES_MAX];

    if (self->keys != NULL || ligi_tcp_address_loopback(address))
        return LIG_OK;
    ligi_tcp_address_print(address, text);
    return lig_fail(
        LIG_E_DENIED,
        "'%s' is not a loopback address and needs a secret: name a file with at least 32 "
        "random bytes (?secret_file=, --secret-file or LIGAMENT_SECRET_FILE), or use "
        "tcp://127.0.0.1",
        text);
}

int ligi_tcp_reaches(void *context, const char *text, int same_host)
{
    const ligi_tcp *self = context;
    ligi_tcp_address address;
    ligi_uri uri;

    if (ligi_uri_parse(&uri, text) != LIG_OK)
        return 0;
    int known = ligi_tcp_address_parse(&uri, 1, &address) == LIG_OK;
    ligi_uri_fini(&uri);
    if (!known)
        return 0;
    return ligi_tcp_address_loopback(&address) ? same_host : self->keys != NULL;
}
