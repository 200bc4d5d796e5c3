#include "group/roster/local_pause.h"

/* Time to read what arrived while this process was stopped. */
#define WAKING_NS INT64_C(200000000)

int ligi_pause_detect(int64_t tick_ns, int64_t now_ns, int64_t liveness_ns)
{
    return tick_ns == INT64_MIN || now_ns - tick_ns > liveness_ns / 2;
}

int64_t ligi_pause_silence_ns(int64_t heard_ns, int64_t awake_ns, int64_t now_ns)
{
    return now_ns - (heard_ns > awake_ns ? heard_ns : awake_ns);
}

int64_t ligi_pause_beat_ns(int64_t liveness_ns)
{
    int64_t beat = liveness_ns / 5;
    return beat > 1000000 ? beat : 1000000;
}

int ligi_pause_is_recent(int64_t tick_ns, int64_t awake_ns, int64_t now_ns, int64_t liveness_ns)
{
    return ligi_pause_detect(tick_ns, now_ns, liveness_ns) || now_ns - awake_ns < WAKING_NS;
}
