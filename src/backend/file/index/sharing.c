#include "backend/file/index/sharing.h"

#include "backend/file/catalog/catalog_gate.h"
#include "backend/file/catalog/catalog_snapshot.h"
#include "backend/file/folder.h"
#include "backend/file/index/index_env.h"
#include "backend/file/index/index_items.h"
#include "base/codec.h"
#include "base/error.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <paths.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static lig_status find_numbering(int folder_fd, const char *place, ligi_numbering *numbering)
{
    ligi_clog_folder folder;

    lig_status status = ligi_clog_folder_open(&folder, folder_fd, place, 0, 1);
    if (status == LIG_OK)
        status = ligi_numbering_read(&folder, numbering);
    ligi_clog_folder_close(&folder);
    return status;
}

lig_status ligi_sharing_find(int folder_fd, const char *place, int *shared)
{
    ligi_numbering numbering;

    lig_status status = find_numbering(folder_fd, place, &numbering);
    *shared = status == LIG_OK;
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

/* --- the folder of this host --- */

/* Makes the folder in `above` and opens it, never through a link. */
static lig_status own_folder(int above, const char *name, int *fd)
{
    struct stat info;

    if (mkdirat(above, name, 0700) != 0 && errno != EEXIST)
        return ligi_fail_errno(errno, "cannot create folder %s for the index", name);
    *fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0)
        return ligi_fail_errno(errno, "cannot open folder %s for the index", name);
    if (fstat(*fd, &info) == 0 && info.st_uid == geteuid() &&
        (info.st_mode & (S_IWGRP | S_IWOTH)) == 0)
        return LIG_OK;
    close(*fd);
    return lig_fail(LIG_E_DENIED,
                    "folder %s for the index must belong to user %lu and be writable by nobody "
                    "else (use index=FOLDER for another)",
                    name, (unsigned long)geteuid());
}

static lig_status open_parent(const char *parent, int *above)
{
    char path[PATH_MAX];
    const char *kind;

    if (parent[0] == '\0')
        snprintf(path, sizeof path, _PATH_VARTMP "ligament-%lu", (unsigned long)geteuid());
    else
        snprintf(path, sizeof path, "%s", parent);
    LIG_TRY(own_folder(AT_FDCWD, path, above));
    if (!ligi_folder_network(*above, &kind))
        return LIG_OK;
    close(*above);
    return lig_fail(LIG_E_INVALID,
                    "the folder %s for the index is on %s, expected a local file system (use "
                    "index=FOLDER for another)",
                    path, kind);
}

/* 1 if the folder is `store`, or below it. */
static int lies_below(int folder, const struct stat *store)
{
    struct stat info, above;

    int fd = openat(folder, ".", O_PATH | O_DIRECTORY | O_CLOEXEC), found = 0, top = 0;
    while (fd >= 0 && !found && !top && fstat(fd, &info) == 0) {
        int next = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        found = info.st_dev == store->st_dev && info.st_ino == store->st_ino;
        top = next < 0 || fstat(next, &above) != 0 ||
              (above.st_dev == info.st_dev && above.st_ino == info.st_ino);
        close(fd);
        fd = next;
    }
    if (fd >= 0)
        close(fd);
    return found;
}

/* The same for a store that does not exist yet, by its path. */
static int is_below(const char *parent, const char *place)
{
    size_t bytes = strlen(place);

    while (bytes > 1 && place[bytes - 1] == '/')
        bytes--;
    return strncmp(parent, place, bytes) == 0 && (parent[bytes] == '\0' || parent[bytes] == '/');
}

/* The folder, or the one in which it would be made. */
static int open_or_above(const char *parent)
{
    char path[PATH_MAX];

    int fd = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    snprintf(path, sizeof path, "%s", parent);
    return open(dirname(path), O_PATH | O_DIRECTORY | O_CLOEXEC);
}

lig_status ligi_sharing_check(const char *place, const char *parent)
{
    struct stat store;

    int fd = open_or_above(parent), below = is_below(parent, place);
    if (fd >= 0) {
        below |= stat(place, &store) == 0 && lies_below(fd, &store);
        close(fd);
    }
    if (below)
        return lig_fail(LIG_E_INVALID,
                        "index=%s is inside the store %s, expected a folder outside it", parent,
                        place);
    LIG_TRY(open_parent(parent, &fd));
    close(fd);
    return LIG_OK;
}

