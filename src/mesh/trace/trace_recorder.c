#include "mesh/trace/trace_recorder.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files/plain.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct header {
    char magic[8];
    uint32_t version, record_bytes;
    uint32_t role, rank;
    int64_t date_ns, clock_ns; /* the same moment on the calendar and on the stamps' clock */
    uint64_t group_id;
    uint64_t reserved[2];
} header;

_Static_assert(sizeof(header) == 64, "the header is part of the format");
_Static_assert(sizeof(ligi_trace_record) == 104, "the record is part of the format");

void ligi_trace_recorder_init(ligi_trace_recorder *recorder)
{
    *recorder = (ligi_trace_recorder){.fd = -1};
}

static lig_status put(int fd, const void *data, size_t bytes)
{
    if (ligi_plain_write(fd, data, bytes) != 0)
        return ligi_fail_errno(errno, "cannot write the trace");
    return LIG_OK;
}

static lig_status write_header(int fd, const ligi_recorded *whose)
{
    header start = {.version = LIGI_RECORD_VERSION,
                    .record_bytes = sizeof(ligi_trace_record),
                    .role = whose->role,
                    .rank = whose->rank,
                    .group_id = whose->group_id,
                    .date_ns = ligi_date_ns(),
                    .clock_ns = ligi_now_ns()};
    memcpy(start.magic, LIGI_RECORD_MAGIC, sizeof start.magic);
    return put(fd, &start, sizeof start);
}

/* The folder may belong to another user: links in it are not followed, and a file with a second
 * hard link is not truncated. */
static lig_status open_trace(const char *folder, const char *name, int *fd)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return ligi_fail_errno(errno, "cannot create the trace folder '%s'", folder);
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), opened;
    if (folder_fd < 0)
        return ligi_fail_errno(errno, "cannot open the trace folder '%s'", folder);
    lig_status status = ligi_plain_open(folder_fd, folder, name, O_WRONLY | O_CREAT, &opened);
    close(folder_fd);
    LIG_TRY(status);
    status = ligi_plain_sole(opened, folder, name);
    if (status == LIG_OK && ftruncate(opened, 0) != 0)
        status = ligi_fail_errno(errno, "cannot create the trace '%s/%s'", folder, name);
    if (status == LIG_OK)
        *fd = opened;
    else
        close(opened);
    return status;
}

lig_status ligi_trace_recorder_open(ligi_trace_recorder *recorder, const char *folder,
                                    const ligi_recorded *whose)
{
    static const char *const names[] = {"worker", "server", "scheduler"};
    char name[64];
    int fd = -1;
    snprintf(name, sizeof name, "%s-%u.trace", names[whose->role], whose->rank);
    ligi_trace_record *records;
    LIG_TRY(ligi_calloc(&records, LIGI_RECORD_ROOM, sizeof *records, "a trace"));
    lig_status status = open_trace(folder, name, &fd);
    if (status == LIG_OK)
        status = write_header(fd, whose);
    if (status != LIG_OK) {
        if (fd >= 0)
            close(fd);
        free(records);
        return status;
    }
    ligi_trace_recorder_close(recorder);
    *recorder = (ligi_trace_recorder){.fd = fd, .records = records};
    return LIG_OK;
}

static void flush(ligi_trace_recorder *recorder)
{
    size_t bytes = recorder->count * sizeof *recorder->records;
    recorder->count = 0;
    if (put(recorder->fd, recorder->records, bytes) == LIG_OK)
        return;
    ligi_log(LIG_LOG_WARNING, "%s; recording stops", lig_error_text());
    close(recorder->fd);
    recorder->fd = -1;
}

void ligi_trace_recorder_add(ligi_trace_recorder *recorder, const ligi_trace_record *record)
{
    if (recorder->fd < 0)
        return;
    recorder->records[recorder->count++] = *record;
    if (recorder->count == LIGI_RECORD_ROOM)
        flush(recorder);
}

void ligi_trace_recorder_close(ligi_trace_recorder *recorder)
{
    if (recorder->fd >= 0)
        flush(recorder);
    if (recorder->fd >= 0)
        close(recorder->fd);
    free(recorder->records);
    ligi_trace_recorder_init(recorder);
}
