#include "backend/file/packs/pack_folder.h"

#include "backend/file/leases/file_pins.h"
#include "backend/file/names.h"
#include "backend/file/packs/held_packs.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/map.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Change times are taken from a clock that ticks every few milliseconds. */
#define CLOCK_TICK_NS INT64_C(50000000)

void ligi_file_pack_name(char name[LIGI_PACK_NAME_BYTES], uint64_t id)
{
    snprintf(name, LIGI_PACK_NAME_BYTES, "%016" PRIx64 ".pack", id);
}

lig_status ligi_file_pack_open(const ligi_file *self, uint64_t id, int flags, int *fd)
{
    char name[LIGI_PACK_NAME_BYTES];

    LIG_TRY(ligi_file_usable(self));
    ligi_file_pack_name(name, id);
    lig_status status =
        ligi_entry_open(self->folder_fd, self->packs_fd, self->packs_place, name, flags, fd);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(status, "%s has no pack %s", self->place, name);
    return status;
}

static lig_status look_at(const ligi_file *self, const char *name, struct stat *info)
{
    lig_status status =
        ligi_entry_look(self->folder_fd, self->packs_fd, self->packs_place, name, info);

    if (status == LIG_E_NOTFOUND)
        return lig_fail(status, "%s has no pack %s", self->place, name);
    return status;
}

lig_status ligi_file_pack_size(void *opaque, uint64_t id, uint64_t *bytes)
{
    const ligi_file *self = opaque;
    char name[LIGI_PACK_NAME_BYTES];
    struct stat info;

    LIG_TRY(ligi_file_usable(self));
    ligi_file_pack_name(name, id);
    LIG_TRY(look_at(self, name, &info));
    *bytes = (uint64_t)info.st_size;
    return LIG_OK;
}

lig_status ligi_file_pack_descriptor(void *opaque, uint64_t id, int *descriptor)
{
    return ligi_file_pack_open(opaque, id, O_RDONLY, descriptor);
}

lig_status ligi_file_pack_map(void *opaque, uint64_t id, uint32_t flags, lig_mapping *mapping)
{
    const ligi_file *self = opaque;
    int private = (flags & LIG_MAP_PRIVATE) != 0;
    struct stat info;
    int fd;

    LIG_TRY(ligi_file_pack_open(self, id, O_RDONLY, &fd));
    lig_status status = LIG_OK;
    void *base = MAP_FAILED;
    if (fstat(fd, &info) != 0)
        status = ligi_fail_errno(errno, "%s: fstat of pack %016" PRIx64 " failed", self->place, id);
    else if (info.st_size == 0)
        status = lig_fail(LIG_E_CORRUPT, "%s: pack %016" PRIx64 " is empty", self->place, id);
    else
        base = mmap(NULL, (size_t)info.st_size, private ? PROT_READ | PROT_WRITE : PROT_READ,
                    private ? MAP_PRIVATE : MAP_SHARED, fd, 0);
    if (status == LIG_OK && base == MAP_FAILED)
        status = ligi_fail_errno(errno, "%s: mmap of pack %016" PRIx64 " failed", self->place, id);
    close(fd);
    LIG_TRY(status);
    mapping->base = base;
    mapping->bytes = (uint64_t)info.st_size;
    mapping->handle = NULL;
    return LIG_OK;
}

void ligi_file_pack_unmap(void *self, lig_mapping *mapping)
{
    (void)self;
    if (mapping->base != NULL)
        munmap(mapping->base, mapping->bytes);
    memset(mapping, 0, sizeof *mapping);
}

lig_status ligi_file_pack_remove(void *opaque, uint64_t id)
{
    ligi_file *self = opaque;
    char name[LIGI_PACK_NAME_BYTES];
    struct stat info;

    LIG_TRY(ligi_file_writable(self));
    LIG_TRY(ligi_file_pinned(self, id));
    ligi_file_pack_name(name, id);
    LIG_TRY(look_at(self, name, &info)); /* files that are not packs are left alone */
    if (unlinkat(self->packs_fd, name, 0) != 0) {
        if (errno == ENOENT)
            return lig_fail(LIG_E_NOTFOUND, "%s has no pack %s", self->place, name);
        return ligi_fail_errno(errno, "cannot remove %s/packs/%s", self->place, name);
    }
    ligi_file_pack_forget_list(self);
    return LIG_OK;
}

