/* Arguments of the OSD's object class "lock" (cls_lock), as bytes: pure.
 *
 * librados calls it too (rados_lock_exclusive, ...), but never together with another step. One
 * operation that locks and removes, or that locks only what exists, needs no second one that
 * checks. The encoding is fixed: every client since 2012 sends it. */
#ifndef LIGI_RADOS_CLASS_LOCK_H
#define LIGI_RADOS_CLASS_LOCK_H

#include <stddef.h>
#include <stdint.h>

#define LIGI_CLASS_LOCK_BYTES 256

typedef enum ligi_class_lock_type {
    LIGI_CLASS_EXCLUSIVE = 1,
    LIGI_CLASS_SHARED = 2
} ligi_class_lock_type;

typedef struct ligi_class_lock {
    const char *name; /* an object can have several locks; at most 32 bytes */
    ligi_class_lock_type type;
    const char *cookie;  /* with the connection: the holder; at most 64 bytes */
    int64_t duration_ns; /* by the OSD's clock */
    uint8_t flags;       /* LIBRADOS_LOCK_FLAG_* */
} ligi_class_lock;

typedef struct ligi_class_argument {
    char bytes[LIGI_CLASS_LOCK_BYTES];
    size_t size;
} ligi_class_argument;

ligi_class_argument ligi_class_lock_encode(const ligi_class_lock *lock); /* method "lock" */
ligi_class_argument ligi_class_unlock_encode(const char *name, const char *cookie); /* "unlock" */
ligi_class_argument ligi_class_info_encode(const char *name);                       /* "get_info" */
/* How many hold the lock, from the answer of "get_info"; 0 if the bytes are no answer. */
int ligi_class_info_decode(const void *bytes, size_t size, uint32_t *holders);

#endif
