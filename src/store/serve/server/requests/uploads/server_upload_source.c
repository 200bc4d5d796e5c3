#include "store/serve/server/requests/uploads/server_upload_source.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/format/block_hashes.h"
#include "store/serve/server/requests/uploads/server_upload_room.h"
#include "store/serve/server/server_buffers.h"
#include "store/serve/server/server_reply.h"
#include "store/serve/server/server_roles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STRETCHES = 1024, DONE_EVERY = 16 }; /* in one NEED; tensors between two DONE */

int ligi_served_upload_is_over(const ligi_served_upload *upload)
{
    return upload->aborted || upload->lost;
}

lig_status ligi_served_upload_fail(const ligi_served_upload *upload)
{
    if (upload->lost)
        return lig_fail(LIG_E_CLOSED, "the connection to the client that saves '%s' was lost",
                        upload->saving.what.name);
    return lig_fail(LIG_E_CLOSED, "the save of '%s' was cancelled", upload->saving.what.name);
}

static int is_cancelled(void *context)
{
    ligi_served_upload *upload = context;
    pthread_mutex_lock(&upload->server->uploads.lock);
    int over = ligi_served_upload_is_over(upload);
    pthread_mutex_unlock(&upload->server->uploads.lock);
    return over;
}

int ligi_served_upload_in_parts(const ligi_served_upload *upload)
{
    return (upload->saving.what.wants & LIGI_SERVED_IN_PARTS) != 0;
}

/* Only a client that has not offered its tensors yet may take longer than a lease to answer. The
 * lock is held; 0: it took longer. */
static int wait_change(ligi_served_upload *upload, const struct timespec *end)
{
    ligi_served_uploads *all = &upload->server->uploads;
    if (!ligi_served_upload_in_parts(upload))
        return pthread_cond_timedwait(&all->changed, &all->lock, end) != ETIMEDOUT;
    return pthread_cond_wait(&all->changed, &all->lock) == 0;
}

static lig_status too_slow(const ligi_served_upload *upload, int others_wait)
{
    double seconds = (double)upload->server->options.lease_ns / 1e9;
    const char *name = upload->saving.what.name;
    if (others_wait)
        return lig_fail(
            LIG_E_TIMEOUT,
            "timeout: less than 4 MiB of '%s' arrived in %.3g s while other clients' saves "
            "wait (--lease-timeout)",
            name, seconds);
    return lig_fail(LIG_E_TIMEOUT,
                    "timeout: the client that saves '%s' has sent nothing for %.3g s "
                    "(--lease-timeout)",
                    name, seconds);
}

/* Data that arrive slowly are progress, unless other saves wait for the buffers. */
static lig_status wait_there(ligi_served_upload *upload, const ligi_served_piece *what)
{
    ligi_served_uploads *all = &upload->server->uploads;
    int64_t lease_ns = upload->server->options.lease_ns;
    struct timespec end = ligi_deadline(lease_ns);
    int late = 0, arriving = 0;
    pthread_mutex_lock(&all->lock);
    while (what->state != LIGI_PIECE_THERE && !ligi_served_upload_is_over(upload) && !late) {
        if (wait_change(upload, &end))
            continue;
        arriving = upload->session->landing != NULL;
        late = !arriving || ligi_served_upload_is_awaited(upload);
        end = ligi_deadline(lease_ns);
    }
    int there = what->state == LIGI_PIECE_THERE;
    pthread_mutex_unlock(&all->lock);
    if (late && !there)
        return too_slow(upload, arriving);
    return there ? LIG_OK : ligi_served_upload_fail(upload);
}

static lig_status piece_room(ligi_served_buffers *buffers, ligi_served_piece *what)
{
    if (what->stretches == NULL)
        LIG_TRY(ligi_calloc(&what->stretches, STRETCHES, sizeof *what->stretches, "a save"));
    if (what->memory == NULL)
        LIG_TRY(ligi_served_buffer_take(buffers, LIGI_SERVED_PIECE_BYTES, &what->memory));
    what->count = 0;
    what->bytes = 0;
    return LIG_OK;
}

