/* Traces of a mesh as a timeline for the Chrome and Perfetto viewers, or as a table of where the
 * time went. */
#include "cli.h"
#include "formats/json.h"
#include "formats/trace_file.h"

#include <stdlib.h>
#include <string.h>

/* The interval between stamp i and i + 1. */
static const char *const parts[] = {"send",    "to the server", "queue",        "compute",
                                    "respond", "back",          "wait notified"};
enum { PARTS = 7, LANES_MAX = 4096 };

typedef struct timeline {
    cli_json_writer writer;
    uint64_t first_ns;
} timeline;

/* Process ids for the viewer: servers from 1, then workers, in file order. */
static uint32_t process_of(const trace_run *run, const trace_file *file)
{
    return (uint32_t)(file - run->files) + 1;
}

static void put_time(timeline *line, const char *key, uint64_t ns)
{
    char text[40];
    snprintf(text, sizeof text, "%llu.%03llu", (unsigned long long)(ns / 1000),
             (unsigned long long)(ns % 1000));
    cli_json_put_raw(&line->writer, key, text);
}

static void put_slice(timeline *line, const char *name, const uint64_t when[2],
                      const uint32_t where[2])
{
    cli_json_open(&line->writer, NULL, '{');
    cli_json_put_text(&line->writer, "name", name);
    cli_json_put_text(&line->writer, "ph", "X");
    cli_json_put_u64(&line->writer, "pid", where[0]);
    cli_json_put_u64(&line->writer, "tid", where[1]);
    put_time(line, "ts", when[0] - line->first_ns);
    put_time(line, "dur", when[1] - when[0]);
}

static void put_args(timeline *line, const trace_record *record)
{
    cli_json_open(&line->writer, "args", '{');
    cli_json_put_u64(&line->writer, "request", record->serial);
    cli_json_put_u64(&line->writer, "push_bytes", record->push_bytes);
    cli_json_put_u64(&line->writer, "pull_bytes", record->pull_bytes);
    cli_json_close(&line->writer, '}');
}

/* An arrow from a worker's slice ('s' at stamp 1) to the server's ('f' at 2). */
static void put_arrow(timeline *line, const char *phase, uint64_t ns, const uint32_t where[2],
                      const char *id)
{
    cli_json_open(&line->writer, NULL, '{');
    cli_json_put_text(&line->writer, "name", "request");
    cli_json_put_text(&line->writer, "cat", "mesh");
    cli_json_put_text(&line->writer, "ph", phase);
    cli_json_put_text(&line->writer, "id", id);
    cli_json_put_u64(&line->writer, "pid", where[0]);
    cli_json_put_u64(&line->writer, "tid", where[1]);
    put_time(line, "ts", ns - line->first_ns);
    if (*phase == 'f')
        cli_json_put_text(&line->writer, "bp", "e");
    cli_json_close(&line->writer, '}');
}

static void put_name(timeline *line, const char *kind, const uint32_t where[2], const char *name)
{
    cli_json_open(&line->writer, NULL, '{');
    cli_json_put_text(&line->writer, "name", kind);
    cli_json_put_text(&line->writer, "ph", "M");
    cli_json_put_u64(&line->writer, "pid", where[0]);
    cli_json_put_u64(&line->writer, "tid", where[1]);
    cli_json_open(&line->writer, "args", '{');
    cli_json_put_text(&line->writer, "name", name);
    cli_json_close(&line->writer, '}');
    cli_json_close(&line->writer, '}');
}

/* Concurrent requests are drawn in separate lanes. */
static uint32_t take_lane(uint64_t *ends, uint64_t begin, uint64_t end)
{
    uint32_t lane = 0;
    while (lane + 1 < LANES_MAX && ends[lane] > begin)
        lane++;
    ends[lane] = end;
    return lane + 1;
}

