#include "backend/file/catalog/checkpointing.h"

#include "backend/file/catalog/catalog.h"
#include "backend/file/catalog/catalog_snapshot.h"
#include "backend/file/folder.h"
#include "backend/file/index/index_env.h"
#include "backend/file/index/index_items.h"
#include "backend/file/log/log_numbers.h"
#include "backend/file/log/log_segment.h"
#include "backend/file/log/log_superseded.h"
#include "base/clock.h"
#include "base/codec.h"
#include "base/error.h"
#include "base/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROW_TIMES_MAX 40
#define COPIED_BYTES_MOST (UINT64_C(64) << 20) /* of an index, while the write lock is held */
#define COMMITS_MOST 8192                      /* between checkpoints of a numbered log */
#define COMMIT_BYTES (UINT64_C(64) << 10)      /* of a checkpoint that one commit is worth */

static lig_status file_bytes(ligi_file_catalog *self, ligi_name_kind kind, uint64_t number,
                             uint64_t *bytes)
{
    struct stat info;
    ligi_clog_file *file;

    LIG_TRY(ligi_clog_folder_file(&self->log.folder, kind, number, &file));
    *bytes += fstat(file->fd, &info) == 0 ? (uint64_t)info.st_size : 0;
    ligi_clog_folder_release(&self->log.folder, file);
    return LIG_OK;
}

/* Commits are counted, because a check after each costs more. A large checkpoint takes more of
 * them. */
static lig_status is_due_numbered(ligi_file_catalog *self, int *due)
{
    uint64_t *checkpoints, last = 0, bytes = 0;
    size_t count;

    LIG_TRY(ligi_clog_folder_list(&self->log.folder, LIGI_NAME_CHECKPOINT, &checkpoints, &count));
    if (count > 0)
        last = checkpoints[count - 1];
    free(checkpoints);
    if (last != 0)
        LIG_TRY(file_bytes(self, LIGI_NAME_CHECKPOINT, last, &bytes));
    uint64_t version = ligi_head_appended(&self->log.head);
    uint64_t commits = version > last ? version - last : 0;
    *due = commits >= LIGI_CHECKPOINT_COMMITS &&
           (commits >= COMMITS_MOST || commits * COMMIT_BYTES >= bytes);
    return LIG_OK;
}

/* Whether the segments behind the last checkpoint are larger than it, and than the limit. */
static lig_status is_due(ligi_file_catalog *self, int *due)
{
    uint64_t *checkpoints, *segments, last = 0, base = 0, log = 0;
    size_t count, segment_count;

    if (self->log.numbered != 0)
        return is_due_numbered(self, due);
    LIG_TRY(ligi_clog_folder_list(&self->log.folder, LIGI_NAME_CHECKPOINT, &checkpoints, &count));
    if (count > 0)
        last = checkpoints[count - 1];
    free(checkpoints);
    lig_status status = last ? file_bytes(self, LIGI_NAME_CHECKPOINT, last, &base) : LIG_OK;
    LIG_TRY(status);
    LIG_TRY(ligi_clog_folder_list(&self->log.folder, LIGI_NAME_SEGMENT, &segments, &segment_count));
    for (size_t i = segment_count; i-- > 0 && segments[i] > last && status == LIG_OK;)
        status = file_bytes(self, LIGI_NAME_SEGMENT, segments[i], &log);
    free(segments);
    *due = log > self->log_bytes && log > base;
    return status;
}

typedef struct checkpoint_run {
    ligi_file_catalog *catalog;
    ligi_checkpoint_writer *writer;
    void *snapshot;
    ligi_clog_position at;
    lig_catalog_problem problem; /* NULL: a value that cannot be read is a failure */
    void *context;
    ligi_writer lost; /* items whose value cannot be read, as the index has them */
    ligi_writer copy; /* of the items of the index; empty: they are read from the snapshot */
} checkpoint_run;

/* The highest version known to have been assigned: it is not assigned again. */
static lig_status last_version(ligi_file_log *log, uint64_t *version)
{
    uint64_t *numbers, synced = ligi_head_synced(&log->head);
    size_t count;

    *version = *version > synced ? *version : synced;
    if (log->numbered == 0)
        return LIG_OK;
    /* The number of a segment that cannot be read is in use, too. */
    LIG_TRY(ligi_clog_folder_list(&log->folder, LIGI_NAME_SEGMENT, &numbers, &count));
    if (count > 0 && numbers[count - 1] > *version)
        *version = numbers[count - 1];
    free(numbers);
    return LIG_OK;
}

