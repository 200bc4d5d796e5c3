#include "params/snapshot/snapshot_agree.h"

#include "group/roster/loss_grace.h"
#include "group/session/session_end.h"
#include "params/snapshot/snapshot.h"
#include "params/snapshot/snapshot_rows.h"
#include "params/snapshot/snapshot_serve.h"
#include "params/state/node_wait.h"
#include "params/state/peer.h"
#include "params/state/send_buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLD_NS INT64_C(1000000000) /* how long a failed node stays so that the others learn why */

/* --- state --- */

static lig_status snapshot_of(lig_params *node, struct ligi_snapshot_state **snapshot)
{
    struct ligi_snapshot_state *made = NULL;
    if (node->snapshot == NULL) {
        LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a save"));
        lig_status status = LIG_OK;
        if (node->rank == 0)
            status = ligi_calloc(&made->reports, node->node_count, sizeof *made->reports, "a save");
        if (status != LIG_OK) {
            free(made);
            return status;
        }
        node->snapshot = made;
    }
    *snapshot = node->snapshot;
    return LIG_OK;
}

void ligi_params_snapshot_fini(lig_params *node)
{
    struct ligi_snapshot_state *self = node->snapshot;
    node->snapshot = NULL;
    if (self == NULL)
        return;
    for (uint32_t i = 0; i < node->node_count && self->reports; i++)
        ligi_writer_fini(&self->reports[i].data);
    free(self->reports);
    ligi_writer_fini(&self->answer);
    ligi_params_snapshot_index_fini(&self->index);
    free(self);
}

int ligi_params_snapshot_tells_why(const ligi_params_message *message)
{
    return message->kind == LIGI_PARAMS_SNAPSHOT &&
           (message->verb == LIGI_SNAPSHOT_REPORT || message->verb == LIGI_SNAPSHOT_DECISION);
}

lig_status ligi_params_snapshot_begin(ligi_snapshot_call *call, int64_t timeout_ns)
{
    lig_params *node = call->node;
    if (node->tables == NULL)
        return lig_fail(LIG_E_INVALID, "a scheduler has no rows to %s", call->verb);
    call->deadline_ns = ligi_time_until(timeout_ns);
    ligi_node_lock(node);
    lig_status status = snapshot_of(node, &call->snapshot);
    if (status == LIG_OK && call->snapshot->busy)
        status = lig_fail(LIG_E_BUSY, "a save or load is already in progress on this node");
    if (status == LIG_OK) {
        struct ligi_snapshot_state *self = call->snapshot;
        self->busy = 1;
        self->call++;
        self->heard = 0;
        self->writable = 0;
        /* Node 0 may have failed the call before this node arrived. */
        self->failure = self->lost_call == self->call ? self->lost : (ligi_failure){0};
        self->answer.bytes = 0;
    }
    ligi_node_unlock(node);
    return status;
}

void ligi_params_snapshot_end(ligi_snapshot_call *call)
{
    struct ligi_snapshot_state *self = call->snapshot;
    ligi_node_lock(call->node);
    self->busy = 0;
    self->writable = 0;
    self->plan = NULL;
    self->asked = NULL;
    self->awaited = 0;
    ligi_params_snapshot_index_fini(&self->index);
    ligi_node_unlock(call->node);
    ligi_params_snapshot_plan_fini(&call->plan);
    if (call->store)
        lig_store_close(call->store);
    call->store = NULL;
}

/* --- sending --- */

