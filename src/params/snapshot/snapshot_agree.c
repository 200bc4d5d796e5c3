#include "params/snapshot/snapshot_agree.h"

#include "params/snapshot/snapshot.h"
#include "params/snapshot/snapshot_rows.h"
#include "params/snapshot/snapshot_serve.h"
#include "params/state/peer.h"
#include "params/state/send_buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLD_NS INT64_C(1000000000)  /* who fails stays so long for the others to hear why */
#define REASON_NS INT64_C(200000000) /* and they wait so long for that when somebody is lost */

/* --- what is there --- */

static lig_status keeping_of(lig_params *node, struct ligi_keeping **keeping)
{
    struct ligi_keeping *made = NULL;
    if (node->keeping == NULL) {
        LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a save"));
        lig_status status = LIG_OK;
        if (node->rank == 0)
            status = ligi_calloc(&made->said, node->node_count, sizeof *made->said, "a save");
        if (status != LIG_OK) {
            free(made);
            return status;
        }
        node->keeping = made;
    }
    *keeping = node->keeping;
    return LIG_OK;
}

void ligi_keep_fini(lig_params *node)
{
    struct ligi_keeping *self = node->keeping;
    node->keeping = NULL;
    if (self == NULL)
        return;
    for (uint32_t i = 0; i < node->node_count && self->said; i++)
        ligi_writer_fini(&self->said[i].data);
    free(self->said);
    ligi_writer_fini(&self->answer);
    ligi_keep_index_fini(&self->index);
    free(self);
}

int ligi_keep_tells_why(const ligi_letter *letter)
{
    return letter->kind == LIGI_LETTER_KEEP &&
           (letter->verb == LIGI_KEEP_SAY || letter->verb == LIGI_KEEP_HEAR);
}

lig_status ligi_keep_arrived(ligi_peer *peer, const ligi_letter *letter, const void *payload,
                             uint64_t bytes)
{
    lig_params *node = peer->node;
    struct ligi_keeping *keeping;
    ligi_note note;
    LIG_TRY(ligi_note_open(letter->verb, payload, bytes, &note));
    if (node->tables == NULL || (letter->verb == LIGI_KEEP_SAY && node->rank != 0) ||
        (letter->verb == LIGI_KEEP_HEAR && peer->rank != 0))
        return lig_fail(LIG_E_CORRUPT, "a letter about saving came to the wrong node");
    LIG_TRY(keeping_of(node, &keeping));
    switch ((ligi_keep_verb)letter->verb) {
    case LIGI_KEEP_SAY: ligi_keep_said(node, peer->rank, &note); return LIG_OK;
    case LIGI_KEEP_HEAR: ligi_keep_heard(node, &note); return LIG_OK;
    case LIGI_KEEP_GET: return ligi_keep_get(node, peer->rank, &note);
    case LIGI_KEEP_ROWS: return ligi_keep_rows(node, peer->rank, &note);
    case LIGI_KEEP_OWN: return ligi_keep_own(node, peer->rank, &note);
    case LIGI_KEEP_OWNED: return ligi_keep_owned(node, peer->rank, &note);
    case LIGI_KEEP_PUT: return ligi_keep_put(node, peer->rank, &note);
    case LIGI_KEEP_TAKEN: return ligi_keep_taken(node, peer->rank, &note);
    }
    return LIG_OK;
}

lig_status ligi_keep_begin(ligi_keep_call *call, int64_t timeout_ns)
{
    lig_params *node = call->node;
    if (node->tables == NULL)
        return lig_fail(LIG_E_INVALID, "a scheduler has no rows to %s", call->verb);
    call->deadline_ns = ligi_time_until(timeout_ns);
    ligi_node_lock(node);
    lig_status status = keeping_of(node, &call->keeping);
    if (status == LIG_OK && call->keeping->busy)
        status = lig_fail(LIG_E_BUSY, "a save or load of this node is under way");
    if (status == LIG_OK) {
        struct ligi_keeping *self = call->keeping;
        self->busy = 1;
        self->call++;
        self->heard = 0;
        self->writable = 0;
        /* Node 0 may have given it up before this one came. */
        self->failure = self->lost_call == self->call ? self->lost : (ligi_failure){0};
        self->answer.bytes = 0;
    }
    ligi_node_unlock(node);
    return status;
}

