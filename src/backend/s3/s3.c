#include "backend/s3/s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/s3/client/s3_put_absent.h"
#include "backend/s3/client/s3_requests.h"
#include "backend/s3/leases/s3_locks.h"
#include "backend/s3/leases/s3_pins.h"
#include "backend/s3/s3_log.h"
#include "backend/s3/s3_names.h"
#include "backend/s3/s3_probe.h"
#include "backend/s3/s3_read.h"
#include "backend/s3/s3_remove.h"
#include "backend/s3/s3_writer.h"
#include "base/clock.h"

#define CONNECT_NS INT64_C(10000000000)
#define STALL_NS INT64_C(20000000000)
#define REMOVAL_NS INT64_C(10000000000)
#define FIRST_ATTEMPTS 3 /* of the request that opens: a wrong endpoint is reported soon */
#define CONNECTIONS_MAX 64
#define HUGE_BYTES (UINT64_C(2) << 20)

static const ligi_option options[] = {
    {"endpoint", LIGI_OPTION_TEXT, NULL,
     "https://host[:port], or http:// without TLS (default: Amazon's for the region)",
     offsetof(ligi_s3_options, endpoint)},
    {"region", LIGI_OPTION_TEXT, NULL, "region of the bucket (default: us-east-1)",
     offsetof(ligi_s3_options, region)},
    {"addressing", LIGI_OPTION_TEXT, NULL,
     "path (endpoint/bucket) or host (bucket.endpoint); default: path if endpoint= is given",
     offsetof(ligi_s3_options, addressing)},
    {"ca", LIGI_OPTION_TEXT, NULL, "file with the certificates of trusted authorities",
     offsetof(ligi_s3_options, ca)},
    {"proxy", LIGI_OPTION_TEXT, NULL, "http://host:port of a proxy",
     offsetof(ligi_s3_options, proxy)},
    {"connections", LIGI_OPTION_INT, "16", "large requests in flight, 1 to 64",
     offsetof(ligi_s3_options, connections)},
    {"writer", LIGI_OPTION_TEXT, "any",
     "single: this is the only process that writes (for servers without conditional writes)",
     offsetof(ligi_s3_options, writer)},
};

/* --- buffers and removals ------------------------------------------------------------------- */

/* In huge pages: in small ones the page faults of its first use delay the first parts. */
static void *allocate_part(void)
{
    void *part = aligned_alloc(HUGE_BYTES, LIGI_S3_PART_BYTES);

    if (part != NULL)
        (void)madvise(part, LIGI_S3_PART_BYTES, MADV_HUGEPAGE);
    return part;
}

void *ligi_s3_part_take(ligi_s3 *s3)
{
    pthread_mutex_lock(&s3->lock);
    void *part = s3->spare_count > 0 ? s3->spare[--s3->spare_count] : NULL;
    pthread_mutex_unlock(&s3->lock);
    return part != NULL ? part : allocate_part();
}

void ligi_s3_part_give(ligi_s3 *s3, void *part)
{
    pthread_mutex_lock(&s3->lock);
    if (part != NULL && s3->spare_count < LIGI_S3_SPARE_PARTS) {
        s3->spare[s3->spare_count++] = part;
        part = NULL;
    }
    pthread_mutex_unlock(&s3->lock);
    free(part);
}

typedef struct later_removal {
    ligi_s3_transfer transfer;
    char key[];
} later_removal;

static void end_removal(ligi_s3_transfer *transfer)
{
    free(transfer->received);
    free(transfer->context);
}

void ligi_s3_remove_later(ligi_s3 *s3, const char *key)
{
    size_t bytes = strlen(key) + 1;
    later_removal *removal = calloc(1, sizeof *removal + bytes);
    ligi_s3_transfer *ended;

    /* What remains expires. */
    if (removal == NULL)
        return;
    memcpy(removal->key, key, bytes);
    removal->transfer = ligi_s3_request("DELETE", removal->key,
                                        s3->timeout_ns < REMOVAL_NS ? s3->timeout_ns : REMOVAL_NS);
    removal->transfer.context = removal;
    pthread_mutex_lock(&s3->removals_lock);
    while ((ended = ligi_s3_batch_ended(&s3->removals)) != NULL)
        end_removal(ended);
    ligi_s3_batch_start(&s3->removals, &removal->transfer);
    pthread_mutex_unlock(&s3->removals_lock);
}

