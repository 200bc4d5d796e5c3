/* Identity of the machine's current boot. */
#ifndef LIGI_BOOT_H
#define LIGI_BOOT_H

#include <stdint.h>

/* Fills `id` with the kernel's random boot id, the same for every process of the machine. 0, and
 * zeros, if it is not available. */
int ligi_boot_id(uint8_t id[16]);

#endif
