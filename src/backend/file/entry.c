#include "backend/file/entry.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static int expected_owner(int store_fd, const struct stat *file)
{
    struct stat store;

    if (file->st_uid == geteuid() || file->st_uid == 0)
        return 1;
    if (fstat(store_fd, &store) != 0)
        return 0;
    /* If group or others may write to the folder, its permissions (and ACL, whose mask the group
     * bits are) already determine who can create files there. */
    return file->st_uid == store.st_uid || (store.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

static lig_status check_owner(int store_fd, const char *place, const char *name,
                              const struct stat *info)
{
    if (expected_owner(store_fd, info))
        return LIG_OK;
    return lig_fail(LIG_E_DENIED,
                    "%s/%s belongs to user %lu, expected this user, root or the owner of the "
                    "store (chown it, or make the store's folder writable for its group)",
                    place, name, (unsigned long)info->st_uid);
}

/* Passes `opened` on, or closes it if its owner is not an expected one. */
static lig_status check_opened(int store_fd, const char *place, const char *name, int opened,
                               int *fd)
{
    struct stat info;
    lig_status status;

    if (fstat(opened, &info) != 0)
        status = ligi_fail_errno(errno, "stat of %s/%s failed", place, name);
    else
        status = check_owner(store_fd, place, name, &info);
    if (status == LIG_OK)
        *fd = opened;
    else
        close(opened);
    return status;
}

void ligi_entry_own(int store_fd, int fd)
{
    struct stat store, made;

    if (geteuid() != 0 || fstat(store_fd, &store) != 0 || fstat(fd, &made) != 0)
        return;
    int empty = S_ISDIR(made.st_mode)
                    ? made.st_nlink <= 2
                    : S_ISREG(made.st_mode) && made.st_nlink == 1 && made.st_size == 0;
    if (empty && made.st_uid == 0 && store.st_uid != 0)
        (void)!fchown(fd, store.st_uid, store.st_gid); /* refused: it stays root's, as before */
}

int ligi_entry_mkdir(int store_fd, const char *name)
{
    if (mkdirat(store_fd, name, 0777) != 0)
        return 0;
    int fd = openat(store_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        ligi_entry_own(store_fd, fd);
        close(fd);
    }
    return 1;
}

lig_status ligi_entry_open(int store_fd, int folder_fd, const char *place, const char *name,
                           int flags, int *fd)
{
    int opened;

    LIG_TRY(ligi_plain_open(folder_fd, place, name, flags, &opened));
    if (flags & O_CREAT)
        ligi_entry_own(store_fd, opened);
    return check_opened(store_fd, place, name, opened, fd);
}

lig_status ligi_entry_folder(int store_fd, const char *place, const char *name, int *fd)
{
    int opened;

    LIG_TRY(ligi_plain_folder(store_fd, place, name, &opened));
    return check_opened(store_fd, place, name, opened, fd);
}

lig_status ligi_entry_look(int store_fd, int folder_fd, const char *place, const char *name,
                           struct stat *info)
{
    if (fstatat(folder_fd, name, info, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? LIG_E_NOTFOUND
                               : ligi_fail_errno(errno, "stat of %s/%s failed", place, name);
    LIG_TRY(ligi_plain_check(info->st_mode, place, name));
    return check_owner(store_fd, place, name, info);
}

lig_status ligi_entry_identify(int fd, const char *place, const char *name, ligi_entry_id *id)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        return ligi_fail_errno(errno, "stat of %s/%s failed", place, name);
    *id = (ligi_entry_id){info.st_dev, info.st_ino};
    return LIG_OK;
}

/* Asks for the number only: on file systems with fine-grained times a stat that asks for the time
 * makes the next write note a new one, which slows the commit that follows. */
static int identify_name(int folder_fd, const char *name, ligi_entry_id *id)
{
    struct statx info;

    if (statx(folder_fd, name, AT_SYMLINK_NOFOLLOW, STATX_INO, &info) != 0)
        return -1;
    *id = (ligi_entry_id){makedev(info.stx_dev_major, info.stx_dev_minor), info.stx_ino};
    return 0;
}

static int is_same(const ligi_entry_id *one, const ligi_entry_id *other)
{
    return one->device == other->device && one->inode == other->inode;
}

lig_status ligi_entry_still(int folder_fd, const char *place, const char *name,
                            const ligi_entry_id *id, int held_fd)
{
    ligi_entry_id named;
    struct stat held;

    if (identify_name(folder_fd, name, &named) == 0) {
        if (is_same(&named, id))
            return LIG_OK;
        if (held_fd >= 0 && fstat(held_fd, &held) == 0 &&
            is_same(&named, &(ligi_entry_id){held.st_dev, held.st_ino}))
            return LIG_OK;
        return ligi_fail_errno(
            ENOENT, "%s/%s was replaced while the store was open (open it again)", place, name);
    }
    if (errno != ENOENT)
        return ligi_fail_errno(errno, "stat of %s/%s failed", place, name);
    if (fstat(folder_fd, &held) == 0 && held.st_nlink == 0)
        return ligi_fail_errno(ENOENT, "%s was removed while the store was open", place);
    return ligi_fail_errno(ENOENT, "%s/%s was removed while the store was open", place, name);
}
