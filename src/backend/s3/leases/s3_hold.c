#include "backend/s3/leases/s3_hold.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/s3/client/s3_put_absent.h"
#include "backend/s3/s3_names.h"

/* Advances while the machine is suspended. */
static int64_t boot_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

lig_status ligi_s3_hold_take(ligi_s3_hold *hold, ligi_s3 *s3, uint64_t id, int64_t ttl_ns)
{
    uint8_t body[LIGI_S3_LEASE_HEADER_BYTES];

    *hold = (ligi_s3_hold){.s3 = s3, .ttl_ns = ttl_ns, .since_ns = boot_ns()};
    ligi_s3_name_hold(id, hold->key);
    LIG_TRY(s3->host->random(hold->token, sizeof hold->token));
    ligi_s3_lease_encode(hold->token, ttl_ns, body);
    lig_status status =
        ligi_s3_put_absent(s3->client, &(ligi_s3_absent){.key = hold->key,
                                                         .data = body,
                                                         .bytes = sizeof body,
                                                         .timeout_ns = s3->timeout_ns,
                                                         .removable = 1,
                                                         .unconditional = s3->single_writer});
    if (status == LIG_E_BUSY)
        return LIG_E_EXISTS;
    LIG_TRY(status);
    pthread_mutex_init(&hold->lock, NULL);
    return LIG_OK;
}

static lig_status fail_lost(ligi_s3_hold *hold)
{
    return hold->s3->host->fail(LIG_E_NOTFOUND,
                                "s3: the claim s3://%s/%s%s is lost: the writer was stopped for "
                                "longer than its time to live (ttl=), and its parts were removed",
                                ligi_s3_client_place(hold->s3->client)->bucket,
                                ligi_s3_client_place(hold->s3->client)->prefix, hold->key);
}

/* Whether it exists and is ours. */
static lig_status look(ligi_s3_hold *hold)
{
    ligi_s3 *s3 = hold->s3;
    ligi_s3_small object;
    ligi_s3_lease lease;

    lig_status status =
        ligi_s3_get(s3->client, hold->key, LIGI_S3_LEASE_BYTES_MAX, s3->timeout_ns, &object);
    if (status == LIG_E_NOTFOUND)
        return fail_lost(hold);
    LIG_TRY(status);
    int ours = ligi_s3_lease_decode(&object, &lease) &&
               memcmp(lease.token, hold->token, sizeof lease.token) == 0;
    free(object.data);
    return ours ? LIG_OK : fail_lost(hold);
}

/* Between the check and the write another process may remove a claim that had expired. It is then
 * written again, but the upload has been aborted and cannot be completed. */
lig_status ligi_s3_hold_renew(ligi_s3_hold *hold, int64_t ttl_ns)
{
    uint8_t body[LIGI_S3_LEASE_HEADER_BYTES];
    int64_t start = boot_ns();

    LIG_TRY(look(hold));
    ligi_s3_lease_encode(hold->token, ttl_ns, body);
    LIG_TRY(ligi_s3_put(hold->s3->client, hold->key, body, sizeof body, hold->s3->timeout_ns));
    pthread_mutex_lock(&hold->lock);
    hold->ttl_ns = ttl_ns;
    hold->since_ns = start;
    pthread_mutex_unlock(&hold->lock);
    return LIG_OK;
}

/* A claim that has not ended by this host's clock has not ended at the server, which counts from a
 * later moment. */
lig_status ligi_s3_hold_check(ligi_s3_hold *hold)
{
    pthread_mutex_lock(&hold->lock);
    int young = boot_ns() - hold->since_ns < hold->ttl_ns;
    pthread_mutex_unlock(&hold->lock);
    if (young)
        return LIG_OK;
    lig_status status = look(hold);
    return status == LIG_E_NOTFOUND
               ? hold->s3->host->fail(LIG_E_TIMEOUT, "%s", hold->s3->host->error_text())
               : status;
}

void ligi_s3_hold_end(ligi_s3_hold *hold, int forked)
{
    if (!forked)
        ligi_s3_remove_later(hold->s3, hold->key);
    pthread_mutex_destroy(&hold->lock);
}
