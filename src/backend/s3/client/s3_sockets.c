#include "backend/s3/client/s3_sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    ligi_s3_sockets *sockets = context;
    int made = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);

    (void)purpose;
    if (made >= 0 && sockets->count < LIGI_S3_SOCKETS_MAX)
        sockets->open[sockets->count++] = made;
    return made;
}

static int close_socket(void *context, curl_socket_t closed)
{
    ligi_s3_sockets *sockets = context;

    for (unsigned i = 0; i < sockets->count; i++)
        if (sockets->open[i] == closed) {
            sockets->open[i] = sockets->open[--sockets->count];
            break;
        }
    return close(closed);
}

/* Servers with Nagle's algorithm send the head of a small answer, and its body only after our
 * acknowledgement, which the kernel delays by 40 ms: radosgw does. The kernel forgets the option
 * whenever it finds the connection interactive. */
void ligi_s3_sockets_acknowledge(const ligi_s3_sockets *sockets)
{
    int on = 1;

    for (unsigned i = 0; i < sockets->count; i++)
        setsockopt(sockets->open[i], IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

void ligi_s3_sockets_use(ligi_s3_sockets *sockets, const ligi_s3_calls *calls, CURL *easy)
{
    calls->curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    calls->curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, sockets);
    calls->curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    calls->curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, sockets);
}
