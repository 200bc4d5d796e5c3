#include "base/clock.h"

#define SECOND_NS INT64_C(1000000000)

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

int64_t ligi_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t ligi_now_coarse_ns(void)
{
    return read_clock(CLOCK_MONOTONIC_COARSE);
}

int64_t ligi_date_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

struct timespec ligi_deadline(int64_t timeout_ns)
{
    int64_t now = ligi_now_ns();
    int64_t at = timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
    struct timespec deadline = {.tv_sec = at / SECOND_NS, .tv_nsec = at % SECOND_NS};
    return deadline;
}