lig_status ligi_params_snapshot_send(lig_params *node, uint32_t rank, ligi_snapshot_verb verb,
                                     const ligi_snapshot_front *front, const struct iovec *pieces,
                                     size_t count)
{
    ligi_send_buffer *buffer = NULL;
    uint64_t bytes = sizeof *front;
    for (size_t i = 0; i < count; i++)
        bytes += pieces[i].iov_len;
    LIG_TRY(ligi_send_buffer_take(node, bytes, &buffer));
    uint8_t *at = buffer->data;
    memcpy(at, front, sizeof *front);
    at += sizeof *front;
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].iov_len)
            memcpy(at, pieces[i].iov_base, pieces[i].iov_len);
        at += pieces[i].iov_len;
    }
    buffer->bytes = bytes;
    ligi_params_outgoing outgoing = {
        .message = {.kind = LIGI_PARAMS_SNAPSHOT, .verb = verb, .origin = node->rank},
        .buffer = buffer};
    return ligi_params_peer_send(&node->peers[rank], &outgoing);
}

static lig_status send_failure(lig_params *node, uint32_t rank, ligi_snapshot_verb verb,
                               ligi_snapshot_front front, const ligi_failure *failure)
{
    size_t bytes = strnlen(failure->text, LIGI_PARAMS_SENTENCE_MAX);
    struct iovec text = {(void *)failure->text, bytes};
    front.status = (uint16_t)failure->status;
    front.count = (uint32_t)bytes;
    return ligi_params_snapshot_send(node, rank, verb, &front, &text, 1);
}

static lig_status send_data(lig_params *node, uint32_t rank, ligi_snapshot_verb verb,
                            ligi_snapshot_front front, const lig_part_data *data)
{
    front.total = data->bytes;
    do {
        uint64_t left = front.total - front.at;
        front.count = (uint32_t)(left < LIGI_SNAPSHOT_TEXT_MAX ? left : LIGI_SNAPSHOT_TEXT_MAX);
        struct iovec piece = {(uint8_t *)data->data + front.at, front.count};
        LIG_TRY(ligi_params_snapshot_send(node, rank, verb, &front, &piece, 1));
        front.at += front.count;
    } while (front.at < front.total);
    return LIG_OK;
}

/* --- received messages --- */

/* One piece of the data of a step; 1 if it was the last. Pieces out of order are ignored. */
static int take_piece(ligi_writer *into, const ligi_snapshot_message *content)
{
    if (content->front.at == 0)
        into->bytes = 0;
    if (content->front.at != into->bytes)
        return 0;
    ligi_put_bytes(into, content->text, content->front.count);
    return into->status == LIG_OK && into->bytes == content->front.total;
}

static void take_failure(ligi_failure *failure, const ligi_snapshot_message *content,
                         const char *who)
{
    *failure = (ligi_failure){.status = (lig_status)content->front.status};
    snprintf(failure->text, sizeof failure->text, "%s%.*s", who, (int)content->front.count,
             (const char *)content->text);
}

/* The call may be over before some nodes arrive: they get its result. */
static void turn_away(lig_params *node, uint32_t rank, const ligi_snapshot_message *content)
{
    const struct ligi_snapshot_state *self = node->snapshot;
    ligi_failure failure = {.status = LIG_E_TIMEOUT};
    snprintf(failure.text, sizeof failure.text,
             "node 0 has given up this save or load: call it again on all nodes");
    if (self->lost_call == content->front.call)
        failure = self->lost;
    ligi_snapshot_front front = {.call = content->front.call, .step = content->front.step};
    send_failure(node, rank, LIGI_SNAPSHOT_DECISION, front, &failure);
}

/* Sent at once, whatever this node is doing: the failed node may leave, and the others would report
 * that instead. The failed node is notified last. */
static void pass_failure(lig_params *node, uint32_t rank, const ligi_snapshot_message *content,
                         const ligi_failure *failure)
{
    struct ligi_snapshot_state *self = node->snapshot;
    ligi_snapshot_front front = {.call = content->front.call, .step = content->front.step};
    if (self->busy && content->front.call == self->call && self->failure.status == LIG_OK)
        self->failure = *failure;
    self->lost_call = content->front.call;
    self->lost = *failure;
    for (uint32_t i = 1; i < node->node_count; i++)
        if (i != rank)
            (void)send_failure(node, i, LIGI_SNAPSHOT_DECISION, front, failure);
    (void)send_failure(node, rank, LIGI_SNAPSHOT_DECISION, front, failure);
}

