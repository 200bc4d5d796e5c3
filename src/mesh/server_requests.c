#include "mesh/server_requests.h"

#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A handler is (number of handlers taken before it + 1) << SLOT_BITS | slot: never 0, never
 * reused. */
enum { SLOT_BITS = 20 };
#define SLOTS_MAX ((size_t)1 << SLOT_BITS)

lig_status ligi_server_requests_init(ligi_server_requests *inbox, uint32_t worker_count,
                                     uint64_t receive_bytes)
{
    *inbox = (ligi_server_requests){.worker_count = worker_count, .absent = worker_count};
    LIG_TRY(ligi_calloc(&inbox->queues, worker_count, sizeof *inbox->queues, "the inbox"));
    for (uint32_t i = 0; i < worker_count; i++) {
        lig_status status = ligi_block_pool_create(&inbox->queues[i].pool, receive_bytes);
        if (status != LIG_OK) {
            ligi_server_requests_fini(inbox);
            return status;
        }
    }
    return LIG_OK;
}

static void job_destroy(ligi_job *job)
{
    ligi_pieces_fini(&job->pieces);
    free(job->places);
    free(job->iov);
    free(job);
}

void ligi_server_requests_fini(ligi_server_requests *inbox)
{
    for (size_t i = 0; i < inbox->job_count; i++) {
        ligi_job *job = inbox->jobs[i];
        if (job->copies) {
            inbox->end_copies(&inbox->queues[job->worker], job);
            inbox->free_copies(job->copies);
        }
        ligi_block_drop(job->block);
        ligi_block_drop(job->staging);
        job_destroy(job);
    }
    free(inbox->jobs);
    for (uint32_t i = 0; inbox->queues && i < inbox->worker_count; i++) {
        ligi_registered_fini(&inbox->queues[i].places);
        ligi_block_pool_close(inbox->queues[i].pool);
        free(inbox->queues[i].raised);
    }
    free(inbox->queues);
    *inbox = (ligi_server_requests){0};
}

static lig_status add_job(ligi_server_requests *inbox)
{
    ligi_job *job;
    if (inbox->job_count == SLOTS_MAX)
        return lig_fail(LIG_E_LIMIT, "too many unanswered requests: %zu", SLOTS_MAX);
    LIG_TRY(ligi_grow(&inbox->jobs, &inbox->job_room, inbox->job_count + 1, sizeof *inbox->jobs,
                      "the table of requests"));
    LIG_TRY(ligi_calloc(&job, 1, sizeof *job, "a request"));
    job->slot = (uint32_t)inbox->job_count;
    inbox->jobs[inbox->job_count++] = job;
    job->next = inbox->free;
    inbox->free = job;
    return LIG_OK;
}

lig_status ligi_server_requests_begin(ligi_server_requests *inbox, uint32_t worker, ligi_job **out)
{
    ligi_queue *queue = &inbox->queues[worker];
    if (queue->jobs >= LIG_MESH_REQUESTS_MAX + 1)
        return lig_fail(LIG_E_LIMIT, "worker %u has more than %u unanswered requests", worker,
                        LIG_MESH_REQUESTS_MAX);
    if (inbox->free == NULL)
        LIG_TRY(add_job(inbox));
    ligi_job *job = inbox->free;
    assert(job->state == LIGI_JOB_FREE && job->block == NULL && job->staging == NULL);
    inbox->free = job->next;
    queue->jobs++;
    job->next = NULL;
    job->state = LIGI_JOB_LANDING;
    job->worker = worker;
    job->incarnation = queue->incarnation;
    job->handler = 0;
    job->number = ++inbox->begun_count;
    job->push_count = job->pull_count = job->parked = 0;
    *out = job;
    return LIG_OK;
}

lig_status ligi_job_reserve(ligi_job *job)
{
    if (job->room == job->pieces.room)
        return LIG_OK;
    void *places = realloc(job->places, job->pieces.room * sizeof *job->places);
    if (places)
        job->places = places;
    void *iov = realloc(job->iov, job->pieces.room * sizeof *job->iov);
    if (iov)
        job->iov = iov;
    if (places == NULL || iov == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for a request of %zu tensors",
                        job->pieces.room);
    job->room = job->pieces.room;
    return LIG_OK;
}

void ligi_server_requests_queue(ligi_server_requests *inbox, ligi_job *job)
{
    ligi_queue *queue = &inbox->queues[job->worker];
    assert(job->state == LIGI_JOB_LANDING && job->handler == 0);
    job->state = LIGI_JOB_QUEUED;
    job->next = NULL;
    inbox->filled += queue->first == NULL;
    inbox->parked += job->parked > 0;
    if (queue->first == NULL)
        queue->first = job;
    else
        queue->last->next = job;
    queue->last = job;
}

static int is_parked(const ligi_job *job, uint32_t i)
{
    return job->places[i] && job->pieces.tensors[i].data != job->places[i]->data;
}

