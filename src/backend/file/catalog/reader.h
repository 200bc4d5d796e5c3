/* The catalog for a reader that may not write anything, not even a lock: a private index in memory,
 * copied from the shared one if that is known to be valid, otherwise built from checkpoint and log.
 * It follows the log. Shared. */
#ifndef LIGI_READER_H
#define LIGI_READER_H

#include <ligament/backend.h>

typedef struct ligi_file_reader ligi_file_reader;

/* Borrows folder_fd and place until close. *reader stays NULL if there is no log. */
lig_status ligi_file_reader_open(ligi_file_reader **reader, int folder_fd, const char *place);
/* NULL is valid. */
void ligi_file_reader_close(ligi_file_reader *reader, int forked);
/* The snapshot is one of catalog_snapshot.h; it shows everything that the log contained at the
 * call. */
lig_status ligi_file_reader_begin(ligi_file_reader *reader, void **snapshot, uint64_t *version);

/* Names the process that holds the write lock; "" if there is none. */
void ligi_file_reader_writer(ligi_file_reader *reader, char *text, size_t text_bytes);

/* The volume's catalog_verify, which repairs nothing here, catalog_events and catalog_wait. */
lig_status ligi_file_reader_verify(ligi_file_reader *reader, lig_catalog_problem problem,
                                   void *context);
lig_status ligi_file_reader_events(ligi_file_reader *reader, uint64_t since,
                                   lig_catalog_visit visit, void *context);
lig_status ligi_file_reader_wait(ligi_file_reader *reader, uint64_t since, int64_t timeout_ns);

#endif
