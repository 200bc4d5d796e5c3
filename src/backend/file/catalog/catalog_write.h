/* Writing to the catalog: commits, and the index that follows the log. */
#ifndef LIGI_CATALOG_WRITE_H
#define LIGI_CATALOG_WRITE_H

#include "backend/file/catalog/catalog.h"
#include "backend/file/log/log_sync.h"

/* The volume's members (backend.h). */
lig_status ligi_file_catalog_commit(ligi_file_catalog *catalog, const lig_catalog_edit *edit);
lig_status ligi_file_catalog_settle(ligi_file_catalog *catalog);
/* The same unless the write lock is held: LIG_E_TIMEOUT. */
lig_status ligi_file_catalog_adopt(ligi_file_catalog *catalog);

/* Returns when the requested version is durable. A segment whose sync failed is replaced. */
lig_status ligi_file_catalog_sync(ligi_file_catalog *catalog, const ligi_clog_durable *wanted);

#endif
