#include "backend/remote/format/numbered_commit.h"

void ligi_numbered_commit_begin(ligi_numbered_commit *self, int64_t seen_ns, int64_t fresh_ns)
{
    *self =
        (ligi_numbered_commit){.seen_ns = seen_ns, .fresh_ns = fresh_ns, .next = LIGI_COMMIT_PUT};
}

/* A number that was free at seen_ns may have been used and removed since, if that is long ago. The
 * clock may have been set back as well: the service refuses a signature of the wrong time. */
static int is_fresh(const ligi_numbered_commit *self, int64_t now_ns)
{
    return now_ns <= self->seen_ns ? self->seen_ns - now_ns <= self->fresh_ns
                                   : now_ns - self->seen_ns <= self->fresh_ns;
}

ligi_commit_next ligi_numbered_commit_next(ligi_numbered_commit *self, int64_t now_ns, int over)
{
    if (self->next == LIGI_COMMIT_PUT && !is_fresh(self, now_ns))
        self->next = self->sent ? LIGI_COMMIT_UNKNOWN : LIGI_COMMIT_BUSY;
    else if (over && self->next == LIGI_COMMIT_PUT)
        self->next = self->sent ? LIGI_COMMIT_UNKNOWN : LIGI_COMMIT_FAILED;
    else if (over && self->next == LIGI_COMMIT_GET)
        self->next = LIGI_COMMIT_UNKNOWN;
    return self->next;
}

static void reply_to_put(ligi_numbered_commit *self, ligi_commit_reply reply)
{
    self->conflicted = reply == LIGI_REPLY_EXISTS;
    switch (reply) {
    case LIGI_REPLY_WRITTEN: self->next = LIGI_COMMIT_DONE; break;
    case LIGI_REPLY_EXISTS: /* also when a copy of this very request was first */
        self->sent = 1;
        self->next = LIGI_COMMIT_GET;
        break;
    case LIGI_REPLY_AGAIN: /* the one under way may be a copy of this very request */
        self->sent = 1;
        break;
    case LIGI_REPLY_REFUSED:
        self->refused = 1;
        self->next = self->sent ? LIGI_COMMIT_GET : LIGI_COMMIT_FAILED;
        break;
    default:
        self->sent = 1;
        self->next = LIGI_COMMIT_GET;
        break;
    }
}

static void reply_to_get(ligi_numbered_commit *self, ligi_commit_reply reply)
{
    switch (reply) {
    case LIGI_REPLY_MINE: self->next = LIGI_COMMIT_DONE; break;
    case LIGI_REPLY_OTHERS: /* a late request finds the number in use */
        self->next = LIGI_COMMIT_BUSY;
        break;
    case LIGI_REPLY_ABSENT:
        /* After EXISTS: the object existed a moment ago, and its owner can no longer be
         * determined. */
        self->next = self->conflicted || self->refused ? LIGI_COMMIT_UNKNOWN : LIGI_COMMIT_PUT;
        break;
    default: break;
    }
}

void ligi_numbered_commit_reply(ligi_numbered_commit *self, ligi_commit_reply reply)
{
    if (self->next == LIGI_COMMIT_PUT)
        reply_to_put(self, reply);
    else if (self->next == LIGI_COMMIT_GET)
        reply_to_get(self, reply);
}
