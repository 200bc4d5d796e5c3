/* The streams of the fake driver. All of it is guarded by fake_lock. */
#ifndef FAKE_STREAMS_H
#define FAKE_STREAMS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

extern pthread_mutex_t fake_lock;

typedef struct stream stream;
typedef struct op {
    void *to;
    const void *from; /* NULL: a fill, or one of the others */
    size_t bytes;
    int value;
    stream *awaited; /* a wait for its first `until` operations */
    size_t until;
    /* a kernel with its parameter; 0: it does not end yet */
    int (*kernel)(const void *parameter, uint64_t threads);
    const void *parameter;
    uint64_t threads;
    int signals;               /* to the host, as a word that is written */
    uint64_t *written, *least; /* words: one becomes `number`, one is waited for until it is */
    uint32_t *half;            /* the same, of 32 bits */
    uint64_t number;
} op;

struct stream {
    op *ops;
    size_t count, done, capacity;
    size_t promised; /* the operations up to the last word that is written */
    int is_default, capturing;
    op *captured;
    size_t captured_count, captured_capacity;
    stream *next;
};

typedef struct event {
    stream *where;
    size_t until;
} event;

extern stream fake_legacy;

stream *fake_stream_create(void);
void fake_stream_destroy(stream *of);
stream *fake_stream_of(void *handle);
/* Queues; on a stream that is being captured, records. */
void fake_add(stream *to, op what);
/* Runs the stream's first operations, and waits where one of them waits for a word. */
void fake_finish(stream *of, size_t until);
/* Queues again what was captured. */
void fake_launch(stream *of);

#endif
