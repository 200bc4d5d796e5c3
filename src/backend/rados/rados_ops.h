/* Single operations on objects, and many in flight. Results are librados's: 0 or a negative errno.
 * Every operation ends: the connection has rados_osd_op_timeout and rados_mon_op_timeout. */
#ifndef LIGI_RADOS_OPS_H
#define LIGI_RADOS_OPS_H

#include "backend/rados/format/rados_class_lock.h"
#include "backend/rados/rados.h"

/* --- parts of a write operation --- */

void ligi_rados_op_set(const ligi_rados *e, rados_write_op_t op, const char *key, const void *value,
                       size_t bytes);
void ligi_rados_op_unset(const ligi_rados *e, rados_write_op_t op, const char *key);
/* The operation fails with -ECANCELED unless the key has this value; an absent key equals "". */
void ligi_rados_op_expect(const ligi_rados *e, rados_write_op_t op, const char *key,
                          const void *value, size_t bytes);
void ligi_rados_op_lock(const ligi_rados *e, rados_write_op_t op, const ligi_class_lock *lock);
/* Runs and releases. */
int ligi_rados_op_run(const ligi_rados *e, rados_write_op_t op, rados_ioctx_t io,
                      const char *object);

/* --- reading omap --- */

/* -ENODATA: no such key. -ERANGE: the value is longer than `capacity`. */
int ligi_rados_key_read(const ligi_rados *e, const char *object, const char *key, void *value,
                        size_t capacity, size_t *bytes);
/* Called for each key, in order; a non-zero result ends the visit and is returned. */
typedef int (*ligi_rados_visit)(void *context, const char *key, size_t key_bytes, const void *value,
                                size_t bytes);
/* Visits keys that begin with `begin` and are greater than `after`. An object that does not exist
 * has none. */
int ligi_rados_keys_visit(const ligi_rados *e, const char *object, const char *after,
                          const char *begin, ligi_rados_visit visit, void *context);
/* How many hold a lock of a stripe. -ENOENT: the object does not exist. */
int ligi_rados_lock_holders(const ligi_rados *e, const char *object, const char *lock,
                            uint32_t *holders);

/* --- in flight --- */

/* Called on the thread that uses the flight when an operation has ended; `tag` and `bytes` are what
 * it was started with. */
typedef void (*ligi_rados_landed)(void *context, size_t tag, uint64_t bytes, int result);

typedef struct ligi_rados_flight {
    const ligi_rados *e;
    struct {
        rados_completion_t done;
        size_t tag;
        uint64_t bytes;
    } ring[LIGI_RADOS_WINDOW];
    unsigned first, count;
    ligi_rados_landed landed;
    void *context;
} ligi_rados_flight;

void ligi_rados_flight_init(ligi_rados_flight *flight, const ligi_rados *e,
                            ligi_rados_landed landed, void *context);
/* A completion for the next operation; waits for the oldest one if the window is full. NULL: no
 * memory. */
rados_completion_t ligi_rados_flight_next(ligi_rados_flight *flight, size_t tag, uint64_t bytes);
/* Waits for all. */
void ligi_rados_flight_drain(ligi_rados_flight *flight);
/* `result` is that of the call that started the last operation: if it failed, the operation has
 * ended. */
void ligi_rados_flight_started(ligi_rados_flight *flight, int result);

#endif
