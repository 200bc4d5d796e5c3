/* Regular files, also in folders that other users may have created. */
#ifndef LIGI_PLAIN_H
#define LIGI_PLAIN_H

#include <ligament/base.h>

#include <sys/types.h>

/* Opens `name` in the folder and fills *fd. Never follows a symbolic link, never waits for the
 * other end of a FIFO, and never truncates (`flags` is without O_TRUNC). LIG_E_NOTFOUND without a
 * text if there is no such file and `flags` is without O_CREAT; LIG_E_CORRUPT if it is not a
 * regular file. Error texts call the file "<place>/<name>". */
lig_status ligi_plain_open(int folder_fd, const char *place, const char *name, int flags, int *fd);

/* LIG_E_DENIED if the file has other hard links, which may belong to another user: checked before
 * it is written. */
lig_status ligi_plain_sole(int fd, const char *place, const char *name);

/* The same for a folder in the folder. */
lig_status ligi_plain_folder(int folder_fd, const char *place, const char *name, int *fd);

/* Writes all bytes where the descriptor is: 0, or -1 with errno. */
int ligi_plain_write(int fd, const void *data, size_t bytes);

/* LIG_E_CORRUPT unless the mode is that of a regular file. */
lig_status ligi_plain_check(mode_t mode, const char *place, const char *name);

#endif
