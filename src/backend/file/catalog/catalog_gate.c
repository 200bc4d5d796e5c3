#include "backend/file/catalog/catalog_gate.h"

#include "backend/file/catalog/catalog_snapshot.h"
#include "backend/file/index/index_env.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>

#define GROW_WAIT_NS INT64_C(10000000000)
#define MAP_BYTES_MAX (UINT64_C(1) << 46)

/* The lock is held, but not while the environment is opened. */
static lig_status open_alone(ligi_file_catalog *self)
{
    self->alone = 1;
    pthread_mutex_unlock(&self->lock);
    lig_status status = ligi_mdb_env_reopen(self);
    pthread_mutex_lock(&self->lock);
    self->alone = 0;
    pthread_cond_broadcast(&self->changed);
    return status;
}

lig_status ligi_file_catalog_enter(ligi_file_catalog *self)
{
    struct timespec deadline = ligi_deadline(2 * GROW_WAIT_NS);
    lig_status status = LIG_OK;

    pthread_mutex_lock(&self->lock);
    while ((self->alone || self->env == NULL) && status == LIG_OK)
        if (!self->alone)
            status = open_alone(self);
        else if (pthread_cond_timedwait(&self->changed, &self->lock, &deadline) == ETIMEDOUT &&
                 self->alone)
            status = lig_fail(LIG_E_BUSY, "%s: the catalog is being changed by another thread",
                              self->place);
    if (status == LIG_OK)
        self->active++;
    pthread_mutex_unlock(&self->lock);
    return status;
}

void ligi_file_catalog_leave(void *owner)
{
    ligi_file_catalog *self = owner;

    pthread_mutex_lock(&self->lock);
    self->active--;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

/* Waits until this process has no transaction, and keeps others from beginning one; LIG_E_BUSY
 * after 10 s. */
static lig_status enter_alone(ligi_file_catalog *self)
{
    struct timespec deadline = ligi_deadline(GROW_WAIT_NS);
    lig_status status = LIG_OK;
    int mine = 0;

    pthread_mutex_lock(&self->lock);
    while ((self->active > 0 || (self->alone && !mine)) && status == LIG_OK) {
        if (!self->alone)
            mine = self->alone = 1; /* from now on nobody enters */
        if (pthread_cond_timedwait(&self->changed, &self->lock, &deadline) == ETIMEDOUT)
            status =
                lig_fail(LIG_E_BUSY,
                         "%s: the catalog waits for %u open views in this process (end them first)",
                         self->place, self->active);
    }
    if (status == LIG_OK)
        self->alone = 1;
    else if (mine)
        self->alone = 0;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    return status;
}

static void leave_alone(ligi_file_catalog *self)
{
    pthread_mutex_lock(&self->lock);
    self->alone = 0;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

/* After another thread has opened the environment again, it accepts transactions. */
static int refuses_all(const ligi_file_catalog *self)
{
    MDB_txn *txn;

    int number = mdb_txn_begin(self->env, NULL, MDB_RDONLY, &txn);
    if (number == MDB_SUCCESS)
        mdb_txn_abort(txn);
    return number == MDB_PANIC;
}

static lig_status reopen(ligi_file_catalog *self)
{
    if (!refuses_all(self))
        return LIG_OK;
    LIG_TRY(ligi_mdb_env_reopen(self));
    ligi_log(LIG_LOG_WARNING, "%s: a write to the index failed: it was opened again", self->place);
    return LIG_OK;
}

static lig_status change_map(ligi_file_catalog *self, int reason)
{
    MDB_envinfo info;
    int dead, number;

    if (reason == MDB_MAP_RESIZED) {
        number = mdb_env_set_mapsize(self->env, 0);
    } else {
        mdb_reader_check(self->env, &dead);
        number = mdb_env_info(self->env, &info);
        if (number == MDB_SUCCESS && info.me_mapsize >= MAP_BYTES_MAX)
            number = MDB_MAP_FULL;
        if (number == MDB_SUCCESS)
            number = mdb_env_set_mapsize(self->env, 2 * info.me_mapsize);
    }
    return ligi_mdb_fail(number, self->place, "cannot grow");
}

lig_status ligi_file_catalog_adapt_map(ligi_file_catalog *self, int reason)
{
    lig_status status = LIG_OK;

    LIG_TRY(enter_alone(self));
    if (self->env != NULL) /* otherwise entering opens it */
        status = reason == MDB_PANIC ? reopen(self) : change_map(self, reason);
    leave_alone(self);
    return status;
}
