/* Removes from a log what checkpoints made superfluous: the volume does so some time later. */
#ifndef SUPERFLUOUS_H
#define SUPERFLUOUS_H

#include "backend/file/names.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

/* The number in the name of a file of this kind; 0: it is another. */
static inline uint64_t superfluous_number(const char *name, ligi_name_kind kind)
{
    uint64_t number = 0;
    return ligi_name_read(LIGI_FOLDER_LOG, name, &number) == kind ? number : 0;
}

/* The greatest number below `limit` of a file of the kind; 0: none. */
static inline uint64_t superfluous_last(const char *log, ligi_name_kind kind, uint64_t limit)
{
    uint64_t last = 0;
    DIR *folder = opendir(log);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        uint64_t number = superfluous_number(entry->d_name, kind);
        last = number < limit && number > last ? number : last;
    }
    if (folder != NULL)
        closedir(folder);
    return last;
}

/* `log` is the folder of that name in the store's. */
static inline void superfluous_remove(const char *log)
{
    uint64_t last = superfluous_last(log, LIGI_NAME_CHECKPOINT, UINT64_MAX);
    uint64_t kept = superfluous_last(log, LIGI_NAME_CHECKPOINT, last);
    uint64_t first = superfluous_last(log, LIGI_NAME_SEGMENT, kept + 2);
    DIR *folder = kept != 0 ? opendir(log) : NULL;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        uint64_t checkpoint = superfluous_number(entry->d_name, LIGI_NAME_CHECKPOINT);
        uint64_t segment = superfluous_number(entry->d_name, LIGI_NAME_SEGMENT);
        if ((checkpoint != 0 && checkpoint < kept) || (segment != 0 && segment < first))
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder != NULL)
        closedir(folder);
}

#endif
