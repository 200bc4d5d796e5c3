/* Metrics, tags and texts: validation and updates. Pure. */
#ifndef LIGI_METRICS_AND_TAGS_H
#define LIGI_METRICS_AND_TAGS_H

#include "store/format/manifest.h"

lig_status ligi_metrics_check(const lig_metric *metrics, size_t count);
/* `removals`: a value may be NULL. */
lig_status ligi_tags_check(const lig_tag *tags, size_t count, int removals);
/* Valid UTF-8 of at most LIGI_TEXT_BYTES_MAX bytes; NULL is valid. */
lig_status ligi_text_check(const char *what, const char *text);

/* Adds or replaces by name; a tag with value NULL is removed. The arrays of `about` are replaced,
 * strings are borrowed. */
lig_status ligi_labels_merge(ligi_about *about, const lig_update *update);

/* 1 to LIG_NAME_BYTES_MAX bytes of UTF-8. `what` is "model" or "alias". */
lig_status ligi_labels_check_name(const char *what, const char *name);

#endif
