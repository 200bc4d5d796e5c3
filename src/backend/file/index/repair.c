#include "backend/file/index/repair.h"

#include "backend/file/catalog/catalog.h"
#include "backend/file/catalog/catalog_snapshot.h"
#include "backend/file/catalog/checkpointing.h"
#include "backend/file/index/index_env.h"
#include "backend/file/log/salvage.h"
#include "base/error.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>

#define VERIFY_TIMES_MAX 10

/* --- an index of what is left --- */

static lig_status take_base(void *context, const ligi_checkpoint_item *item, uint64_t checkpoint)
{
    ligi_mdb_fill fill = {context, checkpoint};
    return ligi_mdb_fill_item(&fill, item);
}

static lig_status take_item(void *context, const ligi_clog_item *item, uint64_t version,
                            const ligi_clog_position *at)
{
    ligi_mdb_txn *index = context;

    index->number = ligi_mdb_apply_item(index, item, version, at);
    return index->number == MDB_SUCCESS ? LIG_OK : LIG_E_IO;
}

static lig_status log_problem(void *context, const char *text, const void *event, size_t bytes)
{
    const ligi_mdb_txn *index = context;
    (void)index, (void)bytes;
    if (event == NULL)
        ligi_log(LIG_LOG_WARNING, "%s", text);
    return LIG_OK;
}

lig_status ligi_repair_fill(ligi_file_log *log, ligi_mdb_txn *index)
{
    ligi_salvage salvage = {
        .base = take_base, .item = take_item, .problem = log_problem, .context = index};

    LIG_TRY(ligi_salvage_run(log, &salvage));
    index->at = salvage.reached;
    index->number = ligi_mdb_position_put(index);
    return index->number == MDB_SUCCESS ? LIG_OK : LIG_E_IO;
}

lig_status ligi_repair_index(ligi_file_catalog *self)
{
    ligi_mdb_txn index = {.dbi = self->dbi};

    int number = mdb_txn_begin(self->env, NULL, 0, &index.txn);
    LIG_TRY(ligi_mdb_env_fail(self, number, "cannot be written"));
    lig_status status = ligi_repair_fill(&self->log, &index);
    if (status == LIG_OK)
        return ligi_mdb_env_fail(self, mdb_txn_commit(index.txn), "cannot be rebuilt");
    mdb_txn_abort(index.txn);
    return index.number == MDB_SUCCESS ? status
                                       : ligi_mdb_env_fail(self, index.number, "cannot be rebuilt");
}

/* --- a new log --- */

typedef struct verify_run {
    ligi_file_catalog *catalog;
    lig_catalog_problem problem;
    void *context;
} verify_run;

/* Under LIGI_HEAD_CHECKPOINT and LIGI_HEAD_WRITE: no process of this host changes the log. */
static lig_status verify_locked(verify_run *run, size_t *damages)
{
    ligi_file_catalog *self = run->catalog;
    ligi_salvage salvage = {.problem = run->problem, .context = run->context};

    /* Adopts what a killed process has appended, so that a new log has it, too. */
    if (!ligi_head_damaged(&self->log.head)) {
        lig_status status = ligi_file_catalog_settle(self);
        if (status != LIG_OK && status != LIG_E_CORRUPT)
            return status;
    }
    LIG_TRY(ligi_salvage_verify(&self->log, &salvage));
    if (salvage.damages == 0 && ligi_head_damaged(&self->log.head)) {
        salvage.damages++;
        LIG_TRY(run->problem(run->context,
                             "the log of commits was missing or damaged when the store was opened",
                             NULL, 0));
    }
    *damages = salvage.damages;
    return LIG_OK;
}

/* LIG_E_NOTFOUND if another host, which does not see these locks, has removed files. */
static lig_status verify_alone(verify_run *run, int repair)
{
    ligi_file_catalog *self = run->catalog;
    size_t damages = 0;

    LIG_TRY(ligi_head_take(&self->log.head, LIGI_HEAD_CHECKPOINT, self->wait_ns));
    lig_status status = ligi_file_catalog_lock(self, self->wait_ns);
    if (status == LIG_OK)
        status = verify_locked(run, &damages);
    if (status == LIG_OK && repair && damages > 0)
        status = ligi_checkpointing_anew(self, run->problem, run->context);
    ligi_file_catalog_unlock_mine(self);
    ligi_head_release(&self->log.head, LIGI_HEAD_CHECKPOINT);
    return status;
}

lig_status ligi_repair_verify(ligi_file_catalog *self, int repair, lig_catalog_problem problem,
                              void *context)
{
    verify_run run = {self, problem, context};

    for (int i = 0; i < VERIFY_TIMES_MAX; i++) {
        int sound;
        LIG_TRY(ligi_salvage_sound(&self->log, &sound));
        if (sound && !ligi_head_damaged(&self->log.head))
            return LIG_OK;
        lig_status status = verify_alone(&run, repair);
        if (status != LIG_E_NOTFOUND)
            return status;
    }
    return lig_fail(LIG_E_BUSY, "%s: the log changes while it is verified (try again)",
                    self->place);
}
