/* Ligament: a server that lets other processes use a store as "ligament://host:port" (docs/serve.md).
 *
 *     lig_server *server;
 *     lig_server_options options = LIG_SERVER_INIT;
 *     options.listen = "127.0.0.1:7000";
 *     LIG_TRY(lig_server_open(&server, "file:///models", &options));
 *     ... lig_server_wait(server, LIG_FOREVER) ...
 *     lig_server_stop(server, 30 * 1000000000LL);
 *     lig_server_close(server);
 *
 * Clients on the same host connect through shared memory. Other processes may use the same store directly at the same
 * time. A lig_server is **shared**: any thread may use it, but none may close it during a call. In a forked
 * child close frees memory only. */
#ifndef LIGAMENT_SERVE_H
#define LIGAMENT_SERVE_H

#include <ligament/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lig_server lig_server;

/* Flags of a server. */
#define LIG_SERVER_ALLOW_SHUTDOWN 1u /* clients may stop it: lig_store_shutdown_server */

/* A rule for the models whose names begin with `prefix`, which ends with '/' or is "" (all models). */
typedef struct lig_server_rule {
    const char *prefix;
    uint64_t value;
} lig_server_rule;

typedef struct lig_server_options {
    uint32_t struct_bytes; /* set by LIG_SERVER_INIT */
    uint32_t flags;        /* LIG_SERVER_ALLOW_SHUTDOWN */
    /* "host:port"; port 0: a free port; NULL: "127.0.0.1:0". Any address other than loopback requires a secret */
    const char *listen;
    const char *secret_file;      /* a secret (secret.h), or one line per role (docs/serve.md); NULL: none */
    const char *address_file;     /* the address is written there when the server listens, atomically, and removed at
                               * close; NULL: none */
    uint32_t max_clients;         /* maximum number of sessions; 0: 1024 */
    uint32_t workers;             /* threads that process requests; 0: 16 */
    uint64_t max_bytes_in_flight; /* of requests and replies in memory; 0: 1 GiB. A client may use a sixteenth; large
                                   * saves use at most half, and wait for each other */
    uint64_t rate;                /* bytes per second that all clients may read in total; 0: no limit */
    int64_t lease_ns; /* a client that is silent for this long is dropped and its leases are released; 0: 60 s */
    const lig_server_rule *quotas; /* bytes that models below a prefix may have written: LIG_E_IO, EDQUOT above it */
    size_t quota_count;
    const lig_server_rule *keeps; /* how many models are kept below a prefix: each save retires the oldest ones above
                                   * it, except those that have an alias, which do not count. Longer prefixes first */
    size_t keep_count;
    int64_t undelete_ns; /* how long lig_store_restore can restore a retired model; 0: not at all */
} lig_server_options;
#define LIG_SERVER_INIT {sizeof(lig_server_options), 0, NULL, NULL, NULL, 0, 0, 0, 0, 0, NULL, 0, NULL, 0, 0}

/* Opens the store and listens. `options` may be NULL. */
LIG_API lig_status lig_server_open(lig_server **server, const char *store_uri, const lig_server_options *options);

/* "host:port", with the port that was chosen; borrowed from the server. */
LIG_API const char *lig_server_address(const lig_server *server);

/* Waits until a client asks for a shutdown (if the flags allow it), or lig_server_stop is called; LIG_E_TIMEOUT. */
LIG_API lig_status lig_server_wait(lig_server *server, int64_t timeout_ns);

/* Reads the secret file again. Sessions whose role or key was removed or changed end; others continue. On failure
 * nothing changes. */
LIG_API lig_status lig_server_reload(lig_server *server);

/* Refuses new clients and new requests, waits at most `grace_ns` for running ones, then ends all sessions.
 * LIG_E_TIMEOUT if some had to be interrupted. */
LIG_API lig_status lig_server_stop(lig_server *server, int64_t grace_ns);

/* Stops the server without waiting, unless lig_server_stop has stopped it, and frees it. NULL is valid. */
LIG_API void lig_server_close(lig_server *server);

typedef struct lig_server_stats {
    uint64_t clients;         /* connected now */
    uint64_t requests;        /* answered since the start */
    uint64_t refused;         /* requests and clients that were refused because of a limit */
    uint64_t dropped;         /* sessions that ended without a goodbye */
    uint64_t bytes_in_flight; /* now */
    uint64_t held;            /* refs, matches, parts and locks that clients hold now */
} lig_server_stats;
LIG_API lig_status lig_server_stat(lig_server *server, lig_server_stats *stats);

/* --- for clients --- */

#define LIG_SERVED_URI_BYTES 8192

/* Fills `uri` with the URI of a served store. `text` names its server: "host:port", the path of an address file, or
 * "@PATH" for one that need not exist yet; each with or without "?key=value". Any other path or URI is copied
 * unchanged, and so is "host:port" if a path of that name exists. */
LIG_API lig_status lig_served_uri(const char *text, char *uri, size_t uri_bytes);

/* Restores the model of this name that was retired last, if it is still kept (undelete_ns); `as` (may be NULL) is
 * its new name. Its aliases are not restored. LIG_E_NOTFOUND; LIG_E_EXISTS if the name is in use again. */
LIG_API lig_status lig_store_restore(lig_store *store, const char *model, const char *as);
/* Like lig_store_retire, but the model cannot be restored. If there is no such model, removes the retired models of
 * that name that are still kept. */
LIG_API lig_status lig_store_retire_now(lig_store *store, const char *model);

/* Asks the server of a served store to stop, as SIGTERM does: it finishes running requests. LIG_E_DENIED unless the
 * server allows it (LIG_SERVER_ALLOW_SHUTDOWN, `ligament serve --allow-shutdown`); LIG_E_UNSUPPORTED for a store
 * that this process opened itself. The request is never repeated: a lost connection is LIG_E_PEER, even with
 * `retry`. */
LIG_API lig_status lig_store_shutdown_server(lig_store *store);

#ifdef __cplusplus
}
#endif
#endif
