#include "formats/trace_file.h"

#include "cli.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct header {
    char magic[8];
    uint32_t version, record_bytes;
    uint32_t role, rank;
    int64_t date_ns, clock_ns;
    uint64_t group_id;
    uint64_t reserved[2];
} header;

enum { FILES_MAX = LIG_MESH_MEMBERS_MAX };
static const uint64_t file_bytes_max = UINT64_C(8) << 30;

const char *trace_role_name(uint32_t role)
{
    return role == LIG_MESH_SERVER ? "server" : role == LIG_MESH_WORKER ? "worker" : "scheduler";
}

static lig_status check_header(const char *path, const header *start)
{
    if (memcmp(start->magic, "LIGTRACE", 8) != 0)
        return lig_fail(LIG_E_CORRUPT, "'%s' is not a mesh trace", path);
    if (start->version != 1 || start->record_bytes != sizeof(trace_record))
        return lig_fail(LIG_E_UNSUPPORTED, "'%s' is a trace of version %u, expected 1", path,
                        start->version);
    if (start->role > LIG_MESH_SCHEDULER || start->rank >= LIG_MESH_MEMBERS_MAX)
        return lig_fail(LIG_E_CORRUPT, "'%s' has an invalid member role or rank", path);
    return LIG_OK;
}

static lig_status check_records(const char *path, const trace_file *file)
{
    for (size_t i = 0; i < file->count; i++) {
        const trace_record *record = &file->records[i];
        int wrong = record->kind != file->role || record->peer >= LIG_MESH_MEMBERS_MAX;
        int from = file->role == LIG_MESH_SERVER ? 3 : 1,
            to = file->role == LIG_MESH_SERVER ? 5 : 7;
        for (int s = from; s <= to; s++)
            wrong |= record->stamps[s] < record->stamps[s - 1];
        if (wrong)
            return lig_fail(LIG_E_CORRUPT, "record %zu of '%s' is invalid", i, path);
    }
    return LIG_OK;
}

static lig_status read_open(const char *path, FILE *in, trace_file *file)
{
    header start;
    struct stat about;
    if (fstat(fileno(in), &about) != 0 || !S_ISREG(about.st_mode) ||
        (uint64_t)about.st_size > file_bytes_max)
        return lig_fail(LIG_E_LIMIT, "'%s' is not a regular file of at most 8 GiB", path);
    if (fread(&start, sizeof start, 1, in) != 1)
        return lig_fail(LIG_E_CORRUPT, "'%s' is not a mesh trace", path);
    LIG_TRY(check_header(path, &start));
    size_t room = ((size_t)about.st_size - sizeof start) / sizeof(trace_record);
    file->role = start.role;
    file->rank = start.rank;
    file->group_id = start.group_id;
    file->date_ns = start.date_ns;
    LIG_TRY(cli_alloc(&file->records, room + 1, sizeof *file->records));
    file->count = fread(file->records, sizeof *file->records, room, in);
    return check_records(path, file);
}

static lig_status read_file(const char *path, trace_file *file)
{
    FILE *in = fopen(path, "rbe");
    if (in == NULL)
        return cli_fail_path(path, "read");
    lig_status status = read_open(path, in, file);
    fclose(in);
    return status;
}

static int by_member(const void *a, const void *b)
{
    const trace_file *x = a, *y = b;
    if (x->role != y->role)
        return x->role == LIG_MESH_SERVER ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The last estimate is the best; 0 if the file has none for the peer. */
static int64_t offset_to(const trace_file *file, uint32_t peer)
{
    for (size_t i = file->count; i-- > 0;)
        if (file->records[i].peer == peer)
            return file->records[i].offset_ns;
    return 0;
}

static void shift(trace_file *file, int64_t by)
{
    for (size_t i = 0; i < file->count; i++)
        for (int s = 0; s < LIG_MESH_STAMPS; s++)
            if (file->records[i].stamps[s] != 0)
                file->records[i].stamps[s] += (uint64_t)by;
}

/* The offset of a worker's clock is measured against the first server; other servers are related to
 * it through the first worker, which is connected to both. */
static void align(trace_run *run)
{
    const trace_file *guide = NULL;
    for (size_t i = 0; i < run->count && guide == NULL; i++)
        if (run->files[i].role == LIG_MESH_WORKER)
            guide = &run->files[i];
    if (guide == NULL)
        return;
    for (size_t i = 0; i < run->count; i++) {
        trace_file *file = &run->files[i];
        if (file->role == LIG_MESH_SERVER && file->rank > 0)
            shift(file, offset_to(guide, 0) - offset_to(guide, file->rank));
    }
    for (size_t i = 0; i < run->count; i++)
        if (run->files[i].role == LIG_MESH_WORKER)
            shift(&run->files[i], offset_to(&run->files[i], 0));
}

static lig_status read_folder(const char *folder, DIR *open, trace_run *run)
{
    struct dirent *entry;
    while ((entry = readdir(open)) != NULL) {
        size_t length = strlen(entry->d_name);
        if (length < 7 || strcmp(entry->d_name + length - 6, ".trace") != 0)
            continue;
        if (run->count == FILES_MAX)
            return lig_fail(LIG_E_LIMIT, "'%s' contains more than %d traces", folder, FILES_MAX);
        char *path;
        LIG_TRY(cli_format(&path, "%s/%s", folder, entry->d_name));
        lig_status status = read_file(path, &run->files[run->count++]);
        free(path);
        LIG_TRY(status);
    }
    if (run->count == 0)
        return lig_fail(LIG_E_NOTFOUND, "no traces found in '%s' (record some with mesh.trace_to)",
                        folder);
    return LIG_OK;
}

/* A member that did not rejoin has left the file of an earlier run. */
static void leave_out_others(const char *folder, trace_run *run)
{
    const trace_file *newest = &run->files[0];
    size_t kept = 0;
    for (size_t i = 1; i < run->count; i++)
        if (run->files[i].date_ns > newest->date_ns)
            newest = &run->files[i];
    uint64_t group_id = newest->group_id;
    for (size_t i = 0; i < run->count; i++) {
        trace_file *file = &run->files[i];
        if (file->group_id == group_id) {
            run->files[kept++] = *file;
            continue;
        }
        fprintf(stderr, "%s: skipping the trace of %s %u from an earlier run\n", folder,
                trace_role_name(file->role), file->rank);
        free(file->records);
    }
    run->count = kept;
}

lig_status trace_run_read(const char *folder, trace_run *run)
{
    *run = (trace_run){0};
    LIG_TRY(cli_alloc(&run->files, FILES_MAX, sizeof *run->files));
    memset(run->files, 0, FILES_MAX * sizeof *run->files);
    DIR *open = opendir(folder);
    lig_status status = open ? read_folder(folder, open, run) : cli_fail_path(folder, "read");
    if (open)
        closedir(open);
    if (status != LIG_OK) {
        trace_run_fini(run);
        return status;
    }
    leave_out_others(folder, run);
    qsort(run->files, run->count, sizeof *run->files, by_member);
    align(run);
    return LIG_OK;
}

void trace_run_fini(trace_run *run)
{
    for (size_t i = 0; i < run->count; i++)
        free(run->files[i].records);
    free(run->files);
    *run = (trace_run){0};
}
