/* Whether this process itself was stopped (SIGSTOP, a suspended machine) when a peer seems silent:
 * then it first reads what has arrived meanwhile. One rule for the roster, members, and sessions.
 * Pure; times are of one monotonic clock. */
#ifndef LIGI_LOCAL_PAUSE_H
#define LIGI_LOCAL_PAUSE_H

#include <stdint.h>

/* 1 if more than half of liveness_ns has passed since the last tick, or there was none yet
 * (INT64_MIN): a process that runs ticks more often. */
int ligi_pause_detect(int64_t tick_ns, int64_t now_ns, int64_t liveness_ns);
/* How long a peer, last heard at `heard_ns`, has been silent while this process was running, which
 * it does without a pause since `awake_ns`. */
int64_t ligi_pause_silence_ns(int64_t heard_ns, int64_t awake_ns, int64_t now_ns);
/* How often a process sends something, so that no peer considers it silent. */
int64_t ligi_pause_beat_ns(int64_t liveness_ns);
/* 1 if this process has just resumed (or is about to notice a pause), and has not had time to read
 * what arrived while it was stopped. */
int ligi_pause_is_recent(int64_t tick_ns, int64_t awake_ns, int64_t now_ns, int64_t liveness_ns);

#endif
