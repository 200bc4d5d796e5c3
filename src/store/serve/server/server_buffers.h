/* Memory for replies to reads: large buffers are kept and used again, since the kernel clears each
 * page of a new one. */
#ifndef LIGI_SERVER_BUFFERS_H
#define LIGI_SERVER_BUFFERS_H

#include <ligament/base.h>

#include <pthread.h>

enum { LIGI_SERVED_BUFFERS_KEPT = 16 };

/* Embedded; shared. */
typedef struct ligi_served_buffers {
    pthread_mutex_t lock; /* guards all below */
    void *kept[LIGI_SERVED_BUFFERS_KEPT];
    size_t count;
} ligi_served_buffers;

/* Room for `bytes`, at most LIGI_SERVED_READ_BYTES_MAX. */
lig_status ligi_served_buffer_take(ligi_served_buffers *buffers, uint64_t bytes, uint8_t **out);
/* NULL is valid; `bytes` as for take. */
void ligi_served_buffer_give(ligi_served_buffers *buffers, uint8_t *buffer, uint64_t bytes);
void ligi_served_buffers_fini(ligi_served_buffers *buffers);

#endif