static void tell(ligi_served_upload *upload, ligi_served_op op, ligi_writer *body)
{
    ligi_served_message message = {.head = {.op = (uint16_t)op, .id = upload->job->head.id},
                                   .body = body};
    ligi_served_send(upload->session, &message);
    ligi_writer_fini(body);
}

static lig_status ask(ligi_served_upload *upload, ligi_served_piece *what, uint32_t kind)
{
    ligi_served_need need = {.tag = ++upload->next_tag,
                             .kind = kind,
                             .stretches = what->stretches,
                             .count = what->count};
    ligi_writer body = {0};
    ligi_served_need_put(&body, &need);
    if (body.status != LIG_OK) {
        lig_status status = body.status;
        ligi_writer_fini(&body);
        return status;
    }
    pthread_mutex_lock(&upload->server->uploads.lock);
    what->tag = need.tag;
    what->state = LIGI_PIECE_ASKED;
    pthread_mutex_unlock(&upload->server->uploads.lock);
    tell(upload, LIGI_SERVED_NEED, &body);
    return LIG_OK;
}

/* The next bytes that will be written; 0 when it cannot be known yet, or there are none. What is
 * stored already is known once all tensors, or those up to the current one, have been looked up. */
static int next_stretch(ligi_served_upload *upload, ligi_served_stretch *next)
{
    const ligi_plan *plan = &upload->saving.plan;
    size_t end = ligi_served_upload_in_parts(upload) ? upload->current + 1 : plan->count;
    for (; upload->tensor < end; upload->tensor++, upload->offset = 0) {
        const ligi_slot *slot = &plan->slots[upload->tensor];
        uint64_t rest = plan->tensors[upload->tensor].bytes - upload->offset;
        if (slot->tied != SIZE_MAX || slot->pack || rest == 0)
            continue;
        *next =
            (ligi_served_stretch){upload->tensor, upload->offset,
                                  rest < LIGI_SERVED_PIECE_BYTES ? rest : LIGI_SERVED_PIECE_BYTES};
        return 1;
    }
    return 0;
}

static void gather(ligi_served_upload *upload, ligi_served_piece *into)
{
    ligi_served_stretch next;
    while (into->count < STRETCHES && next_stretch(upload, &next) &&
           next.bytes <= LIGI_SERVED_PIECE_BYTES - into->bytes) {
        into->stretches[into->count++] = next;
        into->bytes += next.bytes;
        upload->offset += next.bytes;
    }
}

static lig_status ask_ahead(ligi_served_upload *upload)
{
    while (upload->asked < LIGI_SERVED_PIECES - 1) {
        ligi_served_piece *next =
            &upload->pieces[(upload->first + upload->asked) % LIGI_SERVED_PIECES];
        LIG_TRY(piece_room(&upload->server->buffers, next));
        gather(upload, next);
        if (next->count == 0)
            break;
        LIG_TRY(ask(upload, next, LIGI_SERVED_NEED_BYTES));
        upload->asked++;
    }
    return LIG_OK;
}

/* Its last bytes are still lent: its memory is asked for again when the next piece is left. */
static void leave_piece(ligi_served_upload *upload)
{
    ligi_served_piece *first = &upload->pieces[upload->first];
    if (upload->asked == 0 || upload->at < first->count)
        return;
    pthread_mutex_lock(&upload->server->uploads.lock);
    first->state = LIGI_PIECE_FREE;
    pthread_mutex_unlock(&upload->server->uploads.lock);
    upload->first = (upload->first + 1) % LIGI_SERVED_PIECES;
    upload->asked--;
    upload->at = 0;
    upload->at_bytes = 0;
}

