#include "launch/launch.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES 65536   /* longer lines are split */
#define PORTION_BYTES 4096 /* what a pipe accepts without blocking when it is writable (PIPE_BUF) */

lig_status launch_output_open(launch_job *job)
{
    struct stat one, two;
    job->outs[0].fd = STDOUT_FILENO;
    job->outs[1].fd = STDERR_FILENO;
    job->same_out = fstat(STDOUT_FILENO, &one) == 0 && fstat(STDERR_FILENO, &two) == 0 &&
                    one.st_dev == two.st_dev && one.st_ino == two.st_ino;
    for (size_t i = 0; i < job->count; i++)
        for (int s = 0; s < 2; s++)
            LIG_TRY(cli_alloc(&job->processes[i].streams[s].data, LINE_BYTES, 1));
    return LIG_OK;
}

void launch_output_close(launch_job *job)
{
    for (size_t i = 0; i < job->count; i++)
        for (int s = 0; s < 2; s++) {
            free(job->processes[i].streams[s].data);
            if (job->processes[i].streams[s].fd >= 0)
                close(job->processes[i].streams[s].fd);
        }
    free(job->outs[0].data);
    free(job->outs[1].data);
}

launch_out *launch_output_of(launch_job *job, int stream)
{
    return &job->outs[job->same_out ? 0 : stream];
}

static lig_status append(launch_out *out, const char *data, size_t bytes)
{
    if (out->bytes + bytes > out->capacity) {
        size_t capacity = 2 * (out->bytes + bytes);
        char *grown = realloc(out->data, capacity);
        if (grown == NULL)
            return lig_fail(LIG_E_NOMEM, "out of memory for %zu bytes of output", capacity);
        out->data = grown;
        out->capacity = capacity;
    }
    memcpy(out->data + out->bytes, data, bytes);
    out->bytes += bytes;
    return LIG_OK;
}

static lig_status put_line(launch_job *job, const launch_process *process, int stream,
                           const char *line, size_t bytes)
{
    launch_out *out = launch_output_of(job, stream);
    if (!job->quiet) {
        char name[48];
        int length = snprintf(name, sizeof name, "[%s] ", process->name);
        LIG_TRY(append(out, name, (size_t)length));
    }
    LIG_TRY(append(out, line, bytes));
    return bytes > 0 && line[bytes - 1] == '\n' ? LIG_OK : append(out, "\n", 1);
}

/* Whole lines are written; the rest moves to the front. A line that fills the buffer is written as
 * is. */
static lig_status put_lines(launch_job *job, launch_process *process, int stream, int last)
{
    launch_stream *from = &process->streams[stream];
    size_t at = 0;
    while (at < from->bytes) {
        const char *line = from->data + at;
        const char *end = memchr(line, '\n', from->bytes - at);
        size_t bytes = end != NULL ? (size_t)(end - line) + 1 : from->bytes - at;
        if (end == NULL && !last && !(at == 0 && from->bytes == LINE_BYTES))
            break;
        LIG_TRY(put_line(job, process, stream, line, bytes));
        at += bytes;
    }
    memmove(from->data, from->data + at, from->bytes - at);
    from->bytes -= at;
    return LIG_OK;
}

lig_status launch_output_take(launch_job *job, launch_process *process, int stream)
{
    launch_stream *from = &process->streams[stream];
    ssize_t got = read(from->fd, from->data + from->bytes, LINE_BYTES - from->bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return LIG_OK;
    if (got > 0)
        from->bytes += (size_t)got;
    LIG_TRY(put_lines(job, process, stream, got <= 0));
    if (got <= 0) {
        close(from->fd);
        from->fd = -1;
    }
    return LIG_OK;
}

void launch_output_finish(launch_job *job, launch_process *process)
{
    for (int s = 0; s < 2; s++) {
        launch_stream *from = &process->streams[s];
        size_t before;
        do { /* a pipe holds a limited number of bytes; a descendant may keep it open */
            before = launch_output_of(job, s)->bytes + from->bytes;
            if (from->fd >= 0 && launch_output_take(job, process, s) != LIG_OK)
                break;
        } while (from->fd >= 0 && launch_output_of(job, s)->bytes + from->bytes > before);
        (void)put_lines(job, process, s, 1);
        if (from->fd >= 0)
            close(from->fd);
        from->fd = -1;
    }
}

void launch_output_put(launch_out *out)
{
    size_t left = out->bytes - out->at;
    ssize_t put = write(out->fd, out->data + out->at, left < PORTION_BYTES ? left : PORTION_BYTES);
    if (put < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    out->at = put < 0 ? out->bytes : out->at + (size_t)put;
    if (out->at == out->bytes)
        out->at = out->bytes = 0;
}

void launch_output_say(launch_job *job, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    launch_out *out = launch_output_of(job, 1);
    if (length < 0 || append(out, "ligament: ", 10) != LIG_OK)
        return;
    (void)append(out, text, strlen(text));
    (void)append(out, "\n", 1);
}
