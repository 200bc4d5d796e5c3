/* Removing objects, and leftovers of dead writers. */
#ifndef LIGI_RADOS_REMOVE_H
#define LIGI_RADOS_REMOVE_H

#include "backend/rados/rados.h"

lig_status ligi_rados_object_remove(void *self, ligi_object_kind kind, const uint64_t *ids,
                                    size_t count, lig_status *results);
lig_status ligi_rados_drafts_remove(void *self, int *more);

/* Removes stripes [from, to); missing ones are not an error. 0 or a negative errno. */
int ligi_rados_stripes_remove(ligi_rados *e, const ligi_rados_body *body, uint64_t from,
                              uint64_t to);
/* Adds to an operation on the list: the body's stripes are to be removed. */
void ligi_rados_dead_put(ligi_rados *e, rados_write_op_t op, const ligi_rados_body *body);
/* Removes the stripes of a body whose dead key was put, and the key. */
int ligi_rados_body_remove(ligi_rados *e, const ligi_rados_body *body);

#endif
