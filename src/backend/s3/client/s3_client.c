#include "backend/s3/client/s3_client.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/s3/client/s3_load.h"
#include "backend/s3/client/s3_sockets.h"
#include "base/clock.h"

#define SMALL_MAX 64 /* requests that are not bulk, in flight */
#define POLL_MAX_NS INT64_C(1000000000)
#define IDLE_EASY_MAX 32

typedef struct transfer_list {
    ligi_s3_transfer *first, *last;
} transfer_list;

struct ligi_s3_client {
    const ligi_engine_host *host;
    ligi_s3_setting setting;
    unsigned connections;
    pthread_t thread;
    CURLM *multi;

    pthread_mutex_t lock; /* guards down to the blank line */
    transfer_list submitted;
    int stopping, cancel_asked;
    uint64_t random;
    int64_t server_date_ns, server_seen_ns; /* Date of the last answer, and ligi_now_ns then */

    /* the thread's */
    transfer_list queued, paused, active;
    unsigned active_bulk, active_small;
    CURL *idle[IDLE_EASY_MAX];
    unsigned idle_count;
    ligi_s3_sockets sockets;
};

/* --- lists ---------------------------------------------------------------------------------- */

static void push(transfer_list *list, ligi_s3_transfer *transfer)
{
    transfer->next = NULL;
    if (list->last != NULL)
        list->last->next = transfer;
    else
        list->first = transfer;
    list->last = transfer;
}

static ligi_s3_transfer *pop(transfer_list *list)
{
    ligi_s3_transfer *transfer = list->first;

    if (transfer == NULL)
        return NULL;
    list->first = transfer->next;
    if (list->first == NULL)
        list->last = NULL;
    transfer->next = NULL;
    return transfer;
}

static void drop(transfer_list *list, ligi_s3_transfer *transfer)
{
    transfer_list kept = {NULL, NULL};
    ligi_s3_transfer *one;

    while ((one = pop(list)) != NULL)
        if (one != transfer)
            push(&kept, one);
    *list = kept;
}

/* --- the thread ----------------------------------------------------------------------------- */

static void note_date(ligi_s3_client *client, const ligi_s3_answer *answer)
{
    if (answer->link != LIGI_S3_LINK_OK || answer->date_s <= 0)
        return;
    pthread_mutex_lock(&client->lock);
    client->server_date_ns = answer->date_s * 1000000000;
    client->server_seen_ns = ligi_now_ns();
    pthread_mutex_unlock(&client->lock);
}

/* The transfer belongs to its caller again as soon as the lock is released. */
static void end_transfer(ligi_s3_transfer *transfer)
{
    ligi_s3_batch *batch = transfer->batch;

    pthread_mutex_lock(&batch->lock);
    transfer->next = NULL;
    if (batch->last != NULL)
        batch->last->next = transfer;
    else
        batch->first = transfer;
    batch->last = transfer;
    pthread_cond_signal(&batch->ended);
    pthread_mutex_unlock(&batch->lock);
}

static void keep_easy(ligi_s3_client *client, ligi_s3_transfer *transfer)
{
    if (transfer->easy == NULL)
        return;
    if (client->idle_count < IDLE_EASY_MAX)
        client->idle[client->idle_count++] = transfer->easy;
    else
        client->setting.calls->curl_easy_cleanup(transfer->easy);
    transfer->easy = NULL;
}

static void refuse(ligi_s3_transfer *transfer, ligi_s3_link link, const char *why)
{
    transfer->answer = (ligi_s3_answer){.link = link};
    snprintf(transfer->answer.message, sizeof transfer->answer.message, "%s", why);
}

/* After an attempt: the end, or another one later. */
static void settle(ligi_s3_client *client, ligi_s3_transfer *transfer)
{
    int64_t now = ligi_now_ns();

    keep_easy(client, transfer);
    note_date(client, &transfer->answer);
    if (!transfer->cancelled && !transfer->if_absent &&
        ligi_s3_answer_verdict(&transfer->answer) == LIGI_S3_RETRY &&
        (transfer->attempts_max == 0 || transfer->attempt < transfer->attempts_max)) {
        transfer->wake_ns = now + ligi_s3_answer_pause_ns(&transfer->answer, transfer->attempt,
                                                          ligi_s3_client_random(client));
        if (transfer->wake_ns < transfer->deadline_ns) {
            push(&client->paused, transfer);
            return;
        }
    }
    end_transfer(transfer);
}

/* The credentials that a program set; a request without keys is not signed. */
static void read_keys(ligi_s3_client *client, ligi_s3_keys *keys)
{
    const struct {
        const char *name;
        char *value;
        size_t bytes;
    } items[] = {{"s3.access_key", keys->access_key, sizeof keys->access_key},
                 {"s3.secret_key", keys->secret_key, sizeof keys->secret_key},
                 {"s3.session_token", keys->token, sizeof keys->token}};

    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        if (client->host->credential(items[i].name, items[i].value, items[i].bytes) != LIG_OK)
            items[i].value[0] = '\0';
}

