/* The LMDB environment of the index: opening it, watching its names, growing it ahead. */
#ifndef LIGI_INDEX_ENV_H
#define LIGI_INDEX_ENV_H

#include "backend/file/catalog/catalog_gate.h"

/* Opens index.mdb, making an empty one where there is none; opens again what is open. */
lig_status ligi_mdb_env_open(ligi_file_catalog *catalog);
void ligi_mdb_env_close(ligi_file_catalog *catalog);
/* Makes LMDB's lock file of that name, with all its pages. No environment of this process may have
 * it open: closing a file drops the process's locks on it. */
lig_status ligi_mdb_env_reserve_lock(const ligi_file_catalog *catalog, const char *name);
/* Removes index and lock file, or the lock file; nobody else may have them open. A folder of that
 * name is renamed. */
lig_status ligi_mdb_env_remove(ligi_file_catalog *catalog);
lig_status ligi_mdb_env_remove_lock(const ligi_file_catalog *catalog);

/* LIG_E_IO when a name no longer stands for the file that is open: who opens the store now would
 * not see this process's locks. */
lig_status ligi_mdb_env_still(const ligi_file_catalog *catalog);

/* In a write transaction: keeps some zeros behind the last page, so that a commit finds room on a
 * full disk. */
void ligi_mdb_env_ahead(const ligi_file_catalog *catalog);

/* LMDB's refusal with a sentence; a write cut short on a full disk becomes ENOSPC. */
lig_status ligi_mdb_env_fail(const ligi_file_catalog *catalog, int number, const char *what);

#endif
