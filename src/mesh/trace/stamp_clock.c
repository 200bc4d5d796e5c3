#include "mesh/trace/stamp_clock.h"

#include "base/clock.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { SERVES_NS = 1000000, MEASURE_NS = 20000000, MEASURE_MOST_NS = 1000000000 };
enum { BACK_MOST = 1024 };    /* multiples of the time for which a calibration is valid */
enum { PROMPT_TICKS = 1024 }; /* maximum time to read the clock, unless interrupted */

static int64_t forward(ligi_stamp_clock *ticks, int64_t ns)
{
    ticks->last = ns > ticks->last ? ns : ticks->last;
    return ticks->last;
}

int64_t ligi_stamp_clock_at(ligi_stamp_clock *ticks, uint64_t tick)
{
    uint64_t passed = tick - ticks->tick; /* huge if the counter went back */

    if (ticks->scale == 0 || passed >= ticks->most)
        return -1;
    return forward(ticks, ticks->ns + (int64_t)(passed * ticks->scale >> 32));
}

/* A thread that had the lock meanwhile got later times; this one is not moved forward for that, or
 * the time spent waiting for the lock would be lost. */
int64_t ligi_stamp_clock_past(ligi_stamp_clock *ticks, uint64_t tick)
{
    uint64_t passed = tick - ticks->tick, back = ticks->tick - tick;
    int64_t ns = ticks->ns;

    if (passed < ticks->most)
        ns += (int64_t)(passed * ticks->scale >> 32);
    else if (back / BACK_MOST < ticks->most)
        ns -= (int64_t)(back * ticks->scale >> 32);
    else
        return -1;
    forward(ticks, ns); /* later readings are not earlier */
    return ns;
}

/* Length of a tick: between 1/16 and 4 ns. Over a short time the error of the readings dominates;
 * over a long one the clock may have been adjusted. */
static void measure(ligi_stamp_clock *ticks)
{
    uint64_t passed = ticks->tick - ticks->from_tick;
    int64_t passed_ns = ticks->ns - ticks->from_ns;

    if (ticks->from_ns != 0 && passed_ns < MEASURE_NS)
        return;
    int plausible = passed > (uint64_t)passed_ns / 4 && passed / 16 < (uint64_t)passed_ns;
    if (ticks->from_ns != 0 && passed_ns <= MEASURE_MOST_NS && plausible) {
        ticks->scale = ((uint64_t)passed_ns << 32) / passed;
        ticks->most = ((uint64_t)SERVES_NS << 32) / (ticks->scale + 1);
    }
    ticks->from_tick = ticks->tick;
    ticks->from_ns = ticks->ns;
}

int64_t ligi_stamp_clock_set(ligi_stamp_clock *ticks, uint64_t before, int64_t ns, uint64_t after)
{
    if (after - before < PROMPT_TICKS) {
        ticks->tick = before + (after - before) / 2;
        ticks->ns = ns;
        measure(ticks);
    }
    return forward(ticks, ns);
}

#if defined(__x86_64__)
static uint64_t read_counter(void)
{
    return __builtin_ia32_rdtsc();
}

/* It stops or changes frequency on some machines, and differs between processors on others; the
 * kernel has checked it. */
static int counter_trusted(void)
{
    char name[8] = "";
    int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                  O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t bytes = read(fd, name, sizeof name - 1);
    close(fd);
    return bytes == 4 && memcmp(name, "tsc\n", 4) == 0;
}
#else
static uint64_t read_counter(void)
{
    return 0;
}

static int counter_trusted(void)
{
    return 0;
}
#endif

void ligi_stamp_clock_init(ligi_stamp_clock *ticks)
{
    *ticks = (ligi_stamp_clock){.trusted = counter_trusted()};
}

uint64_t ligi_stamp_clock_read(const ligi_stamp_clock *ticks)
{
    return ticks->trusted ? read_counter() : (uint64_t)ligi_now_ns();
}

int64_t ligi_stamp_clock_ns(ligi_stamp_clock *ticks, uint64_t reading)
{
    if (!ticks->trusted)
        return (int64_t)reading;
    int64_t ns = ligi_stamp_clock_at(ticks, reading);
    if (ns >= 0)
        return ns;
    uint64_t before = read_counter();
    ns = ligi_now_ns();
    return ligi_stamp_clock_set(ticks, before, ns, read_counter());
}

int64_t ligi_stamp_clock_then(ligi_stamp_clock *ticks, uint64_t reading)
{
    if (!ticks->trusted)
        return (int64_t)reading;
    int64_t ns = ligi_stamp_clock_past(ticks, reading);
    if (ns >= 0)
        return ns;
    int64_t now = ligi_stamp_clock_ns(ticks, ligi_stamp_clock_read(ticks));
    ns = ligi_stamp_clock_past(ticks, reading);
    return ns >= 0 ? ns : now;
}