static lig_status view(void *context, size_t index, uint64_t offset, uint64_t bytes,
                       const void **data)
{
    ligi_served_upload *upload = context;
    leave_piece(upload);
    const ligi_served_piece *first = &upload->pieces[upload->first];
    upload->current = index;
    LIG_TRY(ask_ahead(upload));
    const ligi_served_stretch *next = upload->asked ? &first->stretches[upload->at] : NULL;
    if (next == NULL || next->tensor != index || next->offset != offset || next->bytes != bytes)
        return lig_fail(LIG_E_INTERNAL, "bytes of tensor %zu of '%s' were not requested", index,
                        upload->saving.what.name);
    LIG_TRY(wait_there(upload, first));
    *data = first->memory + upload->at_bytes;
    upload->at++;
    upload->at_bytes += bytes;
    return LIG_OK;
}

static lig_status fill(void *context, size_t index, uint64_t offset, uint64_t bytes, void *out)
{
    const void *data;
    LIG_TRY(view(context, index, offset, bytes, &data));
    memcpy(out, data, bytes);
    return LIG_OK;
}

/* One NEED for as many as fit. */
static lig_status hash_some(ligi_served_upload *upload, const ligi_hash_ask *asks, size_t count,
                            size_t *taken)
{
    const ligi_plan *plan = &upload->saving.plan;
    ligi_served_piece *what = &upload->hashes;
    size_t i = 0;
    LIG_TRY(piece_room(&upload->server->buffers, what));
    for (; i < count && i < STRETCHES; i++) {
        uint64_t offset = asks[i].first * LIG_BLOCK_BYTES, bytes = asks[i].count * LIG_BLOCK_BYTES;
        uint64_t rest = plan->tensors[asks[i].index].bytes - offset;
        uint64_t room = LIGI_SERVED_PIECE_BYTES - what->bytes;
        if (asks[i].count > room / sizeof(uint64_t))
            break;
        what->stretches[what->count++] =
            (ligi_served_stretch){asks[i].index, offset, bytes < rest ? bytes : rest};
        what->bytes += asks[i].count * sizeof(uint64_t);
    }
    if (i == 0)
        return lig_fail(LIG_E_LIMIT, "tensor '%s' is too large for a served store",
                        plan->tensors[asks[0].index].name);
    *taken = i;
    LIG_TRY(ask(upload, what, LIGI_SERVED_NEED_HASHES));
    LIG_TRY(wait_there(upload, what));
    const uint8_t *at = what->memory;
    for (size_t k = 0; k < i; at += asks[k++].count * sizeof(uint64_t))
        memcpy(asks[k].hashes, at, asks[k].count * sizeof(uint64_t));
    return LIG_OK;
}

/* --- hashes made here --- */

/* Gets the bytes of the stretches that were gathered and hashes them into `hashes`. */
static lig_status hash_gathered(ligi_served_upload *upload, uint64_t **hashes)
{
    ligi_served_piece *what = &upload->hashes;
    if (what->count == 0)
        return LIG_OK;
    LIG_TRY(ask(upload, what, LIGI_SERVED_NEED_BYTES));
    LIG_TRY(wait_there(upload, what));
    const uint8_t *at = what->memory;
    for (size_t i = 0; i < what->count; at += what->stretches[i++].bytes) {
        const ligi_hash_job job = {at, what->stretches[i].bytes, hashes[i]};
        ligi_hash_jobs(upload->server->store->secret, &job, 1);
    }
    return piece_room(&upload->server->buffers, what);
}

/* One request, in stretches of whole blocks. */
static lig_status gather_ask(ligi_served_upload *upload, const ligi_hash_ask *one,
                             uint64_t **hashes)
{
    ligi_served_piece *what = &upload->hashes;
    uint64_t at = one->first * LIG_BLOCK_BYTES, end = at + one->count * LIG_BLOCK_BYTES;
    uint64_t size = upload->saving.plan.tensors[one->index].bytes;
    if (end > size)
        end = size;
    while (at < end) {
        uint64_t room = (LIGI_SERVED_PIECE_BYTES - what->bytes) / LIG_BLOCK_BYTES * LIG_BLOCK_BYTES;
        uint64_t bytes = end - at <= LIGI_SERVED_PIECE_BYTES - what->bytes ? end - at : room;
        if (bytes == 0 || what->count == STRETCHES) {
            LIG_TRY(hash_gathered(upload, hashes));
            continue;
        }
        hashes[what->count] = one->hashes + (at / LIG_BLOCK_BYTES - one->first);
        what->stretches[what->count++] = (ligi_served_stretch){one->index, at, bytes};
        what->bytes += bytes;
        at += bytes;
    }
    return LIG_OK;
}

