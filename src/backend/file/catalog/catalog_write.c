#include "backend/file/catalog/catalog_write.h"

#include "backend/file/catalog/catalog_gate.h"
#include "backend/file/catalog/catalog_snapshot.h"
#include "backend/file/catalog/checkpointing.h"
#include "backend/file/index/index_build.h"
#include "backend/file/index/index_env.h"
#include "backend/file/index/index_items.h"
#include "backend/file/index/index_tail.h"
#include "backend/file/log/log_numbers.h"
#include "base/clock.h"
#include "base/error.h"

#include <inttypes.h>

#define GROW_TIMES_MAX 40
#define MEND_TIMES_MAX 3

/* What happens under the lock: the edit (may be NULL) is appended to the log. Before, or with it,
 * the index reads on to the log's end, unless it may stay behind. */
typedef struct write_run {
    ligi_file_catalog *catalog;
    const lig_catalog_edit *edit;
    ligi_mdb_txn index; /* of which only `at` counts when the record is appended alone */
    ligi_writer record;
    int alone; /* the record is appended, and the index stays behind */
    int appended, rolled;
    int dirty;                 /* the transaction holds the edit */
    ligi_clog_durable durable; /* what has to be synced afterwards */
} write_run;

static void close_segment(write_run *run)
{
    ligi_clog_folder_release(&run->catalog->log.folder, run->durable.file);
    run->durable.file = NULL;
}

/* Before anything is appended: afterwards a process may have no descriptor left, and would not know
 * whether its commit stands. */
static lig_status open_segment(write_run *run, uint64_t segment)
{
    ligi_file_log *log = &run->catalog->log;

    close_segment(run);
    if (!log->folder.sync || log->numbered != 0)
        return LIG_OK;
    return ligi_clog_segment_file(log, segment, &run->durable.file);
}

static lig_status append(write_run *run)
{
    ligi_file_catalog *self = run->catalog;
    ligi_clog_position *at = &run->index.at, before;
    ligi_clog_header header = {.version = at->version + 1,
                               .previous = at->chain,
                               .synced = ligi_head_synced(&self->log.head),
                               .date_ns = ligi_date_ns()};

    if (at->version != run->edit->version)
        return lig_fail(LIG_E_BUSY,
                        "%s: the catalog is at version %" PRIu64
                        ", the change was made for %" PRIu64,
                        self->place, at->version, run->edit->version);
    LIG_TRY(ligi_clog_record_put(&run->record, run->edit, &header));
    const ligi_clog_visitor visitor = {ligi_mdb_apply, &run->index};
    uint64_t segment = at->segment;
    LIG_TRY(ligi_file_log_reserve(&self->log, at, header.bytes,
                                  run->edit->flags & LIG_EDIT_FREES ? 1 : 0,
                                  run->alone ? NULL : &visitor, self->wait_ns));
    run->rolled |= segment != at->segment;
    before = *at;
    run->dirty = 1;
    LIG_TRY(open_segment(run, at->segment));
    if (!run->alone)
        LIG_TRY(ligi_mdb_apply(&run->index, run->record.data, &header, &before));
    LIG_TRY(ligi_mdb_env_still(self));
    LIG_TRY(ligi_file_log_append(&self->log, at, run->durable.file, run->record.data, &header));
    if (run->alone)
        ligi_mdb_tail_add(self, run->record.data, &header, &before);
    run->appended = 1;
    run->durable.version = at->version;
    return LIG_OK;
}

/* The index is made from the last checkpoint again, in the same transaction. */
static lig_status start_over(write_run *run)
{
    ligi_file_catalog *self = run->catalog;
    ligi_checkpoint_info info;
    size_t damaged = 0;

    LIG_TRY(ligi_mdb_base(&self->log, UINT64_MAX, &info, &damaged));
    mdb_txn_abort(run->index.txn);
    run->index = (ligi_mdb_txn){.dbi = self->dbi, .applied = 1};
    run->index.number = mdb_txn_begin(self->env, NULL, 0, &run->index.txn);
    if (run->index.number != MDB_SUCCESS)
        return LIG_E_IO;
    run->index.number = mdb_drop(run->index.txn, self->dbi, 0);
    return run->index.number == MDB_SUCCESS ? ligi_mdb_build(&self->log, &run->index, &info, 1)
                                            : LIG_E_IO;
}

