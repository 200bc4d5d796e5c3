#include "launch/launch.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static const int64_t second_ns = INT64_C(1000000000);

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * second_ns + now.tv_nsec;
}

void launch_status_start(launch_job *job)
{
    job->line =
        (launch_status_line){.on = isatty(STDERR_FILENO) && !job->quiet, .start_ns = now_ns()};
}

static void put(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored; /* a terminal that has gone shows no line */
}

void launch_status_hide(launch_job *job)
{
    if (job->line.shown)
        put("\r\033[K");
    job->line.shown = 0;
}

int64_t launch_status_next_ns(const launch_job *job)
{
    return job->line.on ? job->line.drawn_ns + second_ns : 0;
}

static size_t running(const launch_job *job, const char *role)
{
    size_t count = 0;
    for (size_t i = 0; i < job->count; i++)
        count += job->processes[i].pid > 0 && strcmp(job->processes[i].role, role) == 0;
    return count;
}

void launch_status_show(launch_job *job)
{
    char text[160];
    unsigned restarts = 0;
    int64_t now = now_ns(), seconds = (now - job->line.start_ns) / second_ns;
    if (!job->line.on || job->outs[0].at < job->outs[0].bytes ||
        job->outs[1].at < job->outs[1].bytes)
        return;
    if (job->line.shown && now < launch_status_next_ns(job))
        return;
    for (size_t i = 0; i < job->count; i++)
        restarts += job->processes[i].restarts;
    int used =
        snprintf(text, sizeof text, "\r\033[K%lld:%02lld  %zu of %zu running",
                 (long long)(seconds / 60), (long long)(seconds % 60), job->alive, job->count);
    size_t workers = running(job, "worker"), servers = running(job, "server");
    if (workers + servers > 0)
        used += snprintf(text + used, sizeof text - (size_t)used, " (%zu worker%s, %zu server%s)",
                         workers, workers == 1 ? "" : "s", servers, servers == 1 ? "" : "s");
    if (restarts > 0)
        snprintf(text + used, sizeof text - (size_t)used, ", %u restart%s", restarts,
                 restarts == 1 ? "" : "s");
    put(text);
    job->line.shown = 1;
    job->line.drawn_ns = now;
}
