/* Checks whether conditional writes work. On servers that ignore If-None-Match, two writers could
 * commit under one number, and both would succeed. */
#ifndef LIGI_S3_PROBE_H
#define LIGI_S3_PROBE_H

#include "backend/s3/s3.h"

/* LIG_OK at once when that is known; otherwise reads what an earlier probe of this endpoint found,
 * or probes: eight parallel conditional writes of one object, exactly one of which must succeed.
 * LIG_E_UNSUPPORTED with the alternatives. Nothing to do for the only writer (writer=single). */
lig_status ligi_s3_probe_ensure(ligi_s3 *s3);

#endif
