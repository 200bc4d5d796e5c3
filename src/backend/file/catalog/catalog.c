#include "backend/file/catalog/catalog.h"

#include "backend/file/catalog/catalog_gate.h"
#include "backend/file/catalog/catalog_snapshot.h"
#include "backend/file/catalog/checkpointing.h"
#include "backend/file/index/index_build.h"
#include "backend/file/index/index_env.h"
#include "backend/file/index/index_items.h"
#include "backend/file/index/rebuild.h"
#include "backend/file/log/log_numbers.h"
#include "backend/file/log/log_start.h"
#include "backend/file/log/log_sync.h"
#include "backend/file/names.h"
#include "backend/shared_instances.h"
#include "base/clock.h"
#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROW_TIMES_MAX 40
#define ATTACH_NS INT64_C(600000000000) /* while another process rebuilds the index */
#define BEHIND_TIMES_MAX 3
#define MEND_TIMES_MAX 3

/* --- opening --- */

static void forked(void *object)
{
    ligi_file_catalog *self = object;

    ligi_head_forked(&self->log.head);
    ligi_mdb_env_forked(self);
}

/* The last user records for the next one whether the index is unchanged. */
static void leave(ligi_file_catalog *self)
{
    struct stat info;
    int fd;

    int kept = self->env && mdb_env_get_fd(self->env, &fd) == MDB_SUCCESS ? dup(fd) : -1;
    ligi_mdb_env_close(self);
    if (kept < 0)
        return;
    if (self->log.head.page != NULL && ligi_head_attach(&self->log.head, 1, 0) == LIG_OK &&
        ligi_head_poisoned(&self->log.head) == 0 && fstat(kept, &info) == 0)
        ligi_head_leave(&self->log.head, &info);
    close(kept);
}

static void destroy(void *object)
{
    ligi_file_catalog *self = object;

    leave(self);
    ligi_head_close(&self->log.head);
    ligi_clog_folder_close(&self->log.folder);
    if (self->index_fd >= 0)
        close(self->index_fd);
    if (self->folder_fd >= 0)
        close(self->folder_fd);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
    free(self->held);
    free(self->place);
    free(self);
}

static lig_status open_head(ligi_file_catalog *self)
{
    int shared = self->log.numbered != 0, fd;

    lig_status status = ligi_entry_open(
        shared ? self->index_fd : self->folder_fd, shared ? self->index_fd : self->log.folder.fd,
        shared ? self->place : self->log.folder.log_place, LIGI_NAME_HEAD, O_RDWR | O_CREAT, &fd);
    if (status == LIG_E_DENIED && lig_error_number() != 0)
        return ligi_fail_errno(lig_error_number(),
                               "%s/" LIGI_NAME_LOG " is not writable (use mode=r to read only)",
                               self->place);
    LIG_TRY(status);
    status = ligi_plain_sole(fd, self->place, LIGI_NAME_LOG "/" LIGI_NAME_HEAD);
    if (status == LIG_OK)
        status = ligi_entry_identify(fd, self->place, LIGI_NAME_HEAD, &self->head_file);
    if (status != LIG_OK) {
        close(fd);
        return status;
    }
    return ligi_head_open(&self->log.head, fd, self->place);
}

/* While this process holds the store's own head, no process can make the store shared. */
static lig_status check_ordinary(ligi_file_catalog *self)
{
    if (self->log.numbered != 0)
        return LIG_OK;
    LIG_TRY(ligi_file_log_numbering(&self->log));
    if (self->log.numbered == 0)
        return LIG_OK;
    return lig_fail(LIG_E_BUSY,
                    "%s: the store has just become shared by several hosts (open it again)",
                    self->place);
}

/* The first user of a store finds its log and builds the index; later users join. */
static lig_status attach(ligi_file_catalog *self)
{
    ligi_clog_position at;

    int64_t end = ligi_now_ns() + ATTACH_NS;
    lig_status status = ligi_head_attach(&self->log.head, 1, 0);
    if (status == LIG_OK) {
        LIG_TRY(check_ordinary(self));
        LIG_TRY(ligi_rebuild(self));
        if (!ligi_head_damaged(&self->log.head))
            LIG_TRY(ligi_file_catalog_settle(self));
        return self->apart ? LIG_OK : ligi_head_attach(&self->log.head, 0, 0);
    }
    LIG_TRY(ligi_head_attach(&self->log.head, 0, end - ligi_now_ns()));
    LIG_TRY(check_ordinary(self));
    LIG_TRY(ligi_file_log_first(&self->log, &at));
    return ligi_mdb_env_open(self);
}