void ligi_keep_end(ligi_keep_call *call)
{
    struct ligi_keeping *self = call->keeping;
    ligi_node_lock(call->node);
    self->busy = 0;
    self->writable = 0;
    self->plan = NULL;
    self->asked = NULL;
    self->awaited = 0;
    ligi_keep_index_fini(&self->index);
    ligi_node_unlock(call->node);
    ligi_keep_plan_fini(&call->plan);
    if (call->store)
        lig_store_close(call->store);
    call->store = NULL;
}

/* --- sending --- */

lig_status ligi_keep_post(lig_params *node, uint32_t rank, ligi_keep_verb verb,
                          const ligi_note_front *front, const struct iovec *pieces, size_t count)
{
    ligi_parcel *parcel = NULL;
    uint64_t bytes = sizeof *front;
    for (size_t i = 0; i < count; i++)
        bytes += pieces[i].iov_len;
    LIG_TRY(ligi_parcel_take(node, bytes, &parcel));
    uint8_t *at = parcel->data;
    memcpy(at, front, sizeof *front);
    at += sizeof *front;
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].iov_len)
            memcpy(at, pieces[i].iov_base, pieces[i].iov_len);
        at += pieces[i].iov_len;
    }
    parcel->bytes = bytes;
    ligi_post post = {.letter = {.kind = LIGI_LETTER_KEEP, .verb = verb, .origin = node->rank},
                      .parcel = parcel};
    return ligi_peer_post(&node->peers[rank], &post);
}

static lig_status post_failure(lig_params *node, uint32_t rank, ligi_keep_verb verb,
                               ligi_note_front front, const ligi_failure *failure)
{
    size_t bytes = strnlen(failure->text, LIGI_LETTER_SENTENCE_MAX);
    struct iovec text = {(void *)failure->text, bytes};
    front.status = (uint16_t)failure->status;
    front.count = (uint32_t)bytes;
    return ligi_keep_post(node, rank, verb, &front, &text, 1);
}

static lig_status post_data(lig_params *node, uint32_t rank, ligi_keep_verb verb,
                            ligi_note_front front, const lig_part_data *data)
{
    front.total = data->bytes;
    do {
        uint64_t left = front.total - front.at;
        front.count = (uint32_t)(left < LIGI_NOTE_TEXT_MAX ? left : LIGI_NOTE_TEXT_MAX);
        struct iovec piece = {(uint8_t *)data->data + front.at, front.count};
        LIG_TRY(ligi_keep_post(node, rank, verb, &front, &piece, 1));
        front.at += front.count;
    } while (front.at < front.total);
    return LIG_OK;
}

/* --- what comes --- */

/* A piece of the data of a step; 1 when that was the last. Pieces that do not follow each other are
 * nobody's. */
static int take_piece(ligi_writer *into, const ligi_note *note)
{
    if (note->front.at == 0)
        into->bytes = 0;
    if (note->front.at != into->bytes)
        return 0;
    ligi_put_bytes(into, note->text, note->front.count);
    return into->status == LIG_OK && into->bytes == note->front.total;
}

static void take_failure(ligi_failure *failure, const ligi_note *note, const char *who)
{
    *failure = (ligi_failure){.status = (lig_status)note->front.status};
    snprintf(failure->text, sizeof failure->text, "%s%.*s", who, (int)note->front.count,
             (const char *)note->text);
}

/* The call may be over before some come to it: they hear how it ended. */
static void turn_away(lig_params *node, uint32_t rank, const ligi_note *note)
{
    const struct ligi_keeping *self = node->keeping;
    ligi_failure failure = {.status = LIG_E_TIMEOUT};
    snprintf(failure.text, sizeof failure.text,
             "node 0 has given up this save or load; call it again on all nodes");
    if (self->lost_call == note->front.call)
        failure = self->lost;
    ligi_note_front front = {.call = note->front.call, .step = note->front.step};
    post_failure(node, rank, LIGI_KEEP_HEAR, front, &failure);
}

/* At once, whatever this node is doing: who failed may leave, and the others would hear of that
 * instead. It hears last that they know. */
