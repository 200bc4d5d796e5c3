/* Time. */
#ifndef LIGI_CLOCK_H
#define LIGI_CLOCK_H

#include <stdint.h>
#include <time.h>

int64_t ligi_now_ns(void); /* CLOCK_MONOTONIC: for deadlines and stamps */
/* The same with a resolution of a few milliseconds, at a third of the cost: for liveness only. */
int64_t ligi_now_coarse_ns(void);
int64_t ligi_date_ns(void); /* CLOCK_REALTIME: for display */
/* The moment `timeout_ns` from now for pthread_cond_timedwait on a CLOCK_MONOTONIC condition. */
struct timespec ligi_deadline(int64_t timeout_ns);

#endif