static void take_report(lig_params *node, uint32_t rank, const ligi_snapshot_message *content)
{
    struct ligi_snapshot_state *self = node->snapshot;
    ligi_snapshot_report *reports = &self->reports[rank];
    int over = !self->busy && content->front.call == self->call;
    if (content->front.call < self->call || over) {
        if (content->front.status == LIG_OK && content->front.at == 0)
            turn_away(node, rank, content);
        return;
    }
    if (reports->call != content->front.call) {
        reports->call = content->front.call;
        reports->step = 0;
        reports->failure = (ligi_failure){0};
        reports->data.bytes = 0;
        reports->data.status = LIG_OK;
    }
    char who[32];
    snprintf(who, sizeof who, "node %u: ", rank);
    if (content->front.status != LIG_OK) {
        take_failure(&reports->failure, content, who);
        pass_failure(node, rank, content, &reports->failure);
    } else if (take_piece(&reports->data, content)) {
        reports->step = content->front.step + 1;
    }
}

static void take_decision(lig_params *node, const ligi_snapshot_message *content)
{
    struct ligi_snapshot_state *self = node->snapshot;
    if (content->front.call == self->call + 1 && content->front.status != LIG_OK) {
        self->lost_call = content->front.call;
        take_failure(&self->lost, content, "");
    }
    if (!self->busy || content->front.call != self->call || self->failure.status != LIG_OK)
        return;
    if (content->front.status != LIG_OK)
        take_failure(&self->failure, content, "");
    else if (take_piece(&self->answer, content))
        self->heard = content->front.step + 1;
}

/* --- waiting --- */

static const ligi_failure *first_failure(const lig_params *node)
{
    const struct ligi_snapshot_state *self = node->snapshot;
    if (self->failure.status != LIG_OK)
        return &self->failure;
    for (uint32_t i = 1; i < node->node_count && self->reports; i++)
        if (self->reports[i].call == self->call && self->reports[i].failure.status != LIG_OK)
            return &self->reports[i].failure;
    return NULL;
}

/* A node that is at a later call has given this one up; 0: none. */
static uint32_t one_ahead(const lig_params *node)
{
    const struct ligi_snapshot_state *self = node->snapshot;
    for (uint32_t i = 1; i < node->node_count && self->reports; i++)
        if (self->reports[i].call > self->call)
            return i;
    return 0;
}

int ligi_params_snapshot_interrupted(const lig_params *node)
{
    return atomic_load(&node->session.broken) || atomic_load(&node->session.closed) ||
           first_failure(node) != NULL || one_ahead(node) != 0;
}

static int has_reason(void *context)
{
    return first_failure(context) != NULL;
}

/* A node that learns of a failure may leave at once: its departure is not the reason. */
lig_status ligi_params_snapshot_why(ligi_snapshot_call *call)
{
    lig_params *node = call->node;
    if (atomic_load(&node->session.broken))
        (void)ligi_node_wait(node, has_reason, node, LIGI_LOSS_GRACE_NS);
    ligi_node_lock(node);
    const ligi_failure *first = first_failure(node);
    lig_status status = first ? ligi_failure_publish(first) : LIG_OK;
    uint32_t ahead = one_ahead(node);
    ligi_node_unlock(node);
    if (status == LIG_OK)
        status = ligi_session_usable(&node->session);
    if (status == LIG_OK && ahead)
        return lig_fail(LIG_E_TIMEOUT,
                        "%s '%s': node %u has abandoned it: call it again on all nodes", call->verb,
                        call->model, ahead);
    return status;
}

static int all_said(void *context)
{
    const ligi_snapshot_call *call = context;
    const struct ligi_snapshot_state *self = call->snapshot;
    if (ligi_params_snapshot_interrupted(call->node))
        return 1;
    for (uint32_t i = 1; i < call->node->node_count; i++)
        if (self->reports[i].call != self->call || self->reports[i].step != call->step + 1)
            return 0;
    return 1;
}

