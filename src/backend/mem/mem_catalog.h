/* The catalog in memory: the volume's members. */
#ifndef LIGI_MEM_CATALOG_H
#define LIGI_MEM_CATALOG_H

#include "backend/mem/mem.h"

void ligi_mem_catalog_release(ligi_mem_catalog *catalog);
/* 0 for NULL. */
uint64_t ligi_mem_catalog_version(const ligi_mem_catalog *catalog);
lig_status ligi_mem_catalog_begin(void *self, void **snapshot, uint64_t *version);
void ligi_mem_catalog_end(void *snapshot);
lig_status ligi_mem_catalog_commit(void *self, const lig_catalog_edit *edit);

#endif
