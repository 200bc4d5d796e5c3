/* Objects of a store in the cluster: looking them up, listing, reading. */
#ifndef LIGI_RADOS_BODY_H
#define LIGI_RADOS_BODY_H

#include "backend/rados/rados.h"

/* The sealed object: 0, -ENODATA (there is none), or another error. Packs are remembered. */
int ligi_rados_body_find(ligi_rados *e, ligi_object object, ligi_rados_body *body);
void ligi_rados_body_forget(ligi_rados *e, ligi_object object);
void ligi_rados_body_remember(ligi_rados *e, const ligi_rados_body *body);

lig_status ligi_rados_object_size(void *self, ligi_object object, uint64_t *bytes);
lig_status ligi_rados_object_read(void *self, ligi_object object, const ligi_object_range *ranges,
                                  size_t count, ligi_object_arrived arrived, void *context);
lig_status ligi_rados_object_list(void *self, ligi_object_kind kind, uint64_t after, uint64_t *ids,
                                  size_t capacity, size_t *count);

#endif