static int prepare(ligi_s3_client *client, ligi_s3_transfer *transfer)
{
    ligi_s3_keys keys;
    int64_t date_ns = transfer->sign_ns != 0 ? transfer->sign_ns : ligi_date_ns();

    read_keys(client, &keys);
    int ready = ligi_s3_attempt_prepare(&client->setting, &keys, transfer, date_ns);
    explicit_bzero(&keys, sizeof keys);
    return ready;
}

static void start_attempt(ligi_s3_client *client, ligi_s3_transfer *transfer)
{
    const ligi_s3_calls *calls = client->setting.calls;

    transfer->attempt++;
    transfer->easy =
        client->idle_count > 0 ? client->idle[--client->idle_count] : calls->curl_easy_init();
    if (transfer->easy == NULL) {
        refuse(transfer, LIGI_S3_LINK_REFUSED, "out of memory");
        end_transfer(transfer);
        return;
    }
    if (!prepare(client, transfer)) {
        keep_easy(client, transfer);
        end_transfer(transfer);
        return;
    }
    ligi_s3_sockets_use(&client->sockets, calls, transfer->easy);
    if (calls->curl_multi_add_handle(client->multi, transfer->easy) != CURLM_OK) {
        ligi_s3_attempt_finish(&client->setting, transfer, CURLE_FAILED_INIT);
        transfer->answer.link = LIGI_S3_LINK_REFUSED;
        keep_easy(client, transfer);
        end_transfer(transfer);
        return;
    }
    push(&client->active, transfer);
    *(transfer->bulk ? &client->active_bulk : &client->active_small) += 1;
}

static void leave_active(ligi_s3_client *client, ligi_s3_transfer *transfer, CURLcode code)
{
    drop(&client->active, transfer);
    *(transfer->bulk ? &client->active_bulk : &client->active_small) -= 1;
    client->setting.calls->curl_multi_remove_handle(client->multi, transfer->easy);
    ligi_s3_attempt_finish(&client->setting, transfer, code);
}

static void collect_ended(ligi_s3_client *client)
{
    CURLMsg *message;
    int left;

    while ((message = client->setting.calls->curl_multi_info_read(client->multi, &left)) != NULL) {
        ligi_s3_transfer *transfer = NULL;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        client->setting.calls->curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
        leave_active(client, transfer, code);
        settle(client, transfer);
    }
}

static void start_queued(ligi_s3_client *client)
{
    transfer_list later = {NULL, NULL};
    ligi_s3_transfer *transfer;

    while ((transfer = pop(&client->queued)) != NULL) {
        int room = transfer->bulk ? client->active_bulk < client->connections
                                  : client->active_small < SMALL_MAX;
        if (room)
            start_attempt(client, transfer);
        else
            push(&later, transfer);
    }
    client->queued = later;
}

/* Moves those whose pause is over. */
static void wake_paused(ligi_s3_client *client)
{
    transfer_list later = {NULL, NULL};
    ligi_s3_transfer *transfer;
    int64_t now = ligi_now_ns();

    while ((transfer = pop(&client->paused)) != NULL)
        push(transfer->wake_ns <= now ? &client->queued : &later, transfer);
    client->paused = later;
}

/* How long to wait for answers: until the next pause is over. */
static int poll_ms(const ligi_s3_client *client)
{
    int64_t now = ligi_now_ns(), next = now + POLL_MAX_NS;

    for (const ligi_s3_transfer *one = client->paused.first; one != NULL; one = one->next)
        if (one->wake_ns < next)
            next = one->wake_ns;
    return next > now ? (int)((next - now) / 1000000) + 1 : 0;
}

/* Ends the transfers of one list that were cancelled, or all. */
static void end_cancelled(ligi_s3_client *client, transfer_list *list, int all)
{
    transfer_list taken = *list;
    ligi_s3_transfer *transfer;
    int active = list == &client->active;

    *list = (transfer_list){NULL, NULL};
    while ((transfer = pop(&taken)) != NULL) {
        if (!transfer->cancelled && !all) {
            push(list, transfer);
            continue;
        }
        if (active)
            leave_active(client, transfer, CURLE_ABORTED_BY_CALLBACK);
        refuse(transfer, active ? LIGI_S3_LINK_LOST : LIGI_S3_LINK_REFUSED, "cancelled");
        keep_easy(client, transfer);
        end_transfer(transfer);
    }
}