static void pass_failure(lig_params *node, uint32_t rank, const ligi_note *note,
                         const ligi_failure *failure)
{
    struct ligi_keeping *self = node->keeping;
    ligi_note_front front = {.call = note->front.call, .step = note->front.step};
    if (self->busy && note->front.call == self->call && self->failure.status == LIG_OK)
        self->failure = *failure;
    self->lost_call = note->front.call;
    self->lost = *failure;
    for (uint32_t i = 1; i < node->node_count; i++)
        if (i != rank)
            (void)post_failure(node, i, LIGI_KEEP_HEAR, front, failure);
    (void)post_failure(node, rank, LIGI_KEEP_HEAR, front, failure);
}

void ligi_keep_said(lig_params *node, uint32_t rank, const ligi_note *note)
{
    struct ligi_keeping *self = node->keeping;
    ligi_said *said = &self->said[rank];
    int over = !self->busy && note->front.call == self->call;
    if (note->front.call < self->call || over) {
        if (note->front.status == LIG_OK && note->front.at == 0)
            turn_away(node, rank, note);
        return;
    }
    if (said->call != note->front.call) {
        said->call = note->front.call;
        said->step = 0;
        said->failure = (ligi_failure){0};
        said->data.bytes = 0;
        said->data.status = LIG_OK;
    }
    char who[32];
    snprintf(who, sizeof who, "node %u: ", rank);
    if (note->front.status != LIG_OK) {
        take_failure(&said->failure, note, who);
        pass_failure(node, rank, note, &said->failure);
    } else if (take_piece(&said->data, note)) {
        said->step = note->front.step + 1;
    }
}

void ligi_keep_heard(lig_params *node, const ligi_note *note)
{
    struct ligi_keeping *self = node->keeping;
    if (note->front.call == self->call + 1 && note->front.status != LIG_OK) {
        self->lost_call = note->front.call;
        take_failure(&self->lost, note, "");
    }
    if (!self->busy || note->front.call != self->call || self->failure.status != LIG_OK)
        return;
    if (note->front.status != LIG_OK)
        take_failure(&self->failure, note, "");
    else if (take_piece(&self->answer, note))
        self->heard = note->front.step + 1;
}

/* --- waiting --- */

static const ligi_failure *first_failure(const lig_params *node)
{
    const struct ligi_keeping *self = node->keeping;
    if (self->failure.status != LIG_OK)
        return &self->failure;
    for (uint32_t i = 1; i < node->node_count && self->said; i++)
        if (self->said[i].call == self->call && self->said[i].failure.status != LIG_OK)
            return &self->said[i].failure;
    return NULL;
}

/* One that is at a later call has given this one up; 0: none. */
static uint32_t one_ahead(const lig_params *node)
{
    const struct ligi_keeping *self = node->keeping;
    for (uint32_t i = 1; i < node->node_count && self->said; i++)
        if (self->said[i].call > self->call)
            return i;
    return 0;
}

int ligi_keep_interrupted(const lig_params *node)
{
    return atomic_load(&node->broken) || atomic_load(&node->stopped) ||
           first_failure(node) != NULL || one_ahead(node) != 0;
}

static int has_reason(void *context)
{
    return first_failure(context) != NULL;
}

/* Who has heard of a failure may leave at once: that is not the reason. */
lig_status ligi_keep_why(ligi_keep_call *call)
{
    lig_params *node = call->node;
    if (atomic_load(&node->broken))
        (void)ligi_node_wait(node, has_reason, node, REASON_NS);
    ligi_node_lock(node);
    const ligi_failure *first = first_failure(node);
    lig_status status = first ? ligi_failure_publish(first) : LIG_OK;
    uint32_t ahead = one_ahead(node);
    ligi_node_unlock(node);
    if (status == LIG_OK)
        status = ligi_node_check_others(node);
    if (status == LIG_OK && ahead)
        return lig_fail(LIG_E_TIMEOUT,
                        "%s '%s': node %u has given it up; call it again on all nodes", call->verb,
                        call->model, ahead);
    return status;
}

static int all_said(void *context)
{
    const ligi_keep_call *call = context;
    const struct ligi_keeping *self = call->keeping;
    if (ligi_keep_interrupted(call->node))
        return 1;
    for (uint32_t i = 1; i < call->node->node_count; i++)
        if (self->said[i].call != self->call || self->said[i].step != call->step + 1)
            return 0;
    return 1;
}

