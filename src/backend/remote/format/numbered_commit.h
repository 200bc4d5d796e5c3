/* One commit to a log whose entries are numbered objects, written with put-if-absent: determines
 * the next request and interprets the replies. Pure.
 *
 * Replies get lost, requests are repeated by proxies and arrive late, and the writer may be
 * suspended at any point. So a reply alone never proves that another writer owns the number: only
 * the object itself does, by the id in its first bytes. */
#ifndef LIGI_NUMBERED_COMMIT_H
#define LIGI_NUMBERED_COMMIT_H

#include <stdint.h>

typedef enum ligi_commit_next {
    LIGI_COMMIT_PUT,     /* send the object, if absent; signed with the time given to `next` */
    LIGI_COMMIT_GET,     /* read the object of this number, and compare its id */
    LIGI_COMMIT_DONE,    /* the commit is durable */
    LIGI_COMMIT_BUSY,    /* another writer has the number, or the view of the log is too old */
    LIGI_COMMIT_FAILED,  /* nothing was or will be written */
    LIGI_COMMIT_UNKNOWN, /* the object may exist, or may still arrive */
} ligi_commit_next;

typedef enum ligi_commit_reply {
    LIGI_REPLY_WRITTEN, /* PUT: 200 */
    LIGI_REPLY_EXISTS,  /* PUT: 412 */
    LIGI_REPLY_AGAIN,   /* PUT: 409: another request for this number is in progress */
    LIGI_REPLY_REFUSED, /* PUT: a definite refusal: not written, and repeating does not help */
    LIGI_REPLY_LOST,    /* PUT, GET: no response, a malformed one or 5xx: the outcome is unknown */
    LIGI_REPLY_MINE,    /* GET: the object has my id */
    LIGI_REPLY_OTHERS,  /* GET: it has another id */
    LIGI_REPLY_ABSENT,  /* GET: 404 */
} ligi_commit_reply;

typedef struct ligi_numbered_commit {
    int64_t seen_ns, fresh_ns; /* see log_append */
    ligi_commit_next next;
    int sent;       /* a PUT whose outcome is not known may exist, or arrive later */
    int conflicted; /* the last PUT was answered with EXISTS */
    int refused;
} ligi_numbered_commit;

void ligi_numbered_commit_begin(ligi_numbered_commit *self, int64_t seen_ns, int64_t fresh_ns);
/* The next request, or the outcome. `now_ns` is the one reading of CLOCK_REALTIME of this attempt;
 * `over`: the time limit of the commit has expired. */
ligi_commit_next ligi_numbered_commit_next(ligi_numbered_commit *self, int64_t now_ns, int over);
/* The reply to that request. */
void ligi_numbered_commit_reply(ligi_numbered_commit *self, ligi_commit_reply reply);

#endif