/* Takes what callers submitted; returns 1 if the thread shall end. */
static int take_orders(ligi_s3_client *client)
{
    ligi_s3_transfer *transfer;

    pthread_mutex_lock(&client->lock);
    while ((transfer = pop(&client->submitted)) != NULL)
        push(&client->queued, transfer);
    int stopping = client->stopping, cancel = client->cancel_asked;
    client->cancel_asked = 0;
    pthread_mutex_unlock(&client->lock);
    if (cancel || stopping) {
        end_cancelled(client, &client->queued, stopping);
        end_cancelled(client, &client->paused, stopping);
        end_cancelled(client, &client->active, stopping);
    }
    return stopping;
}

static void *run(void *context)
{
    ligi_s3_client *client = context;
    const ligi_s3_calls *calls = client->setting.calls;
    int running;

    while (!take_orders(client)) {
        wake_paused(client);
        start_queued(client);
        calls->curl_multi_perform(client->multi, &running);
        collect_ended(client);
        /* An ended transfer makes room for a queued one. */
        if (client->queued.first != NULL && client->active_bulk < client->connections &&
            client->active_small < SMALL_MAX)
            continue;
        ligi_s3_sockets_acknowledge(&client->sockets);
        calls->curl_multi_poll(client->multi, NULL, 0, poll_ms(client), NULL);
    }
    while (client->idle_count > 0)
        calls->curl_easy_cleanup(client->idle[--client->idle_count]);
    calls->curl_multi_cleanup(client->multi);
    return NULL;
}

static int start_thread(ligi_s3_client *client)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&client->thread, NULL, run, client);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0;
}

/* --- the client ----------------------------------------------------------------------------- */

static lig_status fill_setting(const ligi_s3_client_options *options, ligi_s3_setting *setting)
{
    const ligi_engine_host *host = options->host;
    int ca = snprintf(setting->ca, sizeof setting->ca, "%s", options->ca ? options->ca : "");
    int proxy =
        snprintf(setting->proxy, sizeof setting->proxy, "%s", options->proxy ? options->proxy : "");

    if (ca >= (int)sizeof setting->ca || proxy >= (int)sizeof setting->proxy)
        return host->fail(LIG_E_LIMIT, "s3: ca= or proxy= is too long");
    LIG_TRY(ligi_s3_load(host, &setting->calls));
    setting->digest = ligi_s3_digests(setting->calls);
    setting->place = options->place;
    setting->connect_ns = options->connect_ns;
    setting->stall_ns = options->stall_ns;
    return LIG_OK;
}

lig_status ligi_s3_client_open(const ligi_s3_client_options *options, ligi_s3_client **client)
{
    const ligi_engine_host *host = options->host;
    ligi_s3_client *made = calloc(1, sizeof *made);

    if (made == NULL)
        return host->fail(LIG_E_NOMEM, "s3: out of memory");
    made->host = host;
    made->connections = options->connections;
    lig_status status = fill_setting(options, &made->setting);
    if (status == LIG_OK)
        status = host->random(&made->random, sizeof made->random);
    if (status != LIG_OK)
        goto free_client;
    made->multi = made->setting.calls->curl_multi_init();
    if (made->multi == NULL) {
        status = host->fail(LIG_E_NOMEM, "s3: libcurl is out of memory");
        goto free_client;
    }
    made->setting.calls->curl_multi_setopt(made->multi, CURLMOPT_MAXCONNECTS,
                                           (long)(options->connections + SMALL_MAX));
    pthread_mutex_init(&made->lock, NULL);
    made->random |= 1;
    if (!start_thread(made)) {
        status = host->fail(LIG_E_NOMEM, "s3: cannot start a thread");
        goto cleanup_multi;
    }
    *client = made;
    return LIG_OK;
cleanup_multi:
    made->setting.calls->curl_multi_cleanup(made->multi);
    pthread_mutex_destroy(&made->lock);
free_client:
    free(made);
    return status;
}

void ligi_s3_client_close(ligi_s3_client *client, int forked)
{
    if (client == NULL)
        return;
    if (!forked) {
        pthread_mutex_lock(&client->lock);
        client->stopping = 1;
        pthread_mutex_unlock(&client->lock);
        client->setting.calls->curl_multi_wakeup(client->multi);
        pthread_join(client->thread, NULL);
        pthread_mutex_destroy(&client->lock);
    }
    free(client);
}

const ligi_engine_host *ligi_s3_client_host(const ligi_s3_client *client)
{
    return client->host;
}

const ligi_s3_place *ligi_s3_client_place(const ligi_s3_client *client)
{
    return &client->setting.place;
}

unsigned ligi_s3_client_connections(const ligi_s3_client *client)
{
    return client->connections;
}

