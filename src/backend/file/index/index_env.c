#include "backend/file/index/index_env.h"

#include "backend/file/catalog/catalog_snapshot.h"
#include "backend/file/folder.h"
#include "backend/file/index/index_items.h"
#include "backend/file/names.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define READERS_MAX 1022
#define LOCK_FILE_BYTES 65536 /* what LMDB makes of READERS_MAX */
#define MAP_BYTES_LEAST (UINT64_C(1) << 24)
#define AHEAD_BYTES (UINT64_C(256) << 10)
#define FULL_BYTES (UINT64_C(1) << 20) /* with less room a disk counts as full */
#define KEEP_BYTES_MOST (UINT64_C(32) << 20)
#define STEP_BYTES_MOST (UINT64_C(4) << 20)
#define ITEM_BYTES 64   /* of LMDB for an item, and of a reference */
#define PAGES_ALWAYS 16 /* that a transaction writes besides the leaves: branches, free pages */
#define PAGES_LEAST 4   /* of these, to list the free pages of a small index ... */
#define PAGES_EACH 256  /* ... and one more for this many pages */

/* LMDB opens by name: it must have opened the file that was checked. */
static lig_status identify(ligi_file_catalog *self)
{
    ligi_entry_id opened;
    int fd;

    if (mdb_env_get_fd(self->env, &fd) != MDB_SUCCESS)
        return lig_fail(LIG_E_INTERNAL, "%s: the index has no descriptor", self->place);
    fcntl(fd, F_SETFD, FD_CLOEXEC); /* LMDB leaves it open to programs that are run */
    LIG_TRY(ligi_entry_identify(fd, self->place, LIGI_NAME_INDEX, &opened));
    if (opened.device != self->index_file.device || opened.inode != self->index_file.inode)
        return lig_fail(LIG_E_BUSY, "%s/" LIGI_NAME_INDEX " was replaced while it was opened",
                        self->place);
    return ligi_mdb_env_still(self);
}

static int try_open(ligi_file_catalog *self, uint64_t map_bytes)
{
    char path[64];

    /* By the descriptor: the path may lead elsewhere by now. */
    snprintf(path, sizeof path, "/proc/self/fd/%d/" LIGI_NAME_INDEX, self->index_fd);
    int number = mdb_env_create(&self->env);
    if (number == MDB_SUCCESS)
        number = mdb_env_set_mapsize(self->env, map_bytes);
    if (number == MDB_SUCCESS)
        number = mdb_env_set_maxreaders(self->env, READERS_MAX);
    if (number == MDB_SUCCESS)
        number = mdb_env_open(self->env, path, MDB_NOSUBDIR | MDB_NOTLS | MDB_NOSYNC, 0666);
    if (number != MDB_SUCCESS)
        ligi_mdb_env_close(self);
    return number;
}

static lig_status look_at_file(ligi_file_catalog *self)
{
    int fd;

    lig_status status = ligi_entry_open(self->index_fd, self->index_fd, self->place,
                                        LIGI_NAME_INDEX, O_RDWR | O_CREAT, &fd);
    if (status == LIG_E_DENIED && lig_error_number() != 0)
        return ligi_fail_errno(lig_error_number(),
                               "%s/" LIGI_NAME_INDEX " cannot be written (mode=r reads only)",
                               self->place);
    LIG_TRY(status);
    status = ligi_plain_sole(fd, self->place, LIGI_NAME_INDEX);
    if (status == LIG_OK)
        status = ligi_entry_identify(fd, self->place, LIGI_NAME_INDEX, &self->index_file);
    close(fd);
    return status;
}

/* LMDB writes to its lock file through a map: on a full disk a page that is not there yet would
 * raise SIGBUS. */