/* Copies of a store have the same log, but separate folders. */
static lig_status folder_name(int folder_fd, const char *place, char name[20])
{
    ligi_numbering numbering = {0};
    uint8_t bytes[24];
    struct stat info;

    lig_status status = find_numbering(folder_fd, place, &numbering);
    if (status != LIG_E_NOTFOUND)
        LIG_TRY(status);
    if (fstat(folder_fd, &info) != 0)
        return ligi_fail_errno(errno, "stat of %s failed", place);
    memcpy(bytes, numbering.id, 16);
    ligi_put_be64(bytes + 16, (uint64_t)info.st_ino);
    snprintf(name, 20, "%016" PRIx64, ligi_hash64_plain(bytes, sizeof bytes));
    return LIG_OK;
}

lig_status ligi_sharing_folder(int folder_fd, const char *place, const char *parent, int *index_fd)
{
    char name[20];
    int above;

    LIG_TRY(folder_name(folder_fd, place, name));
    LIG_TRY(open_parent(parent, &above));
    lig_status status = own_folder(above, name, index_fd);
    close(above);
    return status;
}

/* --- becoming one --- */

static lig_status index_end(const ligi_file_catalog *self, ligi_clog_position *at)
{
    MDB_txn *txn;

    LIG_TRY(ligi_mdb_fail(mdb_txn_begin(self->env, NULL, MDB_RDONLY, &txn), self->place,
                          "cannot be read"));
    lig_status status = ligi_mdb_position(txn, self->dbi, at);
    mdb_txn_abort(txn);
    return status;
}

/* Nobody else has the store open. A process that is killed in here leaves an ordinary log, which
 * needs neither the index nor an empty last segment. */
static lig_status number_log(ligi_file_catalog *self)
{
    ligi_clog_position at;
    ligi_numbering numbering;

    if (ligi_head_damaged(&self->log.head))
        return lig_fail(LIG_E_CORRUPT, "%s: the log is damaged (run ligament check --repair)",
                        self->place);
    LIG_TRY(index_end(self, &at));
    LIG_TRY(ligi_mdb_env_remove(self));
    if (at.segment == at.version + 1) /* its number is the next commit's */
        LIG_TRY(ligi_clog_folder_remove(&self->log.folder, LIGI_NAME_SEGMENT, at.segment));
    memcpy(numbering.id, self->log.id, sizeof numbering.id);
    numbering.from = at.version + 1;
    return ligi_numbering_make(&self->log.folder, &numbering);
}

static lig_status number_store(const ligi_file_catalog_place *place)
{
    ligi_file_catalog *catalog;

    LIG_TRY(ligi_file_catalog_open(&catalog, place));
    lig_status status = ligi_head_attach(&catalog->log.head, 1, 0);
    if (status == LIG_OK)
        status = number_log(catalog);
    else
        status = lig_fail(
            LIG_E_BUSY,
            "%s: share=network, but another process has it open without it (close it there first)",
            place->place);
    ligi_file_catalog_close(catalog);
    return status;
}

/* The index is also on this host, in a dedicated folder. */
lig_status ligi_sharing_begin(const ligi_file_catalog_place *place, const char *parent)
{
    ligi_file_catalog_place own = *place;
    char name[20 + 24];
    int above;

    own.apart = own.sync = 1;
    LIG_TRY(folder_name(place->folder_fd, place->place, name));
    snprintf(name + strlen(name), 24, "-%ld", (long)getpid());
    LIG_TRY(open_parent(parent, &above));
    lig_status status = own_folder(above, name, &own.index_fd);
    if (status == LIG_OK) {
        status = number_store(&own);
        (void)unlinkat(own.index_fd, LIGI_NAME_INDEX, 0);
        (void)unlinkat(own.index_fd, LIGI_NAME_INDEX_LOCK, 0);
        close(own.index_fd);
        (void)unlinkat(above, name, AT_REMOVEDIR);
    }
    close(above);
    return status;
}
