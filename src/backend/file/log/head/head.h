/* The head of a log: one mapped page with the locks of the log's users, hints about its end, and
 * witnesses of what was synced. Never the only copy of anything: a lost head costs a rebuilt index.
 * Shared by threads and processes.
 *
 * The locks are OFD locks on bytes of the file: the kernel releases them when the last process that
 * has the descriptor ends or closes it. A forked child closes its copies (ligi_head_forked). */
#ifndef LIGI_HEAD_H
#define LIGI_HEAD_H

#include <ligament/base.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

typedef enum ligi_head_which {
    LIGI_HEAD_WRITE,      /* the appending process */
    LIGI_HEAD_SYNC,       /* the syncing process: one lock per epoch */
    LIGI_HEAD_CHECKPOINT, /* the process that creates a checkpoint */
    LIGI_HEAD_LOCKS
} ligi_head_which;

typedef struct ligi_head_lock {
    pthread_mutex_t guard; /* of the two below: one thread of a process at a time */
    pthread_cond_t freed;
    int taken;
    pthread_t owner;
    uint32_t epoch;  /* when it was taken: identifies the lock LIGI_HEAD_SYNC */
    uint64_t synced; /* what was durable when it was taken */
} ligi_head_lock;

typedef struct ligi_head_page ligi_head_page;

typedef struct ligi_head {
    int fd;
    const char *place; /* borrowed */
    ligi_head_page *page;
    int spins; /* there is another processor, on which a lock's holder may run */
    ligi_head_lock locks[LIGI_HEAD_LOCKS];
} ligi_head;

/* Opens and maps `fd` (ownership is taken) and extends it to a page; initialises a page that is not
 * a head. */
lig_status ligi_head_open(ligi_head *head, int fd, const char *place);
void ligi_head_close(ligi_head *head);
void ligi_head_forked(ligi_head *head);

/* LIG_E_TIMEOUT names the process that holds it, except for LIGI_HEAD_SYNC. 0 ns: one attempt. */
lig_status ligi_head_take(ligi_head *head, ligi_head_which which, int64_t timeout_ns);
void ligi_head_release(ligi_head *head, ligi_head_which which);
/* 1 when this thread holds it. */
int ligi_head_mine(ligi_head *head, ligi_head_which which);
/* 1 if the process that holds it has been stopped (SIGSTOP, a debugger). */
int ligi_head_stopped(const ligi_head *head, ligi_head_which which);
/* Names the process that holds LIGI_HEAD_WRITE of the head with this descriptor, which may be open
 * for reading only; "" if there is none. */
void ligi_head_writer(int fd, char *text, size_t text_bytes);

/* The lock that every user of the log holds, shared. `alone`: exclusively, for the first and the
 * last one; LIG_E_BUSY without an error text if there are others. A shared request waits for an
 * exclusive holder: LIG_E_TIMEOUT. */
lig_status ligi_head_attach(ligi_head *head, int alone, int64_t timeout_ns);

/* The last commit published since the machine was started; 0 before the first one. */
uint64_t ligi_head_appended(const ligi_head *head);
void ligi_head_append(ligi_head *head, uint64_t version);

/* The epoch counts the segments that were replaced because a sync failed or did not return.
 * Witnesses of an earlier epoch are ignored. */
uint32_t ligi_head_epoch(const ligi_head *head);
/* Under LIGI_HEAD_WRITE: the log ends with `version` from now on. `whole`: it continues the same
 * log, durably; otherwise commits that were published may be lost. */
void ligi_head_epoch_next(ligi_head *head, uint64_t version, int whole);
/* 1 when commits that were published in `epoch` may be lost since. */
int ligi_head_lost(const ligi_head *head, uint32_t epoch);
/* The last version known to be durable. */
uint64_t ligi_head_synced(const ligi_head *head);
void ligi_head_sync(ligi_head *head, uint64_t version, uint32_t epoch);

/* The segment that is written to, by its first version; 0: look. `rolling` says that the next one
 * is being created: a process that takes the write lock checks, too. */
uint64_t ligi_head_segment(const ligi_head *head);
void ligi_head_segment_set(ligi_head *head, uint64_t first);
void ligi_head_rolling(ligi_head *head);
/* The segment whose name is durable, as are those of the segments before it; 0: none is known. */
uint64_t ligi_head_named(const ligi_head *head);
void ligi_head_named_set(ligi_head *head, uint64_t first);
/* The segment whose sync failed (0: none). Reset when the machine restarts. */
uint64_t ligi_head_poisoned(const ligi_head *head);
void ligi_head_poison(ligi_head *head, uint64_t first);
/* Likewise, called by the holder of LIGI_HEAD_SYNC; does nothing if its epoch is over. */
void ligi_head_sync_failed(ligi_head *head, uint64_t first);
/* Called with all locks held, when a new log begins. */
void ligi_head_poison_clear(ligi_head *head);
/* Undoes that, unless another one was poisoned since. */
void ligi_head_unpoison(ligi_head *head, uint64_t first);
/* Set while the log is known to be damaged: nothing is written and nothing removed. */
int ligi_head_damaged(const ligi_head *head);
void ligi_head_damage(ligi_head *head, int damaged);
/* Around a sync of the segment, under LIGI_HEAD_SYNC. A process that is killed in between may have
 * received an error that the kernel reports only once: begin then poisons the segment. 0 when the
 * epoch for which the lock was taken is over. */
int ligi_head_sync_begin(ligi_head *head, uint64_t first);
/* `version`: all up to it is durable; 0: the sync failed. */
void ligi_head_sync_end(ligi_head *head, uint64_t version);

/* Called by the only user: clears the hints from before the machine was restarted. */
void ligi_head_renew(ligi_head *head);

/* The index as the last user left it; ligi_head_left is 1 when `info` is exactly that file. */
void ligi_head_leave(ligi_head *head, const struct stat *info);
int ligi_head_left(const ligi_head *head, const struct stat *info);
void ligi_head_unleave(ligi_head *head);

/* For a reader, which maps nothing: 1 when the index with this `info` is in use, or is as the last
 * user left it. `fd` is the head's, open for reading. */
int ligi_head_vouches(int fd, const struct stat *info);
/* Likewise: the last version that the log must contain, 0 when that is not known. It is durable, or
 * was published since the machine was started and no sync has failed or is in progress. */
uint64_t ligi_head_witness(int fd);

/* Waits until something was published after `seen`, a value of ligi_head_bell, or for the time. */
uint32_t ligi_head_bell(const ligi_head *head);
void ligi_head_wait(ligi_head *head, uint32_t seen, int64_t timeout_ns);
/* Likewise until LIGI_HEAD_SYNC was released and `version` is durable, or nobody else syncs it. */
uint32_t ligi_head_sync_bell(const ligi_head *head);
void ligi_head_sync_wait(ligi_head *head, uint32_t seen, uint64_t version, int64_t timeout_ns);

#endif