lig_status ligi_mdb_env_reserve_lock(const ligi_file_catalog *self, const char *name)
{
    int fd;

    LIG_TRY(
        ligi_entry_open(self->index_fd, self->index_fd, self->place, name, O_RDWR | O_CREAT, &fd));
    lig_status status = ligi_plain_sole(fd, self->place, name);
    int number;

    do /* a tmpfs stops when a signal arrives */
        number = status == LIG_OK ? posix_fallocate(fd, 0, LOCK_FILE_BYTES) : 0;
    while (number == EINTR);
    close(fd);
    if (number == 0 || number == EOPNOTSUPP || number == EINVAL)
        return status;
    return ligi_fail_errno(number, "cannot allocate space for %s/%s", self->place, name);
}

/* LMDB tells processes apart by their ids. */
static lig_status same_id(const ligi_file_catalog *self)
{
    return lig_fail(LIG_E_BUSY,
                    "%s: a process of another container has the store open and the same process id "
                    "as this one, %d (use share=network, or one pid namespace)",
                    self->place, (int)getpid());
}

static lig_status open_database(ligi_file_catalog *self)
{
    MDB_txn *txn;
    int number, dead;

    mdb_reader_check(self->env, &dead);
    do {
        number = mdb_txn_begin(self->env, NULL, MDB_RDONLY, &txn);
        if (number == MDB_MAP_RESIZED && mdb_env_set_mapsize(self->env, 0) != MDB_SUCCESS)
            break;
    } while (number == MDB_MAP_RESIZED);
    if (number == EAGAIN)
        return same_id(self);
    LIG_TRY(ligi_mdb_fail(number, self->place, "cannot be read"));
    number = mdb_dbi_open(txn, NULL, 0, &self->dbi);
    int committed = mdb_txn_commit(txn);
    return ligi_mdb_fail(number != MDB_SUCCESS ? number : committed, self->place, "cannot be read");
}

/* LMDB's locks are those of the process: the kernel drops them when any descriptor of the lock file
 * is closed, also by a program that copies a store which it has open. Other processes would then
 * reuse the pages of its snapshots. Locks of a descriptor of our own take their place. */
static lig_status take_locks(ligi_file_catalog *self)
{
    struct flock opened = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    struct flock reader = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    struct flock theirs = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};

    LIG_TRY(ligi_entry_open(self->index_fd, self->index_fd, self->place, LIGI_NAME_INDEX_LOCK,
                            O_RDWR, &self->index_lock_fd));
    reader.l_start = getpid(); /* as in mdb_reader_pid */
    if (fcntl(self->index_lock_fd, F_OFD_SETLK, &opened) == 0 &&
        fcntl(self->index_lock_fd, F_SETLK, &theirs) == 0 &&
        fcntl(self->index_lock_fd, F_OFD_SETLK, &reader) == 0)
        return LIG_OK;
    if (errno == EAGAIN)
        return same_id(self);
    return ligi_fail_errno(errno, "cannot lock %s/" LIGI_NAME_INDEX_LOCK, self->place);
}

lig_status ligi_mdb_env_open(ligi_file_catalog *self)
{
    uint64_t map_bytes = self->map_bytes;

    ligi_mdb_env_close(self);
    self->index_kept = 0;
    LIG_TRY(look_at_file(self));
    LIG_TRY(ligi_mdb_env_reserve_lock(self, LIGI_NAME_INDEX_LOCK));
    int number = try_open(self, map_bytes);
    /* If address space is limited, a smaller map is sufficient: it grows when needed. */
    while (number == ENOMEM && map_bytes > MAP_BYTES_LEAST)
        number = try_open(self, map_bytes /= 8);
    LIG_TRY(ligi_mdb_fail(number, self->place, "cannot be opened"));
    LIG_TRY(identify(self));
    LIG_TRY(open_database(self));
    return take_locks(self);
}

void ligi_mdb_env_forked(ligi_file_catalog *self)
{
    if (self->index_lock_fd >= 0)
        close(self->index_lock_fd);
    self->index_lock_fd = -1;
}

void ligi_mdb_env_close(ligi_file_catalog *self)
{
    struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};

    if (self->env != NULL)
        mdb_env_close(self->env);
    self->env = NULL;
    if (self->index_lock_fd >= 0) /* a program that is being started may still have the file open */
        (void)fcntl(self->index_lock_fd, F_OFD_SETLK, &all);
    ligi_mdb_env_forked(self);
}

