#include "store/serve/server/server_buffers.h"

#include "base/error.h"
#include "store/serve/server/server_state.h"

#include <stdlib.h>
#include <sys/mman.h>

#define LARGE_BYTES (UINT64_C(256) << 10) /* from here on all buffers have one size */
#define HUGE_BYTES (UINT64_C(2) << 20)

/* A transfer to or from a disk then has a few long segments instead of hundreds of pages. */
static lig_status make(void **out)
{
    *out = aligned_alloc(HUGE_BYTES, LIGI_SERVED_READ_BYTES_MAX);
    if (*out == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for a reply");
    madvise(*out, LIGI_SERVED_READ_BYTES_MAX, MADV_HUGEPAGE);
    return LIG_OK;
}

lig_status ligi_served_buffer_take(ligi_served_buffers *buffers, uint64_t bytes, uint8_t **out)
{
    void *found = NULL;
    if (bytes < LARGE_BYTES)
        return ligi_alloc(out, bytes, "a reply");
    pthread_mutex_lock(&buffers->lock);
    if (buffers->count)
        found = buffers->kept[--buffers->count];
    pthread_mutex_unlock(&buffers->lock);
    if (found == NULL)
        LIG_TRY(make(&found));
    *out = found;
    return LIG_OK;
}

void ligi_served_buffer_give(ligi_served_buffers *buffers, uint8_t *buffer, uint64_t bytes)
{
    if (buffer && bytes >= LARGE_BYTES) {
        pthread_mutex_lock(&buffers->lock);
        if (buffers->count < LIGI_SERVED_BUFFERS_KEPT) {
            buffers->kept[buffers->count++] = buffer;
            buffer = NULL;
        }
        pthread_mutex_unlock(&buffers->lock);
    }
    free(buffer);
}

void ligi_served_buffers_fini(ligi_served_buffers *buffers)
{
    while (buffers->count)
        free(buffers->kept[--buffers->count]);
    pthread_mutex_destroy(&buffers->lock);
}