static lig_status create_parts(ligi_file_catalog *self, const ligi_file_catalog_place *place)
{
    LIG_TRY(ligi_strdup(&self->place, place->place));
    self->folder_fd = fcntl(place->folder_fd, F_DUPFD_CLOEXEC, 0);
    if (self->folder_fd < 0)
        return ligi_fail_errno(errno, "fcntl(F_DUPFD_CLOEXEC) failed for %s", place->place);
    self->index_fd = fcntl(place->index_fd, F_DUPFD_CLOEXEC, 0);
    if (self->index_fd < 0)
        return ligi_fail_errno(errno, "fcntl(F_DUPFD_CLOEXEC) failed for %s", place->place);
    self->apart = place->apart;
    self->map_bytes = place->map_bytes;
    self->log_bytes = self->log.segment_bytes = place->log_bytes;
    self->wait_ns = place->wait_ns;
    LIG_TRY(ligi_clog_folder_open(&self->log.folder, self->folder_fd, self->place, place->sync, 0));
    LIG_TRY(ligi_file_log_numbering(&self->log));
    LIG_TRY(open_head(self));
    return attach(self);
}

static lig_status create(void *opaque, void **object)
{
    pthread_condattr_t attributes;
    ligi_file_catalog *self;

    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "the catalog"));
    self->folder_fd = self->index_fd = self->log.folder.fd = self->log.head.fd = -1;
    self->index_lock_fd = -1;
    pthread_mutex_init(&self->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&self->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    lig_status status = create_parts(self, opaque);
    if (status == LIG_OK)
        *object = self;
    else
        destroy(self);
    return status;
}

static const ligi_shared_kind catalog_kind = {create, destroy, forked};

lig_status ligi_file_catalog_open(ligi_file_catalog **catalog, const ligi_file_catalog_place *place)
{
    char key[128];
    ligi_entry_id folder, index;
    void *object;

    LIG_TRY(ligi_entry_identify(place->folder_fd, place->place, ".", &folder));
    LIG_TRY(ligi_entry_identify(place->index_fd, place->place, ".", &index));
    snprintf(key, sizeof key, "catalog:%d:%" PRIx64 ":%" PRIx64 ":%" PRIx64 ":%" PRIx64,
             place->apart, (uint64_t)folder.device, (uint64_t)folder.inode, (uint64_t)index.device,
             (uint64_t)index.inode);
    LIG_TRY(ligi_shared_acquire(key, &catalog_kind, LIGI_SHARED_ANY, (void *)place, &object));
    *catalog = object;
    int *sync = &(*catalog)->log.folder.sync; /* one user may want it, another not */
    if (place->sync && !__atomic_load_n(sync, __ATOMIC_RELAXED))
        __atomic_store_n(sync, 1, __ATOMIC_RELAXED);
    return LIG_OK;
}

void ligi_file_catalog_close(ligi_file_catalog *catalog)
{
    if (catalog != NULL)
        ligi_shared_release(catalog);
}

/* --- writing --- */

lig_status ligi_file_catalog_lock(ligi_file_catalog *self, int64_t timeout_ns)
{
    return ligi_head_take(&self->log.head, LIGI_HEAD_WRITE, timeout_ns);
}

void ligi_file_catalog_unlock(ligi_file_catalog *self)
{
    ligi_head_release(&self->log.head, LIGI_HEAD_WRITE);
}

void ligi_file_catalog_unlock_mine(ligi_file_catalog *self)
{
    if (ligi_head_mine(&self->log.head, LIGI_HEAD_WRITE))
        ligi_file_catalog_unlock(self);
}

static lig_status lock_once(ligi_file_catalog *self)
{
    return ligi_head_mine(&self->log.head, LIGI_HEAD_WRITE)
               ? LIG_OK
               : ligi_file_catalog_lock(self, self->wait_ns);
}

void ligi_file_catalog_holder(ligi_file_catalog *self, char *text, size_t text_bytes)
{
    ligi_head_writer(self->log.head.fd, text, text_bytes);
}

