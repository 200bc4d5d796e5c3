/* Entries of a store's folder, which another user may have created: opened by descriptor, never
 * through a link (base/files/plain.h), and only with an expected owner: the effective user,
 * root, the owner of the store's folder, and any user if group or others may write to that
 * folder. */
#ifndef LIGI_FILE_ENTRY_H
#define LIGI_FILE_ENTRY_H

#include "base/files/plain.h"

#include <sys/stat.h>

/* Like ligi_plain_open and ligi_plain_folder; LIG_E_DENIED for another owner. `place` is the
 * path of folder_fd, for error messages; folder_fd is store_fd or a folder that
 * ligi_entry_folder opened. */
lig_status ligi_entry_open(int store_fd, int folder_fd, const char *place, const char *name,
                           int flags, int *fd);
lig_status ligi_entry_folder(int store_fd, const char *place, const char *name, int *fd);

/* Gives an empty file or folder that root has just created to the owner of the store, who could
 * not write to it otherwise. Does nothing for other users, and for a file that another user may
 * have created. */
void ligi_entry_own(int store_fd, int fd);
/* mkdirat in the store's folder, for its owner: 1 when the folder was made. errno stays. */
int ligi_entry_mkdir(int store_fd, const char *name);

/* Fills *info without opening the file; fails as ligi_entry_open does. */
lig_status ligi_entry_look(int store_fd, int folder_fd, const char *place, const char *name,
                           struct stat *info);

/* Which file or folder a name stood for. */
typedef struct ligi_entry_id {
    dev_t device;
    ino_t inode;
} ligi_entry_id;

lig_status ligi_entry_identify(int fd, const char *place, const char *name, ligi_entry_id *id);

/* LIG_E_IO with ENOENT if the name no longer refers to the same file: the folder, or this part
 * of it, was removed or replaced. `held_fd` is that file or folder if the caller has it open, or
 * -1: some file systems renumber a file when it is first written. */
lig_status ligi_entry_still(int folder_fd, const char *place, const char *name,
                            const ligi_entry_id *id, int held_fd);

#endif