void ligi_s3_remove_wait(ligi_s3 *s3)
{
    ligi_s3_transfer *ended;

    pthread_mutex_lock(&s3->removals_lock);
    while ((ended = ligi_s3_batch_next(&s3->removals)) != NULL)
        end_removal(ended);
    pthread_mutex_unlock(&s3->removals_lock);
}

/* --- opening -------------------------------------------------------------------------------- */

/* An option of the URI, else what the program set. `buffer` holds the latter. */
static const char *option_or(const ligi_engine_host *host, const char *option, const char *name,
                             char *buffer, size_t buffer_bytes)
{
    if (option != NULL)
        return option;
    return host->credential(name, buffer, buffer_bytes) == LIG_OK && buffer[0] != '\0' ? buffer
                                                                                       : NULL;
}

static lig_status open_client(ligi_s3 *s3, const ligi_engine_place *place)
{
    const ligi_s3_options *given = place->options;
    char endpoint[512], region[128];
    ligi_s3_client_options client = {.host = s3->host,
                                     .ca = given->ca,
                                     .proxy = given->proxy,
                                     .connections = (unsigned)given->connections,
                                     .connect_ns = CONNECT_NS,
                                     .stall_ns = STALL_NS};
    ligi_s3_place_options where = {.addressing = given->addressing};

    where.endpoint = option_or(s3->host, given->endpoint, "s3.endpoint", endpoint, sizeof endpoint);
    where.region = option_or(s3->host, given->region, "s3.region", region, sizeof region);
    if (given->connections < 1 || given->connections > CONNECTIONS_MAX)
        return s3->host->fail(LIG_E_INVALID, "s3: connections=%lld (expected 1 to %d)",
                              (long long)given->connections, CONNECTIONS_MAX);
    if (strcmp(given->writer, "any") != 0 && strcmp(given->writer, "single") != 0)
        return s3->host->fail(LIG_E_INVALID, "s3: writer=%.40s (expected 'any' or 'single')",
                              given->writer);
    s3->single_writer = strcmp(given->writer, "single") == 0;
    LIG_TRY(ligi_s3_place_parse(s3->host, place->uri->rest, &where, &client.place));
    return ligi_s3_client_open(&client, &s3->client);
}

/* Shows wrong credentials, a missing bucket and an unreachable server, and the server's clock. */
static lig_status say_hello(ligi_s3 *s3)
{
    ligi_s3_transfer transfer = ligi_s3_request("GET", NULL, s3->timeout_ns);

    transfer.query = "list-type=2&max-keys=1&prefix=store";
    transfer.received_max = 1 << 20;
    transfer.attempts_max = FIRST_ATTEMPTS;
    ligi_s3_client_perform(s3->client, &transfer);
    free(transfer.received);
    return ligi_s3_answer_verdict(&transfer.answer) == LIGI_S3_DONE
               ? LIG_OK
               : ligi_s3_client_fail(s3->client, &transfer, "cannot open");
}

static void s3_close(void *self, int forked)
{
    ligi_s3 *s3 = self;

    if (!forked) {
        ligi_s3_remove_wait(s3);
        ligi_s3_batch_fini(&s3->removals);
    }
    ligi_s3_client_close(s3->client, forked);
    while (s3->spare_count > 0)
        free(s3->spare[--s3->spare_count]);
    if (!forked) {
        pthread_mutex_destroy(&s3->lock);
        pthread_mutex_destroy(&s3->removals_lock);
    }
    free(s3);
}

static lig_status s3_open(const ligi_engine_host *host, const ligi_engine_place *place, void **self)
{
    ligi_s3 *s3 = calloc(1, sizeof *s3);

    if (s3 == NULL)
        return host->fail(LIG_E_NOMEM, "s3: out of memory");
    s3->host = host;
    s3->timeout_ns = place->timeout_ns;
    s3->read_only = place->read_only;
    lig_status status = open_client(s3, place);
    if (status != LIG_OK) {
        free(s3);
        return status;
    }
    pthread_mutex_init(&s3->lock, NULL);
    pthread_mutex_init(&s3->removals_lock, NULL);
    ligi_s3_batch_init(&s3->removals, s3->client);
    status = say_hello(s3);
    if (status != LIG_OK) {
        s3_close(s3, 0);
        return status;
    }
    *self = s3;
    return LIG_OK;
}

static void s3_limits(void *self, ligi_engine_limits *limits)
{
    ligi_s3 *s3 = self;

    *limits = (ligi_engine_limits){.record_bytes_max = LIGI_S3_RECORD_BYTES_MAX,
                                   .range_bytes = LIGI_S3_RANGE_BYTES,
                                   .reads = ligi_s3_client_connections(s3->client)};
}

