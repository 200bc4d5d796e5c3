#include "backend/file/index/rebuild.h"

#include "backend/file/catalog/catalog_check.h"
#include "backend/file/catalog/catalog_snapshot.h"
#include "backend/file/catalog/upgrade.h"
#include "backend/file/folder.h"
#include "backend/file/index/index_build.h"
#include "backend/file/index/index_env.h"
#include "backend/file/index/repair.h"
#include "backend/file/log/log_start.h"
#include "base/error.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROW_TIMES_MAX 40

/* --- the log --- */

typedef struct rebuild_run {
    ligi_file_catalog *catalog;
    int damaged;      /* an acknowledged commit is missing or damaged */
    int lost;         /* there is an index, but no log */
    int used;         /* the index is the one that was left */
    uint64_t segment; /* that it has reached then; otherwise 0 */
} rebuild_run;

/* An empty checkpoint: the log continues after the lost versions. */
static lig_status put_empty(ligi_file_log *log, const ligi_clog_position *at)
{
    ligi_checkpoint_writer *writer = NULL;

    lig_status status = ligi_checkpoint_create(log, at, &writer);
    if (status == LIG_OK)
        status = ligi_checkpoint_finish(writer);
    ligi_checkpoint_abort(writer);
    return status;
}

/* Versions that are recorded in the head as committed are not reused. */
static lig_status begin_log(ligi_file_catalog *self)
{
    ligi_clog_position at = {.version = ligi_head_witness(self->log.head.fd),
                             .chain = ligi_clog_chain_start(self->log.id)};

    if (at.version != 0)
        LIG_TRY(put_empty(&self->log, &at));
    return ligi_file_log_create(&self->log, &at);
}

static lig_status start_log(rebuild_run *run)
{
    ligi_file_catalog *self = run->catalog;
    struct stat info;

    LIG_TRY(ligi_file_log_new_id(&self->log));
    run->lost = ligi_entry_look(self->index_fd, self->index_fd, self->place, LIGI_NAME_INDEX,
                                &info) == LIG_OK &&
                info.st_size > 0;
    return run->lost ? LIG_OK : begin_log(self);
}

/* Learns the log's id; starts a log where there is none. */
static lig_status find_log(rebuild_run *run)
{
    ligi_file_catalog *self = run->catalog;
    ligi_checkpoint_info info;
    ligi_clog_position at;
    size_t damaged = 0;

    LIG_TRY(ligi_mdb_base(&self->log, UINT64_MAX, &info, &damaged));
    lig_status status = ligi_file_log_first(&self->log, &at);
    if (status == LIG_E_NOTFOUND && info.version == 0 && damaged == 0 && self->log.numbered == 0)
        return start_log(run);
    if (info.version != 0)
        memcpy(self->log.id, info.id, sizeof self->log.id);
    if (self->log.numbered != 0 && status == LIG_E_NOTFOUND) /* what is left begins at it */
        status = info.version != 0 ? LIG_OK : LIG_E_CORRUPT;
    if (status == LIG_E_NOTFOUND && info.version != 0) { /* an upgrade was killed behind it */
        at = (ligi_clog_position){.version = info.version, .chain = info.chain};
        return ligi_file_log_create(&self->log, &at);
    }
    if (status == LIG_E_CORRUPT || status == LIG_E_NOTFOUND)
        run->damaged = 1;
    return run->damaged ? LIG_OK : status;
}

/* --- the index --- */

/* One attempt, in one transaction: LMDB spills pages that it has no memory for. */
static lig_status build_once(ligi_file_catalog *self, const ligi_checkpoint_info *info, int *number)
{
    ligi_mdb_txn index = {.dbi = self->dbi};

    *number = mdb_txn_begin(self->env, NULL, 0, &index.txn);
    if (*number != MDB_SUCCESS)
        return LIG_OK;
    lig_status status = ligi_mdb_build(&self->log, &index, info, 1);
    *number = index.number;
    if (status == LIG_OK)
        *number = mdb_txn_commit(index.txn);
    else
        mdb_txn_abort(index.txn);
    return *number == MDB_SUCCESS ? status : LIG_OK;
}

static lig_status build_index(ligi_file_catalog *self, const ligi_checkpoint_info *info)
{
    lig_status status = LIG_OK;
    int number = MDB_MAP_FULL;

    for (int i = 0; i < GROW_TIMES_MAX && number == MDB_MAP_FULL && status == LIG_OK; i++) {
        if (i > 0)
            status = ligi_file_catalog_adapt_map(self, number);
        if (status == LIG_OK)
            status = build_once(self, info, &number);
    }
    return status == LIG_OK ? ligi_mdb_env_fail(self, number, "cannot be rebuilt") : status;
}

