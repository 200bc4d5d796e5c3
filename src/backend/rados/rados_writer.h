/* Writing an object: a draft in the list, stripes in flight, then one operation that seals it. */
#ifndef LIGI_RADOS_WRITER_H
#define LIGI_RADOS_WRITER_H

#include "backend/rados/rados.h"

lig_status ligi_rados_object_create(void *self, ligi_object object, uint64_t bytes, int64_t ttl_ns,
                                    void **writer);
lig_status ligi_rados_object_room(void *writer, void **memory, uint64_t *bytes);
lig_status ligi_rados_object_push(void *writer, uint64_t bytes);
lig_status ligi_rados_object_seal(void *writer);
lig_status ligi_rados_object_renew(void *writer, int64_t ttl_ns);
void ligi_rados_object_close(void *writer, int forked);

#endif
