/* The folder of a file volume: its marker, its file system, its owner. */
#ifndef LIGI_FILE_FOLDER_H
#define LIGI_FILE_FOLDER_H

#include "backend/file/file.h"

lig_status ligi_folder_open(ligi_file *self);
/* LIG_E_IO when the folder of packs was removed or replaced since. */
lig_status ligi_folder_check(const ligi_file *self);
lig_status ligi_folder_sync(int folder_fd, const char *what);
/* 1 when the file system is shared by machines. `kind` (may be NULL) receives its name. */
int ligi_folder_network(int folder_fd, const char **kind);
uint64_t ligi_folder_random_id(void);

#endif