lig_status ligi_mdb_env_reopen(ligi_file_catalog *self)
{
    int fd;

    if (self->env != NULL) {
        LIG_TRY(ligi_mdb_env_still(self));
        /* Its number may be a new one since it was first written. */
        if (mdb_env_get_fd(self->env, &fd) == MDB_SUCCESS)
            LIG_TRY(ligi_entry_identify(fd, self->place, LIGI_NAME_INDEX, &self->index_file));
        ligi_mdb_env_close(self);
    }
    /* Opening by name would create a missing file. */
    LIG_TRY(ligi_entry_still(self->index_fd, self->place, LIGI_NAME_INDEX, &self->index_file, -1));
    lig_status status = ligi_mdb_env_open(self);
    if (status != LIG_OK)
        ligi_mdb_env_close(self);
    return status;
}

/* A folder of that name is not ours: it is renamed. */
static lig_status set_aside(const ligi_file_catalog *self, const char *name)
{
    char aside[64];

    snprintf(aside, sizeof aside, "%s.aside-%016" PRIx64, name, ligi_folder_random_id());
    if (renameat(self->index_fd, name, self->index_fd, aside) != 0)
        return ligi_fail_errno(errno, "cannot rename %s/%s, which is a folder (move it away)",
                               self->place, name);
    ligi_log(LIG_LOG_WARNING, "%s/%s is a folder: renamed to %s", self->place, name, aside);
    return LIG_OK;
}

static lig_status remove_entry(const ligi_file_catalog *self, const char *name)
{
    if (unlinkat(self->index_fd, name, 0) == 0 || errno == ENOENT)
        return LIG_OK;
    if (errno == EISDIR)
        return set_aside(self, name);
    return ligi_fail_errno(errno, "cannot remove %s/%s", self->place, name);
}

lig_status ligi_mdb_env_remove(ligi_file_catalog *self)
{
    ligi_mdb_env_close(self);
    LIG_TRY(remove_entry(self, LIGI_NAME_INDEX));
    return remove_entry(self, LIGI_NAME_INDEX_LOCK);
}

lig_status ligi_mdb_env_remove_lock(const ligi_file_catalog *self)
{
    return remove_entry(self, LIGI_NAME_INDEX_LOCK);
}

lig_status ligi_mdb_env_still(const ligi_file_catalog *self)
{
    int fd = -1;

    (void)mdb_env_get_fd(self->env, &fd);
    LIG_TRY(ligi_entry_still(self->index_fd, self->place, LIGI_NAME_INDEX, &self->index_file, fd));
    int shared = self->log.numbered != 0;
    return ligi_entry_still(shared ? self->index_fd : self->folder_fd, self->place,
                            shared ? LIGI_NAME_HEAD : LIGI_NAME_LOG "/" LIGI_NAME_HEAD,
                            &self->head_file, self->log.head.fd);
}

typedef struct index_pages {
    int fd;
    uint64_t bytes; /* of one */
    uint64_t used;  /* including free ones */
    uint64_t items; /* without free ones */
    uint64_t lists; /* that a commit may write to list free pages */
} index_pages;

/* 0: not known. */
static int count_pages(const ligi_file_catalog *self, index_pages *pages)
{
    MDB_envinfo info;
    MDB_stat stat;

    if (mdb_env_info(self->env, &info) != MDB_SUCCESS ||
        mdb_env_stat(self->env, &stat) != MDB_SUCCESS ||
        mdb_env_get_fd(self->env, &pages->fd) != MDB_SUCCESS)
        return 0;
    pages->bytes = stat.ms_psize;
    pages->used = info.me_last_pgno + 1;
    pages->items = stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
    pages->lists = PAGES_LEAST + pages->used / PAGES_EACH;
    return 1;
}

/* For commits that free space. LMDB reuses the pages that one of them frees only after the next:
 * all items may be copied before that, and once more. */
static uint64_t kept_bytes(const index_pages *pages)
{
    uint64_t twice = 2 * (pages->items + pages->lists);
    return (twice < pages->used ? twice : pages->used) * pages->bytes;
}

