#include "backend/rados/rados_error.h"

#include <errno.h>
#include <string.h>

lig_status ligi_rados_status(int error)
{
    switch (-error) {
    case 0: return LIG_OK;
    case ENOENT: return LIG_E_NOTFOUND;
    case EACCES:
    case EPERM: return LIG_E_DENIED;
    case ENOSPC:
    case EDQUOT: return LIG_E_LIMIT;
    case ETIMEDOUT: return LIG_E_TIMEOUT;
    case EOPNOTSUPP: return LIG_E_UNSUPPORTED;
    case ENOMEM: return LIG_E_NOMEM;
    default: return LIG_E_IO;
    }
}

static lig_status fail_in(const ligi_rados *e, const char *pool, int error, const char *what)
{
    const lig_status status = ligi_rados_status(error);

    errno = -error;
    switch (status) {
    case LIG_E_NOTFOUND:
        return e->host->fail(status, "%s: no such object in pool '%s'", what, pool);
    case LIG_E_DENIED:
        return e->host->fail(status,
                             "%s: client.%s has no permission for pool '%s' (ceph auth caps)", what,
                             e->client, pool);
    case LIG_E_LIMIT:
        return e->host->fail(status, "%s: pool '%s' %s (free space, or raise the limit)", what,
                             pool, error == -EDQUOT ? "has reached its quota" : "is full");
    case LIG_E_TIMEOUT:
        return e->host->fail(status,
                             "%s: the Ceph cluster did not answer within %.3g s for pool '%s' "
                             "(ceph -s shows its state, timeout= waits longer)",
                             what, (double)e->timeout_ns / 1e9, pool);
    case LIG_E_UNSUPPORTED:
        return e->host->fail(status,
                             "%s: pool '%s' cannot hold a catalog (erasure-coded? use a replicated "
                             "pool, and data=%s for the packs)",
                             what, pool, pool);
    default:
        if (error == -ESHUTDOWN)
            return e->host->fail(status, "%s: client.%s is on the cluster's blocklist", what,
                                 e->client);
        return e->host->fail(status, "%s in pool '%s' failed: %s", what, pool, strerror(-error));
    }
}

lig_status ligi_rados_fail(const ligi_rados *e, int error, const char *what)
{
    return fail_in(e, e->pool, error, what);
}

lig_status ligi_rados_data_fail(const ligi_rados *e, int error, const char *what)
{
    return fail_in(e, e->data_pool, error, what);
}
