/* Writes completed requests to a file, for `ligament trace`. The layout is in docs/formats.md. */
#ifndef LIGI_TRACE_RECORDER_H
#define LIGI_TRACE_RECORDER_H

#include <ligament/mesh.h>

#define LIGI_RECORD_MAGIC "LIGTRACE"
#define LIGI_RECORD_VERSION 1
#define LIGI_RECORD_ROOM 512 /* records kept in memory before they are written */

typedef struct ligi_trace_record { /* little-endian in the file, with this layout */
    uint32_t kind;                 /* lig_mesh_role of the writer */
    uint32_t peer;                 /* the server of a worker's record, the worker of a server's */
    uint64_t serial;
    uint64_t push_bytes, pull_bytes;
    int64_t offset_ns;                /* the peer's clock minus the writer's */
    uint64_t stamps[LIG_MESH_STAMPS]; /* of the writer's clock; 0: not known to it */
} ligi_trace_record;

typedef struct ligi_recorded { /* whose requests they are */
    uint32_t role, rank;
    uint64_t group_id; /* distinguishes files of one run from those of an earlier one in the same
                        * folder */
} ligi_recorded;

typedef struct ligi_trace_recorder {
    int fd; /* -1: not recording */
    size_t count;
    ligi_trace_record *records;
} ligi_trace_recorder;

/* Zero bytes are not valid: init first. */
void ligi_trace_recorder_init(ligi_trace_recorder *recorder);
/* Creates the folder and the file; replaces an existing one. */
lig_status ligi_trace_recorder_open(ligi_trace_recorder *recorder, const char *folder,
                                    const ligi_recorded *whose);
/* Never fails: after a disk error recording ends with a log message. */
void ligi_trace_recorder_add(ligi_trace_recorder *recorder, const ligi_trace_record *record);
void ligi_trace_recorder_close(ligi_trace_recorder *recorder);

#endif