/* Under the lock: brings the index to the end of the log, then appends the edit (may be NULL). */
typedef struct write_run {
    ligi_file_catalog *catalog;
    const lig_catalog_edit *edit;
    ligi_mdb_txn index;
    ligi_writer record;
    int appended;
    int rolled, tight;         /* a checkpoint may be due; it is, on a full disk */
    int dirty;                 /* the transaction holds the edit */
    int caught_up;             /* with the log, in a separate transaction */
    ligi_clog_durable durable; /* what has to be synced afterwards */
} write_run;

static void close_segment(write_run *run)
{
    ligi_clog_folder_release(&run->catalog->log.folder, run->durable.file);
    run->durable.file = NULL;
}

/* Before anything is appended: afterwards a process may have no descriptor left, and would not know
 * whether its commit succeeded. */
static lig_status open_segment(write_run *run, uint64_t segment)
{
    ligi_file_log *log = &run->catalog->log;

    close_segment(run);
    if (!log->folder.sync || log->numbered != 0)
        return LIG_OK;
    return ligi_clog_tail_file(log, segment, &run->durable.file);
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
                        ", but the change is based on %" PRIu64,
                        self->place, at->version, run->edit->version);
    LIG_TRY(ligi_mdb_env_reserve(self, run->edit));
    LIG_TRY(ligi_clog_record_put(&run->record, run->edit, &header));
    const ligi_clog_visitor visitor = {ligi_mdb_apply, &run->index};
    uint64_t segment = at->segment;
    self->log.keep = ligi_mdb_erase_bytes(&run->index);
    LIG_TRY(ligi_file_log_reserve(&self->log, at, header.bytes,
                                  run->edit->flags & LIG_EDIT_FREES ? 1 : 0, &visitor,
                                  self->wait_ns));
    run->rolled |= segment != at->segment;
    run->tight |= ligi_checkpointing_tight(self, run->edit);
    before = *at;
    run->dirty = 1;
    LIG_TRY(open_segment(run, at->segment));
    LIG_TRY(ligi_mdb_apply(&run->index, run->record.data, &header, &before));
    LIG_TRY(ligi_mdb_env_still(self));
    LIG_TRY(ligi_file_log_append(&self->log, at, run->record.data, &header));
    run->appended = 1;
    run->durable.version = at->version;
    return LIG_OK;
}

/* Rebuilds the index from the last checkpoint, in the same transaction. */
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

/* Other hosts may have continued, and removed the segments that follow the index. */
static lig_status catch_up(write_run *run)
{
    const ligi_clog_visitor visitor = {ligi_mdb_apply, &run->index};
    ligi_file_log *log = &run->catalog->log;

    lig_status status = ligi_file_log_tail(log, &run->index.at, &visitor);
    if (status == LIG_E_CORRUPT && log->numbered != 0)
        status = start_over(run);
    return status;
}

