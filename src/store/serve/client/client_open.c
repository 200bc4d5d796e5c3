#include "store/serve/client/client_open.h"

#include "base/boot.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/uri/option.h"
#include "net/service.h"
#include "store/serve/client/client_calls.h"
#include "store/serve/client/client_connect.h"
#include "store/serve/client/client_request.h"
#include "store/serve/client/client_volume.h"
#include "store/serve/client/packs/client_files.h"
#include "store/serve/roles/role_file.h"

#include <ligament/secret.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MAX 86400
#define LIVENESS_MAX_MS 86400000

static const ligi_option options[] = {
    {"retry", LIGI_OPTION_INT, "0",
     "seconds to reconnect and repeat requests after the connection is lost; 0: fail at once",
     offsetof(ligi_client_options, retry)},
    {"liveness_ms", LIGI_OPTION_INT, "10000",
     "a server that does not answer for this long is considered lost",
     offsetof(ligi_client_options, liveness_ms)},
    {"secret_file", LIGI_OPTION_TEXT, NULL, "file with the server's secret",
     offsetof(ligi_client_options, secret_file)},
    {"transport", LIGI_OPTION_TEXT, "auto",
     "auto (shared memory on the server's host, otherwise TCP), tcp or shm",
     offsetof(ligi_client_options, transport)},
};
enum { OPTION_COUNT = sizeof options / sizeof *options };

static lig_status check_options(const ligi_client_options *given)
{
    if (given->retry < 0 || given->retry > RETRY_MAX)
        return lig_fail(LIG_E_INVALID, "retry must be between 0 and %d seconds", RETRY_MAX);
    if (given->liveness_ms < 1 || given->liveness_ms > LIVENESS_MAX_MS)
        return lig_fail(LIG_E_INVALID, "liveness_ms must be between 1 and %d", LIVENESS_MAX_MS);
    if (strcmp(given->transport, "auto") != 0 && strcmp(given->transport, "tcp") != 0 &&
        strcmp(given->transport, "shm") != 0)
        return lig_fail(LIG_E_INVALID, "invalid transport '%s' (expected auto, tcp or shm)",
                        given->transport);
    return LIG_OK;
}

/* "//host:port", "//[::1]:port". */
static int has_port(const char *rest)
{
    const char *bracket = strrchr(rest, ']'), *colon = strrchr(bracket ? bracket : rest, ':');
    return colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1);
}

/* ligament://host:port, or ligament://@/path/of/address-file. */
static lig_status take_address(ligi_client *client, const ligi_uri *uri)
{
    const char *rest = uri->rest;
    if (strncmp(rest, "//@/", 4) == 0)
        return ligi_strdup(&client->address_file, rest + 3);
    if (strncmp(rest, "//", 2) != 0 || rest[2] == '\0')
        return lig_fail(LIG_E_INVALID, "invalid address of a served store (expected "
                                       "ligament://host:port or ligament://@/address-file)");
    if (!has_port(rest))
        return lig_fail(LIG_E_INVALID,
                        "ligament:%s has no port (expected ligament://host:port, as `ligament "
                        "serve` prints it, or ligament://@/address-file)",
                        rest);
    size_t bytes = strlen(rest) + sizeof "tcp:";
    LIG_TRY(ligi_alloc(&client->address, bytes, "an address"));
    memcpy(client->address, "tcp:", 4);
    memcpy(client->address + 4, rest, strlen(rest) + 1);
    return LIG_OK;
}

static lig_status open_net(ligi_client *client)
{
    char *secret = NULL;
    size_t bytes = 0;
    if (client->options.secret_file)
        LIG_TRY(ligi_served_role_key_read(client->options.secret_file, &secret, &bytes));
    const ligi_net_options net = {
        .secret = secret, .secret_bytes = bytes, .group = LIGI_SERVED_GROUP, .background = 1};
    lig_status status = ligi_net_open(&client->net, &net);
    lig_secret_free(secret);
    LIG_TRY(status);
    return ligi_net_serve(client->net, LIGI_SERVICE_STORE, &ligi_client_hooks, client);
}

void ligi_client_destroy(void *self)
{
    ligi_client *client = self;
    if (client->net)
        ligi_net_close(client->net);
    if (client->parked) {
        ligi_client_call_fini(client->parked);
        free(client->parked);
    }
    ligi_client_files_destroy(client->files);
    ligi_options_fini(options, OPTION_COUNT, &client->options);
    free(client->releases);
    free(client->pins);
    free(client->uri);
    free(client->address);
    free(client->address_file);
    free(client);
}

static lig_status fill_client(ligi_client *client, const ligi_uri *uri)
{
    static const char *const also[] = {"mode", NULL};
    LIG_TRY(ligi_options_fill(options, OPTION_COUNT, uri, also, &client->options));
    LIG_TRY(check_options(&client->options));
    LIG_TRY(take_address(client, uri));
    LIG_TRY(ligi_random(client->id, sizeof client->id));
    LIG_TRY(ligi_client_files_create(&client->files));
    LIG_TRY(open_net(client));
    return client->options.retry ? ligi_client_reconnect(client, ligi_now_ns(), client->interrupt)
                                 : ligi_client_connect(client, client->interrupt);
}

static void show_store(lig_store *store, const ligi_client *client)
{
    const ligi_served_welcome *welcome = &client->welcome;
    memcpy(store->uuid, welcome->uuid, sizeof store->uuid);
    memcpy(store->secret, welcome->secret, sizeof store->secret);
    store->keyless = (welcome->flags & LIGI_SERVED_LIMITED) != 0;
    if (welcome->flags & LIGI_SERVED_READ_ONLY)
        store->mode = 'r';
}

lig_status ligi_client_open(lig_store *store, const ligi_uri *uri)
{
    ligi_client *client;
    if (store->mode == 'w')
        return lig_fail(LIG_E_EXISTS, "a store already exists at %s (mode=a opens it)", store->uri);
    LIG_TRY(ligi_calloc(&client, 1, sizeof *client, "a client"));
    client->interrupt = &store->interrupt;
    client->next_id = 1;
    lig_status status = ligi_strdup(&client->uri, store->uri);
    if (status == LIG_OK)
        status = fill_client(client, uri);
    if (status == LIG_OK)
        status = ligi_calloc(&store->volume, 1, sizeof *store->volume, "a store");
    if (status != LIG_OK) {
        ligi_failure failure;
        ligi_failure_take(&failure, status);
        ligi_client_destroy(client);
        return ligi_failure_publish(&failure);
    }
    *store->volume = (ligi_volume){.backend = &ligi_client_backend,
                                   .ops = ligi_client_backend.volume,
                                   .self = client,
                                   .holders = 1};
    store->remote = &ligi_client_ops;
    show_store(store, client);
    return LIG_OK;
}
