/* A table of objects that exist once per process, regardless of how often they are opened: the
 * environment of a catalog file, a named volume in memory. Entries belong to the process that
 * created them; after a fork the child starts with an empty table. */
#ifndef LIGI_SHARED_INSTANCES_H
#define LIGI_SHARED_INSTANCES_H

#include <ligament/base.h>

typedef struct ligi_shared_kind {
    lig_status (*create)(void *context, void **object);
    void (*destroy)(void *object);
    void (*forked)(void *object); /* in a child that was just forked: may only close descriptors.
                                     NULL: nothing */
} ligi_shared_kind;

typedef enum ligi_shared_want {
    LIGI_SHARED_ANY,
    LIGI_SHARED_OLD,
    LIGI_SHARED_NEW
} ligi_shared_want;

/* The object with this key (copied), created by kind->create(context) if there is none; released by
 * ligi_shared_release. LIG_E_NOTFOUND (OLD) and LIG_E_EXISTS (NEW) are returned without an error
 * text. */
lig_status ligi_shared_acquire(const char *key, const ligi_shared_kind *kind, ligi_shared_want want,
                               void *context, void **object);
/* The last release destroys. In a forked child it does nothing. */
void ligi_shared_release(void *object);

#endif
