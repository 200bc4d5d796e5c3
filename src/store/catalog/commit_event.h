/* The events of a commit, as the bytes that a volume stores (docs/formats.md). Pure. */
#ifndef LIGI_COMMIT_EVENT_H
#define LIGI_COMMIT_EVENT_H

#include "base/codec.h"

#include <ligament/watch.h>

/* Writes kind, model, name and other; NULL texts are "". */
void ligi_event_put(ligi_writer *writer, const lig_event *event);
/* Fills the same fields of *event, with strings borrowed from `data`. LIG_E_UNSUPPORTED if a newer
 * version wrote it, LIG_E_CORRUPT if it is invalid. */
lig_status ligi_event_get(const void *data, size_t bytes, lig_event *event);

#endif