/* A new log that follows the index: with a new id, and without the witnesses of the old log. */
static lig_status begin_log(checkpoint_run *run, ligi_mdb_txn *index)
{
    ligi_file_log *log = &run->catalog->log;

    LIG_TRY(last_version(log, &index->at.version));
    index->at.version += index->at.version == 0; /* a checkpoint of version 0 cannot be named */
    /* Other hosts continue in the same log, after the checkpoint. */
    if (log->numbered != 0) {
        index->at = ligi_clog_before_number(index->at.version, index->at.chain);
        return LIG_OK;
    }
    LIG_TRY(ligi_file_log_new_id(log));
    LIG_TRY(ligi_file_log_create(log, &index->at));
    index->at.segment = index->at.version + 1;
    index->at.offset = LIGI_SEGMENT_HEADER_BYTES;
    index->at.last = 0;
    ligi_head_epoch_next(&log->head, index->at.version, 0);
    ligi_head_poison_clear(&log->head);
    return ligi_mdb_env_fail(run->catalog, ligi_mdb_bind(index, log->id), "cannot be written");
}

/* The index is positioned at the start of a new segment: after a roll, or `anew` after a damaged
 * log. */
static lig_status move_index(checkpoint_run *run, int anew, int *number)
{
    ligi_file_catalog *self = run->catalog;
    ligi_mdb_txn index = {.dbi = self->dbi};
    const ligi_clog_visitor visitor = {ligi_mdb_apply, &index};

    *number = mdb_txn_begin(self->env, NULL, 0, &index.txn);
    if (*number != MDB_SUCCESS)
        return LIG_OK;
    lig_status status = ligi_mdb_position(index.txn, self->dbi, &index.at);
    if (status == LIG_OK) /* a full map is detected before the log has a new segment */
        *number = ligi_mdb_position_put(&index);
    if (status == LIG_OK && *number != MDB_SUCCESS) {
        mdb_txn_abort(index.txn);
        return LIG_OK;
    }
    if (status == LIG_OK && anew) {
        status = begin_log(run, &index);
    } else if (status == LIG_OK && self->log.numbered == 0) {
        self->log.keep = ligi_mdb_erase_bytes(&index);
        status = ligi_file_log_roll(&self->log, &index.at, 1, &visitor, self->wait_ns);
    }
    if (status == LIG_OK)
        *number = ligi_mdb_position_put(&index);
    /* After MDB_MAP_FULL the same segment is created again. */
    if (status == LIG_OK && *number == MDB_SUCCESS)
        *number = mdb_txn_commit(index.txn);
    else
        mdb_txn_abort(index.txn);
    if (status == LIG_OK && anew)
        status = ligi_mdb_env_fail(self, *number, "cannot be written");
    run->at = index.at;
    return status;
}

typedef lig_status (*item_visit)(checkpoint_run *run, MDB_val key, MDB_val stored);