static int all_heard(void *context)
{
    const ligi_keep_call *call = context;
    return ligi_keep_interrupted(call->node) || call->keeping->heard == call->step + 1;
}

lig_status ligi_keep_wait(ligi_keep_call *call, int (*until)(void *context))
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
            return lig_fail(LIG_E_TIMEOUT, "%s '%s' was given up on node %u", call->verb,
                            call->model, node->rank);
    }
}

/* "nodes 2, 3 and 5". */
static void name_missing(const ligi_keep_call *call, char *text, size_t bytes)
{
    const struct ligi_keeping *self = call->keeping;
    size_t at = 0;
    for (uint32_t i = 1; i < call->node->node_count; i++) {
        if (self->said[i].call == self->call && self->said[i].step == call->step + 1)
            continue;
        if (at + 16 < bytes)
            at += (size_t)snprintf(text + at, bytes - at, "%s%u", at ? ", " : "node ", i);
    }
}

/* --- steps --- */

static lig_status decide(ligi_keep_call *call, const ligi_agreement *agreement, ligi_writer *answer)
{
    struct ligi_keeping *self = call->keeping;
    lig_part_data *said;
    if (agreement->decide == NULL)
        return LIG_OK;
    LIG_TRY(ligi_calloc(&said, call->node->node_count, sizeof *said, "a save"));
    said[0] = (lig_part_data){agreement->data, agreement->bytes};
    for (uint32_t i = 1; i < call->node->node_count; i++)
        said[i] = (lig_part_data){self->said[i].data.data, self->said[i].data.bytes};
    lig_status status = agreement->decide(agreement->context, said, answer);
    free(said);
    if (status == LIG_OK)
        status = answer->status;
    if (status == LIG_OK && answer->bytes > LIGI_NOTE_DATA_MAX)
        status = lig_fail(LIG_E_LIMIT, "a save with so many blocks cannot be agreed on");
    return status;
}

/* All hear of it, also those that have not come yet. What cannot be said would leave them waiting:
 * the job ends. */
static lig_status tell_all(ligi_keep_call *call, const ligi_failure *failure,
                           const lig_part_data *answer)
{
    lig_params *node = call->node;
    ligi_note_front front = {.call = call->keeping->call, .step = call->step};
    lig_status status = LIG_OK;
    ligi_node_lock(node);
    for (uint32_t i = 1; i < node->node_count && status == LIG_OK; i++) {
        if (failure->status != LIG_OK)
            status = post_failure(node, i, LIGI_KEEP_HEAR, front, failure);
        else
            status = post_data(node, i, LIGI_KEEP_HEAR, front, answer);
    }
    if (status != LIG_OK)
        ligi_node_break(node, status, lig_error_text());
    ligi_node_unlock(node);
    return status;
}

static lig_status wait_for_all(ligi_keep_call *call)
{
    char missing[200] = "";
    lig_status status = ligi_keep_wait(call, all_said);
    if (status == LIG_E_TIMEOUT && !call->given_up) {
        ligi_node_lock(call->node);
        name_missing(call, missing, sizeof missing);
        ligi_node_unlock(call->node);
        return lig_fail(status, "%s '%s': %s has not come in time; every node calls it", call->verb,
                        call->model, missing);
    }
    LIG_TRY(status);
    return ligi_keep_why(call);
}

static lig_status agree_first(ligi_keep_call *call, lig_status status,
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
        call->keeping->lost_call = call->keeping->call;
        call->keeping->lost = failure;
        ligi_node_unlock(call->node);
    }
    lig_status told = tell_all(call, &failure, &(lig_part_data){answer.data, answer.bytes});
    if (told != LIG_OK && status == LIG_OK)
        ligi_failure_take(&failure, status = told);
    ligi_writer_fini(&call->keeping->answer);
    call->keeping->answer = answer;
    return status == LIG_OK ? LIG_OK : ligi_failure_publish(&failure);
}

static lig_status say(ligi_keep_call *call, const ligi_failure *failure,
                      const ligi_agreement *agreement)
{
    lig_params *node = call->node;
    ligi_note_front front = {.call = call->keeping->call, .step = call->step};
    lig_status status;
    ligi_node_lock(node);
    if (failure->status != LIG_OK)
        status = post_failure(node, 0, LIGI_KEEP_SAY, front, failure);
    else
        status = post_data(node, 0, LIGI_KEEP_SAY, front,
                           &(lig_part_data){agreement->data, agreement->bytes});
    if (status != LIG_OK)
        ligi_node_break(node, status, lig_error_text());
    ligi_node_unlock(node);
    return status;
}

