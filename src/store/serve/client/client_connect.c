#include "store/serve/client/client_connect.h"

#include "base/boot.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "net/link/key_binding.h"
#include "net/link/link.h"
#include "net/link/link_connect.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "net/service.h"
#include "store/serve/client/client_request.h"
#include "store/serve/client/packs/client_files.h"
#include "store/serve/client/packs/client_pins.h"
#include "store/serve/roles/role_file.h"

#include <ligament/secret.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONNECT_NS INT64_C(10000000000)
#define PAUSE_NS INT64_C(100000000) /* between two attempts */
#define NS_PER_MS INT64_C(1000000)
#define FIRST_NAMESPACE UINT64_C(0xEFFFFFFC) /* of process ids: the host's own */

/* --- hooks; the lock is held --- */

static lig_status on_met(void *context, ligi_link *link, const ligi_hello *hello, ligi_reply *reply)
{
    ligi_client *client = context;
    ligi_served_welcome welcome;
    uint8_t boot[16];
    reply->bytes = 0;
    if (link != client->attempt)
        return lig_fail(LIG_E_DENIED, "a client of a served store accepts no connections");
    LIG_TRY(ligi_served_welcome_get(hello->data, hello->bytes, &welcome));
    client->card_bytes = 0;
    if (welcome.card_bytes > 0 && welcome.card_bytes <= sizeof client->card) {
        client->card_bytes = welcome.card_bytes;
        memcpy(client->card, welcome.card, welcome.card_bytes);
    }
    welcome.card = NULL;
    client->welcome = welcome;
    client->same_host = ligi_boot_id(boot) && memcmp(boot, hello->boot_id, sizeof boot) == 0;
    client->attempt_met = 1;
    return LIG_OK;
}

static lig_status on_head(void *context, ligi_link *link, const ligi_arrival *arrival,
                          ligi_landing *landing)
{
    ligi_client *client = context;
    return link == client->link ? ligi_client_head(client, arrival, landing) : LIG_OK;
}

static void on_arrived(void *context, ligi_link *link, void *token)
{
    (void)link;
    if (token)
        ligi_client_arrived(context, token);
}

static void on_sent(void *context, ligi_link *link, void *token, lig_status status)
{
    (void)context, (void)link, (void)status;
    if (token)
        ligi_client_sent(token);
}

void ligi_client_drop(ligi_client *client, const char *sentence)
{
    ligi_link *link = client->link;
    client->lost = (ligi_failure){.status = LIG_E_PEER};
    snprintf(client->lost.text, sizeof client->lost.text, "the connection to %s was lost: %s",
             client->uri, sentence);
    client->state = LIGI_CLIENT_DOWN;
    client->link = NULL;
    client->release_count = 0;
    ligi_link_close(link, NULL);
    ligi_client_fail_calls(client);
}

/* Reports the original reason of the failure: wrong secret, other version, no listener. */
static void on_lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    ligi_client *client = context;
    if (link == client->link) {
        ligi_client_drop(client, sentence);
    } else if (link == client->attempt) {
        client->lost = (ligi_failure){
            .status = status == LIG_E_CLOSED || status == LIG_E_TIMEOUT ? LIG_E_PEER : status};
        snprintf(client->lost.text, sizeof client->lost.text, "cannot connect to %s: %s",
                 client->uri, sentence);
        client->attempt = NULL;
        ligi_link_close(link, NULL);
    } /* or make_link has it, and closes it */
}

void ligi_client_ping(ligi_client *client)
{
    uint8_t head[LIGI_SERVED_HEAD_BYTES];
    ligi_served_head_put(&(ligi_served_head){.op = LIGI_SERVED_PING, .id = client->next_id++},
                         head);
    (void)ligi_net_send(client->link, &(ligi_send){.head = head, .head_bytes = sizeof head}, NULL);
}

/* Shows the server that this client is alive, and checks whether the server is. */
static int64_t on_tick(void *context, int64_t now_ns)
{
    ligi_client *client = context;
    int64_t liveness = client->options.liveness_ms * NS_PER_MS, step = liveness / 4;
    ligi_client_files_drop_removed(client->files);
    if (client->state != LIGI_CLIENT_UP)
        return now_ns + step;
    int64_t silent = now_ns - ligi_link_heard_ns(client->link);
    if (silent >= liveness && client->silent_pings >= 2) {
        char text[80];
        snprintf(text, sizeof text, "the server has been silent for %.3g s", (double)silent / 1e9);
        ligi_client_drop(client, text);
        return now_ns + step;
    }
    client->silent_pings = silent < step ? 0 : client->silent_pings + 1;
    ligi_client_ping(client);
    int64_t lease = (int64_t)(client->welcome.lease_ns / 4);
    return now_ns + (lease < step ? lease : step);
}

const ligi_net_hooks ligi_client_hooks = {.met = on_met,
                                          .head = on_head,
                                          .arrived = on_arrived,
                                          .sent = on_sent,
                                          .lost = on_lost,
                                          .tick = on_tick};

/* --- connecting --- */

