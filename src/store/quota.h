/* Limits of the bytes that the models below a prefix may have written (ligament serve --quota). */
#ifndef LIGI_QUOTA_H
#define LIGI_QUOTA_H

#include "store/catalog/catalog_view.h"

/* LIG_E_IO with EDQUOT if a model of that name, which writes so many bytes, exceeds a quota of the
 * handle. Shared bytes count for the model that wrote them; a model that is replaced no longer
 * counts, one that is retired does until it is removed. */
lig_status ligi_quota_check(const ligi_catalog_view *view, const char *model, uint64_t bytes);

#endif