int64_t ligi_s3_client_now_ns(ligi_s3_client *client)
{
    pthread_mutex_lock(&client->lock);
    int64_t now = client->server_date_ns;
    if (now > 0)
        now += ligi_now_ns() - client->server_seen_ns;
    pthread_mutex_unlock(&client->lock);
    return now;
}

/* xorshift64: for jitter. */
uint64_t ligi_s3_client_random(ligi_s3_client *client)
{
    pthread_mutex_lock(&client->lock);
    client->random ^= client->random << 13;
    client->random ^= client->random >> 7;
    client->random ^= client->random << 17;
    uint64_t value = client->random;
    pthread_mutex_unlock(&client->lock);
    return value;
}

lig_status ligi_s3_client_fail(ligi_s3_client *client, const ligi_s3_transfer *transfer,
                               const char *what)
{
    const ligi_s3_place *place = &client->setting.place;
    char endpoint[LIGI_S3_HOST_BYTES + 16], key[LIGI_S3_KEY_BYTES + sizeof place->prefix];
    ligi_s3_keys keys;

    read_keys(client, &keys);
    int anonymous = keys.access_key[0] == '\0';
    explicit_bzero(&keys, sizeof keys);
    snprintf(endpoint, sizeof endpoint, "%s://%s", place->tls ? "https" : "http", place->host);
    snprintf(key, sizeof key, "%s%s", place->prefix, transfer->key != NULL ? transfer->key : "");
    ligi_s3_subject subject = {.what = what,
                               .bucket = place->bucket,
                               .key = key,
                               .endpoint = endpoint,
                               .region = place->region,
                               .anonymous = anonymous};
    return ligi_s3_answer_fail(client->host, &transfer->answer, &subject);
}

/* --- batches -------------------------------------------------------------------------------- */

void ligi_s3_batch_init(ligi_s3_batch *batch, ligi_s3_client *client)
{
    *batch = (ligi_s3_batch){.client = client};
    pthread_mutex_init(&batch->lock, NULL);
    pthread_cond_init(&batch->ended, NULL);
}

void ligi_s3_batch_fini(ligi_s3_batch *batch)
{
    pthread_mutex_destroy(&batch->lock);
    pthread_cond_destroy(&batch->ended);
}

void ligi_s3_batch_start(ligi_s3_batch *batch, ligi_s3_transfer *transfer)
{
    ligi_s3_client *client = batch->client;

    transfer->batch = batch;
    transfer->attempt = 0;
    transfer->cancelled = 0;
    transfer->easy = NULL;
    transfer->headers = NULL;
    batch->flying++;
    pthread_mutex_lock(&client->lock);
    push(&client->submitted, transfer);
    pthread_mutex_unlock(&client->lock);
    client->setting.calls->curl_multi_wakeup(client->multi);
}

static ligi_s3_transfer *take_ended(ligi_s3_batch *batch)
{
    ligi_s3_transfer *transfer = batch->first;

    if (transfer == NULL)
        return NULL;
    batch->first = transfer->next;
    if (batch->first == NULL)
        batch->last = NULL;
    batch->flying--;
    return transfer;
}

ligi_s3_transfer *ligi_s3_batch_next(ligi_s3_batch *batch)
{
    if (batch->flying == 0)
        return NULL;
    pthread_mutex_lock(&batch->lock);
    while (batch->first == NULL)
        pthread_cond_wait(&batch->ended, &batch->lock);
    ligi_s3_transfer *transfer = take_ended(batch);
    pthread_mutex_unlock(&batch->lock);
    return transfer;
}

ligi_s3_transfer *ligi_s3_batch_ended(ligi_s3_batch *batch)
{
    pthread_mutex_lock(&batch->lock);
    ligi_s3_transfer *transfer = take_ended(batch);
    pthread_mutex_unlock(&batch->lock);
    return transfer;
}

void ligi_s3_batch_cancel(ligi_s3_batch *batch, ligi_s3_transfer *transfer)
{
    ligi_s3_client *client = batch->client;

    pthread_mutex_lock(&client->lock);
    transfer->cancelled = 1;
    client->cancel_asked = 1;
    pthread_mutex_unlock(&client->lock);
    client->setting.calls->curl_multi_wakeup(client->multi);
}

void ligi_s3_client_perform(ligi_s3_client *client, ligi_s3_transfer *transfer)
{
    ligi_s3_batch batch;

    ligi_s3_batch_init(&batch, client);
    ligi_s3_batch_start(&batch, transfer);
    ligi_s3_batch_next(&batch);
    ligi_s3_batch_fini(&batch);
}

void ligi_s3_client_pause(int64_t pause_ns)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never;
    pthread_condattr_t monotonic;
    struct timespec until = ligi_deadline(pause_ns);

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&never, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_lock(&lock);
    while (pthread_cond_timedwait(&never, &lock, &until) == 0)
        ;
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&never);
}
