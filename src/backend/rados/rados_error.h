/* Results of librados as statuses and error texts. */
#ifndef LIGI_RADOS_ERROR_H
#define LIGI_RADOS_ERROR_H

#include "backend/rados/rados.h"

/* The status of a negative errno. */
lig_status ligi_rados_status(int error);
/* The same with an error text. `what` names the failed operation ("writing the catalog"). */
lig_status ligi_rados_fail(const ligi_rados *e, int error, const char *what);
/* An error of the data pool. */
lig_status ligi_rados_data_fail(const ligi_rados *e, int error, const char *what);

#endif
