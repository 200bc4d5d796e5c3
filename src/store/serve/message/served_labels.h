/* Metrics and tags inside other bodies. Pure. */
#ifndef LIGI_SERVED_LABELS_H
#define LIGI_SERVED_LABELS_H

#include "store/serve/message/served_head.h"

void ligi_served_metrics_put(ligi_writer *writer, const lig_metric *metrics, size_t count);
/* The caller frees the array; names are borrowed. A malformed one sets reader->failed. */
lig_status ligi_served_metrics_read(ligi_reader *reader, lig_metric **metrics, size_t *count);

/* Values may be NULL. */
void ligi_served_tags_put(ligi_writer *writer, const lig_tag *tags, size_t count);
lig_status ligi_served_tags_read(ligi_reader *reader, lig_tag **tags, size_t *count);

#endif
