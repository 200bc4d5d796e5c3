#include "mesh/worker_requests.h"

#include "base/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

lig_status ligi_worker_requests_init(ligi_worker_requests *outbox, uint32_t server_count)
{
    memset(outbox, 0, sizeof *outbox);
    outbox->server_count = server_count;
    return ligi_block_pool_create(&outbox->pool, UINT64_MAX);
}

static void request_destroy(ligi_request *request)
{
    if (request == NULL)
        return;
    ligi_block_drop(request->staging);
    free(request->sentence);
    free(request->shares);
    free(request->iov);
    free(request->strided);
    free(request->numbers);
    free(request);
}

void ligi_worker_requests_fini(ligi_worker_requests *outbox)
{
    for (size_t i = 0; i < LIG_MESH_REQUESTS_MAX; i++)
        request_destroy(outbox->ring[i]);
    ligi_block_pool_close(outbox->pool);
    memset(outbox, 0, sizeof *outbox);
}

static ligi_request **slot_of(ligi_worker_requests *outbox, uint64_t serial)
{
    return &outbox->ring[serial % LIG_MESH_REQUESTS_MAX];
}

static lig_status request_create(uint32_t server_count, ligi_request **out)
{
    ligi_request *request;
    LIG_TRY(ligi_calloc(&request, 1, sizeof *request, "a request"));
    lig_status status =
        ligi_calloc(&request->shares, server_count, sizeof *request->shares, "a request");
    if (status != LIG_OK) {
        free(request);
        return status;
    }
    for (uint32_t s = 0; s < server_count; s++)
        request->shares[s] = (ligi_share){.request = request, .server = s};
    *out = request;
    return LIG_OK;
}

static void open_shares(ligi_request *request, uint32_t server_count, uint32_t push_count)
{
    for (uint32_t s = 0; s < server_count; s++) {
        ligi_share *share = &request->shares[s];
        share->open = 1;
        share->sending = share->landing = 0;
        share->iov = request->iov + push_count + (size_t)s * request->pull_count;
        share->iov_count = 0;
        share->bytes = 0;
    }
    request->open = server_count;
}

lig_status ligi_worker_requests_begin(ligi_worker_requests *outbox, uint32_t push_count,
                                      uint32_t pull_count, ligi_request **out)
{
    ligi_request **slot = slot_of(outbox, outbox->next_serial);
    if (*slot == NULL)
        LIG_TRY(request_create(outbox->server_count, slot));
    ligi_request *request = *slot;
    if (request->state == LIGI_REQUEST_OPEN || request->diverted > 0)
        return lig_fail(
            LIG_E_LIMIT,
            "request %llu and later ones are outstanding, and the limit is %u: wait for it first",
            (unsigned long long)request->handler, LIG_MESH_REQUESTS_MAX);
    assert(request->busy == 0 && request->staging == NULL);
    size_t entries = push_count + (size_t)outbox->server_count * pull_count;
    LIG_TRY(
        ligi_grow(&request->iov, &request->iov_room, entries, sizeof *request->iov, "a request"));
    if (request->state == LIGI_REQUEST_ENDED && !request->waited)
        outbox->unwaited--;
    if (request->exchange)
        outbox->drop_exchange(request->exchange);
    request->exchange = NULL;
    free(request->sentence);
    request->sentence = NULL;
    request->status = LIG_OK;
    request->waited = 0;
    request->busy = 0;
    request->pull_count = pull_count;
    request->push_bytes = 0;
    request->strided_count = 0;
    request->serial = outbox->next_serial++;
    request->handler = outbox->next_handler;
    request->handler_count = push_count + pull_count > 0 ? push_count + pull_count : 1;
    outbox->next_handler += request->handler_count;
    open_shares(request, outbox->server_count, push_count);
    request->state = LIGI_REQUEST_OPEN;
    outbox->open++;
    *out = request;
    return LIG_OK;
}

void ligi_worker_requests_undo(ligi_worker_requests *outbox, ligi_request *request)
{
    assert(request->state == LIGI_REQUEST_OPEN && request->serial + 1 == outbox->next_serial);
    assert(request->busy == 0 && outbox->open > 0);
    ligi_block_drop(request->staging);
    request->staging = NULL;
    request->state = LIGI_REQUEST_FREE;
    outbox->open--;
    outbox->next_serial--;
    outbox->next_handler -= request->handler_count;
}

static int has_handler(const ligi_request *request, uint64_t handler)
{
    return handler >= request->handler && handler - request->handler < request->handler_count;
}

/* Handlers increase with serial numbers, so the ring is searched like a sorted array. */
lig_status ligi_worker_requests_with(const ligi_worker_requests *outbox, uint64_t handler,
                                     ligi_request **out)
{
    uint64_t high = outbox->next_serial;
    uint64_t low = high > LIG_MESH_REQUESTS_MAX ? high - LIG_MESH_REQUESTS_MAX : 0;
    uint64_t middle = high - 1; /* mostly it is the latest */
    for (; low < high; middle = low + (high - low) / 2) {
        ligi_request *request = outbox->ring[middle % LIG_MESH_REQUESTS_MAX];
        if (has_handler(request, handler)) {
            *out = request;
            return LIG_OK;
        }
        if (request->handler < handler)
            low = middle + 1;
        else
            high = middle;
    }
    if (handler >= outbox->next_handler)
        return lig_fail(LIG_E_NOTFOUND, "handler %llu was never returned by push_pull",
                        (unsigned long long)handler);
    return lig_fail(LIG_E_NOTFOUND,
                    "handler %llu is not one of the last %u requests, which are remembered",
                    (unsigned long long)handler, LIG_MESH_REQUESTS_MAX);
}

lig_status ligi_worker_requests_find(const ligi_worker_requests *outbox, uint64_t handler,
                                     ligi_request **out)
{
    ligi_request *request;
    LIG_TRY(ligi_worker_requests_with(outbox, handler, &request));
    if (request->handler != handler)
        return lig_fail(LIG_E_NOTFOUND,
                        "handler %llu is a tensor of request %llu; use the handler that push_pull "
                        "returned",
                        (unsigned long long)handler, (unsigned long long)request->handler);
    *out = request;
    return LIG_OK;
}

ligi_request *ligi_worker_requests_open(const ligi_worker_requests *outbox, uint64_t serial)
{
    ligi_request *request = outbox->ring[serial % LIG_MESH_REQUESTS_MAX];
    if (request && request->serial == serial && request->state == LIGI_REQUEST_OPEN)
        return request;
    return NULL;
}

void ligi_request_fail(ligi_request *request, lig_status status, const char *sentence)
{
    if (request->state != LIGI_REQUEST_OPEN || request->status != LIG_OK)
        return;
    assert(request->sentence == NULL);
    request->status = status;
    if (ligi_strdup(&request->sentence, sentence) != LIG_OK)
        request->sentence = NULL; /* only the status then */
}

int ligi_worker_requests_settle(ligi_worker_requests *outbox, ligi_request *request)
{
    int failed = request->status != LIG_OK;
    if (request->state != LIGI_REQUEST_OPEN || request->busy > 0 || (request->open > 0 && !failed))
        return 0;
    assert(outbox->open > 0);
    ligi_block_drop(request->staging);
    request->staging = NULL;
    request->state = LIGI_REQUEST_ENDED;
    outbox->open--;
    outbox->unwaited++;
    return 1;
}
