#include "backend/file/catalog/upgrade.h"

#include "backend/file/catalog/catalog_check.h"
#include "backend/file/catalog/catalog_snapshot.h"
#include "backend/file/folder.h"
#include "backend/file/index/index_env.h"
#include "backend/file/log/log_checkpoint.h"
#include "backend/file/log/log_start.h"
#include "backend/file/marker.h"
#include "backend/file/names.h"
#include "backend/file/packs/engine.h"
#include "base/boot.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TELL_NS INT64_C(1000000000)
#define GROW_TIMES_MAX 40
#define MAP_BYTES_LEAST (UINT64_C(1) << 20)
#define VERSION_BYTES 8
#define REFUSED_BYTES 7 /* of the version's item: earlier versions of Ligament reject all but 8 */

typedef struct upgrade_run {
    ligi_file_catalog *catalog;
    MDB_env *env; /* of catalog.mdb */
    MDB_txn *txn; /* for writing: earlier versions of Ligament wait meanwhile */
    MDB_dbi dbi;
    int fd;
    ligi_clog_position at;
    uint64_t items;
    int64_t told_ns;
    int made, refused; /* the log; catalog.mdb */
} upgrade_run;

int ligi_upgrade_done(MDB_txn *txn, MDB_dbi dbi)
{
    MDB_val key, value;

    ligi_file_catalog_version_key(&key);
    return mdb_get(txn, dbi, &key, &value) == MDB_SUCCESS && value.mv_size == REFUSED_BYTES;
}

/* --- the catalog of format 1 --- */

/* LMDB opens by name: it must have opened the file that was checked. */
static lig_status open_env(upgrade_run *run, const ligi_entry_id *looked, uint64_t bytes)
{
    const ligi_file_catalog *self = run->catalog;
    ligi_entry_id opened;
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d/" LIGI_NAME_CATALOG, self->folder_fd);
    int number = mdb_env_create(&run->env);
    if (number == MDB_SUCCESS)
        number = mdb_env_set_mapsize(run->env, bytes < MAP_BYTES_LEAST ? MAP_BYTES_LEAST : bytes);
    if (number == MDB_SUCCESS)
        number = mdb_env_open(run->env, path, MDB_NOSUBDIR | MDB_NOTLS, 0666);
    if (number == MDB_SUCCESS)
        number = mdb_env_get_fd(run->env, &run->fd);
    LIG_TRY(ligi_mdb_fail(number, self->place, "cannot be opened"));
    fcntl(run->fd, F_SETFD, FD_CLOEXEC);
    LIG_TRY(ligi_entry_identify(run->fd, self->place, LIGI_NAME_CATALOG, &opened));
    if (opened.device != looked->device || opened.inode != looked->inode)
        return lig_fail(LIG_E_BUSY, "%s/" LIGI_NAME_CATALOG " was replaced while it was opened",
                        self->place);
    return LIG_OK;
}

/* Nothing is ever written in this transaction: LMDB would trust the list of free pages. */
static lig_status lock_env(upgrade_run *run)
{
    int number = mdb_txn_begin(run->env, NULL, 0, &run->txn);

    for (int i = 0; number == MDB_MAP_RESIZED && i < GROW_TIMES_MAX; i++) {
        number = mdb_env_set_mapsize(run->env, 0);
        if (number == MDB_SUCCESS)
            number = mdb_txn_begin(run->env, NULL, 0, &run->txn);
    }
    LIG_TRY(ligi_mdb_fail(number, run->catalog->place, "cannot be locked"));
    LIG_TRY(ligi_file_catalog_check_whole(run->fd, run->catalog->place));
    return ligi_mdb_fail(mdb_dbi_open(run->txn, NULL, 0, &run->dbi), run->catalog->place,
                         "cannot be read");
}

/* If there is none, creates an empty one, so that earlier versions of Ligament find one and reject
 * it. */
static lig_status open_old(upgrade_run *run)
{
    const ligi_file_catalog *self = run->catalog;
    ligi_file_catalog_meta meta = {0};
    ligi_entry_id looked;
    int fd;

    LIG_TRY(ligi_entry_open(self->folder_fd, self->folder_fd, self->place, LIGI_NAME_CATALOG,
                            O_RDWR | O_CREAT, &fd));
    lig_status status = ligi_entry_identify(fd, self->place, LIGI_NAME_CATALOG, &looked);
    if (status == LIG_OK)
        status = ligi_plain_sole(fd, self->place, LIGI_NAME_CATALOG);
    if (status == LIG_OK)
        status = ligi_file_catalog_meta_read(fd, self->place, &meta);
    close(fd);
    if (status != LIG_E_NOTFOUND) /* an empty file: LMDB makes a catalog of it */
        LIG_TRY(status);
    LIG_TRY(ligi_mdb_env_reserve_lock(self, LIGI_NAME_CATALOG_LOCK));
    LIG_TRY(open_env(run, &looked, (meta.last_page + 1) * meta.page_bytes));
    return lock_env(run);
}

