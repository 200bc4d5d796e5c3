#include "backend/file/catalog/catalog.h"

#include "backend/file/catalog/catalog_check.h"
#include "backend/file/catalog/catalog_gate.h"
#include "backend/file/catalog/catalog_snapshot.h"
#include "backend/file/file.h"
#include "backend/file/folder.h"
#include "backend/file/names.h"
#include "backend/shared.h"
#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define READERS_MAX 1022
#define LOCK_FILE_BYTES 65536 /* what LMDB makes of READERS_MAX */
#define GROW_TIMES_MAX 40
#define MAP_BYTES_LEAST (UINT64_C(1) << 24)
#define AHEAD_FROM_BYTES (UINT64_C(256) << 10) /* smaller files grow as they must */
#define AHEAD_LEAST_BYTES (UINT64_C(64) << 10) /* of room; with less, the next step is made */
#define AHEAD_STEP_BYTES_MAX (UINT64_C(4) << 20)
#define FULL_BYTES (UINT64_C(1) << 20) /* with less room a disk counts as full */

typedef struct opening { /* what creation needs to know */
    const ligi_file_catalog_place *place;
    int fd; /* of the file, for the check */
} opening;

/* LMDB writes to its lock file through a map: on a full disk a page that is not there yet would end
 * the process. No environment of this process has the file open here, so that closing it drops no
 * lock. */
static lig_status reserve_lock_file(ligi_file_catalog *self)
{
    int fd;

    LIG_TRY(ligi_entry_open(self->folder_fd, self->folder_fd, self->place, LIGI_NAME_CATALOG_LOCK,
                            O_RDWR | O_CREAT, &fd));
    lig_status status = ligi_plain_sole(fd, self->place, LIGI_NAME_CATALOG_LOCK);
    if (status == LIG_OK)
        status = ligi_entry_identify(fd, self->place, LIGI_NAME_CATALOG_LOCK, &self->lock_file);
    int number = status == LIG_OK ? posix_fallocate(fd, 0, LOCK_FILE_BYTES) : 0;
    close(fd);
    if (number == 0 || number == EOPNOTSUPP || number == EINVAL)
        return status;
    return ligi_fail_errno(number, "%s: there is no room for the catalog's lock file", self->place);
}

/* Whether the names stand for the files that are open: LMDB opens by name, and a commit into a file
 * that has lost its name is lost with it. Without its lock file others would write at the same
 * time; who gave up safety for speed (fsync=0) does not pay for that look. */
static lig_status check_names(const ligi_file_catalog *self)
{
    unsigned flags = 0;
    int fd = -1;

    (void)mdb_env_get_fd(self->env, &fd);
    LIG_TRY(ligi_entry_still(self->folder_fd, self->place, LIGI_NAME_CATALOG, &self->file, fd));
    if (mdb_env_get_flags(self->env, &flags) != MDB_SUCCESS || flags & (MDB_NOSYNC | MDB_NOLOCK))
        return LIG_OK;
    return ligi_entry_still(self->folder_fd, self->place, LIGI_NAME_CATALOG_LOCK, &self->lock_file,
                            -1);
}

/* LMDB has opened what the name stood for then, which need not be what was looked at before. */
static lig_status check_opened(const ligi_file_catalog *self)
{
    ligi_entry_id opened;
    int fd;

    if (mdb_env_get_fd(self->env, &fd) != MDB_SUCCESS)
        return lig_fail(LIG_E_INTERNAL, "%s: the catalog has no descriptor", self->place);
    LIG_TRY(ligi_entry_identify(fd, self->place, LIGI_NAME_CATALOG, &opened));
    if (opened.device != self->file.device || opened.inode != self->file.inode)
        return lig_fail(LIG_E_BUSY, "%s/" LIGI_NAME_CATALOG " was replaced while it was opened",
                        self->place);
    return check_names(self);
}

static int open_env(ligi_file_catalog *self, const ligi_file_catalog_place *place, const char *path,
                    unsigned flags)
{
    int fd;

    if (self->env != NULL)
        mdb_env_close(self->env);
    self->env = NULL;
    int number = mdb_env_create(&self->env);
    if (number == MDB_SUCCESS)
        number = mdb_env_set_mapsize(self->env, place->map_bytes);
    if (number == MDB_SUCCESS)
        number = mdb_env_set_maxreaders(self->env, READERS_MAX);
    if (number == MDB_SUCCESS)
        number = mdb_env_open(self->env, path, flags, 0666);
    if (number == MDB_SUCCESS && mdb_env_get_fd(self->env, &fd) == MDB_SUCCESS)
        fcntl(fd, F_SETFD, FD_CLOEXEC); /* LMDB leaves it open to programs that are run */
    return number;
}

