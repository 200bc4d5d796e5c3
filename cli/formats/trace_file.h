/* What members of a mesh recorded (lig_mesh_trace_to; docs/formats.md), on one clock. */
#ifndef CLI_TRACE_FILE_H
#define CLI_TRACE_FILE_H

#include <ligament/mesh.h>

typedef struct trace_record { /* the layout of the file */
    uint32_t kind;
    uint32_t peer;
    uint64_t serial;
    uint64_t push_bytes, pull_bytes;
    int64_t offset_ns;
    uint64_t stamps[LIG_MESH_STAMPS];
} trace_record;

typedef struct trace_file { /* of one member */
    uint32_t role, rank;
    uint64_t group_id;
    int64_t date_ns; /* when recording began */
    trace_record *records;
    size_t count;
} trace_file;

typedef struct trace_run {
    trace_file *files; /* servers by rank, then workers by rank */
    size_t count;
} trace_run;

/* Reads the *.trace files of the directory and converts all stamps to the clock of the first
 * server. Files of an earlier group are skipped, with a line on standard error for each. A record
 * that is cut off at a file's end is skipped; CORRUPT if a file is not a trace. */
lig_status trace_run_read(const char *folder, trace_run *run);
const char *trace_role_name(uint32_t role);
void trace_run_fini(trace_run *run);

#endif
