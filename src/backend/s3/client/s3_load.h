/* Loads libcurl and libcrypto when s3: is first used. */
#ifndef LIGI_S3_LOAD_H
#define LIGI_S3_LOAD_H

#include "backend/remote/storage_engine.h"
#include "backend/s3/client/s3_calls.h"
#include "backend/s3/wire/s3_sign.h"

/* LIG_E_UNSUPPORTED with an error text if they are not installed. The libraries stay loaded; *calls
 * is the process's. **shared** */
lig_status ligi_s3_load(const ligi_engine_host *host, const ligi_s3_calls **calls);
/* The digests of libcrypto. `calls` is borrowed as long as the digests are used. */
ligi_s3_digest ligi_s3_digests(const ligi_s3_calls *calls);

#endif