static lig_status set_up(ligi_file_catalog *self, const ligi_file_catalog_place *place)
{
    char path[64];
    unsigned flags = MDB_NOSUBDIR | MDB_NOTLS | (place->sync ? 0 : MDB_NOSYNC);
    MDB_txn *txn;
    int dead;

    /* The lock file is a map shared by processes: no file system shares that between machines. The
     * lease takes its place there, and commits are alone. */
    if (place->network)
        flags |= MDB_NOLOCK;
    /* By the descriptor: the path may lead elsewhere by now. */
    snprintf(path, sizeof path, "/proc/self/fd/%d/" LIGI_NAME_CATALOG, self->folder_fd);
    if (!place->network)
        LIG_TRY(reserve_lock_file(self));
    int number = open_env(self, place, path, flags);
    LIG_TRY(ligi_mdb_fail(number, place->place, "cannot be opened"));
    LIG_TRY(check_opened(self));
    mdb_reader_check(self->env, &dead);
    do {
        number = mdb_txn_begin(self->env, NULL, MDB_RDONLY, &txn);
        if (number == MDB_MAP_RESIZED && mdb_env_set_mapsize(self->env, 0) != MDB_SUCCESS)
            break;
    } while (number == MDB_MAP_RESIZED);
    LIG_TRY(ligi_mdb_fail(number, place->place, "cannot be read"));
    number = mdb_dbi_open(txn, NULL, 0, &self->dbi);
    int committed = mdb_txn_commit(txn);
    return ligi_mdb_fail(number != MDB_SUCCESS ? number : committed, place->place,
                         "cannot be read");
}

static void destroy(void *object)
{
    ligi_file_catalog *self = object;

    if (self->env != NULL)
        mdb_env_close(self->env);
    ligi_lease_release(self->lease);
    if (self->folder_fd >= 0)
        close(self->folder_fd);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
    free(self->held);
    free(self->place);
    free(self);
}

static lig_status create_parts(ligi_file_catalog *self, const opening *context)
{
    const ligi_file_catalog_place *place = context->place;

    LIG_TRY(ligi_strdup(&self->place, place->place));
    self->folder_fd = fcntl(place->folder_fd, F_DUPFD_CLOEXEC, 0);
    if (self->folder_fd < 0)
        return ligi_fail_errno(errno, "%s cannot be held open", place->place);
    LIG_TRY(ligi_entry_identify(context->fd, place->place, LIGI_NAME_CATALOG, &self->file));
    if (place->network)
        LIG_TRY(ligi_lease_take(&self->lease, place->folder_fd, place->place, place->lease_s));
    LIG_TRY(ligi_file_catalog_check(context->fd, place->place));
    /* Where address space is rationed a smaller map does too: it grows when it must. */
    ligi_file_catalog_place smaller = *place;
    lig_status status = set_up(self, &smaller);
    while (status == LIG_E_NOMEM && smaller.map_bytes > MAP_BYTES_LEAST) {
        smaller.map_bytes /= 8;
        status = set_up(self, &smaller);
    }
    return status;
}

static lig_status create(void *opaque, void **object)
{
    opening *context = opaque;
    pthread_condattr_t attributes;
    ligi_file_catalog *self;

    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "the catalog"));
    self->network = context->place->network;
    self->folder_fd = -1;
    pthread_mutex_init(&self->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&self->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    lig_status status = create_parts(self, context);
    if (status == LIG_OK)
        *object = self;
    else
        destroy(self);
    return status;
}

static const ligi_shared_kind catalog_kind = {create, destroy, NULL};

