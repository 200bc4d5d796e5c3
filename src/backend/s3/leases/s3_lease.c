#include "backend/s3/leases/s3_lease.h"

#include "base/codec.h"

#include <string.h>

#define SECOND_NS INT64_C(1000000000)

void ligi_s3_lease_encode(const uint8_t token[LIGI_RECORD_ID_BYTES], int64_t ttl_ns,
                          uint8_t out[LIGI_S3_LEASE_HEADER_BYTES])
{
    memcpy(out, token, LIGI_RECORD_ID_BYTES);
    ligi_store_le(out + LIGI_RECORD_ID_BYTES, (uint64_t)ttl_ns, 8);
}

int ligi_s3_lease_decode(const ligi_s3_small *object, ligi_s3_lease *lease)
{
    const uint8_t *data = (const uint8_t *)object->data;

    if (object->bytes < LIGI_S3_LEASE_HEADER_BYTES)
        return 0;
    uint64_t ttl = ligi_load_le(data + LIGI_RECORD_ID_BYTES, 8);
    if (ttl > INT64_MAX)
        return 0;
    memcpy(lease->token, data, LIGI_RECORD_ID_BYTES);
    lease->ttl_ns = (int64_t)ttl;
    lease->age_s = object->age_s;
    lease->rest = data + LIGI_S3_LEASE_HEADER_BYTES;
    lease->rest_bytes = object->bytes - LIGI_S3_LEASE_HEADER_BYTES;
    return 1;
}

/* Both dates are cut to whole seconds: the real age is up to a second less. */
static int older(const ligi_s3_lease *lease, int64_t limit_ns)
{
    return lease->age_s != LIGI_S3_AGE_UNKNOWN && lease->age_s - 1 > limit_ns / SECOND_NS;
}

int ligi_s3_lease_lives(const ligi_s3_lease *lease)
{
    return !older(lease, lease->ttl_ns);
}

int ligi_s3_lease_stale(const ligi_s3_lease *lease)
{
    return older(lease, lease->ttl_ns < INT64_MAX / 2 ? 2 * lease->ttl_ns : INT64_MAX);
}