/* Other hosts may have gone on, and removed what follows the index. */
static lig_status catch_up(write_run *run)
{
    const ligi_clog_visitor visitor = {ligi_mdb_apply, &run->index};
    ligi_file_log *log = &run->catalog->log;

    /* Another process with a head of its own may be appending what looks like a cut record. */
    LIG_TRY(ligi_mdb_head_still(run->catalog));
    lig_status status = ligi_file_log_tail(log, &run->index.at, &visitor);
    if (status == LIG_E_CORRUPT && log->numbered != 0)
        status = start_over(run);
    return status;
}

/* *number is LMDB's answer when the status is LIG_OK. */
static lig_status write_once(write_run *run, int *number)
{
    ligi_file_catalog *self = run->catalog;
    uint64_t before = 0;

    run->index = (ligi_mdb_txn){.dbi = self->dbi};
    run->record.bytes = 0;
    run->dirty = 0;
    *number = mdb_txn_begin(self->env, NULL, 0, &run->index.txn);
    if (*number != MDB_SUCCESS)
        return LIG_OK;
    ligi_mdb_env_ahead(self);
    lig_status status = ligi_mdb_position(run->index.txn, self->dbi, &run->index.at);
    before = run->index.at.segment;
    if (status == LIG_OK)
        status = catch_up(run);
    if (status == LIG_OK) /* a killed process may have made it and not said so */
        ligi_head_segment_set(&self->log.head, run->index.at.segment);
    if (status == LIG_OK && run->edit != NULL)
        status = append(run);
    if (run->index.number != MDB_SUCCESS) {
        *number = run->index.number;
        status = LIG_OK;
    }
    /* What was read is kept, also when the edit was refused. */
    int keep = *number == MDB_SUCCESS &&
               (run->appended ||
                (!run->dirty && (run->index.applied > 0 || run->index.at.segment != before)));
    if (keep)
        *number = ligi_mdb_position_put(&run->index);
    if (keep && *number == MDB_SUCCESS)
        *number = mdb_txn_commit(run->index.txn);
    else if (run->index.txn != NULL)
        mdb_txn_abort(run->index.txn);
    return status;
}

static lig_status try_write(write_run *run, int *number)
{
    LIG_TRY(ligi_file_catalog_enter(run->catalog));
    lig_status status = write_once(run, number);
    ligi_file_catalog_leave(run->catalog);
    if (run->appended) /* the commit stands when its record does */
        run->edit = NULL;
    return status;
}

static uint64_t edit_bytes(const lig_catalog_edit *edit)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < edit->op_count; i++)
        bytes += edit->ops[i].key_bytes + (edit->ops[i].value ? edit->ops[i].value_bytes : 0);
    return bytes;
}

static lig_status write_log(write_run *run)
{
    ligi_file_catalog *self = run->catalog;
    int number = MDB_SUCCESS;

    if (ligi_head_damaged(&self->log.head))
        return lig_fail(LIG_E_CORRUPT,
                        "%s: the log of commits is damaged: the store can be read but not written "
                        "(run ligament check --repair)",
                        self->place);
    run->alone =
        run->edit != NULL && ligi_mdb_tail_end(self, edit_bytes(run->edit), &run->index.at);
    if (run->alone)
        return append(run);
    lig_status status = try_write(run, &number);
    for (int i = 1; i < GROW_TIMES_MAX && status == LIG_OK &&
                    (number == MDB_MAP_FULL || number == MDB_MAP_RESIZED);
         i++) {
        status = ligi_file_catalog_adapt_map(self, number);
        if (status == LIG_OK)
            status = try_write(run, &number);
    }
    if (run->appended) /* whatever became of the index: it catches up */
        return LIG_OK;
    LIG_TRY(status);
    run->durable.version = run->index.at.version;
    return ligi_mdb_env_fail(self, number, "cannot be written");
}

