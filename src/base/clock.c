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

int64_t ligi_time_until(int64_t timeout_ns)
{
    int64_t now = ligi_now_ns();
    return timeout_ns < 0 || timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}

int64_t ligi_time_left(int64_t deadline_ns)
{
    if (deadline_ns == INT64_MAX)
        return LIG_FOREVER;
    int64_t left = deadline_ns - ligi_now_ns();
    return left > 0 ? left : 0;
}

struct timespec ligi_deadline(int64_t timeout_ns)
{
    int64_t now = ligi_now_ns();
    int64_t at = timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
    struct timespec deadline = {.tv_sec = at / SECOND_NS, .tv_nsec = at % SECOND_NS};
    return deadline;
}