static int all_heard(void *context)
{
    const ligi_snapshot_call *call = context;
    return ligi_params_snapshot_interrupted(call->node) || call->snapshot->heard == call->step + 1;
}

lig_status ligi_params_snapshot_wait(ligi_snapshot_call *call, int (*until)(void *context))
{
    lig_params *node = call->node;
    for (;;) {
        int64_t left = ligi_time_left(call->deadline_ns);
        int last = node->patience == NULL || (left >= 0 && left <= LIGI_PATIENCE_NS);
        lig_status status = ligi_node_wait(node, until, call, last ? left : LIGI_PATIENCE_NS);
        if (status != LIG_E_TIMEOUT || last)
            return status;
        call->given_up = !node->patience(node->patience_context);
        if (call->given_up)
            return lig_fail(LIG_E_TIMEOUT, "%s '%s' was cancelled on node %u", call->verb,
                            call->model, node->rank);
    }
}

/* "nodes 2, 3 and 5". */
static void name_missing(const ligi_snapshot_call *call, char *text, size_t bytes)
{
    const struct ligi_snapshot_state *self = call->snapshot;
    size_t at = 0;
    for (uint32_t i = 1; i < call->node->node_count; i++) {
        if (self->reports[i].call == self->call && self->reports[i].step == call->step + 1)
            continue;
        if (at + 16 < bytes)
            at += (size_t)snprintf(text + at, bytes - at, "%s%u", at ? ", " : "node ", i);
    }
}

/* --- steps --- */

static lig_status decide(ligi_snapshot_call *call, const ligi_agreement *agreement,
                         ligi_writer *answer)
{
    struct ligi_snapshot_state *self = call->snapshot;
    lig_part_data *reports;
    if (agreement->decide == NULL)
        return LIG_OK;
    LIG_TRY(ligi_calloc(&reports, call->node->node_count, sizeof *reports, "a save"));
    reports[0] = (lig_part_data){agreement->data, agreement->bytes};
    for (uint32_t i = 1; i < call->node->node_count; i++)
        reports[i] = (lig_part_data){self->reports[i].data.data, self->reports[i].data.bytes};
    lig_status status = agreement->decide(agreement->context, reports, answer);
    free(reports);
    if (status == LIG_OK)
        status = answer->status;
    if (status == LIG_OK && answer->bytes > LIGI_SNAPSHOT_DATA_MAX)
        status = lig_fail(LIG_E_LIMIT, "too many blocks in one save");
    return status;
}

/* All nodes are notified, also those that arrive later. If the notice cannot be sent they would
 * wait forever: the job ends. */
static lig_status tell_all(ligi_snapshot_call *call, const ligi_failure *failure,
                           const lig_part_data *answer)
{
    lig_params *node = call->node;
    ligi_snapshot_front front = {.call = call->snapshot->call, .step = call->step};
    lig_status status = LIG_OK;
    ligi_node_lock(node);
    for (uint32_t i = 1; i < node->node_count && status == LIG_OK; i++) {
        if (failure->status != LIG_OK)
            status = send_failure(node, i, LIGI_SNAPSHOT_DECISION, front, failure);
        else
            status = send_data(node, i, LIGI_SNAPSHOT_DECISION, front, answer);
    }
    if (status != LIG_OK)
        ligi_session_fail(&node->session, status, lig_error_text());
    ligi_node_unlock(node);
    return status;
}

static lig_status wait_for_all(ligi_snapshot_call *call)
{
    char missing[200] = "";
    lig_status status = ligi_params_snapshot_wait(call, all_said);
    if (status == LIG_E_TIMEOUT && !call->given_up) {
        ligi_node_lock(call->node);
        name_missing(call, missing, sizeof missing);
        ligi_node_unlock(call->node);
        return lig_fail(status, "%s '%s': timeout waiting for %s (every node must call it)",
                        call->verb, call->model, missing);
    }
    LIG_TRY(status);
    return ligi_params_snapshot_why(call);
}