static lig_status check_ops(const lig_catalog_edit *edit)
{
    uint8_t stored[LIGI_KEY_BYTES_MAX + 1];
    MDB_val key;

    for (size_t i = 0; i < edit->op_count; i++) {
        const lig_catalog_op *op = &edit->ops[i];
        LIG_TRY(ligi_file_catalog_key(op->key, op->key_bytes, stored, &key));
        if (op->value != NULL && op->value_bytes > INT32_MAX)
            return lig_fail(LIG_E_LIMIT, "a value of %zu bytes is too large for the catalog",
                            op->value_bytes);
    }
    return LIG_OK;
}

/* Where a sync failed, or its process was stopped or killed, the commits are written again into a
 * new segment. */
static lig_status mend(ligi_file_catalog *self)
{
    write_run run = {.catalog = self};

    LIG_TRY(ligi_file_catalog_lock(self, self->wait_ns));
    lig_status status = write_log(&run);
    if (status == LIG_OK)
        ligi_head_append(&self->log.head, run.durable.version);
    ligi_file_catalog_unlock(self);
    return status;
}

lig_status ligi_file_catalog_sync(ligi_file_catalog *self, const ligi_clog_durable *wanted)
{
    lig_status status = ligi_file_log_sync(&self->log, wanted, self->wait_ns);
    for (int i = 0; i < MEND_TIMES_MAX && status == LIG_E_BUSY; i++) {
        LIG_TRY(mend(self));
        status = ligi_file_log_sync(&self->log, wanted, self->wait_ns);
    }
    return status == LIG_E_BUSY
               ? lig_fail(LIG_E_IO, "%s/" LIGI_NAME_LOG ": cannot be synced", self->place)
               : status;
}

/* The next snapshot shows whether the record that was appended stands. */
static lig_status outcome_unknown(void)
{
    return ligi_fail_again(LIG_E_IO,
                           "%s; the outcome of the commit is unknown (check whether the model "
                           "exists, and save again if not)",
                           lig_error_text());
}

static lig_status write_and_sync(write_run *run)
{
    ligi_file_catalog *self = run->catalog;

    lig_status status = write_log(run);
    run->durable.epoch = ligi_head_epoch(&self->log.head);
    if (status == LIG_OK)
        ligi_head_append(&self->log.head, run->durable.version);
    ligi_file_catalog_unlock(self);
    if (status == LIG_OK && self->log.folder.sync) {
        status = ligi_file_catalog_sync(self, &run->durable);
        if (status != LIG_OK && run->appended)
            status = outcome_unknown();
    }
    close_segment(run);
    return status;
}

static lig_status lock_once(ligi_file_catalog *self)
{
    return ligi_head_mine(&self->log.head, LIGI_HEAD_WRITE)
               ? LIG_OK
               : ligi_file_catalog_lock(self, self->wait_ns);
}

lig_status ligi_file_catalog_commit(ligi_file_catalog *self, const lig_catalog_edit *edit)
{
    write_run run = {.catalog = self, .edit = edit};

    lig_status status = check_ops(edit);
    if (status != LIG_OK) {
        ligi_file_catalog_unlock_mine(self);
        return status;
    }
    LIG_TRY(lock_once(self));
    status = write_and_sync(&run);
    ligi_writer_fini(&run.record);
    if (status == LIG_OK && (run.rolled || (self->log.numbered != 0 &&
                                            run.durable.version % LIGI_CHECKPOINT_COMMITS == 0)))
        ligi_checkpointing(self, 0);
    return status;
}

lig_status ligi_file_catalog_settle(ligi_file_catalog *self)
{
    write_run run = {.catalog = self};

    if (ligi_head_mine(&self->log.head, LIGI_HEAD_WRITE)) {
        LIG_TRY(write_log(&run));
        if (self->log.numbered != 0) /* nothing is looked for again up to there */
            ligi_head_append(&self->log.head, run.index.at.version);
        return LIG_OK;
    }
    LIG_TRY(lock_once(self));
    return write_and_sync(&run);
}

lig_status ligi_file_catalog_adopt(ligi_file_catalog *self)
{
    write_run run = {.catalog = self};

    LIG_TRY(ligi_file_catalog_lock(self, 0));
    return write_and_sync(&run);
}
