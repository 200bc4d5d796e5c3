#include "net/ucx/ucx_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* "host:port", "[host]:port", "host", "" */
static int split(const char *text, char *host, size_t host_room, const char **port)
{
    const char *end, *from = text;

    if (*text == '[') {
        from = text + 1;
        end = strchr(text, ']');
        if (end == NULL || (end[1] != ':' && end[1] != '\0'))
            return 0;
        *port = end[1] == ':' ? end + 2 : "0";
    } else {
        end = strchrnul(text, ':');
        *port = *end == ':' ? end + 1 : "0";
    }
    if ((size_t)(end - from) >= host_room || strchr(*port, '/') != NULL)
        return 0;
    memcpy(host, from, (size_t)(end - from));
    host[end - from] = '\0';
    return 1;
}

lig_status ligi_ucx_address_parse(const ligi_host *host, const ligi_uri *uri,
                                  ligi_ucx_address *address)
{
    const char *text = strncmp(uri->rest, "//", 2) == 0 ? uri->rest + 2 : uri->rest, *port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    char name[LIGI_ADDRESS_BYTES_MAX];

    if (!split(text, name, sizeof name, &port))
        return host->fail(LIG_E_INVALID, "invalid address 'ucx:%s' (example: ucx://127.0.0.1:7000)",
                          uri->rest);
    int number = getaddrinfo(*name ? name : "127.0.0.1", port, &hints, &found);
    if (number != 0)
        return host->fail(LIG_E_INVALID, "the address 'ucx:%s' must be numeric: %s", uri->rest,
                          gai_strerror(number));
    memset(address, 0, sizeof *address);
    memcpy(&address->storage, found->ai_addr, found->ai_addrlen);
    address->bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return LIG_OK;
}

void ligi_ucx_address_print(const struct sockaddr_storage *storage,
                            char text[LIGI_ADDRESS_BYTES_MAX])
{
    char host[INET6_ADDRSTRLEN] = "?";

    if (storage->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)storage;
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
        snprintf(text, LIGI_ADDRESS_BYTES_MAX, "ucx://[%s]:%u", host, ntohs(six->sin6_port));
    } else {
        const struct sockaddr_in *four = (const struct sockaddr_in *)storage;
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
        snprintf(text, LIGI_ADDRESS_BYTES_MAX, "ucx://%s:%u", host, ntohs(four->sin_port));
    }
}

int ligi_ucx_address_loopback(const ligi_ucx_address *address)
{
    if (address->storage.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&address->storage)->sin6_addr);
    const struct sockaddr_in *four = (const struct sockaddr_in *)&address->storage;
    return ntohl(four->sin_addr.s_addr) >> 24 == 127;
}