static void leave_places(ligi_job *job)
{
    for (uint32_t i = 0; i < job->push_count; i++) {
        ligi_registered_buffer *place = job->places[i];
        if (place == NULL)
            continue;
        if (is_parked(job, i)) {
            assert(place->parked > 0);
            place->parked--;
        } else if (place->holder == job) {
            place->holder = NULL;
        }
    }
}

void ligi_server_requests_end(ligi_server_requests *inbox, ligi_job *job)
{
    ligi_queue *queue = &inbox->queues[job->worker];
    assert(job->state != LIGI_JOB_FREE && queue->jobs > 0);
    leave_places(job);
    if (job->copies)
        inbox->end_copies(queue, job);
    ligi_block_drop(job->block);
    ligi_block_drop(job->staging);
    job->block = job->staging = NULL;
    job->copying = job->dropped = 0;
    queue->jobs--;
    job->state = LIGI_JOB_FREE;
    job->push_count = job->pull_count = job->parked = 0;
    job->handler = 0;
    job->next = inbox->free;
    inbox->free = job;
}

/* 0: it was not copied, for example after a failure of its device. */
static int move(ligi_server_requests *inbox, const ligi_registered_buffer *place,
                lig_tensor *tensor)
{
    if (place->memory != LIG_MEMORY_HOST || tensor->memory != LIG_MEMORY_HOST)
        return inbox->copy(inbox->context, place->data, tensor->data, tensor->bytes);
    if (tensor->bytes > 0)
        memcpy(place->data, tensor->data, tensor->bytes);
    return 1;
}

/* Copies parked tensors to their registered buffers; 1 if all are there. */
static int settle(ligi_server_requests *inbox, ligi_job *job)
{
    for (uint32_t i = 0; job->parked > 0 && i < job->push_count; i++) {
        if (!is_parked(job, i))
            continue;
        ligi_registered_buffer *place = job->places[i];
        lig_tensor *tensor = &job->pieces.tensors[i];
        if (place->holder != NULL && place->holder != job)
            continue;
        assert(place->parked > 0);
        place->parked--;
        job->parked--;
        if (!move(inbox, place, tensor)) {
            job->places[i] = NULL;
            continue;
        }
        tensor->data = place->data;
        tensor->memory = place->memory;
        tensor->device = place->memory == LIG_MEMORY_HOST ? 0 : inbox->device;
        place->holder = job;
    }
    return job->parked == 0;
}

/* Whether the worker's first request can be delivered. */
static int can_take(ligi_server_requests *inbox, uint32_t worker)
{
    ligi_job *job = inbox->queues[worker].first;
    if (job == NULL)
        return 0;
    if (job->parked == 0)
        return 1;
    if (!settle(inbox, job))
        return 0;
    assert(inbox->parked > 0);
    inbox->parked--;
    return 1;
}

static int all_ready(ligi_server_requests *inbox)
{
    if (inbox->filled < inbox->worker_count)
        return 0;
    for (uint32_t i = 0; inbox->parked > 0 && i < inbox->worker_count; i++)
        if (!can_take(inbox, i))
            return 0;
    return 1;
}

static int any_ready(ligi_server_requests *inbox)
{
    if (inbox->parked == 0)
        return inbox->filled > 0;
    for (uint32_t i = 0; i < inbox->worker_count; i++)
        if (can_take(inbox, i))
            return 1;
    return 0;
}

int ligi_server_requests_filled(ligi_server_requests *inbox, uint32_t mode)
{
    return mode == LIG_MESH_ALL ? all_ready(inbox) : any_ready(inbox);
}

int ligi_server_requests_ready(ligi_server_requests *inbox, uint32_t mode)
{
    uint32_t needed = mode == LIG_MESH_ALL ? 1 : inbox->worker_count;
    return inbox->absent >= needed || ligi_server_requests_filled(inbox, mode);
}

static lig_status absent(const ligi_server_requests *inbox)
{
    const ligi_queue *found = NULL;
    for (uint32_t i = 0; i < inbox->worker_count; i++) {
        const ligi_queue *queue = &inbox->queues[i];
        if (queue->state != LIG_MESH_ALIVE && (found == NULL || queue->state == LIG_MESH_LOST))
            found = queue;
        if (found && found->state == LIG_MESH_LOST)
            break;
    }
    uint32_t worker = (uint32_t)(found - inbox->queues);
    if (found->state == LIG_MESH_STOPPED)
        return lig_fail(LIG_E_CLOSED, "worker %u has stopped", worker);
    if (found->state == LIG_MESH_AWAITED)
        return lig_fail(LIG_E_PEER, "worker %u has not joined yet", worker);
    return lig_fail(LIG_E_PEER, "worker %u is lost: %s", worker, found->why);
}

static ligi_job *take_first(ligi_server_requests *inbox, uint32_t worker)
{
    ligi_queue *queue = &inbox->queues[worker];
    ligi_job *job = queue->first;
    assert(job->state == LIGI_JOB_QUEUED && job->parked == 0 && inbox->filled > 0);
    queue->first = job->next;
    if (queue->first == NULL)
        inbox->filled--;
    job->next = NULL;
    job->state = LIGI_JOB_TAKEN;
    job->handler = ++inbox->taken_count << SLOT_BITS | job->slot;
    return job;
}