static lig_status open_shared(ligi_file_catalog **catalog, opening *context)
{
    const ligi_file_catalog_place *place = context->place;
    char key[64];
    ligi_entry_id file;
    void *object;

    LIG_TRY(ligi_entry_identify(context->fd, place->place, LIGI_NAME_CATALOG, &file));
    snprintf(key, sizeof key, "%" PRIx64 ":%" PRIx64, (uint64_t)file.device, (uint64_t)file.inode);
    LIG_TRY(ligi_shared_acquire(key, &catalog_kind, LIGI_SHARED_ANY, context, &object));
    ligi_file_catalog *opened = object;
    unsigned flags = 0;
    /* Somebody who wants safety shares it with one who does not. LMDB wants no other transaction
     * then. */
    if (place->sync && mdb_env_get_flags(opened->env, &flags) == MDB_SUCCESS &&
        flags & MDB_NOSYNC && ligi_file_catalog_enter_alone(opened) == LIG_OK) {
        mdb_env_set_flags(opened->env, MDB_NOSYNC, 0);
        ligi_file_catalog_leave_alone(opened);
    }
    *catalog = opened;
    return LIG_OK;
}

static lig_status open_file(const ligi_file_catalog_place *place, int *fd)
{
    lig_status status = ligi_entry_open(place->folder_fd, place->folder_fd, place->place,
                                        LIGI_NAME_CATALOG, O_RDWR | O_CREAT, fd);
    int number = lig_error_number();

    if (status == LIG_E_DENIED && number != 0)
        return ligi_fail_errno(
            number, "%s/" LIGI_NAME_CATALOG " cannot be written (mode=r reads only)", place->place);
    return status;
}

lig_status ligi_file_catalog_open(ligi_file_catalog **catalog, const ligi_file_catalog_place *place)
{
    struct stat info;
    int fd;

    int there = fstatat(place->folder_fd, LIGI_NAME_CATALOG, &info, AT_SYMLINK_NOFOLLOW) == 0;
    LIG_TRY(open_file(place, &fd));
    lig_status status = ligi_plain_sole(fd, place->place, LIGI_NAME_CATALOG);
    if (status == LIG_OK && !there && place->sync)
        status = ligi_folder_sync(place->folder_fd, place->place);
    opening context = {place, fd};
    if (status == LIG_OK)
        status = open_shared(catalog, &context);
    close(fd);
    return status;
}

void ligi_file_catalog_close(ligi_file_catalog *catalog)
{
    if (catalog != NULL)
        ligi_shared_release(catalog);
}

/* On success the transaction counts as active until leave. */
static int begin_once(ligi_file_catalog *self, MDB_txn **txn)
{
    int dead;

    int number = mdb_txn_begin(self->env, NULL, MDB_RDONLY, txn);
    if (number == MDB_READERS_FULL && mdb_reader_check(self->env, &dead) == MDB_SUCCESS)
        number = mdb_txn_begin(self->env, NULL, MDB_RDONLY, txn);
    return number;
}

lig_status ligi_file_catalog_begin(ligi_file_catalog *self, void **snapshot, uint64_t *version)
{
    MDB_txn *txn;

    LIG_TRY(ligi_file_catalog_enter(self));
    int number = begin_once(self, &txn);
    for (int i = 0; number == MDB_MAP_RESIZED && i < GROW_TIMES_MAX; i++) {
        ligi_file_catalog_leave(self);
        LIG_TRY(ligi_file_catalog_adapt_map(self, number));
        LIG_TRY(ligi_file_catalog_enter(self));
        number = begin_once(self, &txn);
    }
    lig_status status = ligi_mdb_fail(number, self->place, "cannot be read");
    if (status == LIG_OK)
        status = ligi_file_snapshot_create(txn, self->dbi, ligi_file_catalog_leave, self, snapshot,
                                           version);
    if (status != LIG_OK)
        ligi_file_catalog_leave(self);
    return status;
}

/* 1 when the last commit in the file is no later than `shown`. */
static int is_last(const ligi_file_catalog *self, size_t shown)
{
    MDB_envinfo info;

    return mdb_env_info(self->env, &info) == MDB_SUCCESS && info.me_last_txnid <= shown;
}

/* LMDB makes a commit valid by writing a meta page, and then advances the number in the lock file
 * that snapshots go by. A writer killed in between has committed, but no snapshot shows it until
 * the next writer finds the lock abandoned and advances the number: beginning a write transaction
 * does that. It is needed only when the file is ahead of what a snapshot shows. */
