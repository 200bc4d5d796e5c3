/* The bytes of a commit: in omap, or in a separate object if the commit is large. */
#ifndef LIGI_RADOS_RECORD_H
#define LIGI_RADOS_RECORD_H

#include "backend/rados/rados.h"

#define LIGI_RADOS_INLINE_MAX (UINT64_C(64) << 10) /* larger values slow down all of omap */
#define LIGI_RADOS_VALUE_MAX (LIGI_RADOS_INLINE_MAX + 64)

typedef struct ligi_rados_value { /* of a log key */
    char *bytes;                  /* freed by the caller */
    size_t size;
    int apart;
} ligi_rados_value;

/* Fills *value; a large record is written to its object first. */
lig_status ligi_rados_record_put(ligi_rados *e, uint64_t version, const void *record, size_t bytes,
                                 ligi_rados_value *value);
/* The commit failed: removes the object, as far as possible. */
void ligi_rados_record_drop(ligi_rados *e, uint64_t version, const ligi_rados_value *value);
/* Whether a value is the record with this id. */
int ligi_rados_value_is(const void *value, size_t bytes, const void *id);
/* LIG_E_NOTFOUND, without an error text: the record's object was removed meanwhile. */
lig_status ligi_rados_record_visit(ligi_rados *e, uint64_t version, const void *value, size_t bytes,
                                   ligi_log_visit visit, void *context);
/* Removes the objects of records with numbers < `before`, also those whose commit failed. */
lig_status ligi_rados_records_remove(ligi_rados *e, uint64_t before);

#endif