static void close_old(upgrade_run *run)
{
    if (run->txn != NULL)
        mdb_txn_abort(run->txn);
    if (run->env != NULL)
        mdb_env_close(run->env);
}

/* --- its items --- */

static void tell(upgrade_run *run)
{
    if (ligi_now_ns() - run->told_ns < TELL_NS)
        return;
    run->told_ns = ligi_now_ns();
    ligi_log(LIG_LOG_INFO, "%s: upgrading the catalog to format 2: %" PRIu64 " items",
             run->catalog->place, run->items);
}

static lig_status damaged(const upgrade_run *run)
{
    return lig_fail(
        LIG_E_CORRUPT,
        "%s: " LIGI_NAME_CATALOG
        " is damaged: its items are not in order (move it away; a check then rebuilds it)",
        run->catalog->place);
}

static int is_above(const MDB_val *key, const uint8_t *last, size_t last_bytes)
{
    size_t least = key->mv_size < last_bytes ? key->mv_size : last_bytes;
    int order = memcmp(key->mv_data, last, least);

    return order > 0 || (order == 0 && key->mv_size > last_bytes);
}

static lig_status put_items(upgrade_run *run, MDB_cursor *cursor, ligi_checkpoint_writer *writer)
{
    uint8_t last[LIGI_KEY_BYTES_MAX + 1] = {1};
    size_t last_bytes = 1;
    MDB_val key = {1, last}, value;

    int number = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    for (; number == MDB_SUCCESS; number = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        const uint8_t *bytes = key.mv_data;
        if (key.mv_size < 2 || key.mv_size > sizeof last || bytes[0] != 1 ||
            !is_above(&key, last, last_bytes) || run->at.version == 0)
            return damaged(run);
        last_bytes = key.mv_size;
        memcpy(last, bytes, last_bytes);
        const ligi_checkpoint_item item = {.key = bytes + 1,
                                           .key_bytes = key.mv_size - 1,
                                           .value = value.mv_data,
                                           .value_bytes = value.mv_size,
                                           .version = run->at.version};
        LIG_TRY(ligi_checkpoint_put(writer, &item));
        run->items++;
        tell(run);
    }
    return number == MDB_NOTFOUND ? LIG_OK
                                  : ligi_mdb_fail(number, run->catalog->place, "cannot be read");
}

static lig_status make_checkpoint(upgrade_run *run)
{
    ligi_checkpoint_writer *writer;
    MDB_cursor *cursor;

    LIG_TRY(ligi_mdb_fail(mdb_cursor_open(run->txn, run->dbi, &cursor), run->catalog->place,
                          "cannot be read"));
    lig_status status = ligi_checkpoint_create(&run->catalog->log, &run->at, &writer);
    if (status == LIG_OK) {
        status = put_items(run, cursor, writer);
        if (status == LIG_OK && run->at.version > 0)
            status = ligi_checkpoint_finish(writer);
        ligi_checkpoint_abort(writer);
    }
    mdb_cursor_close(cursor);
    return status;
}

/* --- the log --- */

static lig_status remove_all(ligi_file_catalog *self, ligi_name_kind kind)
{
    uint64_t *numbers;
    size_t count;

    LIG_TRY(ligi_clog_folder_list(&self->log.folder, kind, &numbers, &count));
    lig_status status = LIG_OK;
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        status = ligi_clog_folder_remove(&self->log.folder, kind, numbers[i]);
    free(numbers);
    ligi_clog_folder_forget(&self->log.folder, kind, UINT64_MAX);
    return status;
}

static lig_status remove_log(ligi_file_catalog *self)
{
    LIG_TRY(remove_all(self, LIGI_NAME_SEGMENT));
    return remove_all(self, LIGI_NAME_CHECKPOINT);
}

static lig_status stop_at_first(void *context, const uint8_t *record,
                                const ligi_clog_header *header, const ligi_clog_position *at)
{
    (void)context, (void)record, (void)header, (void)at;
    return LIG_E_CLOSED;
}

/* A killed upgrade leaves a log without commits. One with commits means that somebody has copied
 * files of two stores together. */
static lig_status clear_log(ligi_file_catalog *self)
{
    ligi_clog_position at;
    ligi_clog_end end = LIGI_CLOG_AT_END;

    lig_status status = ligi_file_log_first(&self->log, &at);
    if (status == LIG_OK)
        status = ligi_file_log_read(&self->log, &at, stop_at_first, NULL, &end);
    if (status != LIG_E_NOTFOUND && (status != LIG_OK || end != LIGI_CLOG_AT_END))
        return lig_fail(
            LIG_E_CORRUPT,
            "%s has a catalog of format 1 and a log with commits (move " LIGI_NAME_CATALOG
            " or the folder " LIGI_NAME_LOG " away)",
            self->place);
    return remove_log(self);
}