void ligi_mdb_env_ahead(const ligi_file_catalog *self)
{
    static const uint8_t zeros[64 << 10];
    index_pages pages;

    if (!count_pages(self, &pages))
        return;
    /* Not fstat: on file systems with fine-grained times it makes the write that follows note a new
     * one. The inode then shares its dirty block with the segment's, which fdatasync writes too. */
    off_t end = lseek(pages.fd, 0, SEEK_END);
    uint64_t used = pages.used * pages.bytes;
    uint64_t at = end < 0 ? 0 : (uint64_t)end;
    if (at < used || at - used >= AHEAD_BYTES / 2 ||
        ligi_clog_bytes_left(&self->log.folder) < LIGI_CLOG_TIGHT_BYTES)
        return;
    while (at < used + AHEAD_BYTES &&
           pwrite(pages.fd, zeros, sizeof zeros, (off_t)at) == (ssize_t)sizeof zeros)
        at += sizeof zeros;
}

/* The bytes of new items, and twice that when pages are split in half. */
static uint64_t added_bytes(const lig_catalog_edit *edit)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < edit->op_count; i++) {
        const lig_catalog_op *op = &edit->ops[i];
        if (op->value == NULL)
            continue;
        bytes += op->key_bytes + ITEM_BYTES;
        bytes += op->value_bytes <= LIGI_MDB_INLINE_BYTES ? op->value_bytes : 0;
    }
    return 2 * bytes;
}

lig_status ligi_mdb_env_reserve(ligi_file_catalog *self, const lig_catalog_edit *edit)
{
    uint64_t size, stored, added = added_bytes(edit);
    index_pages pages;

    if (!count_pages(self, &pages))
        return LIG_OK;
    uint64_t used = pages.used * pages.bytes;
    uint64_t changed = 2 * edit->op_count * pages.bytes; /* leaves, branches above */
    changed = (changed < used ? changed : used) + PAGES_ALWAYS * pages.bytes;
    uint64_t keep = edit->flags & LIG_EDIT_FREES ? 0 : kept_bytes(&pages) + added;
    uint64_t end = used + changed + added + (keep < KEEP_BYTES_MOST ? keep : KEEP_BYTES_MOST);
    LIG_TRY(ligi_clog_measure(&self->log.folder, pages.fd, &size, &stored));
    int given_back = stored < self->index_stored; /* by another process */
    if (end <= self->index_kept && !given_back)
        return LIG_OK;
    uint64_t ahead = end + (end / 4 < STEP_BYTES_MOST ? end / 4 : STEP_BYTES_MOST);
    int number = ligi_clog_allocate(pages.fd, 0, ahead);
    if (number != 0)
        number = ligi_clog_allocate(pages.fd, 0, ahead = end);
    uint64_t least = 2 * edit->op_count < pages.items ? 2 * edit->op_count : pages.items;
    if (number != 0 && edit->flags & LIG_EDIT_FREES)
        number = ligi_clog_allocate(pages.fd, 0,
                                    ahead = used + (least + pages.lists) * pages.bytes + added);
    if (number != 0)
        return ligi_fail_errno(number, "cannot extend %s/" LIGI_NAME_INDEX, self->place);
    self->index_kept = ahead;
    return ligi_clog_measure(&self->log.folder, pages.fd, &size, &self->index_stored);
}

void ligi_mdb_env_give_back(ligi_file_catalog *self)
{
    index_pages pages;

    if (count_pages(self, &pages))
        ligi_clog_trim(&self->log.folder, pages.fd, pages.used * pages.bytes + kept_bytes(&pages));
}

lig_status ligi_mdb_env_fail(const ligi_file_catalog *self, int number, const char *what)
{
    struct statvfs room;

    /* LMDB calls a write that was cut short an I/O error. */
    if (number == EIO && fstatvfs(self->index_fd, &room) == 0 &&
        (uint64_t)room.f_bavail * room.f_frsize < FULL_BYTES)
        number = ENOSPC;
    return ligi_mdb_fail(number, self->place, what);
}