static lig_status agree_first(ligi_snapshot_call *call, lig_status status,
                              const ligi_agreement *agreement)
{
    ligi_writer answer = {0};
    ligi_failure failure;
    if (status == LIG_OK)
        status = wait_for_all(call);
    if (status == LIG_OK)
        status = decide(call, agreement, &answer);
    ligi_failure_take(&failure, status);
    if (status != LIG_OK) {
        ligi_node_lock(call->node);
        call->snapshot->lost_call = call->snapshot->call;
        call->snapshot->lost = failure;
        ligi_node_unlock(call->node);
    }
    lig_status told = tell_all(call, &failure, &(lig_part_data){answer.data, answer.bytes});
    if (told != LIG_OK && status == LIG_OK)
        ligi_failure_take(&failure, status = told);
    ligi_writer_fini(&call->snapshot->answer);
    call->snapshot->answer = answer;
    return status == LIG_OK ? LIG_OK : ligi_failure_publish(&failure);
}

static lig_status say(ligi_snapshot_call *call, const ligi_failure *failure,
                      const ligi_agreement *agreement)
{
    lig_params *node = call->node;
    ligi_snapshot_front front = {.call = call->snapshot->call, .step = call->step};
    lig_status status;
    ligi_node_lock(node);
    if (failure->status != LIG_OK)
        status = send_failure(node, 0, LIGI_SNAPSHOT_REPORT, front, failure);
    else
        status = send_data(node, 0, LIGI_SNAPSHOT_REPORT, front,
                           &(lig_part_data){agreement->data, agreement->bytes});
    if (status != LIG_OK)
        ligi_session_fail(&node->session, status, lig_error_text());
    ligi_node_unlock(node);
    return status;
}

static lig_status agree_other(ligi_snapshot_call *call, lig_status status,
                              const ligi_agreement *agreement)
{
    ligi_failure failure;
    if (status == LIG_OK && agreement->bytes > LIGI_SNAPSHOT_DATA_MAX)
        status = lig_fail(LIG_E_LIMIT, "too many blocks in one save");
    ligi_failure_take(&failure, status);
    lig_status reports = say(call, &failure, agreement);
    if (status != LIG_OK) {
        int64_t left = ligi_time_left(call->deadline_ns);
        (void)ligi_node_wait(call->node, all_heard, call,
                             left >= 0 && left < TOLD_NS ? left : TOLD_NS);
        return ligi_failure_publish(&failure);
    }
    LIG_TRY(reports);
    status = ligi_params_snapshot_wait(call, all_heard);
    if (status == LIG_E_TIMEOUT) {
        if (!call->given_up)
            lig_fail(status, "%s '%s': timeout waiting for node 0 (every node must call it)",
                     call->verb, call->model);
        ligi_failure_take(&failure, status);
        say(call, &failure, agreement);
        return ligi_failure_publish(&failure);
    }
    LIG_TRY(status);
    return ligi_params_snapshot_why(call);
}

lig_status ligi_params_snapshot_check(ligi_snapshot_call *call)
{
    ligi_failure failure;
    ligi_failure_take(&failure, ligi_params_snapshot_why(call));
    if (failure.status != LIG_OK && call->node->node_count > 1 && call->node->rank == 0)
        (void)tell_all(call, &failure, NULL); /* they may have arrived since the message was
                                               * built */
    return ligi_failure_publish(&failure);
}

/* A lost node may have sent its reason before. If no node is lost, the failed peer was the
 * store's. */
static lig_status find_reason(ligi_snapshot_call *call, lig_status status)
{
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    LIG_TRY(ligi_params_snapshot_why(call));
    return ligi_failure_publish(&failure);
}

