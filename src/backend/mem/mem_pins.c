#include "backend/mem/mem_pins.h"

#include "base/clock.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* One pin: a member of the volume's list. */
struct ligi_mem_pin {
    ligi_mem *mem;
    ligi_mem_pin *next, **link;
    int64_t expires_ns;
    size_t count;
    uint64_t packs[];
};

lig_status ligi_mem_pin_packs(void *opaque, const uint64_t *packs, size_t count, int64_t expires_ns,
                              void **out)
{
    ligi_mem *self = opaque;
    ligi_mem_pin *pin = NULL;

    LIG_TRY(ligi_mem_writable(self));
    LIG_TRY(ligi_calloc(&pin, 1, sizeof *pin + count * sizeof pin->packs[0], "a pin"));
    pin->mem = self;
    pin->expires_ns = expires_ns;
    pin->count = count;
    for (size_t i = 0; i < count; i++)
        pin->packs[i] = packs[i];
    pthread_mutex_lock(&self->volume->lock);
    pin->next = self->volume->pins;
    pin->link = &self->volume->pins;
    if (pin->next)
        pin->next->link = &pin->next;
    self->volume->pins = pin;
    pthread_mutex_unlock(&self->volume->lock);
    *out = pin;
    return LIG_OK;
}

void ligi_mem_unpin(void *opaque)
{
    ligi_mem_pin *pin = opaque;

    if (pin == NULL)
        return;
    if (pin->mem->pid == getpid()) {
        pthread_mutex_lock(&pin->mem->volume->lock);
        *pin->link = pin->next;
        if (pin->next)
            pin->next->link = pin->link;
        pthread_mutex_unlock(&pin->mem->volume->lock);
    }
    free(pin);
}

int ligi_mem_pinned(const ligi_mem_volume *volume, uint64_t id)
{
    int64_t now = ligi_date_ns();

    for (const ligi_mem_pin *pin = volume->pins; pin; pin = pin->next)
        for (size_t i = 0; i < pin->count && pin->expires_ns > now; i++)
            if (pin->packs[i] == id)
                return 1;
    return 0;
}
