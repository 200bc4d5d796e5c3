/* Which start of which machine this is. */
#ifndef LIGI_BOOT_H
#define LIGI_BOOT_H

#include <stdint.h>

/* Fills `id` with what the kernel drew at its start, the same for every process of the machine. 0,
 * and zeros, where it does not say. */
int ligi_boot_id(uint8_t id[16]);

#endif