/* *number is LMDB's answer when the status is LIG_OK. */
static lig_status write_once(write_run *run, int *number)
{
    ligi_file_catalog *self = run->catalog;

    run->index = (ligi_mdb_txn){.dbi = self->dbi};
    run->record.bytes = 0;
    run->dirty = 0;
    *number = mdb_txn_begin(self->env, NULL, 0, &run->index.txn);
    if (*number != MDB_SUCCESS)
        return LIG_OK;
    ligi_mdb_env_ahead(self);
    lig_status status = ligi_mdb_position(run->index.txn, self->dbi, &run->index.at);
    uint64_t before = run->index.at.segment;
    if (status == LIG_OK)
        status = catch_up(run);
    if (status == LIG_OK) /* a killed process may have committed it without reporting it */
        ligi_head_segment_set(&self->log.head, run->index.at.segment);
    /* Pages for what was read are not reserved (ligi_mdb_env_reserve): that is committed before. */
    int first = run->edit != NULL && run->index.applied > 0 && !run->caught_up;
    if (status == LIG_OK && run->edit != NULL && !first)
        status = append(run);
    if (run->index.number != MDB_SUCCESS) {
        *number = run->index.number;
        status = LIG_OK;
    }
    /* What was read is kept even if the edit is refused. */
    int keep = *number == MDB_SUCCESS &&
               (run->appended ||
                (!run->dirty && (run->index.applied > 0 || run->index.at.segment != before)));
    if (keep)
        *number = ligi_mdb_position_put(&run->index);
    if (keep && *number == MDB_SUCCESS)
        *number = mdb_txn_commit(run->index.txn);
    else if (run->index.txn != NULL)
        mdb_txn_abort(run->index.txn);
    if (!first || status != LIG_OK || *number != MDB_SUCCESS)
        return status;
    run->caught_up = 1;
    return write_once(run, number);
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

static int is_recoverable(int number)
{
    return number == MDB_MAP_FULL || number == MDB_MAP_RESIZED || number == MDB_PANIC;
}

static lig_status write_log(write_run *run)
{
    ligi_file_catalog *self = run->catalog;
    int number = MDB_SUCCESS;

    if (ligi_head_damaged(&self->log.head))
        return lig_fail(LIG_E_CORRUPT,
                        "%s: the log of commits is damaged: the store can be read but not written "
                        "(ligament check --repair)",
                        self->place);
    lig_status status = try_write(run, &number);
    for (int i = 1; i < GROW_TIMES_MAX && status == LIG_OK && is_recoverable(number); i++) {
        status = ligi_file_catalog_adapt_map(self, number);
        if (status == LIG_OK)
            status = try_write(run, &number);
    }
    if (run->appended) /* regardless of the index, which catches up */
        return LIG_OK;
    LIG_TRY(status);
    run->durable.version = run->index.at.version;
    return ligi_mdb_env_fail(self, number, "cannot be written");
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

static lig_status sync_log(ligi_file_catalog *self, const ligi_clog_durable *wanted)
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

/* The next snapshot shows whether the appended record is valid. */
static lig_status outcome_unknown(void)
{
    return ligi_fail_again(LIG_E_IO,
                           "%s; whether the commit took effect is unknown (check whether the model "
                           "exists, and save again if not)",
                           lig_error_text());
}

/* A sync that fails in between may have lost the first of them: their oldest epoch counts. */
static void leave_pending(write_run *run, lig_catalog_pending *pending)
{
    ligi_clog_folder_release(&run->catalog->log.folder, pending->held);
    if (pending->version == 0)
        pending->first = run->durable.epoch;
    assert(run->durable.version >= pending->version);
    pending->version = run->durable.version;
    pending->held = run->durable.file;
    run->durable.file = NULL;
}

static lig_status write_and_sync(write_run *run, lig_catalog_pending *pending)
{
    ligi_file_catalog *self = run->catalog;

    lig_status status = write_log(run);
    run->durable.epoch = ligi_head_epoch(&self->log.head);
    if (status == LIG_OK)
        ligi_head_append(&self->log.head, run->durable.version);
    ligi_file_catalog_unlock(self);
    if (status == LIG_OK && run->appended && pending != NULL) {
        leave_pending(run, pending);
    } else if (status == LIG_OK && self->log.folder.sync) {
        status = sync_log(self, &run->durable);
        if (status != LIG_OK && run->appended)
            status = outcome_unknown();
    }
    close_segment(run);
    return status;
}

lig_status ligi_file_catalog_commit(ligi_file_catalog *self, const lig_catalog_edit *edit)
{
    write_run run = {.catalog = self, .edit = edit};

    if (edit->op_count == 0 && edit->event_count == 0 && edit->flags & LIG_EDIT_FREES)
        return ligi_checkpointing_free(self);
    lig_status status = ligi_file_catalog_check_ops(edit);
    if (status != LIG_OK)
        ligi_file_catalog_unlock_mine(self);
    LIG_TRY(status);
    LIG_TRY(lock_once(self));
    status = write_and_sync(&run, edit->pending);
    ligi_writer_fini(&run.record);
    run.rolled |= self->log.numbered != 0 && run.durable.version % LIGI_CHECKPOINT_COMMITS == 0;
    if (status == LIG_OK && (run.rolled || run.tight))
        ligi_checkpointing(self, run.tight);
    return status;
}

lig_status ligi_file_catalog_sync(ligi_file_catalog *self, lig_catalog_pending *pending)
{
    const ligi_clog_durable wanted = {pending->version, (uint32_t)pending->first, pending->held};
    lig_status status = LIG_OK;

    if (wanted.version != 0 && self->log.folder.sync)
        status = sync_log(self, &wanted);
    ligi_clog_folder_release(&self->log.folder, pending->held);
    *pending = (lig_catalog_pending){0};
    return status == LIG_OK ? LIG_OK : outcome_unknown();
}

lig_status ligi_file_catalog_settle(ligi_file_catalog *self)
{
    write_run run = {.catalog = self};

    if (ligi_head_mine(&self->log.head, LIGI_HEAD_WRITE)) {
        LIG_TRY(write_log(&run));
        if (self->log.numbered != 0) /* nothing is checked again up to there */
            ligi_head_append(&self->log.head, run.index.at.version);
        return LIG_OK;
    }
    LIG_TRY(lock_once(self));
    return write_and_sync(&run, NULL);
}

lig_status ligi_file_catalog_adopt(ligi_file_catalog *self)
{
    write_run run = {.catalog = self};

    LIG_TRY(ligi_file_catalog_lock(self, 0));
    return write_and_sync(&run, NULL);
}

/* --- reading --- */

/* On success the transaction counts as active until leave. */
static int begin_once(ligi_file_catalog *self, MDB_txn **txn)
{
    int dead;

    int number = mdb_txn_begin(self->env, NULL, MDB_RDONLY, txn);
    if (number == MDB_READERS_FULL && mdb_reader_check(self->env, &dead) == MDB_SUCCESS)
        number = mdb_txn_begin(self->env, NULL, MDB_RDONLY, txn);
    return number;
}

static lig_status begin_snapshot(ligi_file_catalog *self, void **snapshot, uint64_t *version)
{
    MDB_txn *txn;

    LIG_TRY(ligi_file_catalog_enter(self));
    int number = begin_once(self, &txn);
    for (int i = 0; is_recoverable(number) && i < GROW_TIMES_MAX; i++) {
        ligi_file_catalog_leave(self);
        LIG_TRY(ligi_file_catalog_adapt_map(self, number));
        LIG_TRY(ligi_file_catalog_enter(self));
        number = begin_once(self, &txn);
    }
    lig_status status = ligi_mdb_fail(number, self->place, "cannot be read");
    if (status == LIG_OK) {
        const ligi_file_snapshot_source source = {txn, self->dbi, &self->log,
                                                  ligi_file_catalog_leave, self};
        status = ligi_file_snapshot_create(&source, snapshot, version);
    }
    if (status != LIG_OK)
        ligi_file_catalog_leave(self);
    return status;
}

/* What a snapshot shows must survive a power failure. LIG_E_BUSY, as from ligi_file_log_sync. */
static lig_status make_durable(ligi_file_catalog *self, uint64_t version, uint32_t epoch)
{
    if (ligi_head_damaged(&self->log.head) || ligi_head_synced(&self->log.head) >= version)
        return LIG_OK;
    if (!self->log.folder.sync) { /* the writer has not yet published what the index shows */
        if (ligi_head_appended(&self->log.head) < version)
            ligi_head_append(&self->log.head, version);
        return LIG_OK;
    }
    if (ligi_head_mine(&self->log.head, LIGI_HEAD_WRITE))
        return LIG_OK; /* an edit is in progress: its commit will follow this version */
    const ligi_clog_durable wanted = {.version = version, .epoch = epoch};
    ligi_head_append(&self->log.head, version);
    return ligi_file_log_sync(&self->log, &wanted, self->wait_ns);
}

lig_status ligi_file_catalog_begin(ligi_file_catalog *self, void **snapshot, uint64_t *version)
{
    if (!ligi_head_damaged(&self->log.head) &&
        ligi_file_log_news(&self->log, ligi_head_appended(&self->log.head)))
        LIG_TRY(ligi_file_catalog_settle(self));
    for (int i = 0; i < BEHIND_TIMES_MAX; i++) {
        uint32_t epoch = ligi_head_epoch(&self->log.head);
        uint64_t published = ligi_head_appended(&self->log.head);
        LIG_TRY(begin_snapshot(self, snapshot, version));
        /* The index is behind: the commit succeeded, but the index could not be written. */
        int behind = (*version < published || *version < ligi_head_synced(&self->log.head)) &&
                     !ligi_head_damaged(&self->log.head);
        lig_status status = behind ? LIG_OK : make_durable(self, *version, epoch);
        if (!behind && status == LIG_OK)
            return LIG_OK;
        /* Without a snapshot: the index may have to be opened again for a new segment. */
        ligi_file_catalog_end(*snapshot);
        if (status != LIG_OK && status != LIG_E_IO && status != LIG_E_BUSY)
            return status;
        LIG_TRY(ligi_file_catalog_settle(self));
    }
    return lig_fail(LIG_E_IO, "%s: cannot update the index", self->place);
}