static lig_status make_log(upgrade_run *run)
{
    ligi_file_log *log = &run->catalog->log;

    LIG_TRY(ligi_random(log->id, sizeof log->id));
    run->at.chain = ligi_clog_chain_start(log->id);
    LIG_TRY(make_checkpoint(run));
    return ligi_file_log_create(log, &run->at);
}

/* --- what earlier versions of Ligament find --- */

/* Where the item of the version is in the file: size (4 bytes), flags (2), key's size (2), key,
 * value. */
static lig_status find_item(const upgrade_run *run, uint64_t *offset)
{
    static const uint8_t start[] = {VERSION_BYTES, 0, 0, 0, 0, 0, 8, 0};
    uint8_t found[sizeof start];
    MDB_val key, value;
    MDB_stat info;
    uint64_t page;
    size_t got;

    ligi_file_catalog_version_key(&key);
    int number = mdb_get(run->txn, run->dbi, &key, &value);
    if (number == MDB_SUCCESS)
        number = mdb_stat(run->txn, run->dbi, &info);
    LIG_TRY(ligi_mdb_fail(number, run->catalog->place, "cannot be read"));
    size_t in_page = (uintptr_t)value.mv_data % info.ms_psize;
    memcpy(&page, (const uint8_t *)value.mv_data - in_page,
           sizeof page); /* its number comes first */
    *offset = page * info.ms_psize + in_page - key.mv_size - sizeof start;
    LIG_TRY(
        ligi_clog_pread(&run->catalog->log.folder, run->fd, found, sizeof found, *offset, &got));
    return got == sizeof found && memcmp(found, start, sizeof start) == 0 ? LIG_OK : damaged(run);
}

/* One byte, in place: a commit of LMDB's would trust the list of free pages, need space, and be
 * visible to new snapshots only. */
static lig_status refuse_in_place(upgrade_run *run)
{
    const uint8_t bytes = REFUSED_BYTES;
    uint64_t offset;

    LIG_TRY(find_item(run, &offset));
    if (ligi_write_all(run->fd, &bytes, 1, offset) != LIG_OK)
        return ligi_fail_errno(lig_error_number(), "cannot write %s/" LIGI_NAME_CATALOG,
                               run->catalog->place);
    run->refused = 1;
    if (fdatasync(run->fd) != 0)
        return ligi_fail_errno(errno, "%s/" LIGI_NAME_CATALOG ": fdatasync failed",
                               run->catalog->place);
    return LIG_OK;
}

/* For a catalog without a version, which has no items and no free pages. */
static lig_status refuse_empty(upgrade_run *run)
{
    uint8_t bytes[REFUSED_BYTES] = {0};
    MDB_val key, value = {sizeof bytes, bytes};
    MDB_stat info;

    int number = mdb_stat(run->txn, run->dbi, &info);
    LIG_TRY(ligi_mdb_fail(number, run->catalog->place, "cannot be read"));
    if (info.ms_entries != 0)
        return damaged(run);
    ligi_file_catalog_version_key(&key);
    number = mdb_put(run->txn, run->dbi, &key, &value, 0);
    if (number == MDB_SUCCESS) {
        number = mdb_txn_commit(run->txn);
        run->txn = NULL;
        run->refused = number == MDB_SUCCESS;
    }
    return ligi_mdb_env_fail(run->catalog, number, "cannot be written");
}

/* --- the whole --- */

static lig_status convert(upgrade_run *run)
{
    LIG_TRY(ligi_file_catalog_version(run->txn, run->dbi, &run->at.version));
    LIG_TRY(clear_log(run->catalog));
    run->made = 1;
    LIG_TRY(make_log(run));
    return run->at.version > 0 ? refuse_in_place(run) : refuse_empty(run);
}

static lig_status run_upgrade(upgrade_run *run)
{
    LIG_TRY(open_old(run));
    if (ligi_upgrade_done(run->txn, run->dbi))
        return LIG_OK;
    lig_status status = convert(run);
    if (status == LIG_OK)
        ligi_log(LIG_LOG_INFO, "%s: upgraded to format 2, version %" PRIu64, run->catalog->place,
                 run->at.version);
    else if (run->made && !run->refused)
        (void)remove_log(run->catalog); /* a full disk needs the space */
    return status;
}

lig_status ligi_upgrade(ligi_file_catalog *self)
{
    upgrade_run run = {.catalog = self, .told_ns = ligi_now_ns()};
    int format, sync = self->log.folder.sync;

    lig_status status = ligi_marker_read(self->folder_fd, self->place, &format);
    if (status == LIG_E_NOTFOUND || (status == LIG_OK && format != LIGI_FORMAT_CATALOG))
        return LIG_OK;
    LIG_TRY(status);
    LIG_TRY(ligi_marker_prepare(self->folder_fd, self->place));
    self->log.folder.sync = 1; /* even if commits are not synced: nothing may be lost here */
    status = run_upgrade(&run);
    close_old(&run);
    self->log.folder.sync = sync;
    if (status == LIG_OK)
        return ligi_marker_publish(self->folder_fd, self->place);
    ligi_marker_discard(self->folder_fd);
    return status;
}
