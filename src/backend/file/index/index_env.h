/* The LMDB environment of the index: opening it, watching its names, growing it ahead. */
#ifndef LIGI_INDEX_ENV_H
#define LIGI_INDEX_ENV_H

#include "backend/file/catalog/catalog_gate.h"

/* Opens index.mdb, or creates an empty one; reopens it if it is open. */
lig_status ligi_mdb_env_open(ligi_file_catalog *catalog);
void ligi_mdb_env_close(ligi_file_catalog *catalog);
/* In a forked child: the locks are the parent's. */
void ligi_mdb_env_forked(ligi_file_catalog *catalog);
/* Closes the file, if it is open, and opens the same one. On failure it is unchanged or closed. */
lig_status ligi_mdb_env_reopen(ligi_file_catalog *catalog);
/* Creates LMDB's lock file of that name, with all its pages. No environment of this process may
 * have it open: closing a file drops the process's locks on it. */
lig_status ligi_mdb_env_reserve_lock(const ligi_file_catalog *catalog, const char *name);
/* Removes index and lock file, or only the lock file; no other process may have them open. A
 * folder of that name is renamed. */
lig_status ligi_mdb_env_remove(ligi_file_catalog *catalog);
lig_status ligi_mdb_env_remove_lock(const ligi_file_catalog *catalog);

/* LIG_E_IO if a name no longer refers to the open file: a process that opens the store now would
 * not see this process's locks. */
lig_status ligi_mdb_env_still(const ligi_file_catalog *catalog);

/* In a write transaction: keeps some zeros behind the last page, because they are overwritten
 * faster than new blocks are. */
void ligi_mdb_env_ahead(const ligi_file_catalog *catalog);

/* Before an edit is appended to the log: allocates blocks for the pages that it may change in the
 * index, and, unless it frees space, for those that one that does may change afterwards. An index
 * without room for a commit could not be brought up to date, and nothing could be freed. Fails only
 * if the disk is full. Under LIGI_HEAD_WRITE. */
lig_status ligi_mdb_env_reserve(ligi_file_catalog *catalog, const lig_catalog_edit *edit);

/* Gives back the blocks that a commit that frees space does not need. Under LIGI_HEAD_WRITE. */
void ligi_mdb_env_give_back(ligi_file_catalog *catalog);

/* Converts an LMDB error into a status with an error text; a truncated write on a full disk
 * becomes ENOSPC. */
lig_status ligi_mdb_env_fail(const ligi_file_catalog *catalog, int number, const char *what);

#endif
