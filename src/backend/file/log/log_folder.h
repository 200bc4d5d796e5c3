/* The files of a log's folder: segments and checkpoints, opened, listed, made and removed. */
#ifndef LIGI_CLOG_FOLDER_H
#define LIGI_CLOG_FOLDER_H

#include "backend/file/entry.h"
#include "backend/file/names.h"

#include <pthread.h>

#define LIGI_SEGMENT_HEADER_BYTES 64
#define LIGI_CLOG_NAME_BYTES 40
#define LIGI_CLOG_FILES 8

typedef struct ligi_clog_file { /* stays open for later use */
    ligi_name_kind kind;        /* segment or checkpoint */
    uint64_t number;            /* in its name */
    int fd;
    unsigned users; /* the folder counts as one while it lists the file */
    uint64_t used;  /* when, by a counter */
    uint64_t kept;  /* under LIGI_HEAD_WRITE: room up to there was requested (ligi_clog_keep) */
    uint64_t kept_stored; /* likewise: what the file had on the disk then */
} ligi_clog_file;

typedef struct ligi_clog_folder {
    int store_fd;      /* borrowed */
    int fd;            /* of the folder "log" */
    const char *place; /* borrowed; of the store */
    char *log_place;   /* of the folder, for sentences about its files */
    int sync, read_only;
    int numbered; /* segments have several hosts as readers and nobody writes to them again */

    pthread_mutex_t lock;                   /* guards all below */
    ligi_clog_file *files[LIGI_CLOG_FILES]; /* NULL: free */
    uint64_t clock;
} ligi_clog_folder;

/* Creates the folder unless it exists or `read_only` is set: then LIG_E_NOTFOUND without an error
 * text. */
lig_status ligi_clog_folder_open(ligi_clog_folder *folder, int store_fd, const char *place,
                                 int sync, int read_only);
void ligi_clog_folder_close(ligi_clog_folder *folder);

/* The name of a segment or checkpoint in the folder. */
void ligi_clog_folder_name(ligi_name_kind kind, uint64_t number, char name[LIGI_CLOG_NAME_BYTES]);

/* A segment or checkpoint, open until it is released; the caller must not close its descriptor.
 * LIG_E_NOTFOUND without an error text. */
lig_status ligi_clog_folder_file(ligi_clog_folder *folder, ligi_name_kind kind, uint64_t number,
                                 ligi_clog_file **file);
/* Likewise, one that may have been removed or replaced since it was opened: for a caller that can
 * tell from the bytes. */
lig_status ligi_clog_folder_file_once(ligi_clog_folder *folder, ligi_name_kind kind,
                                      uint64_t number, ligi_clog_file **file);
/* NULL is valid. */
void ligi_clog_folder_release(ligi_clog_folder *folder, ligi_clog_file *file);
/* Forgets files of this kind that lie below `number`: they are opened again on request. Holders of
 * a file keep it. */
void ligi_clog_folder_forget(ligi_clog_folder *folder, ligi_name_kind kind, uint64_t number);

/* The numbers of all files of a kind, ascending, for free(). */
lig_status ligi_clog_folder_list(const ligi_clog_folder *folder, ligi_name_kind kind,
                                 uint64_t **numbers, size_t *count);
lig_status ligi_clog_folder_remove(const ligi_clog_folder *folder, ligi_name_kind kind,
                                   uint64_t number);
/* Removes unfinished files of killed processes; called only by the only user. In a numbered log,
 * removes those that are too old to be in progress. */
void ligi_clog_folder_clean(const ligi_clog_folder *folder);

/* A new file under a temporary name, and its name made final: durable, in the place of one with
 * that number. Syncs even with fsync=0: the file that it replaces or covers may hold
 * commits that another process has synced. `fd` stays the caller's. */
lig_status ligi_clog_folder_create(const ligi_clog_folder *folder, char name[LIGI_CLOG_NAME_BYTES],
                                   int *fd);
lig_status ligi_clog_folder_publish(ligi_clog_folder *folder, const char *name, int fd,
                                    ligi_name_kind kind, uint64_t number);
void ligi_clog_folder_discard(const ligi_clog_folder *folder, const char *name);

/* The head of a segment: whose log it is part of, and the chain before its first record. */
typedef struct ligi_segment_header {
    uint8_t id[16];
    uint64_t first, previous;
    uint64_t writer; /* in a numbered log: a random number, which tells one's own segment; else 0 */
} ligi_segment_header;

void ligi_segment_header_put(const ligi_segment_header *header,
                             uint8_t bytes[LIGI_SEGMENT_HEADER_BYTES]);
/* LIG_E_CORRUPT, LIG_E_UNSUPPORTED for a newer format. */
lig_status ligi_segment_header_read(const ligi_clog_folder *folder, int fd, uint64_t first,
                                    ligi_segment_header *header);

int ligi_clog_is_full(int error_number);

/* The bytes that are free on the disk; UINT64_MAX: not known. With fewer than LIGI_CLOG_TIGHT_BYTES
 * nothing is taken ahead of use. */
#define LIGI_CLOG_TIGHT_BYTES (UINT64_C(1) << 20)
uint64_t ligi_clog_bytes_left(const ligi_clog_folder *folder);

/* Writes zeros to [from, to) of a segment. */
lig_status ligi_clog_extend(const ligi_clog_folder *folder, int fd, uint64_t from, uint64_t to);
/* The size of a file, and the bytes that it has on the disk. */
lig_status ligi_clog_measure(const ligi_clog_folder *folder, int fd, uint64_t *size,
                             uint64_t *stored);
/* Allocates blocks, also beyond the end of the file, whose size stays. The errno if the disk is
 * full, otherwise 0: no other failure is a reason to refuse a commit, and not every file system can
 * do this. */
int ligi_clog_allocate(int fd, uint64_t from, uint64_t to);

/* Allocates the bytes up to `end`, also beyond the end of the file: its size stays. Fails only if
 * the disk is full: not every file system can do that. Under LIGI_HEAD_WRITE. */
lig_status ligi_clog_keep(const ligi_clog_folder *folder, ligi_clog_file *segment, uint64_t end);

/* Likewise, or as far as there is room. */
void ligi_clog_keep_most(const ligi_clog_folder *folder, ligi_clog_file *segment, uint64_t end);

/* Gives back the blocks of a file from `end` on, beyond its end too. */
void ligi_clog_trim(const ligi_clog_folder *folder, int fd, uint64_t end);

/* Undoes that, and removes the zeros behind `end` (UINT64_MAX: none): another segment follows. */
void ligi_clog_give_back(ligi_clog_folder *folder, uint64_t segment, uint64_t end);

typedef struct ligi_clog_room {
    uint64_t end;  /* of the record */
    uint64_t keep; /* what commits that free all space would take */
    int frees;     /* this is one of them */
} ligi_clog_room;

/* Extends the segment, so that a record can be written. Under LIGI_HEAD_WRITE. */
lig_status ligi_clog_make_room(const ligi_clog_folder *folder, ligi_clog_file *segment,
                               const ligi_clog_room *room);

/* The bytes of a file up to a hole at its end. */
uint64_t ligi_clog_data_bytes(int fd);

/* pread of exactly these bytes; *got is less at the file's end. Only the system's refusal is an
 * error. */
lig_status ligi_clog_pread(const ligi_clog_folder *folder, int fd, void *data, size_t bytes,
                           uint64_t offset, size_t *got);

#endif