static int settle_once(ligi_file_catalog *self, int *settled)
{
    MDB_txn *txn;

    *settled = 0;
    int number = begin_once(self, &txn);
    if (number != MDB_SUCCESS)
        return number;
    *settled = is_last(self, mdb_txn_id(txn));
    mdb_txn_abort(txn);
    if (*settled)
        return number;
    number = mdb_txn_begin(self->env, NULL, 0, &txn);
    if (number != MDB_SUCCESS)
        return number;
    /* Under the lock nobody is committing: a file that is still ahead holds a commit that failed
     * and could not be taken back. It comes into force when all processes have closed the catalog.
     */
    *settled = is_last(self, mdb_txn_id(txn) - 1);
    mdb_txn_abort(txn);
    return number;
}

lig_status ligi_file_catalog_settle(ligi_file_catalog *self)
{
    int number = MDB_SUCCESS, settled = 0;

    if (self->network) /* without a lock file snapshots go by the meta pages themselves */
        return LIG_OK;
    for (int i = 0; i < GROW_TIMES_MAX; i++) {
        LIG_TRY(ligi_file_catalog_enter(self));
        number = settle_once(self, &settled);
        ligi_file_catalog_leave(self);
        if (number != MDB_MAP_RESIZED)
            break;
        LIG_TRY(ligi_file_catalog_adapt_map(self, number));
    }
    LIG_TRY(ligi_mdb_fail(number, self->place, "cannot be settled"));
    return settled ? LIG_OK
                   : lig_fail(LIG_E_IO,
                              "%s: the catalog's last commit failed and is in doubt; close the "
                              "store in all processes",
                              self->place);
}

static int apply(ligi_file_catalog *self, MDB_txn *txn, const lig_catalog_op *op)
{
    uint8_t stored[LIGI_KEY_BYTES_MAX + 1];
    MDB_val key, value = {op->value_bytes, (void *)op->value};

    if (ligi_file_catalog_key(op->key, op->key_bytes, stored, &key) != LIG_OK)
        return MDB_BAD_VALSIZE;
    if (op->value != NULL)
        return mdb_put(txn, self->dbi, &key, &value, 0);
    int number = mdb_del(txn, self->dbi, &key, NULL);
    return number == MDB_NOTFOUND ? MDB_SUCCESS : number;
}

static int put_version(ligi_file_catalog *self, MDB_txn *txn, uint64_t version)
{
    uint8_t bytes[sizeof version];
    MDB_val key, value = {sizeof bytes, bytes};

    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(version >> (8 * i));
    ligi_file_catalog_version_key(&key);
    return mdb_put(txn, self->dbi, &key, &value, 0);
}

/* To sync a file that has grown takes a commit of the file system's journal, several times as long
 * as to sync bytes that have their place: the file grows ahead, by an eighth at a time. The write
 * transaction keeps others away, and nothing was written under it yet. Where it fails nothing is
 * lost. */
static void grow_ahead(const ligi_file_catalog *self)
{
    static const uint8_t zeros[64 << 10];
    unsigned flags = 0;
    MDB_envinfo info;
    MDB_stat pages;
    struct stat file;
    int fd;

    if (mdb_env_get_flags(self->env, &flags) != MDB_SUCCESS || flags & MDB_NOSYNC ||
        mdb_env_info(self->env, &info) != MDB_SUCCESS ||
        mdb_env_stat(self->env, &pages) != MDB_SUCCESS ||
        mdb_env_get_fd(self->env, &fd) != MDB_SUCCESS || fstat(fd, &file) != 0)
        return;
    uint64_t used = (info.me_last_pgno + 1) * (uint64_t)pages.ms_psize;
    uint64_t at = (uint64_t)file.st_size, step = used / 8 & ~(sizeof zeros - 1);
    if (used < AHEAD_FROM_BYTES || at < used || at - used >= AHEAD_LEAST_BYTES)
        return;
    step = step < AHEAD_LEAST_BYTES ? AHEAD_LEAST_BYTES : step;
    uint64_t end = at + (step < AHEAD_STEP_BYTES_MAX ? step : AHEAD_STEP_BYTES_MAX);
    while (at < end && pwrite(fd, zeros, sizeof zeros, (off_t)at) == (ssize_t)sizeof zeros)
        at += sizeof zeros;
}

