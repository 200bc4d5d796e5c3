#include "net/shm/shm_view.h"

#include "base/error.h"
#include "net/link/link.h"
#include "net/shm/sealed.h"
#include "net/shm/wire.h"

#include <stdlib.h>
#include <sys/mman.h>

static void view_end(ligi_mapping *mapping)
{
    ligi_shm_view *view = (ligi_shm_view *)mapping;
    munmap(view->memory, view->bytes);
    free(view);
}

ligi_shm_view *ligi_views_find(const ligi_wire *wire, uint32_t segment)
{
    for (size_t i = 0; i < wire->view_count; i++)
        if (wire->views[i]->segment == segment)
            return wire->views[i];
    return NULL;
}

static lig_status check_new(const ligi_wire *wire, int fd, uint32_t segment, uint64_t bytes)
{
    if (segment == 0 || ligi_views_find(wire, segment) != NULL)
        return lig_fail(LIG_E_CORRUPT, "protocol error: the peer shares memory number %u twice",
                        segment);
    if (wire->view_count >= LIGI_SHM_SEGMENTS_MAX || bytes == 0 || bytes > LIGI_SHM_MAPPED_MAX ||
        wire->view_bytes > LIGI_SHM_MAPPED_MAX - bytes)
        return lig_fail(LIG_E_LIMIT,
                        "the peer shares %llu more bytes, with %llu in %zu segments already "
                        "mapped: above the limit",
                        (unsigned long long)bytes, (unsigned long long)wire->view_bytes,
                        wire->view_count);
    return ligi_sealed_check(fd, bytes);
}

lig_status ligi_views_add(ligi_wire *wire, int fd, uint32_t segment, uint64_t bytes)
{
    ligi_shm_view *view;
    void *memory;
    int read_only;

    LIG_TRY(check_new(wire, fd, segment, bytes));
    LIG_TRY(ligi_grow(&wire->views, &wire->view_capacity, wire->view_count + 1, sizeof *wire->views,
                      "the table of a peer's shared memory"));
    LIG_TRY(ligi_calloc(&view, 1, sizeof *view, "a view of shared memory"));
    lig_status status = ligi_sealed_view(fd, bytes, &memory, &read_only);
    if (status != LIG_OK) {
        free(view);
        return status;
    }
    *view = (ligi_shm_view){{view_end, 1}, memory, bytes, segment, read_only};
    wire->views[wire->view_count++] = view;
    wire->view_bytes += bytes;
    return LIG_OK;
}

void ligi_views_forget(ligi_wire *wire, uint32_t segment)
{
    for (size_t i = 0; i < wire->view_count; i++) {
        ligi_shm_view *view = wire->views[i];
        if (view->segment != segment)
            continue;
        wire->view_bytes -= view->bytes;
        wire->views[i] = wire->views[--wire->view_count];
        ligi_mapping_drop(&view->mapping);
        return;
    }
}

void ligi_views_fini(ligi_wire *wire)
{
    for (size_t i = 0; i < wire->view_count; i++)
        ligi_mapping_drop(&wire->views[i]->mapping);
    free(wire->views);
}
