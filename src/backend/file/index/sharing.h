/* A store that several hosts write to: its log is numbered (log/numbered.h), and each host keeps
 * head and index in a local folder, never on the network file system (docs/decisions/0009). */
#ifndef LIGI_SHARING_H
#define LIGI_SHARING_H

#include "backend/file/catalog/catalog.h"

/* Checks `parent`, as below, for a store that may not exist yet, so that nothing is created if
 * the folder cannot be used. LIG_E_INVALID if it is inside the store. */
lig_status ligi_sharing_check(const char *place, const char *parent);

/* Whether the store is one of several hosts: *shared. */
lig_status ligi_sharing_find(int folder_fd, const char *place, int *shared);
/* Makes it one, for good. LIG_E_BUSY while a process that does not share it has it open, or if
 * another process is converting it: check again. `parent` as below. */
lig_status ligi_sharing_begin(const ligi_file_catalog_place *place, const char *parent);

/* Opens the folder of this host for the store, below `parent` ("": one in /var/tmp, of this user),
 * and makes it. Only this user may write to it: LIG_E_DENIED. */
lig_status ligi_sharing_folder(int folder_fd, const char *place, const char *parent, int *index_fd);

#endif