/* *number is LMDB's answer when the status is LIG_OK. */
static lig_status commit_once(ligi_file_catalog *self, uint64_t version, const lig_catalog_op *ops,
                              size_t count, int *number)
{
    MDB_txn *txn;
    uint64_t current;

    *number = mdb_txn_begin(self->env, NULL, 0, &txn);
    if (*number != MDB_SUCCESS)
        return LIG_OK;
    grow_ahead(self);
    lig_status status = ligi_file_catalog_version(txn, self->dbi, &current);
    if (status == LIG_OK && current != version)
        status =
            lig_fail(LIG_E_BUSY,
                     "%s: the catalog is at version %" PRIu64 ", the change was made for %" PRIu64,
                     self->place, current, version);
    if (status == LIG_OK)
        status = ligi_file_catalog_may_write(self);
    for (size_t i = 0; i < count && *number == MDB_SUCCESS && status == LIG_OK; i++)
        *number = apply(self, txn, &ops[i]);
    if (status == LIG_OK && *number == MDB_SUCCESS)
        *number = put_version(self, txn, version + 1);
    if (status == LIG_OK && *number == MDB_SUCCESS)
        status = check_names(self);
    if (status != LIG_OK || *number != MDB_SUCCESS) {
        mdb_txn_abort(txn);
        return status;
    }
    *number = mdb_txn_commit(txn);
    return LIG_OK;
}

static lig_status check_ops(const lig_catalog_op *ops, size_t count)
{
    uint8_t stored[LIGI_KEY_BYTES_MAX + 1];
    MDB_val key;

    for (size_t i = 0; i < count; i++) {
        LIG_TRY(ligi_file_catalog_key(ops[i].key, ops[i].key_bytes, stored, &key));
        if (ops[i].value != NULL && ops[i].value_bytes > INT32_MAX)
            return lig_fail(LIG_E_LIMIT, "a value of %zu bytes is too large for the catalog",
                            ops[i].value_bytes);
    }
    return LIG_OK;
}

/* LMDB calls a write that was cut short an I/O error. That is what a disk does that fills up. */
static int full_or_broken(const ligi_file_catalog *self, int number)
{
    struct statvfs room;
    mdb_filehandle_t fd;

    if (number != EIO || mdb_env_get_fd(self->env, &fd) != MDB_SUCCESS || fstatvfs(fd, &room) != 0)
        return number;
    return (uint64_t)room.f_bavail * room.f_frsize < FULL_BYTES ? ENOSPC : number;
}

lig_status ligi_file_catalog_commit(ligi_file_catalog *self, uint64_t version,
                                    const lig_catalog_op *ops, size_t count)
{
    int number = MDB_SUCCESS;

    LIG_TRY(check_ops(ops, count));
    for (int i = 0; i < GROW_TIMES_MAX; i++) {
        /* Without LMDB's locks pages that a reader of this process still needs would be reused. */
        LIG_TRY(self->network ? ligi_file_catalog_enter_alone(self)
                              : ligi_file_catalog_enter(self));
        lig_status status = commit_once(self, version, ops, count, &number);
        if (self->network)
            ligi_file_catalog_leave_alone(self);
        else
            ligi_file_catalog_leave(self);
        LIG_TRY(status);
        if (number != MDB_MAP_FULL && number != MDB_MAP_RESIZED)
            break;
        LIG_TRY(ligi_file_catalog_adapt_map(self, number));
    }
    return ligi_mdb_fail(full_or_broken(self, number), self->place, "cannot be written");
}

lig_status ligi_file_catalog_may_write(ligi_file_catalog *self)
{
    return self->lease == NULL ? LIG_OK : ligi_lease_check(self->lease);
}

lig_status ligi_file_catalog_hold(ligi_file_catalog *self, uint64_t id, int on)
{
    lig_status status = LIG_OK;
    size_t at = 0;

    if (id == 0 || self == NULL)
        return LIG_OK;
    pthread_mutex_lock(&self->lock);
    while (at < self->held_count && self->held[at] != id)
        at++;
    if (on && at < self->held_count)
        status =
            lig_fail(LIG_E_BUSY, "%s: pack %016" PRIx64 " is held by its writer", self->place, id);
    else if (on)
        status = ligi_grow(&self->held, &self->held_capacity, at + 1, sizeof *self->held,
                           "the packs held");
    if (on && status == LIG_OK)
        self->held[self->held_count++] = id;
    if (!on && at < self->held_count)
        self->held[at] = self->held[--self->held_count];
    pthread_mutex_unlock(&self->lock);
    return status;
}