/* The file has the line "host:port". */
static lig_status read_address(const ligi_client *client, char address[LIGI_ADDRESS_BYTES_MAX])
{
    if (client->address) {
        snprintf(address, LIGI_ADDRESS_BYTES_MAX, "%s", client->address);
        return LIG_OK;
    }
    FILE *file = fopen(client->address_file, "re");
    if (file == NULL && errno == ENOENT)
        return lig_fail(LIG_E_PEER,
                        "there is no address file %s: the server is not running, or writes it "
                        "elsewhere (ligament serve --address-file)",
                        client->address_file);
    if (file == NULL)
        return ligi_fail_errno(errno, "cannot open address file %s", client->address_file);
    char line[LIGI_ADDRESS_BYTES_MAX - sizeof "tcp://"];
    char *found = fgets(line, sizeof line, file);
    fclose(file);
    if (found)
        line[strcspn(line, "\r\n")] = '\0';
    if (found == NULL || line[0] == '\0')
        return lig_fail(LIG_E_PEER, "address file %s is empty", client->address_file);
    snprintf(address, LIGI_ADDRESS_BYTES_MAX, "tcp://%s", line);
    return LIG_OK;
}

static int is_settled(void *context)
{
    const ligi_client *client = context;
    return client->attempt == NULL || client->attempt_met;
}

/* Waits for `is_done` of the client, until the interrupt ends that. */
static lig_status wait_for(ligi_client *client, int (*is_done)(void *context),
                           const ligi_interrupt *interrupt)
{
    lig_status status;
    while ((status = ligi_net_wait(client->net, is_done, client, LIGI_WAIT_SLICE_NS)) ==
           LIG_E_TIMEOUT)
        if (interrupt && interrupt->hook && interrupt->hook(interrupt->context))
            return lig_fail(LIG_E_CLOSED, "interrupted while connecting to %s", client->uri);
    return status;
}

/* Processes of two containers can have the same pid and, with the host's network, the same host
 * name: the pid namespace distinguishes them. */
static void name_host(char host[LIGI_SERVED_HOST_BYTES_MAX + 1])
{
    struct stat info;
    (void)gethostname(host, HOST_NAME_MAX);
    if (stat("/proc/self/ns/pid", &info) != 0 || info.st_ino == FIRST_NAMESPACE)
        return;
    size_t at = strlen(host);
    snprintf(host + at, LIGI_SERVED_HOST_BYTES_MAX + 1 - at, " (pid namespace %llu)",
             (unsigned long long)info.st_ino);
}

/* By `address` or, when that is NULL, by the server's card. On success *link is up. */
static lig_status attempt(ligi_client *client, const char *address, const ligi_interrupt *interrupt,
                          ligi_link **link)
{
    ligi_writer bytes = {0};
    char host[LIGI_SERVED_HOST_BYTES_MAX + 1] = "";
    name_host(host);
    ligi_served_hello hello = {.pid = (uint32_t)getpid(), .host = host};
    memcpy(hello.client, client->id, sizeof hello.client);
    if (address == NULL)
        memcpy(hello.pass, client->welcome.pass, sizeof hello.pass);
    ligi_served_hello_put(&bytes, &hello);
    ligi_connect how = {.address = address,
                        .card = address ? NULL : client->card,
                        .card_bytes = address ? 0 : client->card_bytes,
                        .only = address ? NULL : "shm",
                        .service = LIGI_SERVICE_STORE,
                        .hello = bytes.data,
                        .hello_bytes = bytes.bytes,
                        .timeout_ns = CONNECT_NS};
    ligi_net_lock(client->net);
    client->attempt_met = 0;
    client->attempt = NULL;
    lig_status status = bytes.status;
    if (status == LIG_OK)
        status = ligi_net_connect(client->net, &how, &client->attempt);
    ligi_net_unlock(client->net);
    ligi_writer_fini(&bytes);
    LIG_TRY(status);
    status = wait_for(client, is_settled, interrupt);
    ligi_net_lock(client->net);
    *link = client->attempt;
    client->attempt = NULL;
    if (status == LIG_OK && *link == NULL)
        status = ligi_failure_publish(&client->lost);
    else if (status != LIG_OK && *link)
        ligi_link_close(*link, NULL);
    ligi_net_unlock(client->net);
    return status;
}

/* On the server's own host shared memory replaces TCP, unless the user requests TCP. */
static lig_status prefer_shm(ligi_client *client, const ligi_interrupt *interrupt, ligi_link **link)
{
    const char *transport = client->options.transport;
    int only = strcmp(transport, "shm") == 0;
    if (!only && (!client->same_host || strcmp(transport, "auto") != 0))
        return LIG_OK;
    ligi_link *faster = NULL;
    lig_status status =
        client->card_bytes
            ? attempt(client, NULL, interrupt, &faster)
            : lig_fail(LIG_E_UNSUPPORTED, "the server of %s offers no shared memory", client->uri);
    if (status == LIG_E_CLOSED)
        return status;
    if (status != LIG_OK) {
        ligi_log(LIG_LOG_INFO, "cannot use shared memory with %s: %s", client->uri,
                 lig_error_text());
        return only ? status : LIG_OK;
    }
    ligi_link_close(*link, NULL);
    *link = faster;
    return LIG_OK;
}

