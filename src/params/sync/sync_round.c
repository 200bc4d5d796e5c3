/* Sync rounds: when they run, and how much each does. */
#include "params/sync/sync_round.h"

#include "base/clock.h"
#include "group/session/session_end.h"
#include "net/link/link.h"
#include "net/progress.h"
#include "net/service.h"
#include "params/placement/inflight_limit.h"
#include "params/placement/owner_protocol.h"
#include "params/placement/replica_protocol.h"
#include "params/state/node_wait.h"
#include "params/state/peer.h"
#include "params/state/send_buffer.h"
#include "params/sync/sync_flush.h"
#include "params/tables/table_info.h"

#include <assert.h>
#include <stdlib.h>

#define PIECE 1024u       /* entries examined before the lock is released for others */
#define LEND_LEAST 16384u /* bytes of a message */
#define PATIENCE_NS INT64_C(100000)
#define CLOSER 5 /* as often as this, while wanted rows have not been requested */
#define AWAIT_NS INT64_C(5000000)
/* Messages queued on a link: no rows are sent before these have left. Deltas are, if a worker waits
 * for them; each replica has only one outstanding. */
#define CROWDED 64u
#define CROWDED_BYTES (UINT64_C(64) << 20) /* of all links */

/* --- per node --- */

static lig_status take(void *context, uint64_t bytes, ligi_send_buffer **buffer)
{
    lig_params *node = context;

    LIG_TRY(ligi_send_buffer_take(node, bytes, buffer));
    (*buffer)->of_sync = 1;
    node->sync_bytes += (*buffer)->room;
    return LIG_OK;
}

static void drop(void *context, ligi_send_buffer *buffer)
{
    ligi_send_buffer_drop(context, buffer);
}

lig_status ligi_sync_say(lig_params *node, uint32_t to, ligi_sync_word word, uint64_t ticket)
{
    const ligi_params_outgoing message = {
        .message = {
            .kind = LIGI_PARAMS_SYNC, .origin = node->rank, .number = word, .ticket = ticket}};

    return ligi_params_peer_send(&node->peers[to], &message);
}

/* A node on this host reads large messages in place. They are held until it confirms. */
static lig_status outgoing(void *context, uint32_t to, const ligi_params_outgoing *message)
{
    lig_params *node = context;
    ligi_lent *lent = &node->sync->lent[to];
    ligi_send_buffer *buffer = message->buffer;
    ligi_params_outgoing lending = *message;

    if (node->peers[to].region == NULL || buffer->bytes < LEND_LEAST)
        return ligi_params_peer_send(&node->peers[to], message);
    lending.message.flags |= LIGI_PARAMS_LENT;
    lending.send_flags |= LIGI_SEND_LEND;
    assert(*lent->last == NULL);
    buffer->holds++;
    buffer->with = NULL;
    *lent->last = buffer;
    lent->last = &buffer->with;
    return ligi_params_peer_send(&node->peers[to], &lending);
}

static lig_status done_with(lig_params *node, uint32_t from)
{
    ligi_lent *lent = &node->sync->lent[from];
    ligi_send_buffer *buffer = lent->first;

    if (buffer == NULL)
        return lig_fail(LIG_E_CORRUPT,
                        "protocol error: node %u returned a buffer that it was not lent", from);
    assert(buffer->holds > 0);
    lent->first = buffer->with;
    if (lent->first == NULL)
        lent->last = &lent->first;
    ligi_send_buffer_drop(node, buffer);
    return LIG_OK;
}

lig_status ligi_sync_init(lig_params *node)
{
    ligi_sync *sync;
    const ligi_placement_options options = {.tables = node->tables,
                                            .rank = node->rank,
                                            .node_count = node->node_count,
                                            .techniques = (lig_params_techniques)node->techniques,
                                            .send_ops = {take, drop, outgoing, node}};

    if (ligi_node_alone(node))
        return LIG_OK;
    LIG_TRY(ligi_calloc(&sync, 1, sizeof *sync, "sync"));
    lig_status status = ligi_calloc(&sync->flush_for, 2 * (size_t)node->node_count,
                                    sizeof *sync->flush_for, "sync");
    if (status == LIG_OK)
        status = ligi_calloc(&sync->lent, node->node_count, sizeof *sync->lent, "sync");
    if (status == LIG_OK)
        status = ligi_placement_init(&sync->placement, &options);
    if (status != LIG_OK) {
        free(sync->lent);
        free(sync->flush_for);
        free(sync);
        return status;
    }
    atomic_init(&sync->patience_ns, PATIENCE_NS);
    sync->flush_for_later = sync->flush_for + node->node_count;
    for (uint32_t i = 0; i < node->node_count; i++)
        sync->lent[i].last = &sync->lent[i].first;
    node->sync = sync;
    return LIG_OK;
}

