#include "net/inproc/pair.h"

#include "net/progress.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

typedef struct side {
    ligi_net *net; /* to wake; NULL when this end is over */
    ligi_mail *inbox, **inbox_end;
    size_t count;
    ligi_mail *lent; /* this end's payload that the other has not read */
    int returned;
    _Atomic int changed;
} side;

struct ligi_inproc_pair {
    pthread_mutex_t lock;
    side sides[2];
};

lig_status ligi_inproc_pair_create(ligi_net *near_net, ligi_net *far_net, ligi_inproc_pair **pair)
{
    ligi_inproc_pair *made;

    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a connection"));
    pthread_mutex_init(&made->lock, NULL);
    for (int end = 0; end < 2; end++) {
        made->sides[end].net = end == 0 ? near_net : far_net;
        made->sides[end].inbox_end = &made->sides[end].inbox;
    }
    *pair = made;
    return LIG_OK;
}

static void tell(side *to)
{
    atomic_store(&to->changed, 1);
    if (to->net != NULL)
        ligi_net_wake(to->net);
}

int ligi_inproc_pair_changed(ligi_inproc_pair *pair, int end)
{
    side *own = &pair->sides[end];
    return atomic_load_explicit(&own->changed, memory_order_relaxed) &&
           atomic_exchange(&own->changed, 0);
}

int ligi_inproc_pair_pending(ligi_inproc_pair *pair, int end)
{
    return atomic_load(&pair->sides[end].changed);
}

void ligi_inproc_pair_again(ligi_inproc_pair *pair, int end)
{
    atomic_store(&pair->sides[end].changed, 1);
}

static lig_status write_mail(const ligi_outgoing *out, ligi_mail **mail)
{
    size_t head = out->prefix.head_bytes, payload = (size_t)out->prefix.payload_bytes;
    int lent = payload > LIGI_MAIL_COPIED;
    size_t count = lent ? out->count : payload > 0;
    size_t bytes = sizeof **mail + count * sizeof(struct iovec) + head + (lent ? 0 : payload);
    ligi_mail *made;

    LIG_TRY(ligi_alloc(&made, bytes, "a message"));
    *made = (ligi_mail){.prefix = out->prefix, .lent = lent, .count = count};
    made->pieces = (struct iovec *)(made + 1);
    uint8_t *at = (uint8_t *)(made->pieces + count);
    made->head = at;
    if (head > 0)
        memcpy(at, out->head, head);
    at += head;
    if (lent) {
        memcpy(made->pieces, out->iov, count * sizeof *made->pieces);
    } else if (payload > 0) {
        *made->pieces = (struct iovec){.iov_base = at, .iov_len = payload};
        for (size_t i = 0; i < out->count; i++) {
            memcpy(at, out->iov[i].iov_base, out->iov[i].iov_len);
            at += out->iov[i].iov_len;
        }
    }
    *mail = made;
    return LIG_OK;
}

lig_status ligi_inproc_pair_put(ligi_inproc_pair *pair, int end, const ligi_outgoing *out,
                                int *gone)
{
    side *own = &pair->sides[end], *other = &pair->sides[!end];
    lig_status status = LIG_OK;
    ligi_mail *mail;

    pthread_mutex_lock(&pair->lock);
    if (other->net == NULL || other->count >= LIGI_MAIL_MAX || own->lent != NULL)
        status = LIG_E_BUSY;
    else
        status = write_mail(out, &mail);
    if (status == LIG_OK) {
        *other->inbox_end = mail;
        other->inbox_end = &mail->next;
        other->count++;
        *gone = !mail->lent;
        if (mail->lent)
            own->lent = mail;
        tell(other);
    }
    pthread_mutex_unlock(&pair->lock);
    return status;
}

int ligi_inproc_pair_returned(ligi_inproc_pair *pair, int end)
{
    pthread_mutex_lock(&pair->lock);
    int returned = pair->sides[end].returned;
    pair->sides[end].returned = 0;
    pthread_mutex_unlock(&pair->lock);
    return returned;
}

ligi_mail *ligi_inproc_pair_take(ligi_inproc_pair *pair, int end, int *closed)
{
    side *own = &pair->sides[end], *other = &pair->sides[!end];

    pthread_mutex_lock(&pair->lock);
    ligi_mail *mail = own->inbox;
    *closed = mail == NULL && other->net == NULL;
    if (mail != NULL) {
        own->inbox = mail->next;
        if (own->inbox == NULL)
            own->inbox_end = &own->inbox;
        if (own->count-- == LIGI_MAIL_MAX)
            tell(other); /* there is room again */
    }
    pthread_mutex_unlock(&pair->lock);
    return mail;
}

size_t ligi_inproc_pair_read(ligi_inproc_pair *pair, ligi_mail *mail, void *into, size_t bytes)
{
    size_t done = 0;

    pthread_mutex_lock(&pair->lock);
    while (!mail->withdrawn && done < bytes && mail->piece_at < mail->count) {
        const struct iovec *piece = &mail->pieces[mail->piece_at];
        size_t step = piece->iov_len - mail->in_piece;
        if (step > bytes - done)
            step = bytes - done;
        if (into != NULL && step > 0)
            memcpy((uint8_t *)into + done, (uint8_t *)piece->iov_base + mail->in_piece, step);
        done += step;
        mail->in_piece += step;
        if (mail->in_piece == piece->iov_len) {
            mail->piece_at++;
            mail->in_piece = 0;
        }
    }
    pthread_mutex_unlock(&pair->lock);
    return done;
}

static void give_back(ligi_inproc_pair *pair, int end, ligi_mail *mail)
{
    side *other = &pair->sides[!end];

    if (other->lent == mail) {
        other->lent = NULL;
        other->returned = 1;
        tell(other);
    }
    free(mail);
}

void ligi_inproc_pair_done(ligi_inproc_pair *pair, int end, ligi_mail *mail)
{
    pthread_mutex_lock(&pair->lock);
    give_back(pair, end, mail);
    pthread_mutex_unlock(&pair->lock);
}

void ligi_inproc_pair_leave(ligi_inproc_pair *pair, int end, ligi_mail *mail)
{
    side *own = &pair->sides[end], *other = &pair->sides[!end];

    pthread_mutex_lock(&pair->lock);
    if (own->lent != NULL)
        own->lent->withdrawn = 1;
    own->lent = NULL;
    while (own->inbox != NULL) {
        ligi_mail *next = own->inbox->next;
        give_back(pair, end, own->inbox);
        own->inbox = next;
    }
    own->inbox_end = &own->inbox;
    own->count = 0;
    if (mail != NULL)
        give_back(pair, end, mail);
    own->net = NULL;
    int last = other->net == NULL;
    if (!last)
        tell(other);
    pthread_mutex_unlock(&pair->lock);
    if (last) {
        pthread_mutex_destroy(&pair->lock);
        free(pair);
    }
}