static void put_record(timeline *line, const trace_file *file, const trace_record *record,
                       const uint32_t where[2])
{
    int worker = file->role == LIG_MESH_WORKER;
    int from = worker ? 0 : 2, to = worker ? 7 : 5;
    char name[96], id[96];
    uint32_t from_worker = worker ? file->rank : record->peer;
    uint32_t at_server = worker ? record->peer : file->rank;
    snprintf(name, sizeof name, "request %llu %s %s %u", (unsigned long long)record->serial,
             worker ? "to" : "from", worker ? "server" : "worker", record->peer);
    snprintf(id, sizeof id, "%u-%u-%llu", from_worker, at_server,
             (unsigned long long)record->serial);
    put_slice(line, name, (uint64_t[]){record->stamps[from], record->stamps[to]}, where);
    put_args(line, record);
    cli_json_close(&line->writer, '}');
    for (int i = from; i < to; i++) {
        put_slice(line, parts[i], &record->stamps[i], where);
        cli_json_close(&line->writer, '}');
    }
    put_arrow(line, worker ? "s" : "f", record->stamps[worker ? 1 : 2], where, id);
}

static lig_status put_member(timeline *line, const trace_run *run, const trace_file *file)
{
    uint64_t *ends;
    char name[64];
    uint32_t where[2] = {process_of(run, file), 0}, lanes = 0;
    LIG_TRY(cli_alloc(&ends, LANES_MAX, sizeof *ends));
    memset(ends, 0, LANES_MAX * sizeof *ends);
    snprintf(name, sizeof name, "%s %u", trace_role_name(file->role), file->rank);
    put_name(line, "process_name", where, name);
    for (size_t i = 0; i < file->count; i++) {
        const trace_record *record = &file->records[i];
        int worker = file->role == LIG_MESH_WORKER;
        where[1] = take_lane(ends, record->stamps[worker ? 0 : 2], record->stamps[worker ? 7 : 5]);
        if (where[1] > lanes) {
            lanes = where[1];
            snprintf(name, sizeof name, "in flight %u", lanes);
            put_name(line, "thread_name", where, name);
        }
        put_record(line, file, record, where);
    }
    free(ends);
    return LIG_OK;
}

static uint64_t first_of(const trace_run *run)
{
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < run->count; i++)
        for (size_t r = 0; r < run->files[i].count; r++)
            for (int s = 0; s < LIG_MESH_STAMPS; s++) {
                uint64_t stamp = run->files[i].records[r].stamps[s];
                if (stamp != 0 && stamp < first)
                    first = stamp;
            }
    return first == UINT64_MAX ? 0 : first;
}

static int by_begin(const void *a, const void *b)
{
    const trace_record *x = a, *y = b;
    int at = x->kind == LIG_MESH_SERVER ? 2 : 0;
    return (x->stamps[at] > y->stamps[at]) - (x->stamps[at] < y->stamps[at]);
}

static lig_status put_run(const trace_run *run, FILE *file)
{
    timeline line = {.writer = {.file = file, .compact = 1}, .first_ns = first_of(run)};
    lig_status status = LIG_OK;
    cli_json_open(&line.writer, NULL, '{');
    cli_json_put_text(&line.writer, "displayTimeUnit", "ns");
    cli_json_open(&line.writer, "traceEvents", '[');
    for (size_t i = 0; i < run->count && status == LIG_OK; i++) {
        trace_file *one = &run->files[i];
        qsort(one->records, one->count, sizeof *one->records, by_begin);
        status = put_member(&line, run, one);
    }
    cli_json_close(&line.writer, ']');
    cli_json_close(&line.writer, '}');
    fputc('\n', file);
    return status;
}

/* --- the table --- */

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static size_t gather(const trace_run *run, int from, int to, uint64_t *times)
{
    size_t count = 0;
    for (size_t i = 0; i < run->count; i++)
        for (size_t r = 0; run->files[i].role == LIG_MESH_WORKER && r < run->files[i].count; r++) {
            const uint64_t *stamps = run->files[i].records[r].stamps;
            times[count++] = stamps[to] - stamps[from];
        }
    qsort(times, count, sizeof *times, compare);
    return count;
}

typedef struct trace_part {
    const char *name;
    double p50_us, p99_us, most_us;
} trace_part;

static trace_part measure(const char *name, const uint64_t *times, size_t count)
{
    return (trace_part){.name = name,
                        .p50_us = (double)times[count / 2] / 1e3,
                        .p99_us = (double)times[count * 99 / 100] / 1e3,
                        .most_us = (double)times[count - 1] / 1e3};
}