void ligi_sync_fini(lig_params *node)
{
    if (node->sync == NULL)
        return;
    ligi_placement_fini(&node->sync->placement);
    for (uint32_t i = 0; i < node->node_count; i++)
        while (node->sync->lent[i].first != NULL)
            (void)done_with(node, i);
    free(node->sync->lent);
    free(node->sync->flush_for);
    free(node->sync);
    node->sync = NULL;
}

void ligi_sync_wake(lig_params *node)
{
    if (!atomic_exchange(&node->sync->wanted, 1))
        ligi_net_hurry(node->session.net, LIGI_SERVICE_PARAMS);
}

/* A failure here leaves an operation half done, which cannot be repaired. */
static void check(lig_params *node, lig_status status)
{
    if (status != LIG_OK && !atomic_load(&node->session.broken))
        ligi_session_fail(&node->session, status, lig_error_text());
}

/* --- per worker --- */

lig_status ligi_sync_worker_open(lig_params_worker *worker)
{
    ligi_intents *intents;

    if (worker->node->sync == NULL)
        return LIG_OK;
    LIG_TRY(ligi_calloc(&intents, 1, sizeof *intents, "a worker's intents"));
    ligi_agenda_init(&intents->agenda);
    ligi_action_timing_init(&intents->timing);
    intents->window = ligi_action_timing_window(&intents->timing);
    pthread_mutex_init(&intents->notes_lock, NULL);
    worker->intents = intents;
    return LIG_OK;
}

/* Its interest ends at once. */
static lig_status end_all(lig_params_worker *worker)
{
    ligi_intents *intents = worker->intents;
    ligi_placement *placement = &worker->node->sync->placement;
    size_t budget = SIZE_MAX;
    ligi_intent_segment *segment;
    int through;

    intents->beginning = NULL;
    while ((segment = intents->ending) != NULL ||
           (segment = ligi_agenda_end(&intents->agenda, INT64_MAX)) != NULL) {
        intents->ending = NULL;
        lig_status status = ligi_placement_end(placement, segment, &budget, &through);
        ligi_agenda_free(&intents->agenda, segment);
        LIG_TRY(status);
    }
    LIG_TRY(ligi_placement_note(placement, intents->notes.items, intents->notes.count));
    if (intents->notes.count > 0)
        ligi_sync_wake(worker->node);
    return ligi_sync_send_flush(&placement->sender);
}

void ligi_sync_worker_close(lig_params_worker *worker)
{
    ligi_intents *intents = worker->intents;

    if (intents == NULL)
        return;
    if (!atomic_load(&worker->node->session.broken))
        check(worker->node, end_all(worker));
    if (intents->ending != NULL)
        free(intents->ending);
    ligi_agenda_fini(&intents->agenda);
    pthread_mutex_destroy(&intents->notes_lock);
    free(intents->notes.items);
    free(intents->scratch);
    free(intents);
    worker->intents = NULL;
}

static int64_t interval(const lig_params *node)
{
    return node->sync->held ? node->round_ns / CLOSER : node->round_ns;
}

/* With few processors, the thread that runs rounds may be scheduled last: a worker whose intent is
 * not handled in time runs the round itself. */
static void help(lig_params *node, const ligi_intents *intents)
{
    int64_t next = atomic_load_explicit(&node->sync->next_ns, memory_order_relaxed),
            asked = intents->woken_ns;
    int64_t patience = atomic_load_explicit(&node->sync->patience_ns, memory_order_relaxed);

    if (ligi_now_ns() > (next > asked ? next : asked) + patience)
        ligi_net_help(node->session.net);
}