static int is_limited(const ligi_client *client)
{
    return (client->welcome.flags & LIGI_SERVED_LIMITED) != 0;
}

static lig_status check_link(const ligi_client *client, const ligi_link *link)
{
    if (!ligi_link_up(link))
        return lig_fail(LIG_E_PEER, "the connection to %s was lost immediately", client->uri);
    if (client->session && memcmp(client->uuid, client->welcome.uuid, sizeof client->uuid) != 0)
        return lig_fail(LIG_E_MISMATCH, "%s now serves another store (open it again)", client->uri);
    if (client->session && client->limited != is_limited(client))
        return lig_fail(LIG_E_MISMATCH, "the role at %s has changed (open the store again)",
                        client->uri);
    return LIG_OK;
}

/* The secret may have been replaced since. A file that cannot be read at the moment changes
 * nothing. */
static void renew_secret(const ligi_client *client)
{
    char *secret;
    size_t bytes;
    if (client->options.secret_file == NULL || client->session == 0)
        return;
    lig_status status = ligi_served_role_key_read(client->options.secret_file, &secret, &bytes);
    if (status == LIG_OK) {
        status = ligi_net_replace_secret(client->net, secret, bytes);
        lig_secret_free(secret);
    }
    if (status != LIG_OK)
        ligi_log(LIG_LOG_WARNING, "%s: cannot reload the secret, keeping the old one: %s",
                 client->uri, lig_error_text());
}

static lig_status make_link(ligi_client *client, const ligi_interrupt *interrupt)
{
    char address[LIGI_ADDRESS_BYTES_MAX];
    ligi_link *link = NULL;
    renew_secret(client);
    LIG_TRY(read_address(client, address));
    LIG_TRY(attempt(client, address, interrupt, &link));
    lig_status status = prefer_shm(client, interrupt, &link);
    ligi_net_lock(client->net);
    if (status == LIG_OK)
        status = check_link(client, link);
    if (status == LIG_OK) {
        client->link = link;
        client->session++;
        client->silent_pings = 0;
        client->limited = is_limited(client);
        client->state = LIGI_CLIENT_UP;
        memcpy(client->uuid, client->welcome.uuid, sizeof client->uuid);
    } else {
        client->state = LIGI_CLIENT_DOWN;
        ligi_link_close(link, NULL);
    }
    ligi_net_unlock(client->net);
    return status;
}

static int is_free(void *context)
{
    const ligi_client *client = context;
    return client->state != LIGI_CLIENT_CONNECTING;
}

/* 1: this thread is to connect; 0: another has done so. */
static int take_turn(ligi_client *client, const ligi_interrupt *interrupt, lig_status *status)
{
    *status = wait_for(client, is_free, interrupt);
    ligi_net_lock(client->net);
    int mine = *status == LIG_OK && client->state == LIGI_CLIENT_DOWN;
    if (mine)
        client->state = LIGI_CLIENT_CONNECTING;
    ligi_net_unlock(client->net);
    return mine;
}

lig_status ligi_client_connect(ligi_client *client, const ligi_interrupt *interrupt)
{
    lig_status status;
    if (!take_turn(client, interrupt, &status))
        return status;
    status = make_link(client, interrupt);
    ligi_net_lock(client->net);
    if (status != LIG_OK) {
        client->state = LIGI_CLIENT_DOWN;
        ligi_failure_take(&client->lost, status);
    }
    ligi_net_hurry(client->net, LIGI_SERVICE_STORE);
    ligi_net_unlock(client->net);
    ligi_net_wake(client->net);
    if (status == LIG_OK)
        ligi_client_pins_renew(client, interrupt);
    return status;
}

static int never(void *context)
{
    (void)context;
    return 0;
}

/* A full server accepts a client when another one leaves. A client may get its new secret slightly
 * later than the server. */
static int may_succeed_later(const ligi_client *client, lig_status status)
{
    return status == LIG_E_PEER || status == LIG_E_IO || status == LIG_E_BUSY ||
           (status == LIG_E_DENIED && client->options.secret_file && client->session);
}

lig_status ligi_client_reconnect(ligi_client *client, int64_t begin_ns,
                                 const ligi_interrupt *interrupt)
{
    for (;;) {
        lig_status status = ligi_client_connect(client, interrupt);
        if (status == LIG_OK || !may_succeed_later(client, status))
            return status;
        if (ligi_now_ns() - begin_ns >= client->options.retry * INT64_C(1000000000))
            return ligi_fail_again(status, "%s (tried for %lld s)", lig_error_text(),
                                   (long long)client->options.retry);
        if (interrupt && interrupt->hook && interrupt->hook(interrupt->context))
            return lig_fail(LIG_E_CLOSED, "interrupted while connecting to %s", client->uri);
        status = ligi_net_wait(client->net, never, NULL, PAUSE_NS);
        if (status != LIG_E_TIMEOUT)
            return status;
    }
}
