/* Limits of the bytes that the models below a prefix may have written (ligament serve --quota). */
#ifndef LIGI_QUOTA_H
#define LIGI_QUOTA_H

#include "store/catalog/catalog_view.h"

/* LIG_E_IO with EDQUOT if the model, which is about to be put into the catalog, exceeds a quota of
 * the handle. A pack counts for the model that wrote it and, after that model is removed, for the
 * oldest that uses it. A model that is replaced no longer counts, a retired one counts until it is
 * removed. `before`: the name under which the model already counts; NULL: it is new. */
lig_status ligi_quota_check(const ligi_catalog_view *view, const ligi_record *record,
                            const char *before);

#endif
