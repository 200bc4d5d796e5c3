/* Completed requests of a served store: the record of a request is committed with its change, so
 * that a request that is sent again, even to another server process, is not executed twice. */
#ifndef LIGI_REQUEST_TABLE_H
#define LIGI_REQUEST_TABLE_H

#include "store/catalog/change.h"

#define LIGI_CLIENT_BYTES 16
#define LIGI_REQUEST_WINDOW 256 /* requests of one client that are remembered */

/* A request of a client. */
struct ligi_once {
    uint8_t client[LIGI_CLIENT_BYTES];
    uint64_t sequence; /* grows with each request of the client */
    int repeated;      /* filled: it was already completed */
    uint64_t model;    /* filled: the id of the resulting model; 0: none */
};

/* Fills `repeated` and `model`. */
lig_status ligi_once_find(lig_store *store, struct ligi_once *once);

/* LIG_E_EXISTS if it was already completed: nothing must be committed. No-op if `once` is NULL,
 * like the next one. */
lig_status ligi_once_check(const ligi_catalog_view *view, struct ligi_once *once);

/* Checks it, adds the record to a change, and removes old ones. */
lig_status ligi_once_put(ligi_change *change, struct ligi_once *once, uint64_t model);

#endif