static lig_status visit_items(checkpoint_run *run, item_visit visit)
{
    const ligi_file_snapshot *snapshot = run->snapshot;
    const char *place = run->catalog->place;
    MDB_cursor *cursor;
    MDB_val key = {1, (void *)"\1"}, value;

    LIG_TRY(ligi_mdb_fail(mdb_cursor_open(snapshot->txn, snapshot->dbi, &cursor), place,
                          "cannot be read"));
    lig_status status = LIG_OK;
    int number = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    while (number == MDB_SUCCESS && status == LIG_OK) {
        status = visit(run, key, value);
        number = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    if (status == LIG_OK && number != MDB_NOTFOUND)
        status = ligi_mdb_fail(number, place, "cannot be read");
    return status;
}

static void put_pair(ligi_writer *writer, MDB_val key, MDB_val stored)
{
    ligi_put_varint(writer, key.mv_size);
    ligi_put_bytes(writer, key.mv_data, key.mv_size);
    ligi_put_varint(writer, stored.mv_size);
    ligi_put_bytes(writer, stored.mv_data, stored.mv_size);
}

static MDB_val next_value(ligi_reader *pairs)
{
    size_t bytes = ligi_get_varint(pairs);
    return (MDB_val){bytes, (void *)ligi_get_bytes(pairs, bytes)};
}

static lig_status copy_item(checkpoint_run *run, MDB_val key, MDB_val stored)
{
    put_pair(&run->copy, key, stored);
    return run->copy.status;
}

/* LMDB cannot reuse pages that a snapshot may read. One that lasts as long as a checkpoint is being
 * written leaves thousands of free pages, and each later commit has to search and update a list of
 * them. An index that is small, also compared to the log, is copied instead (1 ms a MiB), while the
 * write lock keeps others waiting. */
static void copy_small_index(checkpoint_run *run)
{
    const ligi_file_snapshot *snapshot = run->snapshot;
    uint64_t most = run->catalog->log_bytes / 2;
    MDB_stat stat;

    most = most < COPIED_BYTES_MOST ? most : COPIED_BYTES_MOST;
    if (mdb_stat(snapshot->txn, snapshot->dbi, &stat) != MDB_SUCCESS ||
        (stat.ms_branch_pages + stat.ms_leaf_pages) * (uint64_t)stat.ms_psize > most)
        return;
    if (visit_items(run, copy_item) != LIG_OK) {
        ligi_writer_fini(&run->copy);
        return;
    }
    ligi_file_catalog_end(run->snapshot);
    run->snapshot = NULL;
}

/* Under LIGI_HEAD_WRITE: continues the log in a new segment, or begins it `anew`. */
static lig_status roll(checkpoint_run *run, int anew)
{
    ligi_file_catalog *self = run->catalog;
    lig_status status = LIG_OK;
    int number = MDB_MAP_FULL;

    for (int i = 0; i < GROW_TIMES_MAX && status == LIG_OK && number != MDB_SUCCESS; i++) {
        if (i > 0)
            status = number == MDB_MAP_FULL || number == MDB_MAP_RESIZED
                         ? ligi_file_catalog_adapt_map(self, number)
                         : ligi_mdb_env_fail(self, number, "cannot be written");
        if (status == LIG_OK)
            status = ligi_file_catalog_enter(self);
        if (status == LIG_OK) {
            status = move_index(run, anew, &number);
            ligi_file_catalog_leave(self);
        }
    }
    return status == LIG_OK ? ligi_mdb_env_fail(self, number, "cannot be written") : status;
}

/* A snapshot at the end of the log, which continues in a new segment. Releases LIGI_HEAD_WRITE,
 * which the caller holds when the log begins anew. */
static lig_status begin_at_roll(checkpoint_run *run, int anew)
{
    ligi_file_catalog *self = run->catalog;
    uint64_t version;

    if (!anew)
        LIG_TRY(ligi_file_catalog_lock(self, self->wait_ns));
    lig_status status = anew ? LIG_OK : ligi_file_catalog_settle(self);
    if (status == LIG_OK)
        status = roll(run, anew);
    if (status == LIG_OK)
        status = ligi_file_catalog_begin(self, &run->snapshot, &version);
    if (status == LIG_OK)
        copy_small_index(run);
    ligi_file_catalog_unlock(self);
    return status;
}

static lig_status leave_out(checkpoint_run *run, MDB_val key, MDB_val stored)
{
    char text[128];

    put_pair(&run->lost, key, stored);
    snprintf(text, sizeof text,
             "a value that version %" PRIu64 " of the log put into the catalog is lost",
             ligi_mdb_value_version(stored));
    LIG_TRY(run->problem(run->context, text, NULL, 0));
    return run->lost.status;
}

static lig_status put_stored(checkpoint_run *run, MDB_val key, MDB_val stored)
{
    ligi_checkpoint_item item = {.key = (const uint8_t *)key.mv_data + 1,
                                 .key_bytes = key.mv_size - 1,
                                 .version = ligi_mdb_value_version(stored)};
    ligi_mdb_value_read value = {.key = item.key, .key_bytes = item.key_bytes};

    lig_status status = ligi_mdb_value(&run->catalog->log, stored, &value);
    int lost = status == LIG_E_CORRUPT || status == LIG_E_BUSY || value.damaged;
    if (run->problem != NULL && lost) {
        free(value.owned);
        return leave_out(run, key, stored);
    }
    if (status == LIG_OK && value.damaged)
        status = lig_fail(LIG_E_CORRUPT, "%s: a value of version %" PRIu64 " is damaged",
                          run->catalog->place, item.version);
    if (status != LIG_OK) {
        free(value.owned);
        return status;
    }
    item.value = value.data;
    item.value_bytes = value.bytes;
    status = ligi_checkpoint_put(run->writer, &item);
    free(value.owned);
    return status;
}

static lig_status put_all(checkpoint_run *run)
{
    ligi_reader copy = {.data = run->copy.data, .bytes = run->copy.bytes};
    lig_status status = LIG_OK;

    if (run->snapshot != NULL)
        return visit_items(run, put_stored);
    while (copy.at < copy.bytes && status == LIG_OK) {
        MDB_val key = next_value(&copy), stored = next_value(&copy);
        status = put_stored(run, key, stored);
    }
    return status;
}

static int disk_is_full(const ligi_file_catalog *self)
{
    return self->log.numbered == 0 &&
           ligi_clog_bytes_left(&self->log.folder) < LIGI_CLOG_TIGHT_BYTES;
}

/* A checkpoint frees the space of retired items in the log, but a full disk may lack the space for
 * it: one is tried when half as much as before has to be written to it. */
int ligi_checkpointing_tight(ligi_file_catalog *self, const lig_catalog_edit *edit)
{
    uint64_t keep = self->log.keep;

    if (!(edit->flags & LIG_EDIT_FREES) || !disk_is_full(self))
        return 0;
    if (keep > self->tight / 2 && keep <= self->tight)
        return 0;
    self->tight = keep;
    return 1;
}

static lig_status make(checkpoint_run *run, int anew)
{
    ligi_file_catalog *self = run->catalog;

    LIG_TRY(begin_at_roll(run, anew));
    lig_status status = ligi_checkpoint_create(&self->log, &run->at, &run->writer);
    if (status == LIG_OK)
        status = put_all(run);
    ligi_file_catalog_end(run->snapshot);
    ligi_writer_fini(&run->copy);
    if (status == LIG_OK)
        status = ligi_checkpoint_finish(run->writer);
    ligi_checkpoint_abort(run->writer);
    return status;
}

/* What a commit has replaced since is not lost. */
static int erase_lost(const checkpoint_run *run, MDB_txn *txn)
{
    ligi_reader lost = {.data = run->lost.data, .bytes = run->lost.bytes};
    int number = MDB_SUCCESS;

    while (lost.at < lost.bytes && number == MDB_SUCCESS) {
        MDB_val key = next_value(&lost), before = next_value(&lost), now;
        number = mdb_get(txn, run->catalog->dbi, &key, &now);
        if (number == MDB_SUCCESS && now.mv_size == before.mv_size &&
            memcmp(now.mv_data, before.mv_data, now.mv_size) == 0)
            number = mdb_del(txn, run->catalog->dbi, &key, NULL);
        number = number == MDB_NOTFOUND ? MDB_SUCCESS : number;
    }
    return number;
}

/* The index drops values that the new checkpoint lacks. */
static lig_status forget_lost(checkpoint_run *run)
{
    ligi_file_catalog *self = run->catalog;
    MDB_txn *txn;

    if (run->lost.bytes == 0)
        return LIG_OK;
    LIG_TRY(ligi_file_catalog_lock(self, self->wait_ns));
    lig_status status = ligi_file_catalog_enter(self);
    if (status == LIG_OK) {
        int number = mdb_txn_begin(self->env, NULL, 0, &txn);
        if (number == MDB_SUCCESS) {
            number = erase_lost(run, txn);
            if (number == MDB_SUCCESS)
                number = mdb_txn_commit(txn);
            else
                mdb_txn_abort(txn);
        }
        status = ligi_mdb_env_fail(self, number, "cannot be written");
        ligi_file_catalog_leave(self);
    }
    ligi_file_catalog_unlock(self);
    return status;
}

lig_status ligi_checkpointing_anew(ligi_file_catalog *self, lig_catalog_problem problem,
                                   void *context)
{
    checkpoint_run run = {.catalog = self, .problem = problem, .context = context};

    lig_status status = make(&run, 1);
    if (status == LIG_OK && self->log.numbered == 0) /* segment and checkpoint are synced */
        ligi_head_sync(&self->log.head, run.at.version, ligi_head_epoch(&self->log.head));
    if (status == LIG_OK)
        status = forget_lost(&run);
    if (status == LIG_OK && self->log.numbered != 0)
        status = ligi_clog_superseded_numbered(&self->log);
    if (status == LIG_OK && self->log.numbered == 0)
        status = ligi_clog_superseded_below(&self->log, LIGI_NAME_SEGMENT, run.at.version + 1);
    if (status == LIG_OK && self->log.numbered == 0)
        status = ligi_clog_superseded_below(&self->log, LIGI_NAME_CHECKPOINT, run.at.version);
    if (status == LIG_OK)
        ligi_head_damage(&self->log.head, 0);
    ligi_writer_fini(&run.lost);
    return status;
}

/* Under LIGI_HEAD_WRITE: the whole map at the end of the log, not yet durable or visible. */
static lig_status write_map(checkpoint_run *run)
{
    ligi_file_catalog *self = run->catalog;
    ligi_mdb_txn index = {.dbi = self->dbi};
    uint64_t version;

    LIG_TRY(ligi_file_catalog_settle(self));
    LIG_TRY(ligi_file_catalog_begin(self, &run->snapshot, &version));
    index.txn = ((const ligi_file_snapshot *)run->snapshot)->txn;
    self->log.keep = ligi_mdb_erase_bytes(&index);
    lig_status status = ligi_mdb_position(index.txn, self->dbi, &run->at);
    if (status == LIG_OK)
        status = ligi_checkpoint_create(&self->log, &run->at, &run->writer);
    if (status == LIG_OK)
        status = visit_items(run, put_stored);
    ligi_file_catalog_end(run->snapshot);
    if (status == LIG_OK)
        status = ligi_checkpoint_complete(run->writer);
    if (status != LIG_OK) {
        ligi_checkpoint_abort(run->writer);
        run->writer = NULL;
    }
    return status;
}

/* Under LIGI_HEAD_WRITE. */
static void give_index_back(ligi_file_catalog *self)
{
    if (ligi_file_catalog_enter(self) != LIG_OK)
        return;
    ligi_mdb_env_give_back(self);
    ligi_file_catalog_leave(self);
}

/* On a full disk the map is written before the log is rolled: each new segment takes some of the
 * space that is kept for retiring. If there is no room, what the last checkpoint supersedes is
 * removed, and index and segment give back what is not needed for retiring. */
static lig_status make_tight(ligi_file_catalog *self)
{
    checkpoint_run run = {.catalog = self};
    size_t removed;

    LIG_TRY(ligi_file_catalog_lock(self, self->wait_ns));
    lig_status status = write_map(&run);
    if (status != LIG_OK && ligi_clog_is_full(lig_error_number())) {
        (void)ligi_clog_superseded_verified(&self->log, &removed);
        give_index_back(self);
        ligi_clog_segment_trim(&self->log, &run.at);
        status = write_map(&run);
    }
    if (status == LIG_OK)
        status = roll(&run, 0);
    ligi_file_catalog_unlock(self);
    if (status == LIG_OK)
        status = ligi_checkpoint_finish(run.writer);
    ligi_checkpoint_abort(run.writer);
    return status;
}

/* *tight: the disk is full, or was before. */
static lig_status make_or_clean(ligi_file_catalog *self, int *tight)
{
    checkpoint_run run = {.catalog = self};

    *tight = disk_is_full(self);
    lig_status status = *tight ? make_tight(self) : make(&run, 0);
    if (status == LIG_OK || *tight || self->log.numbered != 0 ||
        !ligi_clog_is_full(lig_error_number()))
        return status;
    *tight = 1;
    return make_tight(self);
}

void ligi_checkpointing(ligi_file_catalog *self, int now)
{
    int due = now, tight = 0;
    size_t removed;

    if (ligi_head_take(&self->log.head, LIGI_HEAD_CHECKPOINT, 0) != LIG_OK)
        return;
    lig_status status = now ? LIG_OK : is_due(self, &due);
    if (status == LIG_OK && due)
        status = make_or_clean(self, &tight);
    uint64_t left = tight ? 0 : ligi_clog_bytes_left(&self->log.folder);
    if (status == LIG_OK && due)
        status = self->log.numbered != 0 ? ligi_clog_superseded_numbered(&self->log)
                                         : ligi_clog_superseded_remove(&self->log, left, &removed);
    ligi_head_release(&self->log.head, LIGI_HEAD_CHECKPOINT);
    if (status != LIG_OK)
        ligi_log(LIG_LOG_WARNING, "%s: cannot write a checkpoint of the log: %s", self->place,
                 lig_error_text());
}

lig_status ligi_checkpointing_free(ligi_file_catalog *self)
{
    ligi_file_catalog_unlock_mine(self);
    LIG_TRY(ligi_file_catalog_settle(self));
    if (!disk_is_full(self))
        return LIG_OK;
    ligi_checkpointing(self, 1);
    LIG_TRY(ligi_file_catalog_lock(self, self->wait_ns));
    give_index_back(self);
    ligi_file_catalog_unlock(self);
    return LIG_OK;
}
