/* Identity of the machine's current boot and of this process after a fork; random bytes for other
 * identities. */
#ifndef LIGI_BOOT_H
#define LIGI_BOOT_H

#include <ligament/base.h>

/* Fills `id` with the kernel's random boot id, the same for every process of the machine. 0, and
 * zeros, if it is not available. */
int ligi_boot_id(uint8_t id[16]);

/* From the system's random source. */
lig_status ligi_random(void *out, size_t bytes);

/* A page whose first byte is 1 here and, by the kernel, 0 in forked children: a handle that a child
 * inherits is recognized without a system call. Destroy accepts NULL. */
lig_status ligi_fork_mark_create(uint8_t **mark);
void ligi_fork_mark_destroy(uint8_t *mark);

static inline int ligi_fork_mark_here(const uint8_t *mark)
{
    return __atomic_load_n(mark, __ATOMIC_RELAXED);
}

#endif
