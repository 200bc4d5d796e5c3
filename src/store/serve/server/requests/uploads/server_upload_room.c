#include "store/serve/server/requests/uploads/server_upload_room.h"

#include "base/clock.h"
#include "store/serve/server/requests/uploads/server_upload_source.h"

enum { ACTIVE_MAX = 64, SESSION_ACTIVE_MAX = 4 };

/* What saves have in flight is at most half of the limit, and leaves the rest to requests. */
static uint64_t bytes_max(const ligi_served_upload *upload)
{
    return upload->server->options.max_bytes_in_flight / 2;
}

/* The bytes of its pieces, as far as it fills them. */
static uint64_t charge_of(const ligi_served_upload *upload)
{
    uint64_t bytes = LIGI_SERVED_PIECES * LIGI_SERVED_PIECE_BYTES, most = bytes_max(upload);
    if (upload->saving.plan.bytes < bytes)
        bytes = upload->saving.plan.bytes;
    return bytes < most ? bytes : most;
}

/* The lock is held, here and in the next five. */
static int session_is_full(const ligi_served_upload *upload)
{
    return upload->session->active_uploads >= SESSION_ACTIVE_MAX;
}

/* One that waits for other saves of its own client does not hold up those behind it. */
static int comes_later(const ligi_served_upload *upload)
{
    const ligi_served_upload *ahead = upload->server->uploads.waiting;
    while (ahead && ahead != upload && session_is_full(ahead))
        ahead = ahead->next_waiting;
    return ahead && ahead != upload;
}

static int has_room(const ligi_served_upload *upload, uint64_t bytes)
{
    const ligi_served_uploads *all = &upload->server->uploads;
    return !session_is_full(upload) && !comes_later(upload) && all->active < ACTIVE_MAX &&
           all->bytes + bytes <= bytes_max(upload);
}

static void count_active(ligi_served_upload *upload, uint64_t bytes)
{
    upload->server->uploads.active++;
    upload->session->active_uploads++;
    upload->server->uploads.bytes += bytes;
    upload->charge = bytes;
    upload->active = 1;
    atomic_fetch_add(&upload->server->flight, bytes);
}

/* Until it has room or is over. */
static void wait_for_room(ligi_served_upload *upload, uint64_t bytes)
{
    ligi_served_uploads *all = &upload->server->uploads;
    ligi_served_upload **at = &all->waiting;
    while (*at)
        at = &(*at)->next_waiting;
    *at = upload;
    upload->waits_since_ns = ligi_now_ns();
    while (!ligi_served_upload_is_over(upload) && !has_room(upload, bytes))
        pthread_cond_wait(&all->changed, &all->lock);
    for (at = &all->waiting; *at != upload;)
        at = &(*at)->next_waiting;
    *at = upload->next_waiting;
    if (*at)
        pthread_cond_broadcast(&all->changed); /* it may be its turn */
}

/* Buffers have a limit: the others wait. A save in parts may last as long as its training, and is
 * not counted: a client may have many, and no thread waits for it. */
lig_status ligi_served_upload_enter(ligi_served_upload *upload)
{
    ligi_served_uploads *all = &upload->server->uploads;
    uint64_t bytes = charge_of(upload);
    if (ligi_served_upload_in_parts(upload))
        return LIG_OK;
    pthread_mutex_lock(&all->lock);
    wait_for_room(upload, bytes);
    int over = ligi_served_upload_is_over(upload);
    if (!over)
        count_active(upload, bytes);
    pthread_mutex_unlock(&all->lock);
    return over ? ligi_served_upload_fail(upload) : LIG_OK;
}

void ligi_served_upload_leave(ligi_served_upload *upload)
{
    ligi_served_uploads *all = &upload->server->uploads;
    if (!upload->active)
        return;
    pthread_mutex_lock(&all->lock);
    all->active--;
    upload->session->active_uploads--;
    all->bytes -= upload->charge;
    atomic_fetch_sub(&upload->server->flight, upload->charge);
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

int ligi_served_upload_is_awaited(const ligi_served_upload *upload)
{
    const lig_server *server = upload->server;
    int64_t before_ns = ligi_now_ns() - server->options.lease_ns;
    const ligi_served_upload *other = server->uploads.waiting;
    while (other && (other->session == upload->session || session_is_full(other) ||
                     other->waits_since_ns > before_ns))
        other = other->next_waiting;
    return other != NULL;
}