void ligi_sync_clock(lig_params_worker *worker)
{
    ligi_intents *intents = worker->intents;

    if (intents == NULL ||
        !ligi_agenda_is_due(&intents->agenda,
                            atomic_load_explicit(&worker->clock, memory_order_relaxed)))
        return;
    if (atomic_load_explicit(&intents->woken, memory_order_relaxed)) {
        help(worker->node, intents);
        return;
    }
    intents->woken_ns = ligi_now_ns();
    atomic_store(&intents->woken, 1);
    ligi_sync_wake(worker->node);
}

void ligi_sync_finalize(lig_params_worker *worker)
{
    if (worker->intents != NULL)
        ligi_sync_wake(worker->node);
}

void ligi_sync_noted(lig_params *node, lig_params_worker *worker, const ligi_entry *noted,
                     size_t count)
{
    lig_status status;

    if (node->sync == NULL || count == 0)
        return;
    if (worker == NULL) {
        status = ligi_placement_note(&node->sync->placement, noted, count);
    } else {
        pthread_mutex_lock(&worker->intents->notes_lock);
        status = ligi_entries_add(&worker->intents->notes, noted, count);
        pthread_mutex_unlock(&worker->intents->notes_lock);
    }
    if (status != LIG_OK) {
        ligi_node_lock(node);
        check(node, status);
        ligi_node_unlock(node);
    }
    ligi_sync_wake(node);
}

typedef struct arrival {
    lig_params *node;
    const ligi_batch *batch;
    size_t at; /* misses before this one are not on their way */
    int waited;
} arrival;

static int has_come(void *context)
{
    arrival *what = context;
    const ligi_placement *placement = &what->node->sync->placement;

    if (atomic_load(&what->node->session.broken))
        return 1;
    for (; what->at < what->batch->miss_count; what->at++) {
        ligi_entry entry = what->batch->misses[what->at].entry;
        if (placement->marks[entry].flags & LIGI_MARK_WANTED &&
            ligi_tables_replicable(placement->tables, entry)) {
            what->waited = 1;
            return 0;
        }
    }
    return 1;
}

/* Without replicas, a request for a row may wait for its turn. */
int ligi_sync_await(lig_params_worker *worker, const ligi_batch *batch)
{
    lig_params *node = worker->node;
    arrival what = {.node = node, .batch = batch};

    if (node->sync == NULL || node->techniques == LIG_PARAMS_RELOCATION_ONLY ||
        atomic_load_explicit(&node->sync->placement.wants, memory_order_relaxed) == 0)
        return 0;
    (void)ligi_node_wait(node, has_come, &what, AWAIT_NS);
    return what.waited;
}

/* --- rounds --- */

static lig_status gather_notes(ligi_placement *placement, ligi_intents *intents)
{
    pthread_mutex_lock(&intents->notes_lock);
    lig_status status = ligi_placement_note(placement, intents->notes.items, intents->notes.count);
    intents->notes.count = 0;
    pthread_mutex_unlock(&intents->notes_lock);
    return status;
}

lig_status ligi_sync_gather_notes(lig_params *node)
{
    for (uint32_t i = 0; i < node->worker_count; i++)
        if (node->workers[i] != NULL && node->workers[i]->intents != NULL)
            LIG_TRY(gather_notes(&node->sync->placement, node->workers[i]->intents));
    return LIG_OK;
}

/* The time of the next round is known when this one ends. */
static void end_round(lig_params *node)
{
    ligi_sync *sync = node->sync;
    int64_t pause = interval(node);

    sync->busy = 0;
    atomic_store_explicit(&sync->next_ns, sync->began_ns + pause, memory_order_relaxed);
    atomic_store_explicit(&sync->patience_ns, sync->held ? PATIENCE_NS / CLOSER : PATIENCE_NS,
                          memory_order_relaxed);
    if (sync->held)
        atomic_store(&sync->wanted, 1);
}

