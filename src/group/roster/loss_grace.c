#include "group/roster/loss_grace.h"

int64_t ligi_grace_end_ns(int64_t now_ns)
{
    return now_ns + LIGI_LOSS_GRACE_NS;
}

int ligi_grace_is_over(int64_t end_ns, int64_t now_ns)
{
    return end_ns != 0 && end_ns <= now_ns;
}

int64_t ligi_grace_next_ns(int64_t end_ns, int64_t next_ns)
{
    return end_ns != 0 && end_ns < next_ns ? end_ns : next_ns;
}
