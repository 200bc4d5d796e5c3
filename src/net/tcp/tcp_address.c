#include "net/tcp/tcp_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* Splits "//host:port", "//[host]:port", "host:port". */
static lig_status split(const char *rest, char *host, size_t host_room, const char **port)
{
    const char *text = strncmp(rest, "//", 2) == 0 ? rest + 2 : rest;
    const char *colon = strrchr(text, ':');
    const char *end = colon;

    if (colon == NULL || colon[1] == '\0' || strchr(colon, ']') != NULL)
        return lig_fail(LIG_E_INVALID, "'tcp:%s' has no port; write tcp://host:port", rest);
    if (text[0] == '[') {
        if (end[-1] != ']')
            return lig_fail(LIG_E_INVALID, "'tcp:%s': '[' without ']' before the port", rest);
        text++;
        end--;
    } else if (memchr(text, ':', (size_t)(end - text)) != NULL) {
        return lig_fail(LIG_E_INVALID,
                        "'tcp:%s': write an IPv6 address in brackets: tcp://[::1]:7000", rest);
    }
    size_t bytes = (size_t)(end - text);
    if (bytes >= host_room)
        return lig_fail(LIG_E_INVALID, "'tcp:%s': host name too long", rest);
    memcpy(host, text, bytes);
    host[bytes] = '\0';
    *port = colon + 1;
    return LIG_OK;
}

static lig_status check_port(const char *rest, const char *port)
{
    unsigned value = 0;

    for (const char *digit = port; *digit; digit++) {
        if (*digit < '0' || *digit > '9')
            return lig_fail(LIG_E_INVALID, "'tcp:%s': invalid port '%s'", rest, port);
        value = value * 10 + (unsigned)(*digit - '0');
        if (value > 65535)
            return lig_fail(LIG_E_INVALID, "'tcp:%s': ports are at most 65535", rest);
    }
    return LIG_OK;
}

lig_status ligi_tcp_address_parse(const ligi_uri *uri, int numbers, ligi_tcp_address *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | (numbers ? AI_NUMERICHOST : 0)};
    struct addrinfo *found = NULL;
    char host[LIGI_ADDRESS_BYTES_MAX];
    const char *port;

    LIG_TRY(split(uri->rest, host, sizeof host, &port));
    LIG_TRY(check_port(uri->rest, port));
    int number = getaddrinfo(host[0] ? host : "127.0.0.1", port, &hints, &found);
    if (number != 0)
        return lig_fail(number == EAI_MEMORY ? LIG_E_NOMEM : LIG_E_NOTFOUND,
                        "cannot resolve host '%s': %s", host, gai_strerror(number));
    memset(address, 0, sizeof *address);
    memcpy(&address->storage, found->ai_addr, found->ai_addrlen);
    address->bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return LIG_OK;
}

void ligi_tcp_address_host(const ligi_tcp_address *address, char text[LIGI_ADDRESS_BYTES_MAX])
{
    text[0] = '\0';
    getnameinfo((const struct sockaddr *)&address->storage, address->bytes, text,
                LIGI_ADDRESS_BYTES_MAX, NULL, 0, NI_NUMERICHOST);
}

static unsigned port_of(const ligi_tcp_address *address)
{
    if (address->storage.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&address->storage)->sin6_port);
    return ntohs(((const struct sockaddr_in *)&address->storage)->sin_port);
}

void ligi_tcp_address_print(const ligi_tcp_address *address, char text[LIGI_ADDRESS_BYTES_MAX])
{
    char host[LIGI_ADDRESS_BYTES_MAX];
    int six = address->storage.ss_family == AF_INET6;

    ligi_tcp_address_host(address, host);
    snprintf(text, LIGI_ADDRESS_BYTES_MAX, six ? "tcp://[%.200s]:%u" : "tcp://%.200s:%u", host,
             port_of(address));
}

int ligi_tcp_address_loopback(const ligi_tcp_address *address)
{
    if (address->storage.ss_family == AF_INET6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)&address->storage)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
    }
    const struct sockaddr_in *four = (const struct sockaddr_in *)&address->storage;
    return ntohl(four->sin_addr.s_addr) >> 24 == 127;
}