static void s3_describe(void *self, char *text, size_t text_bytes)
{
    ligi_s3 *s3 = self;
    const ligi_s3_place *place = ligi_s3_client_place(s3->client);

    snprintf(text, text_bytes, "S3 at %s://%s, region %s, %u connections%s",
             place->tls ? "https" : "http", place->host, place->region,
             ligi_s3_client_connections(s3->client),
             s3->single_writer ? ", one writing process" : "");
}

static lig_status s3_now(void *self, int64_t *now_ns)
{
    ligi_s3 *s3 = self;
    int64_t now = ligi_s3_client_now_ns(s3->client);

    *now_ns = now > 0 ? now : ligi_date_ns();
    return LIG_OK;
}

/* --- the marker ----------------------------------------------------------------------------- */

/* Markers have no id in their first bytes, so one that is read back equal may be another process's:
 * the ids that it contains are random, and make it ours. */
static lig_status s3_marker_put(void *self, const void *marker, size_t bytes)
{
    ligi_s3 *s3 = self;
    ligi_s3_small there;

    LIG_TRY(ligi_s3_probe_ensure(s3));
    ligi_s3_transfer transfer = ligi_s3_request("PUT", LIGI_S3_MARKER, s3->timeout_ns);
    transfer.body = marker;
    transfer.body_bytes = bytes;
    transfer.if_absent = !s3->single_writer;
    ligi_s3_client_perform(s3->client, &transfer);
    ligi_commit_reply reply = ligi_s3_answer_put_reply(&transfer.answer);
    if (reply == LIGI_REPLY_WRITTEN)
        return LIG_OK;
    lig_status status =
        ligi_s3_get(s3->client, LIGI_S3_MARKER, LIGI_ENGINE_MARKER_MAX, s3->timeout_ns, &there);
    if (status == LIG_E_NOTFOUND)
        return ligi_s3_client_fail(s3->client, &transfer, "cannot write");
    LIG_TRY(status);
    int ours = there.bytes == bytes && memcmp(there.data, marker, bytes) == 0;
    free(there.data);
    return ours ? LIG_OK : s3->host->fail(LIG_E_EXISTS, "s3: a store already exists there");
}

static lig_status s3_marker_get(void *self, void *marker, size_t *bytes)
{
    ligi_s3 *s3 = self;
    ligi_s3_small there;

    LIG_TRY(
        ligi_s3_get(s3->client, LIGI_S3_MARKER, LIGI_ENGINE_MARKER_MAX, s3->timeout_ns, &there));
    memcpy(marker, there.data, there.bytes);
    *bytes = there.bytes;
    free(there.data);
    return LIG_OK;
}

extern const ligi_engine_ops lig_engine_entry;
__attribute__((visibility("default"))) const ligi_engine_ops lig_engine_entry = {
    .abi = LIGI_ENGINE_ABI,
    .size = sizeof(ligi_engine_ops),
    .scheme = "s3",
    .help = "S3 and S3-compatible servers: s3://bucket/prefix?endpoint=",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .config_bytes = sizeof(ligi_s3_options),
    .open = s3_open,
    .close = s3_close,
    .limits = s3_limits,
    .describe = s3_describe,
    .now = s3_now,
    .marker_put = s3_marker_put,
    .marker_get = s3_marker_get,
    .log_append = ligi_s3_log_append,
    .log_read = ligi_s3_log_read,
    .log_wait = ligi_s3_log_wait,
    .log_trim = ligi_s3_log_trim,
    .checkpoint_publish = ligi_s3_checkpoint_publish,
    .checkpoint_newest = ligi_s3_checkpoint_newest,
    .object_create = ligi_s3_object_create,
    .object_room = ligi_s3_object_room,
    .object_push = ligi_s3_object_push,
    .object_seal = ligi_s3_object_seal,
    .object_renew = ligi_s3_object_renew,
    .object_close = ligi_s3_object_close,
    .object_size = ligi_s3_object_size,
    .object_read = ligi_s3_object_read,
    .object_list = ligi_s3_object_list,
    .object_remove = ligi_s3_object_remove,
    .pack_held = ligi_s3_pack_held,
    .drafts_remove = ligi_s3_drafts_remove,
    .pin = ligi_s3_pin,
    .pin_renew = ligi_s3_pin_renew,
    .unpin = ligi_s3_unpin,
    .pinned = ligi_s3_pinned,
    .lock = ligi_s3_lock,
    .lock_renew = ligi_s3_lock_renew,
    .unlock = ligi_s3_unlock,
};
