#include "backend/file/catalog/catalog.h"

#include "backend/file/catalog/catalog_gate.h"
#include "backend/file/catalog/catalog_snapshot.h"
#include "backend/file/catalog/catalog_write.h"
#include "backend/file/index/index_env.h"
#include "backend/file/index/index_items.h"
#include "backend/file/index/index_tail.h"
#include "backend/file/index/rebuild.h"
#include "backend/file/index/repair.h"
#include "backend/file/log/log_numbers.h"
#include "backend/file/log/log_start.h"
#include "backend/file/names.h"
#include "backend/shared_instances.h"
#include "base/clock.h"
#include "base/error.h"

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

/* --- opening --- */

static void forked(void *object)
{
    ligi_file_catalog *self = object;

    ligi_head_forked(&self->log.head);
}

/* The next one opens an index that has all. */
static void index_rest(ligi_file_catalog *self)
{
    ligi_clog_position index;

    if (self->log.numbered == 0 && !ligi_head_damaged(&self->log.head) &&
        ligi_mdb_tail_index(self, &index) && index.version < ligi_head_appended(&self->log.head))
        (void)ligi_file_catalog_settle(self);
}

/* The last one tells the next whether the index is as it was left. */
static void leave(ligi_file_catalog *self)
{
    struct stat info;
    int fd;

    int known = self->env != NULL && mdb_env_get_fd(self->env, &fd) == MDB_SUCCESS;
    int kept = known ? dup(fd) : -1;
    int last = kept >= 0 && self->log.head.page != NULL &&
               ligi_head_attach(&self->log.head, 1, 0) == LIG_OK;
    if (last)
        index_rest(self);
    ligi_mdb_env_close(self);
    if (last && ligi_head_poisoned(&self->log.head) == 0 && fstat(kept, &info) == 0)
        ligi_head_leave(&self->log.head, &info);
    if (kept >= 0)
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
    ligi_recent_drop(self->recent);
    pthread_mutex_destroy(&self->recent_lock);
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

/* With the store's own head in hand, nobody can make the store one of several hosts. */
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

/* What was acknowledged can be read, also where the log is damaged behind the index. */
static lig_status settle_to_read(ligi_file_catalog *self)
{
    lig_status status = ligi_file_catalog_settle(self);

    if (status == LIG_E_CORRUPT && self->log.numbered == 0 && !ligi_head_damaged(&self->log.head))
        status = ligi_repair_rest(self);
    return status;
}

/* The first user of a store finds its log and makes the index; the others join him. */
static lig_status attach(ligi_file_catalog *self)
{
    ligi_clog_position at;

    int64_t end = ligi_now_ns() + ATTACH_NS;
    lig_status status = ligi_head_attach(&self->log.head, 1, 0);
    if (status == LIG_OK) {
        LIG_TRY(check_ordinary(self));
        LIG_TRY(ligi_rebuild(self));
        if (!ligi_head_damaged(&self->log.head))
            LIG_TRY(settle_to_read(self));
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
        return ligi_fail_errno(errno, "cannot keep %s open", place->place);
    self->index_fd = fcntl(place->index_fd, F_DUPFD_CLOEXEC, 0);
    if (self->index_fd < 0)
        return ligi_fail_errno(errno, "cannot keep %s open", place->place);
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
    pthread_mutex_init(&self->lock, NULL);
    pthread_mutex_init(&self->recent_lock, NULL);
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
    ligi_file_catalog *opened = object;
    if (place->sync) /* somebody who wants safety shares it with one who does not */
        opened->log.folder.sync = 1;
    *catalog = opened;
    return LIG_OK;
}

void ligi_file_catalog_close(ligi_file_catalog *catalog)
{
    if (catalog != NULL)
        ligi_shared_release(catalog);
}

/* --- the write lock --- */

lig_status ligi_file_catalog_lock(ligi_file_catalog *self, int64_t timeout_ns)
{
    LIG_TRY(ligi_head_take(&self->log.head, LIGI_HEAD_WRITE, timeout_ns));
    self->end_known = 0;
    return LIG_OK;
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

void ligi_file_catalog_holder(ligi_file_catalog *self, char *text, size_t text_bytes)
{
    ligi_head_writer(self->log.head.fd, text, text_bytes);
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

/* What the log has beyond the index: to its end for who is going to append, otherwise what was
 * published. NULL: nothing, or the index has to catch up. */
static ligi_recent *read_tail(ligi_file_catalog *self, MDB_txn *txn, uint32_t epoch)
{
    int mine = ligi_head_mine(&self->log.head, LIGI_HEAD_WRITE);
    uint64_t wanted = mine ? UINT64_MAX : ligi_head_appended(&self->log.head);
    ligi_clog_position index;
    ligi_recent *recent = NULL;

    if (self->log.numbered == 0 && !ligi_head_damaged(&self->log.head) &&
        ligi_mdb_position(txn, self->dbi, &index) == LIG_OK && index.version < wanted)
        ligi_mdb_tail_read(self, &index, epoch, wanted, &recent);
    return recent;
}

static lig_status begin_snapshot(ligi_file_catalog *self, uint32_t epoch, void **snapshot,
                                 uint64_t *version)
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
    if (status == LIG_OK) {
        const ligi_file_snapshot_source source = {
            txn, self->dbi, &self->log, ligi_file_catalog_leave, self, read_tail(self, txn, epoch)};
        status = ligi_file_snapshot_create(&source, snapshot, version);
    }
    if (status != LIG_OK)
        ligi_file_catalog_leave(self);
    return status;
}

/* All that was acknowledged: where commits are not synced, that is what was published. */
static uint64_t acknowledged(const ligi_file_catalog *self)
{
    uint64_t synced = ligi_head_synced(&self->log.head);
    uint64_t appended = ligi_head_appended(&self->log.head);

    return appended > synced && self->log.numbered == 0 ? appended : synced;
}

/* What a snapshot shows must not be lost to a power cut afterwards. A sync that failed is mended by
 * the next writer, which may be this reader. */
static lig_status make_durable(ligi_file_catalog *self, uint64_t version, uint32_t epoch)
{
    int durable = ligi_head_synced(&self->log.head) >= version;

    if (ligi_head_damaged(&self->log.head))
        return LIG_OK;
    /* A failed sync lost it: by now the version may be that of another commit. */
    if (ligi_head_lost(&self->log.head, epoch))
        return LIG_E_IO;
    if (durable)
        return LIG_OK;
    if (!self->log.folder.sync) { /* the writer has not yet published what the index shows */
        if (ligi_head_appended(&self->log.head) < version)
            ligi_head_append(&self->log.head, version);
        return LIG_OK;
    }
    if (ligi_head_mine(&self->log.head, LIGI_HEAD_WRITE))
        return LIG_OK; /* an edit is being made: its commit comes behind this version */
    const ligi_clog_durable wanted = {.version = version, .epoch = epoch};
    ligi_head_append(&self->log.head, version);
    return ligi_file_catalog_sync(self, &wanted);
}

lig_status ligi_file_catalog_begin(ligi_file_catalog *self, void **snapshot, uint64_t *version)
{
    if (!ligi_head_damaged(&self->log.head) &&
        ligi_file_log_news(&self->log, ligi_head_appended(&self->log.head)))
        LIG_TRY(ligi_file_catalog_settle(self));
    for (int i = 0; i < BEHIND_TIMES_MAX; i++) {
        uint32_t epoch = ligi_head_epoch(&self->log.head);
        uint64_t least = acknowledged(self);
        LIG_TRY(begin_snapshot(self, epoch, snapshot, version));
        /* Behind: the index could not be written, or the log changed while it was read. */
        int behind = *version < least && !ligi_head_damaged(&self->log.head);
        lig_status status = behind ? LIG_OK : make_durable(self, *version, epoch);
        if (!behind && status == LIG_OK)
            return LIG_OK;
        ligi_file_catalog_end(*snapshot);
        if (status != LIG_OK && status != LIG_E_IO)
            return status;
        LIG_TRY(settle_to_read(self));
    }
    return lig_fail(LIG_E_IO, "%s: cannot update the index", self->place);
}

/* --- packs --- */

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
