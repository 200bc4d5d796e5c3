/* A catalog of format 1 for a reader that may not write anything, not even a lock: a private copy
 * in memory, which is replaced when the file has changed. Shared. */
#ifndef LIGI_CATALOG_COPY_H
#define LIGI_CATALOG_COPY_H

#include <ligament/base.h>

typedef struct ligi_file_catalog_copy ligi_file_catalog_copy;

/* Borrows folder_fd and place until close. *copy stays NULL if there is no catalog. LIG_E_CLOSED,
 * here and later: the store has been upgraded to format 2. */
lig_status ligi_file_catalog_copy_open(ligi_file_catalog_copy **copy, int folder_fd,
                                       const char *place);
/* NULL is valid. */
void ligi_file_catalog_copy_close(ligi_file_catalog_copy *copy, int forked);
/* The next snapshot shows all that the file held at the call; LIG_E_BUSY when the file changes
 * faster than it can be copied. */
lig_status ligi_file_catalog_copy_settle(ligi_file_catalog_copy *copy);
/* The snapshot is one of catalog.h. */
lig_status ligi_file_catalog_copy_begin(ligi_file_catalog_copy *copy, void **snapshot,
                                        uint64_t *version);

/* Copies an LMDB file that others may be writing; *txnid is what the copy shows. LIG_E_BUSY when it
 * changes faster than it can be copied. */
lig_status ligi_file_catalog_copy_file(int from, int to, const char *place, uint64_t *txnid);

#endif
