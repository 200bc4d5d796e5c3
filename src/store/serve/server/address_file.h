/* The file in which a server publishes its address. */
#ifndef LIGI_ADDRESS_FILE_H
#define LIGI_ADDRESS_FILE_H

#include <ligament/base.h>

/* Replaces the file atomically: a reader sees the old address or the new one. */
lig_status ligi_address_file_write(const char *path, const char *address);
/* Removes it, unless another server has written its address there since. */
void ligi_address_file_remove(const char *path, const char *address);

#endif
