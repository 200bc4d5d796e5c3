/* Memory for keys: locked where the system allows it, absent from core dumps, zero in forked
 * children, overwritten when it is freed. */
#ifndef LIGI_SECRET_MEMORY_H
#define LIGI_SECRET_MEMORY_H

#include <ligament/base.h>

/* Returns zeroed memory; freed with ligi_secret_memory_free. */
lig_status ligi_secret_memory_alloc(void *out, size_t bytes, const char *what);
/* NULL is valid. */
void ligi_secret_memory_free(void *data);

#endif
