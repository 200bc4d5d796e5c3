#include "backend/file/catalog/catalog_gate.h"

#include "backend/file/catalog/catalog_snapshot.h"
#include "base/clock.h"
#include "base/error.h"

#include <errno.h>

#define GROW_WAIT_NS INT64_C(10000000000)
#define MAP_BYTES_MAX (UINT64_C(1) << 46)

lig_status ligi_file_catalog_enter(ligi_file_catalog *self)
{
    struct timespec deadline = ligi_deadline(2 * GROW_WAIT_NS);
    lig_status status = LIG_OK;

    pthread_mutex_lock(&self->lock);
    while (self->alone && status == LIG_OK)
        if (pthread_cond_timedwait(&self->changed, &self->lock, &deadline) == ETIMEDOUT &&
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

lig_status ligi_file_catalog_adapt_map(ligi_file_catalog *self, int reason)
{
    MDB_envinfo info;
    int dead, number;

    LIG_TRY(enter_alone(self));
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
    leave_alone(self);
    return ligi_mdb_fail(number, self->place, "cannot grow");
}
