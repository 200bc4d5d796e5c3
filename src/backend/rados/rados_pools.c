#include "backend/rados/rados_pools.h"

#include "backend/rados/rados_error.h"
#include "backend/rados/rados_watch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STRIPE_MIN (UINT64_C(1) << 20)
#define STRIPE_MAX (UINT64_C(32) << 20)

/* "//pool/prefix" */
static lig_status split_place(ligi_rados *e, const char *rest)
{
    while (*rest == '/')
        rest++;
    const char *slash = strchr(rest, '/');
    size_t bytes = slash != NULL ? (size_t)(slash - rest) : strlen(rest);

    if (bytes == 0)
        return e->host->fail(LIG_E_INVALID,
                             "rados: URI without a pool (expected rados://pool/prefix)");
    e->pool = strndup(rest, bytes);
    e->prefix = strdup(slash != NULL ? slash + 1 : "");
    if (e->pool == NULL || e->prefix == NULL)
        return e->host->fail(LIG_E_NOMEM, "out of memory");
    for (size_t end = strlen(e->prefix); end > 0 && e->prefix[end - 1] == '/'; end--)
        e->prefix[end - 1] = '\0';
    return LIG_OK;
}

static lig_status set_timeouts(ligi_rados *e)
{
    /* Half: a commit that is not answered is looked up and tried again within `timeout=`. */
    const double seconds = (double)e->timeout_ns / 2e9;
    const char *names[] = {"rados_osd_op_timeout", "rados_mon_op_timeout", "client_mount_timeout"};
    char text[32];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        /* Before Ceph 15 the mount timeout was a whole number; 0 would mean no limit. */
        snprintf(text, sizeof text, "%.0f", seconds < 1 ? 1.0 : seconds);
        if (e->api.rados_conf_set(e->cluster, names[i], text) != 0)
            return e->host->fail(LIG_E_UNSUPPORTED, "librados has no option '%s'", names[i]);
    }
    return LIG_OK;
}

static lig_status configure(ligi_rados *e, const ligi_rados_config *config)
{
    char key[256];
    int result = e->api.rados_conf_read_file(e->cluster, config->conf);

    if (result != 0)
        return e->host->fail(result == -ENOENT ? LIG_E_NOTFOUND : LIG_E_INVALID,
                             "the Ceph configuration %s cannot be read: %s (conf= names it)",
                             config->conf != NULL ? config->conf : "ceph.conf", strerror(-result));
    /* A library does not write to the program's terminal. */
    e->api.rados_conf_set(e->cluster, "log_to_stderr", "false");
    e->api.rados_conf_set(e->cluster, "err_to_stderr", "false");
    if (e->host->credential("rados.key", key, sizeof key) == LIG_OK) {
        e->api.rados_conf_set(e->cluster, "key", key);
        explicit_bzero(key, sizeof key);
    }
    return set_timeouts(e);
}

static lig_status connect_failed(const ligi_rados *e, int result, const char *conf)
{
    if (conf == NULL)
        conf = "ceph.conf";
    errno = -result;
    switch (-result) {
    case EACCES:
    case EPERM:
        return e->host->fail(LIG_E_DENIED,
                             "the Ceph cluster of %s refuses the key of client.%s (id= and the "
                             "keyring, or the credential rados.key)",
                             conf, e->client);
    case ENOENT:
    case EOPNOTSUPP:
        return e->host->fail(LIG_E_DENIED,
                             "there is no key for client.%s (keyring in %s, or the credential "
                             "rados.key)",
                             e->client, conf);
    case ETIMEDOUT:
        return e->host->fail(LIG_E_TIMEOUT,
                             "the monitors of %s did not answer within %.3g s (timeout= waits "
                             "longer)",
                             conf, (double)e->timeout_ns / 1e9);
    default:
        return e->host->fail(LIG_E_IO, "connecting to the Ceph cluster of %s failed: %s", conf,
                             strerror(-result));
    }
}

