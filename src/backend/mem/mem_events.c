#include "backend/mem/mem_events.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/mem/mem_catalog.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/map.h"

/* Never changed once published: a visit holds a block, not the volume's lock. */
struct ligi_mem_events {
    atomic_size_t refs;
    uint64_t version;
    int64_t date_ns;
    size_t count, bytes;
    size_t sizes[]; /* of each event; then their bytes, one after the other */
};

static uint8_t *bytes_of(ligi_mem_events *block)
{
    return (uint8_t *)(block->sizes + block->count);
}

lig_status ligi_mem_events_make(const lig_catalog_edit *edit, ligi_mem_events **out)
{
    size_t count = edit->event_count, bytes = count * sizeof(size_t);
    ligi_mem_events *block;

    *out = NULL;
    if (count == 0)
        return LIG_OK;
    for (size_t i = 0; i < count; i++)
        bytes += edit->events[i].bytes;
    LIG_TRY(ligi_alloc(&block, sizeof *block + bytes, "the events of a commit"));
    atomic_init(&block->refs, 1);
    block->count = count;
    block->bytes = bytes;
    uint8_t *at = bytes_of(block);
    for (size_t i = 0; i < count; i++) {
        block->sizes[i] = edit->events[i].bytes;
        if (block->sizes[i] != 0)
            memcpy(at, edit->events[i].data, block->sizes[i]);
        at += block->sizes[i];
    }
    *out = block;
    return LIG_OK;
}

void ligi_mem_events_release(ligi_mem_events *block)
{
    if (block != NULL && atomic_fetch_sub(&block->refs, 1) == 1)
        free(block);
}

lig_status ligi_mem_events_reserve(ligi_mem_volume *volume)
{
    ligi_mem_history *history = &volume->history;

    /* Moved only when at least as many were forgotten as are moved: a constant cost per commit. */
    if (history->first > history->count && history->first + history->count == history->capacity) {
        memmove(history->blocks, history->blocks + history->first,
                history->count * sizeof(ligi_mem_events *));
        history->first = 0;
    }
    return ligi_grow(&history->blocks, &history->capacity, history->first + history->count + 1,
                     sizeof(ligi_mem_events *), "the events of a volume");
}

static void forget_oldest(ligi_mem_history *history)
{
    ligi_mem_events *oldest = history->blocks[history->first++];

    history->count--;
    history->bytes -= oldest->bytes;
    history->events -= oldest->count;
    history->since = oldest->version;
    ligi_mem_events_release(oldest);
}

void ligi_mem_events_add(ligi_mem_volume *volume, ligi_mem_events *block, uint64_t version)
{
    ligi_mem_history *history = &volume->history;

    if (block != NULL) {
        block->version = version;
        block->date_ns = ligi_date_ns();
        history->blocks[history->first + history->count++] = block;
        history->bytes += block->bytes;
        history->events += block->count;
        while (history->count > 1 &&
               (history->bytes > LIGI_MEM_EVENTS_BYTES || history->events > LIGI_MEM_EVENTS_MAX))
            forget_oldest(history);
    }
    pthread_cond_broadcast(&volume->committed);
}

void ligi_mem_events_fini(ligi_mem_volume *volume)
{
    while (volume->history.count > 0)
        forget_oldest(&volume->history);
    free(volume->history.blocks);
}

/* The oldest block after `since`, held; NULL when there is none. */
static ligi_mem_events *find_after(ligi_mem_history *history, uint64_t since)
{
    ligi_mem_events **blocks = history->blocks + history->first;
    size_t at;

    LIGI_LOWER_BOUND(at, history->count, blocks[at]->version <= since);
    if (at == history->count)
        return NULL;
    atomic_fetch_add(&blocks[at]->refs, 1);
    return blocks[at];
}

static lig_status next_block(ligi_mem_volume *volume, uint64_t since, ligi_mem_events **block)
{
    lig_status status = LIG_OK;

    pthread_mutex_lock(&volume->lock);
    uint64_t version = ligi_mem_catalog_version(volume->catalog), oldest = volume->history.since;
    if (since >= oldest && since <= version)
        *block = find_after(&volume->history, since);
    else
        status = lig_fail(LIG_E_NOTFOUND,
                          "version %" PRIu64 " is out of range: changes are kept from version "
                          "%" PRIu64 " on, and the catalog is at version %" PRIu64,
                          since, oldest, version);
    pthread_mutex_unlock(&volume->lock);
    return status;
}

static int visit_block(ligi_mem_events *block, lig_catalog_visit visit, void *context)
{
    const uint8_t *at = bytes_of(block);

    for (size_t i = 0; i < block->count; i++) {
        if (visit(context, block->version, block->date_ns, at, block->sizes[i]) != 0)
            return 1;
        at += block->sizes[i];
    }
    return 0;
}

lig_status ligi_mem_events_visit(void *self, uint64_t since, lig_catalog_visit visit, void *context)
{
    ligi_mem *mem = self;

    LIG_TRY(ligi_mem_usable(mem));
    for (;;) {
        ligi_mem_events *block = NULL;
        LIG_TRY(next_block(mem->volume, since, &block));
        if (block == NULL)
            return LIG_OK;
        since = block->version;
        int ended = visit_block(block, visit, context);
        ligi_mem_events_release(block);
        if (ended)
            return LIG_OK;
    }
}

lig_status ligi_mem_events_wait(void *self, uint64_t since, int64_t timeout_ns)
{
    ligi_mem *mem = self;
    ligi_mem_volume *volume = mem->volume;
    struct timespec deadline = ligi_deadline(timeout_ns < 0 ? 0 : timeout_ns);
    int over = 0;

    LIG_TRY(ligi_mem_usable(mem));
    pthread_mutex_lock(&volume->lock);
    while (ligi_mem_catalog_version(volume->catalog) <= since && !over)
        over = timeout_ns < 0 ? pthread_cond_wait(&volume->committed, &volume->lock)
                              : pthread_cond_timedwait(&volume->committed, &volume->lock,
                                                       &deadline) == ETIMEDOUT;
    int there = ligi_mem_catalog_version(volume->catalog) > since;
    pthread_mutex_unlock(&volume->lock);
    return there ? LIG_OK
                 : lig_fail(LIG_E_TIMEOUT, "there was no commit after version %" PRIu64, since);
}