/* From the last checkpoint, or when it is damaged from the one before it. */
static lig_status rebuild_index(ligi_file_catalog *self)
{
    ligi_checkpoint_info info;
    uint64_t below = UINT64_MAX;
    size_t damaged = 0;
    lig_status status;

    do {
        LIG_TRY(ligi_mdb_env_remove(self));
        LIG_TRY(ligi_mdb_env_open(self));
        LIG_TRY(ligi_mdb_base(&self->log, below, &info, &damaged));
        status = build_index(self, &info);
        below = info.version;
    } while (status == LIG_E_CORRUPT && info.version != 0);
    return status;
}

/* 1 if the file is unchanged since the last user closed it. */
static int was_left(const ligi_file_catalog *self)
{
    struct stat info;

    return ligi_entry_look(self->index_fd, self->index_fd, self->place, LIGI_NAME_INDEX, &info) ==
               LIG_OK &&
           ligi_head_left(&self->log.head, &info);
}

/* 1 if LMDB can read the file, although it is not verified. */
static int is_well_formed(const ligi_file_catalog *self)
{
    int fd;

    if (ligi_entry_open(self->index_fd, self->index_fd, self->place, LIGI_NAME_INDEX, O_RDONLY,
                        &fd) != LIG_OK)
        return 0;
    lig_status status = ligi_file_catalog_check_whole(fd, self->place);
    close(fd);
    return status == LIG_OK;
}

/* Without a log, an index that may lack the last commits is the best source. */
static lig_status use_left(rebuild_run *run)
{
    ligi_file_catalog *self = run->catalog;
    ligi_clog_position at;
    MDB_txn *txn;

    if (!was_left(self) && !(run->lost && is_well_formed(self)))
        return LIG_OK;
    /* An unused lock file may contain anything. */
    LIG_TRY(ligi_mdb_env_remove_lock(self));
    LIG_TRY(ligi_mdb_env_open(self));
    LIG_TRY(ligi_mdb_fail(mdb_txn_begin(self->env, NULL, MDB_RDONLY, &txn), self->place,
                          "cannot be read"));
    run->used = (run->lost || run->damaged || ligi_mdb_bound(txn, self->dbi, self->log.id)) &&
                ligi_mdb_position(txn, self->dbi, &at) == LIG_OK && at.segment != 0;
    mdb_txn_abort(txn);
    /* Other hosts have continued, and have removed the log that follows the index. */
    if (run->used && self->log.numbered != 0 && !ligi_file_log_reaches(&self->log, &at)) {
        run->used = 0;
        return LIG_OK;
    }
    run->segment = run->used ? at.segment : 0;
    if (run->used && (run->lost || !ligi_file_log_reaches(&self->log, &at)))
        run->damaged = 1;
    return LIG_OK;
}

static lig_status make_index(rebuild_run *run)
{
    ligi_file_catalog *self = run->catalog;

    if (run->lost) { /* and the index is unusable */
        LIG_TRY(begin_log(self));
        return rebuild_index(self);
    }
    lig_status status = run->damaged ? LIG_E_CORRUPT : rebuild_index(self);
    if (status != LIG_E_CORRUPT)
        return status;
    run->damaged = 1;
    LIG_TRY(ligi_mdb_env_remove(self));
    LIG_TRY(ligi_mdb_env_open(self));
    return ligi_repair_index(self);
}

/* A segment found here may have been made by a process that was killed before it synced the
 * folder. */
static lig_status name_segments(const rebuild_run *run)
{
    ligi_file_log *log = &run->catalog->log;

    if (!log->folder.sync || (run->segment != 0 && ligi_head_named(&log->head) == run->segment))
        return LIG_OK;
    LIG_TRY(ligi_folder_sync(log->folder.fd, log->folder.place));
    if (run->segment != 0)
        ligi_head_named_set(&log->head, run->segment);
    return LIG_OK;
}

lig_status ligi_rebuild(ligi_file_catalog *self)
{
    rebuild_run run = {.catalog = self};

    ligi_clog_folder_clean(&self->log.folder);
    if (self->log.numbered == 0)
        LIG_TRY(ligi_upgrade(self));
    LIG_TRY(find_log(&run));
    LIG_TRY(use_left(&run));
    ligi_head_unleave(&self->log.head);
    self->log.witnessed = ligi_head_witness(self->log.head.fd);
    ligi_head_renew(&self->log.head);
    self->log.thorough = 1;
    lig_status status = run.used ? LIG_OK : make_index(&run);
    self->log.thorough = 0;
    self->log.witnessed = 0;
    ligi_head_damage(&self->log.head, run.damaged);
    return status == LIG_OK ? name_segments(&run) : status;
}