/* The threads of librados inherit the mask: signals are the program's. */
static lig_status connect_cluster(ligi_rados *e, const ligi_rados_config *config)
{
    sigset_t all, before;
    char name[300];

    snprintf(name, sizeof name, "client.%s", e->client);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = e->api.rados_create2(&e->cluster, "ceph", name, 0);
    lig_status status = result == 0 ? configure(e, config)
                                    : e->host->fail(LIG_E_INVALID, "librados refuses id=%s: %s",
                                                    e->client, strerror(-result));
    if (result != 0)
        e->cluster = NULL;
    if (status == LIG_OK) {
        result = e->api.rados_connect(e->cluster);
        if (result != 0)
            status = connect_failed(e, result, config->conf);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static lig_status open_pool(ligi_rados *e, const char *pool, rados_ioctx_t *io)
{
    int result = e->api.rados_ioctx_create(e->cluster, pool, io);

    if (result == -ENOENT)
        return e->host->fail(LIG_E_NOTFOUND,
                             "there is no pool '%s' (ceph osd pool create %s, ceph osd lspools)",
                             pool, pool);
    if (result != 0)
        return ligi_rados_fail(e, result, "opening a pool");
    e->api.rados_ioctx_set_namespace(*io, e->prefix);
    /* Otherwise a write to a full pool waits instead of failing. */
    e->api.rados_set_pool_full_try(*io);
    return LIG_OK;
}

lig_status ligi_rados_data_pool_use(ligi_rados *e, const char *pool)
{
    rados_ioctx_t io;

    if (strcmp(pool, e->data_pool) == 0)
        return LIG_OK;
    /* data= was given, and is another one. */
    if (strcmp(e->data_pool, e->pool) != 0)
        return e->host->fail(LIG_E_MISMATCH,
                             "the store in pool '%s', prefix '%s' keeps its packs in pool '%s' "
                             "(data=%s was given)",
                             e->pool, e->prefix, pool, e->data_pool);
    char *copy = strdup(pool);
    if (copy == NULL)
        return e->host->fail(LIG_E_NOMEM, "out of memory");
    lig_status status = open_pool(e, pool, &io);
    if (status != LIG_OK) {
        free(copy);
        return status;
    }
    e->api.rados_ioctx_destroy(e->data);
    free(e->data_pool);
    e->data = io;
    e->data_pool = copy;
    return LIG_OK;
}

static lig_status open_all(ligi_rados *e, const ligi_engine_place *place)
{
    const ligi_rados_config *config = place->options;

    LIG_TRY(ligi_rados_calls_load(e->host, &e->api));
    LIG_TRY(split_place(e, place->uri->rest));
    if (config->stripe < STRIPE_MIN || config->stripe > STRIPE_MAX ||
        config->stripe % LIG_BLOCK_BYTES != 0)
        return e->host->fail(LIG_E_INVALID,
                             "stripe=%llu must be between 1 MiB and 32 MiB, in whole MiB",
                             (unsigned long long)config->stripe);
    e->stripe_bytes = config->stripe;
    e->client = strdup(config->id);
    e->data_pool = strdup(config->data != NULL ? config->data : e->pool);
    e->cache = calloc(LIGI_RADOS_CACHE, sizeof *e->cache);
    if (e->client == NULL || e->data_pool == NULL || e->cache == NULL)
        return e->host->fail(LIG_E_NOMEM, "out of memory");
    LIG_TRY(connect_cluster(e, config));
    LIG_TRY(open_pool(e, e->pool, &e->meta));
    return open_pool(e, e->data_pool, &e->data);
}

lig_status ligi_rados_open(const ligi_engine_host *host, const ligi_engine_place *place,
                           void **self)
{
    ligi_rados *e = calloc(1, sizeof *e);

    if (e == NULL)
        return host->fail(LIG_E_NOMEM, "out of memory");
    e->host = host;
    e->timeout_ns = place->timeout_ns;
    e->read_only = place->read_only;
    pthread_mutex_init(&e->cache_lock, NULL);
    ligi_rados_news_init(e);
    lig_status status = open_all(e, place);
    if (status != LIG_OK) {
        ligi_rados_close(e, 0);
        return status;
    }
    *self = e;
    return LIG_OK;
}

void ligi_rados_close(void *self, int forked)
{
    ligi_rados *e = self;

    ligi_rados_news_fini(e, forked);
    /* In a forked child librados waits for threads that it does not have. */
    if (!forked) {
        if (e->data != NULL)
            e->api.rados_ioctx_destroy(e->data);
        if (e->meta != NULL)
            e->api.rados_ioctx_destroy(e->meta);
        if (e->cluster != NULL)
            e->api.rados_shutdown(e->cluster);
        pthread_mutex_destroy(&e->cache_lock);
    }
    free(e->pool);
    free(e->prefix);
    free(e->client);
    free(e->data_pool);
    free(e->cache);
    free(e);
}

void ligi_rados_describe(void *self, char *text, size_t text_bytes)
{
    ligi_rados *e = self;
    int major = 0, minor = 0, extra = 0;

    e->api.rados_version(&major, &minor, &extra);
    snprintf(text, text_bytes,
             "librados (API %d.%d.%d) as client.%s; catalog in pool '%s', packs in pool '%s' over "
             "objects "
             "of %llu MiB, %d in flight",
             major, minor, extra, e->client, e->pool, e->data_pool,
             (unsigned long long)(e->stripe_bytes >> 20), LIGI_RADOS_WINDOW);
}