static lig_status begin_round(lig_params *node, int64_t now_ns)
{
    ligi_sync *sync = node->sync;
    int64_t elapsed = now_ns - sync->began_ns;

    assert(!sync->busy);
    sync->busy = 1;
    sync->held = 0;
    sync->at = 0;
    sync->first = sync->next_first;
    sync->began_ns = now_ns;
    atomic_store_explicit(&sync->next_ns, now_ns + node->round_ns, memory_order_relaxed);
    ligi_throttle_round(&sync->throttle, sync->placement.wants / node->worker_count, now_ns,
                        node->round_ns + ligi_placement_transfer_ns(&sync->placement));
    sync->rounds++;
    for (uint32_t i = 0; i < node->worker_count; i++) {
        lig_params_worker *worker = node->workers[i];
        ligi_intents *intents = worker != NULL ? worker->intents : NULL;
        if (intents == NULL)
            continue;
        int64_t clock = atomic_load_explicit(&worker->clock, memory_order_relaxed);
        atomic_store(&intents->woken, 0);
        intents->gathered = 0;
        if (clock != LIG_PARAMS_FOREVER_CLOCK)
            ligi_action_timing_round(&intents->timing, clock - intents->seen_clock, elapsed,
                                     node->round_ns);
        intents->seen_clock = clock;
        intents->window = ligi_action_timing_window(&intents->timing);
    }
    LIG_TRY(ligi_sync_gather_notes(node));
    return ligi_placement_rested(&sync->placement);
}

/* Without replicas, a row may take long to arrive, so it is requested anyway. */
static int enough_wanted(const lig_params *node, const ligi_intent_segment *segment)
{
    const ligi_sync *sync = node->sync;

    return node->techniques != LIG_PARAMS_RELOCATION_ONLY &&
           ligi_throttle_holds(&sync->throttle, sync->placement.wants / node->worker_count,
                               segment != NULL);
}

static lig_status begin_intents(ligi_sync *sync, lig_params_worker *worker, int64_t clock,
                                size_t *budget)
{
    ligi_intents *intents = worker->intents;

    while (*budget > 0) {
        ligi_intent_segment *segment = intents->beginning;
        int through;
        if (enough_wanted(worker->node, segment)) {
            if (!sync->held)
                sync->next_first = worker->id + 1;
            sync->held = 1;
            return LIG_OK;
        }
        if (segment == NULL)
            segment = ligi_agenda_begin(&intents->agenda, clock, intents->window);
        if (segment == NULL)
            return LIG_OK;
        intents->beginning = segment;
        LIG_TRY(ligi_placement_begin(&sync->placement, worker->id, segment, budget, &through));
        if (through)
            intents->beginning = NULL;
    }
    return LIG_OK;
}

static lig_status end_intents(ligi_placement *placement, lig_params_worker *worker, int64_t clock,
                              size_t *budget)
{
    ligi_intents *intents = worker->intents;

    while (*budget > 0) {
        ligi_intent_segment *segment = intents->ending;
        int through;
        if (segment == NULL)
            segment = ligi_agenda_end(&intents->agenda, clock);
        if (segment == NULL)
            return LIG_OK;
        intents->ending = segment;
        LIG_TRY(ligi_placement_end(placement, segment, budget, &through));
        if (!through)
            return LIG_OK;
        ligi_agenda_free(&intents->agenda, segment);
        intents->ending = NULL;
    }
    return LIG_OK;
}

/* Some of *budget is left if there is nothing more to do for the worker in this round. */
static lig_status one_worker(lig_params_worker *worker, size_t *budget)
{
    ligi_intents *intents = worker->intents;
    ligi_sync *sync = worker->node->sync;

    for (;;) {
        int64_t clock = atomic_load_explicit(&worker->clock, memory_order_relaxed);
        if (!intents->gathered)
            ligi_agenda_gather(&intents->agenda, clock);
        intents->gathered = 1;
        LIG_TRY(begin_intents(sync, worker, clock, budget));
        if (*budget > 0 && intents->beginning == NULL)
            LIG_TRY(end_intents(&sync->placement, worker, clock, budget));
        if (*budget == 0 || sync->held)
            return LIG_OK;
        intents->gathered = 0;
        if (ligi_agenda_rest(&intents->agenda, clock, intents->window))
            return LIG_OK;
    }
}

