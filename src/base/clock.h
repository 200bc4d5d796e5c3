/* Time. */
#ifndef LIGI_CLOCK_H
#define LIGI_CLOCK_H

#include <ligament/base.h>

#include <time.h>

int64_t ligi_now_ns(void); /* CLOCK_MONOTONIC: for deadlines and stamps */
/* The same with a resolution of a few milliseconds, at a third of the cost: for liveness only. */
int64_t ligi_now_coarse_ns(void);
int64_t ligi_date_ns(void); /* CLOCK_REALTIME: for display */
/* The moment `timeout_ns` from now for pthread_cond_timedwait on a CLOCK_MONOTONIC condition. */
struct timespec ligi_deadline(int64_t timeout_ns);
/* The deadline of a timeout that begins now; INT64_MAX for LIG_FOREVER. */
int64_t ligi_time_until(int64_t timeout_ns);
/* Time left until a deadline: never below 0; LIG_FOREVER for INT64_MAX. */
int64_t ligi_time_left(int64_t deadline_ns);

#endif
