/* Arguments of the OSD's object class "lock" (cls_lock), as bytes: pure.
 *
 * librados has calls for it (rados_lock_exclusive, ...), but these cannot be combined with other
 * steps. A single operation that locks and removes, or that locks only an existing object, needs no
 * separate check. The encoding is fixed: every client since 2012 uses it. */
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
/* The number of holders of the lock, from the response of "get_info"; 0 if it is malformed. */
int ligi_class_info_decode(const void *bytes, size_t size, uint32_t *holders);

#endif
