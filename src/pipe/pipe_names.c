#include <stdio.h>
#include <string.h>

#include <ligament/pipe.h>

static const char *const methods[] = {"auto",  "contiguous", "acyclic", "multilevel",
                                      "exact", "metis",      "mixed"};
static const char *const schedules[] = {"1f1b", "gpipe", "interleaved", "zb-h1", "zbv"};
_Static_assert(sizeof methods / sizeof *methods == LIG_PIPE_METHOD_COUNT, "a name for each method");
_Static_assert(sizeof schedules / sizeof *schedules == LIG_PIPE_SCHEDULE_COUNT,
               "a name for each schedule");

const char *lig_pipe_method_name(uint32_t method)
{
    return method < LIG_PIPE_METHOD_COUNT ? methods[method] : NULL;
}

const char *lig_pipe_schedule_name(uint32_t schedule)
{
    return schedule < LIG_PIPE_SCHEDULE_COUNT ? schedules[schedule] : NULL;
}

static lig_status parse(const char *name, const char *const *names, uint32_t count,
                        const char *what, uint32_t *number)
{
    char known[160] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!strcmp(name, names[i])) {
            *number = i;
            return LIG_OK;
        }
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", names[i]);
    }
    return lig_fail(LIG_E_INVALID, "unknown %s '%.40s': expected one of %s", what, name, known);
}

lig_status lig_pipe_method_parse(const char *name, uint32_t *method)
{
    return parse(name, methods, LIG_PIPE_METHOD_COUNT, "partitioning method", method);
}

lig_status lig_pipe_schedule_parse(const char *name, uint32_t *schedule)
{
    return parse(name, schedules, LIG_PIPE_SCHEDULE_COUNT, "schedule", schedule);
}