static int crowded(const lig_params *node)
{
    if (node->sync_bytes > CROWDED_BYTES)
        return 1;
    for (uint32_t i = 0; i < node->node_count; i++)
        if (node->peers[i].base.link != NULL &&
            ligi_link_queued(node->peers[i].base.link) > CROWDED)
            return 1;
    return 0;
}

/* One piece of a round; a remaining *budget means that it was the last. */
static lig_status piece(lig_params *node, size_t *budget)
{
    ligi_sync *sync = node->sync;

    for (; sync->at < node->worker_count; sync->at++) {
        uint32_t id = (sync->first + sync->at) % node->worker_count;
        lig_params_worker *worker = node->workers[id];
        if (worker != NULL && worker->intents != NULL)
            LIG_TRY(one_worker(worker, budget));
        if (*budget == 0)
            return ligi_sync_send_flush(&sync->placement.sender);
    }
    if (!crowded(node))
        LIG_TRY(ligi_placement_spread(&sync->placement, budget));
    else if (ligi_turn_runs(&sync->settling))
        LIG_TRY(ligi_placement_send_deltas(&sync->placement));
    return ligi_sync_send_flush(&sync->placement.sender);
}

static int is_wanted(const ligi_sync *sync)
{
    return atomic_load(&sync->wanted) || sync->placement.resting.count > 0 ||
           sync->placement.dirty.count > 0;
}

int64_t ligi_sync_tick(lig_params *node, int64_t now_ns)
{
    ligi_sync *sync = node->sync;
    size_t budget = PIECE;
    lig_status status = LIG_OK;

    if (sync == NULL || atomic_load(&node->session.broken))
        return INT64_MAX;
    if (!sync->busy) {
        if (!is_wanted(sync))
            return INT64_MAX;
        if (sync->rounds > 0 && now_ns - sync->began_ns < interval(node))
            return sync->began_ns + interval(node);
        atomic_store(&sync->wanted, 0);
        status = begin_round(node, now_ns);
    }
    if (status == LIG_OK)
        status = piece(node, &budget);
    check(node, status);
    if (status != LIG_OK)
        return INT64_MAX;
    if (budget == 0)
        return now_ns;
    end_round(node);
    return is_wanted(sync) ? now_ns + interval(node) : INT64_MAX;
}

/* --- received messages --- */

lig_status ligi_sync_arrived(ligi_params_peer *peer, const ligi_params_message *message,
                             const ligi_params_parts *parts)
{
    lig_params *node = peer->node;
    ligi_sync *sync = node->sync;

    if (message->count == 0 && message->kind == LIGI_PARAMS_SYNC &&
        message->number == LIGI_SYNC_DONE)
        return done_with(node, peer->base.rank);
    if (message->count == 0)
        return ligi_sync_flush_arrived(node, peer->base.rank, message);
    LIG_TRY(ligi_placement_arrived(&sync->placement, peer->base.rank, message, parts));
    if (message->kind != LIGI_PARAMS_LOCATION && (message->flags & LIGI_PARAMS_LENT))
        LIG_TRY(ligi_sync_say(node, peer->base.rank, LIGI_SYNC_DONE, 0));
    if (is_wanted(sync))
        ligi_sync_wake(node);
    return LIG_OK;
}

void ligi_sync_written_by(lig_params *node, ligi_entry entry, uint32_t origin)
{
    if (node->sync != NULL && node->sync->placement.subscribers.live > 0)
        check(node, ligi_placement_written_by(&node->sync->placement, entry, origin));
}

void ligi_sync_surrender(lig_params *node, ligi_entry entry)
{
    if (node->sync != NULL)
        check(node, ligi_placement_surrender(&node->sync->placement, entry));
}

void ligi_sync_stats(lig_params *node, lig_params_stats *stats)
{
    if (node->sync == NULL)
        return;
    const ligi_placement_counts *counts = &node->sync->placement.counts;
    stats->relocations_in += counts->relocations_in;
    stats->relocations_out += counts->relocations_out;
    stats->replications += counts->replications;
    stats->drops += counts->drops;
    stats->forwarded += counts->forwarded;
    stats->rounds += node->sync->rounds;
}
