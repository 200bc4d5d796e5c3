#include "fake_streams.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
stream fake_legacy = {.is_default = 1};
static stream per_thread = {.is_default = 1, .next = &fake_legacy};
static stream *all = &per_thread;
static pthread_t engine;
static int engine_runs;

stream *fake_stream_create(void)
{
    stream *made = calloc(1, sizeof *made);
    made->next = all;
    all = made;
    return made;
}

void fake_stream_destroy(stream *of)
{
    stream **at = &all;
    while (*at != of)
        at = &(*at)->next;
    *at = of->next;
    free(of->ops);
    free(of->captured);
    free(of);
}

stream *fake_stream_of(void *handle)
{
    if ((uintptr_t)handle <= 1)
        return &fake_legacy;
    return (uintptr_t)handle == 2 ? &per_thread : handle;
}

/* 0: it stands at a word that is not there yet, or at a kernel that waits. */
static int run(stream *of, size_t until)
{
    while (of->done < until) {
        const op *next = &of->ops[of->done];
        if (next->least && __atomic_load_n(next->least, __ATOMIC_ACQUIRE) < next->number)
            return 0;
        if (next->awaited && !run(next->awaited, next->until))
            return 0;
        if (next->kernel && !next->kernel(next->parameter, next->threads))
            return 0;
        if (next->written)
            __atomic_store_n(next->written, next->number, __ATOMIC_RELEASE);
        else if (next->half)
            __atomic_store_n(next->half, (uint32_t)next->number, __ATOMIC_RELEASE);
        else if (next->from)
            memcpy(next->to, next->from, next->bytes);
        else if (next->to)
            memset(next->to, next->value, next->bytes);
        of->done++;
    }
    return 1;
}

/* Somebody looks at the words that streams write without asking the driver: what they wait for runs
 * here, and nothing else. */
static void *run_engine(void *unused)
{
    const struct timespec pause = {0, 20000};
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&fake_lock);
        for (stream *of = all; of; of = of->next)
            run(of, of->promised);
        pthread_mutex_unlock(&fake_lock);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void put(op **ops, size_t *count, size_t *capacity, const op *what)
{
    if (*count == *capacity) {
        *capacity = 2 * *capacity + 16;
        *ops = realloc(*ops, *capacity * sizeof **ops);
    }
    (*ops)[(*count)++] = *what;
}

void fake_add(stream *to, op what)
{
    if (to->capturing) {
        put(&to->captured, &to->captured_count, &to->captured_capacity, &what);
        return;
    }
    put(&to->ops, &to->count, &to->capacity, &what);
    if (!what.written && !what.half && !what.signals)
        return;
    to->promised = to->count;
    if (!engine_runs) {
        engine_runs = 1;
        pthread_create(&engine, NULL, run_engine, NULL);
        pthread_detach(engine);
    }
}

void fake_finish(stream *of, size_t until)
{
    const struct timespec pause = {0, 20000};
    while (!run(of, until)) {
        pthread_mutex_unlock(&fake_lock);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&fake_lock);
    }
}

void fake_launch(stream *of)
{
    for (size_t i = 0; i < of->captured_count; i++)
        fake_add(of, of->captured[i]);
}