static lig_status print_parts(const trace_part *all, size_t count)
{
    static const cli_column columns[] = {
        {"part", 0, 0}, {"p50 us", 1, 0}, {"p99 us", 1, 0}, {"max us", 1, 0}};
    cli_table *table;
    lig_status status = cli_table_create(&table, columns, 4);
    if (status != LIG_OK)
        return status;
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        char p50[32], p99[32], most[32];
        snprintf(p50, sizeof p50, "%.2f", all[i].p50_us);
        snprintf(p99, sizeof p99, "%.2f", all[i].p99_us);
        snprintf(most, sizeof most, "%.2f", all[i].most_us);
        status = cli_table_add(table, (const char *const[]){all[i].name, p50, p99, most});
    }
    return cli_table_end(table, status);
}

static void print_parts_json(const trace_part *all, size_t count, size_t request_count)
{
    cli_json_writer writer = {.file = stdout};
    cli_json_open(&writer, NULL, '{');
    cli_json_put_u64(&writer, "requests", request_count);
    cli_json_open(&writer, "parts", '[');
    for (size_t i = 0; i < count; i++) {
        cli_json_open(&writer, NULL, '{');
        cli_json_put_text(&writer, "part", all[i].name);
        cli_json_put_double(&writer, "p50_us", all[i].p50_us);
        cli_json_put_double(&writer, "p99_us", all[i].p99_us);
        cli_json_put_double(&writer, "most_us", all[i].most_us);
        cli_json_close(&writer, '}');
    }
    cli_json_close(&writer, ']');
    cli_json_close(&writer, '}');
    fputc('\n', stdout);
}

static lig_status put_summary(const trace_run *run, int json)
{
    trace_part all[PARTS + 1];
    size_t room = 0;
    uint64_t *times;
    for (size_t i = 0; i < run->count; i++)
        room += run->files[i].role == LIG_MESH_WORKER ? run->files[i].count : 0;
    if (room == 0)
        return lig_fail(LIG_E_NOTFOUND, "no worker recorded a request");
    LIG_TRY(cli_alloc(&times, room, sizeof *times));
    for (int i = 0; i < PARTS; i++)
        all[i] = measure(parts[i], times, gather(run, i, i + 1, times));
    all[PARTS] = measure("request", times, gather(run, 0, PARTS, times));
    free(times);
    if (!json)
        return print_parts(all, PARTS + 1);
    print_parts_json(all, PARTS + 1, room);
    return LIG_OK;
}

static lig_status write_to(const trace_run *run, const char *path)
{
    FILE *file = path ? fopen(path, "we") : stdout;
    if (file == NULL)
        return cli_fail_path(path, "write");
    lig_status status = put_run(run, file);
    int failed = ferror(file);
    if (path && fclose(file) != 0)
        failed = 1;
    if (status == LIG_OK && failed)
        return cli_fail_path(path ? path : "standard output", "write");
    return status;
}

static int run_trace(cli_call *call)
{
    trace_run run;
    lig_status status = trace_run_read(call->words[0], &run);
    if (status != LIG_OK)
        return cli_failed();
    status = cli_has(call, "summary") ? put_summary(&run, call->json)
                                      : write_to(&run, cli_value(call, "out"));
    trace_run_fini(&run);
    return status == LIG_OK ? 0 : cli_failed();
}

static const cli_flag flags[] = {
    {"out", 'o', "FILE", "write to this file instead of standard output"},
    {"summary", 's', NULL, "print a table of the time spent in each part of a request instead"},
    {"json", 0, NULL, "with --summary, print the table as JSON"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_trace = {
    .name = "trace",
    .usage = "FOLDER [options]",
    .summary = "Converts the traces of a mesh to a timeline",
    .details =
        "FOLDER is the directory passed to mesh.trace_to; copy the files of other hosts into it.\n"
        "The result is JSON for ui.perfetto.dev and chrome://tracing: the requests of all\n"
        "workers and servers on the clock of server 0, with arrows between them.",
    .flags = flags,
    .word_min = 1,
    .word_max = 1,
    .run = run_trace,
};