void ligi_file_pack_forget_list(ligi_file *self)
{
    pthread_mutex_lock(&self->lock);
    self->listed_ns = 0;
    pthread_mutex_unlock(&self->lock);
}

static lig_status open_listing(const ligi_file *self, DIR **folder)
{
    int fd = openat(self->packs_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *opened = fd < 0 ? NULL : fdopendir(fd);

    if (opened == NULL) {
        lig_status status = ligi_fail_errno(errno, "cannot list %s/packs", self->place);
        if (fd >= 0)
            close(fd);
        return status;
    }
    *folder = opened;
    return LIG_OK;
}

static int64_t change_ns(const ligi_file *self)
{
    struct stat info;

    if (fstat(self->packs_fd, &info) != 0)
        return -1;
    return (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
}

/* The lock is held. */
static lig_status list_packs(ligi_file *self)
{
    int64_t now_ns = ligi_date_ns(), changed_ns = change_ns(self);
    DIR *folder;

    LIG_TRY(open_listing(self, &folder));
    lig_status status = LIG_OK;
    self->pack_count = 0;
    self->listed_ns = 0;
    for (struct dirent *entry; status == LIG_OK && (entry = readdir(folder)) != NULL;) {
        uint64_t id;
        if (ligi_name_read(LIGI_FOLDER_PACKS, entry->d_name, &id) != LIGI_NAME_PACK)
            continue;
        status = ligi_grow(&self->pack_ids, &self->pack_capacity, self->pack_count + 1,
                           sizeof *self->pack_ids, "the list of packs");
        if (status == LIG_OK)
            self->pack_ids[self->pack_count++] = id;
    }
    closedir(folder);
    LIG_TRY(status);
    if (self->pack_count > 0)
        qsort(self->pack_ids, self->pack_count, sizeof *self->pack_ids, ligi_order_u64);
    self->listed_ns = now_ns;
    self->listed_change_ns = changed_ns;
    return LIG_OK;
}

/* A listing holds until the folder changes. A change within the clock tick of the listing leaves no
 * trace, so a listing made that soon after a change is not believed. The lock is held. */
static int list_holds(const ligi_file *self)
{
    return self->listed_ns != 0 && change_ns(self) == self->listed_change_ns &&
           self->listed_ns - self->listed_change_ns > CLOCK_TICK_NS;
}

lig_status ligi_file_pack_next(void *opaque, uint64_t after, uint64_t *id)
{
    ligi_file *self = opaque;

    LIG_TRY(ligi_file_usable(self));
    pthread_mutex_lock(&self->lock);
    lig_status status = list_holds(self) ? LIG_OK : list_packs(self);
    if (status == LIG_OK) {
        size_t at;
        LIGI_LOWER_BOUND(at, self->pack_count, self->pack_ids[at] <= after);
        if (at < self->pack_count)
            *id = self->pack_ids[at];
        else
            status = LIG_E_NOTFOUND;
    }
    pthread_mutex_unlock(&self->lock);
    return status;
}

/* No one in this process uses it, and the lock shows whether other processes do. */
static void clean_one(const ligi_file *self, const char *name, uint64_t id)
{
    if (ligi_file_pack_hold(self->catalog, id, 1) != LIG_OK)
        return;
    int fd = -1;
    (void)ligi_entry_open(self->folder_fd, self->packs_fd, self->packs_place, name, O_RDWR, &fd);
    /* The name is unlinked under the lock: a writer that was about to lock it checks the link
     * count and starts again. */
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(self->packs_fd, name, 0);
    if (fd >= 0)
        close(fd);
    ligi_file_pack_hold(self->catalog, id, 0);
}

/* A file that cannot be removed now is removed later: no caller waits for it. */
void ligi_file_packs_clean(const ligi_file *self)
{
    DIR *folder;

    if (open_listing(self, &folder) != LIG_OK)
        return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        uint64_t id;
        if (ligi_name_read(LIGI_FOLDER_PACKS, entry->d_name, &id) == LIGI_NAME_PACK_TEMPORARY)
            clean_one(self, entry->d_name, id);
    }
    closedir(folder);
}