lig_status ligi_server_requests_take(ligi_server_requests *inbox, uint32_t mode, ligi_job **jobs,
                                     size_t room, size_t *count)
{
    *count = 0;
    uint32_t workers = inbox->worker_count;
    if (mode == LIG_MESH_ALL && inbox->absent > 0)
        return absent(inbox);
    if (mode == LIG_MESH_ALL) {
        if (!all_ready(inbox))
            return LIG_OK;
        for (uint32_t i = 0; i < workers; i++)
            jobs[(*count)++] = take_first(inbox, i);
        return LIG_OK;
    }
    uint32_t turn = inbox->turn;
    for (uint32_t i = 0; inbox->filled > 0 && i < workers && *count < room; i++) {
        uint32_t worker = (turn + i) % workers;
        if (!can_take(inbox, worker))
            continue;
        jobs[(*count)++] = take_first(inbox, worker);
        inbox->turn = (worker + 1) % workers;
    }
    if (*count == 0 && inbox->absent == workers)
        return absent(inbox);
    return LIG_OK;
}

lig_status ligi_server_requests_find(ligi_server_requests *inbox, uint64_t handler, ligi_job **out)
{
    size_t slot = handler & (SLOTS_MAX - 1);
    ligi_job *job = slot < inbox->job_count ? inbox->jobs[slot] : NULL;
    if (job && job->handler == handler && handler != 0 &&
        (job->state == LIGI_JOB_TAKEN || job->state == LIGI_JOB_ORPHAN)) {
        *out = job;
        return LIG_OK;
    }
    uint64_t number = handler >> SLOT_BITS;
    if (number == 0 || number > inbox->taken_count)
        return lig_fail(LIG_E_NOTFOUND, "handler %llu was never returned by get_batch",
                        (unsigned long long)handler);
    return lig_fail(LIG_E_NOTFOUND, "handler %llu has already been answered",
                    (unsigned long long)handler);
}

lig_status ligi_server_requests_oldest(const ligi_server_requests *inbox, uint32_t worker,
                                       uint64_t *handler)
{
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < inbox->job_count; i++) {
        const ligi_job *job = inbox->jobs[i];
        if (job->worker == worker && job->state == LIGI_JOB_TAKEN && job->handler < first)
            first = job->handler;
    }
    if (first == UINT64_MAX)
        return lig_fail(LIG_E_NOTFOUND, "no request of worker %u has been taken and not answered",
                        worker);
    *handler = first;
    return LIG_OK;
}

int ligi_server_requests_sending(const ligi_server_requests *inbox, uint64_t handler)
{
    size_t slot = handler & (SLOTS_MAX - 1);
    const ligi_job *job = slot < inbox->job_count ? inbox->jobs[slot] : NULL;
    return job && job->handler == handler && job->state == LIGI_JOB_SENDING;
}

static void drop_queue(ligi_server_requests *inbox, ligi_queue *queue)
{
    inbox->filled -= queue->first != NULL;
    while (queue->first) {
        ligi_job *job = queue->first;
        assert(job->state == LIGI_JOB_QUEUED);
        queue->first = job->next;
        inbox->parked -= job->parked > 0;
        ligi_server_requests_end(inbox, job);
    }
}

/* It may never be answered, so it must not block the buffers of the next worker. */
static void orphan(ligi_job *job)
{
    assert(job->state == LIGI_JOB_TAKEN && job->handler != 0);
    leave_places(job);
    for (uint32_t i = 0; i < job->push_count; i++)
        job->places[i] = NULL;
    job->state = LIGI_JOB_ORPHAN;
}

void ligi_server_requests_lose(ligi_server_requests *inbox, uint32_t worker, uint32_t state,
                               const char *why)
{
    ligi_queue *queue = &inbox->queues[worker];
    assert(state != LIG_MESH_ALIVE);
    inbox->absent += queue->state == LIG_MESH_ALIVE;
    queue->state = state;
    snprintf(queue->why, sizeof queue->why, "%s", why);
    drop_queue(inbox, queue);
    for (size_t i = 0; i < inbox->job_count; i++) {
        ligi_job *job = inbox->jobs[i];
        if (job->worker != worker || job->state == LIGI_JOB_FREE)
            continue;
        if (job->copying) { /* a device uses its memory */
            job->dropped = 1;
            continue;
        }
        if (job->state == LIGI_JOB_TAKEN)
            orphan(job);
        else if (job->state != LIGI_JOB_ORPHAN)
            ligi_server_requests_end(inbox, job);
    }
}

void ligi_server_requests_join(ligi_server_requests *inbox, uint32_t worker, uint32_t incarnation)
{
    ligi_queue *queue = &inbox->queues[worker];
    assert(queue->first == NULL); /* the requests of its predecessor were dropped */
    inbox->absent -= queue->state != LIG_MESH_ALIVE;
    queue->state = LIG_MESH_ALIVE;
    queue->incarnation = incarnation;
    queue->why[0] = '\0';
}