/* A client with a limited role has no key to hash with, and is not trusted: a tensor is shared only
 * if the client has sent its bytes. Bytes that are not shared are sent again to be written. */
static lig_status hash_here(ligi_served_upload *upload, const ligi_hash_ask *asks, size_t count)
{
    uint64_t **hashes;
    LIG_TRY(ligi_calloc(&hashes, STRETCHES, sizeof *hashes, "a save"));
    lig_status status = piece_room(&upload->server->buffers, &upload->hashes);
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        status = gather_ask(upload, &asks[i], hashes);
    if (status == LIG_OK)
        status = hash_gathered(upload, hashes);
    free(hashes);
    return status;
}

static lig_status hash(void *context, const ligi_hash_ask *asks, size_t count)
{
    ligi_served_upload *upload = context;
    int here = ligi_served_scope(upload->session) != NULL;
    if (here)
        LIG_TRY(hash_here(upload, asks, count));
    for (size_t at = 0, taken = 0; at < count && !here; at += taken)
        LIG_TRY(hash_some(upload, asks + at, count - at, &taken));
    pthread_mutex_lock(&upload->server->uploads.lock);
    upload->hashes.state = LIGI_PIECE_FREE;
    pthread_mutex_unlock(&upload->server->uploads.lock);
    return LIG_OK;
}

static lig_status wait_turn(void *context, size_t index)
{
    ligi_served_upload *upload = context;
    ligi_served_uploads *all = &upload->server->uploads;
    int last = index == upload->saving.plan.count && ligi_served_upload_in_parts(upload);
    pthread_mutex_lock(&all->lock);
    while (last && !upload->committed && !ligi_served_upload_is_over(upload))
        pthread_cond_wait(&all->changed, &all->lock);
    int over = ligi_served_upload_is_over(upload);
    pthread_mutex_unlock(&all->lock);
    return over ? ligi_served_upload_fail(upload) : LIG_OK;
}

void ligi_served_upload_tell_done(ligi_served_upload *upload, uint64_t count)
{
    ligi_writer body = {0};
    ligi_served_number_put(&body, count);
    upload->done_told = count;
    tell(upload, LIGI_SERVED_DONE, &body);
}

/* In parts a client may wait for each one before it offers the next. */
static void done(void *context, size_t index)
{
    ligi_served_upload *upload = context;
    if (ligi_served_upload_in_parts(upload) || index + 1 - upload->done_told >= DONE_EVERY)
        ligi_served_upload_tell_done(upload, index + 1);
}

ligi_source ligi_served_upload_source(ligi_served_upload *upload)
{
    return (ligi_source){.wait = wait_turn,
                         .fill = fill,
                         .view = view,
                         .hash = hash,
                         .done = done,
                         .cancelled = is_cancelled,
                         .context = upload,
                         .in_parts = ligi_served_upload_in_parts(upload)};
}

static void free_piece(ligi_served_buffers *buffers, ligi_served_piece *piece)
{
    ligi_served_buffer_give(buffers, piece->memory, LIGI_SERVED_PIECE_BYTES);
    free(piece->stretches);
}

void ligi_served_upload_free_pieces(ligi_served_upload *upload)
{
    for (size_t i = 0; i < LIGI_SERVED_PIECES; i++)
        free_piece(&upload->server->buffers, &upload->pieces[i]);
    free_piece(&upload->server->buffers, &upload->hashes);
}
