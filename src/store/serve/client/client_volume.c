#include "store/serve/client/client_volume.h"

#include "base/error.h"
#include "net/link/link.h"
#include "net/progress.h"
#include "store/serve/client/client_open.h"
#include "store/serve/client/client_request.h"
#include "store/serve/client/client_watch.h"
#include "store/serve/client/packs/client_files.h"
#include "store/serve/client/packs/client_read.h"
#include "store/serve/message/served_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static uint32_t flags(void *self)
{
    const ligi_client *client = self;
    return client->welcome.flags & LIGI_SERVED_READ_ONLY ? LIG_VOLUME_READ_ONLY : 0;
}

static void describe(void *self, char *text, size_t text_bytes)
{
    ligi_client *client = self;
    ligi_client_call call = {.op = LIGI_SERVED_INFO, .interrupt = client->interrupt};
    ligi_served_info info;
    lig_status status = ligi_client_ask(client, &call);
    if (status == LIG_OK)
        status = ligi_served_info_get(call.reply, call.reply_bytes, &info);
    ligi_net_lock(client->net);
    const char *scheme = client->link ? ligi_link_scheme(client->link) : "no connection";
    ligi_net_unlock(client->net);
    if (status == LIG_OK)
        snprintf(text, text_bytes, "served over %s by ligament %s from %s: %s", scheme,
                 info.release, info.uri, info.description);
    else
        snprintf(text, text_bytes, "served; %s", lig_error_text());
    ligi_client_call_fini(&call);
}

static lig_status pack_size(void *self, uint64_t pack, uint64_t *bytes)
{
    ligi_client *client = self;
    ligi_client_file *file;
    LIG_TRY(ligi_client_file_open(client, pack, &file));
    if (file) {
        *bytes = ligi_client_file_bytes(file);
        ligi_client_file_drop(client, file);
        return LIG_OK;
    }
    ligi_client_call call = {.op = LIGI_SERVED_PACK_SIZE, .interrupt = client->interrupt};
    ligi_served_number_put(&call.body, pack);
    lig_status status = ligi_client_ask(client, &call);
    if (status == LIG_OK)
        status = ligi_served_number_get(call.reply, call.reply_bytes, bytes);
    ligi_client_call_fini(&call);
    return status;
}

static lig_status pack_read(void *self, uint64_t pack, const void *secret, const lig_range *ranges,
                            size_t count, size_t *bad)
{
    ligi_client *client = self;
    ligi_client_file *file;
    LIG_TRY(ligi_client_file_open(client, pack, &file));
    if (file == NULL)
        return ligi_client_read(client, pack, secret, ranges, count, bad);
    lig_status status = ligi_client_file_read(file, secret, ranges, count, bad);
    ligi_client_file_drop(client, file);
    return status;
}

static lig_status pack_map(void *self, uint64_t pack, uint32_t map_flags, lig_mapping *mapping)
{
    ligi_client *client = self;
    ligi_client_file *file;
    LIG_TRY(ligi_client_file_open(client, pack, &file));
    if (file == NULL)
        return lig_fail(LIG_E_UNSUPPORTED, "cannot map pack %016llx of %s here",
                        (unsigned long long)pack, client->uri);
    lig_status status = ligi_client_file_map(file, map_flags, mapping);
    ligi_client_file_drop(client, file);
    return status;
}

static void pack_unmap(void *self, lig_mapping *mapping)
{
    (void)self;
    munmap(mapping->base, mapping->bytes);
}

/* --- locks --- */

typedef struct held_lock {
    ligi_client *client;
    ligi_lease lease;
} held_lock;

static lig_status lock(void *self, const char *name, void **out)
{
    ligi_client *client = self;
    held_lock *held;
    ligi_client_call call = {.op = LIGI_SERVED_LOCK, .interrupt = client->interrupt};
    LIG_TRY(ligi_calloc(&held, 1, sizeof *held, "a lock"));
    ligi_served_text_put(&call.body, name);
    lig_status status = ligi_client_ask(client, &call);
    if (status == LIG_OK)
        status = ligi_served_number_get(call.reply, call.reply_bytes, &held->lease.number);
    held->client = client;
    held->lease.session = call.session;
    ligi_client_call_fini(&call);
    if (status == LIG_OK)
        *out = held;
    else
        free(held);
    return status;
}

static void unlock(void *context)
{
    held_lock *held = context;
    if (held == NULL)
        return;
    if (ligi_net_mine(held->client->net) == LIG_OK)
        ligi_client_release(held->client, held->lease);
    free(held);
}

static const lig_volume_ops volume_ops = {.struct_bytes = sizeof(lig_volume_ops),
                                          .flags = flags,
                                          .describe = describe,
                                          .pack_size = pack_size,
                                          .pack_read = pack_read,
                                          .pack_map = pack_map,
                                          .pack_unmap = pack_unmap,
                                          .catalog_begin = ligi_client_version_begin,
                                          .catalog_end = ligi_client_version_end,
                                          .catalog_events = ligi_client_events,
                                          .catalog_wait = ligi_client_wait,
                                          .lock = lock,
                                          .unlock = unlock};

const lig_backend_ops ligi_client_backend = {.close = ligi_client_destroy, .volume = &volume_ops};