lig_status ligi_params_snapshot_agree(ligi_snapshot_call *call, lig_status status,
                                      const ligi_agreement *agreement)
{
    const ligi_agreement nothing = {0};
    agreement = agreement ? agreement : &nothing;
    if (status == LIG_E_PEER)
        status = find_reason(call, status);
    if (call->node->node_count == 1 && status == LIG_OK) {
        call->snapshot->answer.bytes = 0;
        status = decide(call, agreement, &call->snapshot->answer);
    } else if (call->node->node_count > 1 && call->node->rank == 0) {
        status = agree_first(call, status, agreement);
    } else if (call->node->node_count > 1) {
        status = agree_other(call, status, agreement);
    }
    call->step++;
    return status;
}

static lig_status same_call(void *context, const lig_part_data *reports, ligi_writer *answer)
{
    const ligi_snapshot_call *call = context;
    (void)answer;
    for (uint32_t i = 1; i < call->node->node_count; i++)
        if (reports[i].bytes != reports[0].bytes ||
            memcmp(reports[i].data, reports[0].data, reports[0].bytes) != 0)
            return lig_fail(LIG_E_MISMATCH, "node 0 calls %.*s, but node %u calls %.*s",
                            (int)reports[0].bytes, (const char *)reports[0].data, i,
                            reports[i].bytes < 200 ? (int)reports[i].bytes : 200,
                            (const char *)reports[i].data);
    return LIG_OK;
}

lig_status ligi_params_snapshot_agree_call(ligi_snapshot_call *call, lig_status status,
                                           int writable)
{
    char text[200];
    if (call->version)
        snprintf(text, sizeof text, "%s '%s' (version %llu)", call->verb, call->model,
                 (unsigned long long)call->version);
    else
        snprintf(text, sizeof text, "%s '%s'", call->verb, call->model);
    ligi_agreement agreement = {text, strlen(text), same_call, call};
    ligi_node_lock(call->node);
    call->snapshot->plan = status == LIG_OK ? &call->plan : NULL;
    call->snapshot->writable = writable && status == LIG_OK;
    ligi_node_unlock(call->node);
    return ligi_params_snapshot_agree(call, status, &agreement);
}

lig_status ligi_params_snapshot_arrived(ligi_params_peer *peer, const ligi_params_message *message,
                                        const void *payload, uint64_t bytes)
{
    lig_params *node = peer->node;
    struct ligi_snapshot_state *snapshot;
    ligi_snapshot_message content;
    LIG_TRY(ligi_params_snapshot_message_open(message->verb, payload, bytes, &content));
    if (node->tables == NULL || (message->verb == LIGI_SNAPSHOT_REPORT && node->rank != 0) ||
        (message->verb == LIGI_SNAPSHOT_DECISION && peer->base.rank != 0))
        return lig_fail(LIG_E_CORRUPT, "snapshot message sent to the wrong node");
    LIG_TRY(snapshot_of(node, &snapshot));
    switch ((ligi_snapshot_verb)message->verb) {
    case LIGI_SNAPSHOT_REPORT: take_report(node, peer->base.rank, &content); return LIG_OK;
    case LIGI_SNAPSHOT_DECISION: take_decision(node, &content); return LIG_OK;
    case LIGI_SNAPSHOT_GET: return ligi_params_snapshot_get(node, peer->base.rank, &content);
    case LIGI_SNAPSHOT_ROWS:
        return ligi_params_snapshot_rows_arrived(node, peer->base.rank, &content);
    case LIGI_SNAPSHOT_OWN: return ligi_params_snapshot_own(node, peer->base.rank, &content);
    case LIGI_SNAPSHOT_OWNED: return ligi_params_snapshot_owned(node, peer->base.rank, &content);
    case LIGI_SNAPSHOT_PUT: return ligi_params_snapshot_put(node, peer->base.rank, &content);
    case LIGI_SNAPSHOT_TAKEN: return ligi_params_snapshot_taken(node, peer->base.rank, &content);
    }
    return LIG_OK;
}