static lig_status agree_other(ligi_keep_call *call, lig_status status,
                              const ligi_agreement *agreement)
{
    ligi_failure failure;
    if (status == LIG_OK && agreement->bytes > LIGI_NOTE_DATA_MAX)
        status = lig_fail(LIG_E_LIMIT, "a save with so many blocks cannot be agreed on");
    ligi_failure_take(&failure, status);
    lig_status said = say(call, &failure, agreement);
    if (status != LIG_OK) {
        int64_t left = ligi_time_left(call->deadline_ns);
        (void)ligi_node_wait(call->node, all_heard, call,
                             left >= 0 && left < TOLD_NS ? left : TOLD_NS);
        return ligi_failure_publish(&failure);
    }
    LIG_TRY(said);
    status = ligi_keep_wait(call, all_heard);
    if (status == LIG_E_TIMEOUT) {
        if (!call->given_up)
            lig_fail(status, "%s '%s': node 0 has not answered in time; every node calls it",
                     call->verb, call->model);
        ligi_failure_take(&failure, status);
        say(call, &failure, agreement);
        return ligi_failure_publish(&failure);
    }
    LIG_TRY(status);
    return ligi_keep_why(call);
}

lig_status ligi_keep_check(ligi_keep_call *call)
{
    ligi_failure failure;
    ligi_failure_take(&failure, ligi_keep_why(call));
    if (failure.status != LIG_OK && call->node->node_count > 1 && call->node->rank == 0)
        (void)tell_all(call, &failure, NULL); /* they may have come since it was told */
    return ligi_failure_publish(&failure);
}

/* Who is lost may have said why before. If nobody is, it was a peer of the store's. */
static lig_status find_reason(ligi_keep_call *call, lig_status status)
{
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    LIG_TRY(ligi_keep_why(call));
    return ligi_failure_publish(&failure);
}

lig_status ligi_keep_agree(ligi_keep_call *call, lig_status status, const ligi_agreement *agreement)
{
    const ligi_agreement nothing = {0};
    agreement = agreement ? agreement : &nothing;
    if (status == LIG_E_PEER)
        status = find_reason(call, status);
    if (call->node->node_count == 1 && status == LIG_OK) {
        call->keeping->answer.bytes = 0;
        status = decide(call, agreement, &call->keeping->answer);
    } else if (call->node->node_count > 1 && call->node->rank == 0) {
        status = agree_first(call, status, agreement);
    } else if (call->node->node_count > 1) {
        status = agree_other(call, status, agreement);
    }
    call->step++;
    return status;
}

static lig_status same_call(void *context, const lig_part_data *said, ligi_writer *answer)
{
    const ligi_keep_call *call = context;
    (void)answer;
    for (uint32_t i = 1; i < call->node->node_count; i++)
        if (said[i].bytes != said[0].bytes ||
            memcmp(said[i].data, said[0].data, said[0].bytes) != 0)
            return lig_fail(LIG_E_MISMATCH, "node 0 calls %.*s, node %u calls %.*s",
                            (int)said[0].bytes, (const char *)said[0].data, i,
                            said[i].bytes < 200 ? (int)said[i].bytes : 200,
                            (const char *)said[i].data);
    return LIG_OK;
}

lig_status ligi_keep_agree_call(ligi_keep_call *call, lig_status status, int writable)
{
    char text[200];
    if (call->version)
        snprintf(text, sizeof text, "%s '%s' (version %llu)", call->verb, call->model,
                 (unsigned long long)call->version);
    else
        snprintf(text, sizeof text, "%s '%s'", call->verb, call->model);
    ligi_agreement agreement = {text, strlen(text), same_call, call};
    ligi_node_lock(call->node);
    call->keeping->plan = status == LIG_OK ? &call->plan : NULL;
    call->keeping->writable = writable && status == LIG_OK;
    ligi_node_unlock(call->node);
    return ligi_keep_agree(call, status, &agreement);
}
