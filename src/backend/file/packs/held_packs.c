#include "backend/file/packs/held_packs.h"

#include "backend/file/catalog/catalog_gate.h"
#include "base/error.h"

#include <inttypes.h>

lig_status ligi_file_pack_hold(ligi_file_catalog *self, uint64_t id, int on)
{
    lig_status status = LIG_OK;
    size_t at = 0;

    if (id == 0 || self == NULL)
        return LIG_OK;
    pthread_mutex_lock(&self->lock);
    while (at < self->held_count && self->held[at] != id)
        at++;
    if (on && at < self->held_count)
        status =
            lig_fail(LIG_E_BUSY, "%s: pack %016" PRIx64 " is held by its writer", self->place, id);
    else if (on)
        status = ligi_grow(&self->held, &self->held_capacity, at + 1, sizeof *self->held,
                           "the list of held packs");
    if (on && status == LIG_OK)
        self->held[self->held_count++] = id;
    if (!on && at < self->held_count)
        self->held[at] = self->held[--self->held_count];
    pthread_mutex_unlock(&self->lock);
    return status;
}
