#include "group/rendezvous/host_names.h"

#include "group/group_state.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void ligi_group_host_of(const char *address, char *host, size_t host_bytes)
{
    const char *from = strstr(address, "://");
    host[0] = '\0';
    if (from == NULL)
        return;
    from += 3;
    size_t bytes = from[0] == '[' ? strcspn(from, "]") + 1 : strcspn(from, ":/?");
    if (bytes < host_bytes && bytes <= strlen(from)) {
        memcpy(host, from, bytes);
        host[bytes] = '\0';
    }
    if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "[::]") == 0 || strcmp(host, "*") == 0)
        host[0] = '\0';
}

void ligi_group_port_of(const char *address, char *port, size_t port_bytes)
{
    const char *from = strstr(address, "://"), *colon = NULL;
    port[0] = '\0';
    if (from == NULL)
        return;
    from += 3;
    from += from[0] == '[' ? strcspn(from, "]") : 0;
    colon = strpbrk(from, ":/?");
    if (colon == NULL || *colon != ':')
        return;
    size_t bytes = strspn(colon + 1, "0123456789");
    if (bytes < port_bytes) {
        memcpy(port, colon + 1, bytes);
        port[bytes] = '\0';
    }
}

int ligi_group_is_name(const char *host)
{
    struct in_addr four;
    return host[0] != '\0' && host[0] != '[' && strcmp(host, "localhost") != 0 &&
           inet_pton(AF_INET, host, &four) != 1;
}

int ligi_group_is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strcmp(host, "[::1]") == 0;
}

static void print_number(const struct sockaddr *address, socklen_t bytes, char *text,
                         size_t text_bytes)
{
    text[0] = '\0';
    (void)getnameinfo(address, bytes, text, (socklen_t)text_bytes, NULL, 0, NI_NUMERICHOST);
}

/* 1 if the name resolves. Fills `text` with a numeric address that is not loopback, or with "". */
static int resolve(const char *name, char *text, size_t text_bytes)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
    if (getaddrinfo(name, NULL, &hints, &all) != 0)
        return 0;
    text[0] = '\0';
    for (const struct addrinfo *one = all; one != NULL && text[0] == '\0'; one = one->ai_next) {
        print_number(one->ai_addr, one->ai_addrlen, text, text_bytes);
        if (ligi_group_is_loopback(text))
            text[0] = '\0';
    }
    freeaddrinfo(all);
    return 1;
}

/* The source address of a packet to elsewhere; none is sent. The target is a documentation
 * address. */
static void look_outward(char *text, size_t text_bytes)
{
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons(9)};
    socklen_t bytes = sizeof place;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    text[0] = '\0';
    if (fd < 0)
        return;
    inet_pton(AF_INET, "192.0.2.1", &place.sin_addr);
    if (connect(fd, (struct sockaddr *)&place, sizeof place) == 0 &&
        getsockname(fd, (struct sockaddr *)&place, &bytes) == 0)
        print_number((struct sockaddr *)&place, bytes, text, text_bytes);
    close(fd);
}

static void look_around(char *text, size_t text_bytes)
{
    struct ifaddrs *all = NULL;
    text[0] = '\0';
    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *one = all; one != NULL && text[0] == '\0'; one = one->ifa_next) {
        if (one->ifa_addr == NULL || one->ifa_addr->sa_family != AF_INET ||
            (one->ifa_flags & IFF_LOOPBACK) || !(one->ifa_flags & IFF_UP))
            continue;
        print_number(one->ifa_addr, sizeof(struct sockaddr_in), text, text_bytes);
    }
    freeifaddrs(all);
}

void ligi_group_own_number(const char *name, char *host, size_t host_bytes)
{
    char text[LIGI_ADDRESS_BYTES_MAX] = "";
    if (name[0] != '\0')
        (void)resolve(name, text, sizeof text);
    if (text[0] == '\0')
        look_outward(text, sizeof text);
    if (text[0] == '\0')
        look_around(text, sizeof text);
    snprintf(host, host_bytes, "%s", text);
}

int ligi_group_widen(const char *address, char wide[LIGI_ADDRESS_BYTES_MAX])
{
    char name[LIGI_ADDRESS_BYTES_MAX], number[LIGI_ADDRESS_BYTES_MAX];
    ligi_group_host_of(address, name, sizeof name);
    if (strncmp(address, "tcp://", 6) != 0 || !ligi_group_is_name(name) ||
        !resolve(name, number, sizeof number) || number[0] != '\0')
        return 0;
    int bytes = snprintf(wide, LIGI_ADDRESS_BYTES_MAX, "tcp://0.0.0.0%s",
                         address + strlen("tcp://") + strlen(name));
    return bytes > 0 && bytes < LIGI_ADDRESS_BYTES_MAX;
}
