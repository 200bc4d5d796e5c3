#include "backend/file/catalog/reader.h"

#include "backend/file/catalog/catalog_copy.h"
#include "backend/file/catalog/catalog_snapshot.h"
#include "backend/file/catalog/log_events.h"
#include "backend/file/entry.h"
#include "backend/file/folder.h"
#include "backend/file/index/index_build.h"
#include "backend/file/index/repair.h"
#include "backend/file/log/log_numbers.h"
#include "backend/file/log/log_start.h"
#include "backend/file/log/salvage.h"
#include "backend/file/names.h"
#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAP_BYTES_FIRST (UINT64_C(64) << 20)
#define MAP_BYTES_MAX (UINT64_C(1) << 44)
#define VERIFY_TIMES 3 /* before apparent damage is reported */
#define POLL_NS INT64_C(20000000)

typedef struct private_index { /* lives as long as a snapshot of it does */
    MDB_env *env;
    MDB_dbi dbi;
    int fd;
    size_t refs; /* under the owner's lock */
    ligi_clog_position at;
    ligi_file_reader *owner;
} private_index;

struct ligi_file_reader {
    int folder_fd;
    const char *place;
    ligi_file_log log;    /* without a head */
    pthread_mutex_t lock; /* guards all below */
    private_index *current;
    ligi_clog_position events;
};

/* --- an index in memory --- */

static void index_destroy(private_index *self)
{
    if (self->env != NULL)
        mdb_env_close(self->env);
    if (self->fd >= 0)
        close(self->fd);
    free(self);
}

static void index_release(void *opaque)
{
    private_index *self = opaque;
    ligi_file_reader *owner = self->owner;

    pthread_mutex_lock(&owner->lock);
    size_t left = --self->refs;
    pthread_mutex_unlock(&owner->lock);
    if (left == 0)
        index_destroy(self);
}

static lig_status index_create(ligi_file_reader *owner, private_index **out)
{
    private_index *made;

    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a private index"));
    made->refs = 1;
    made->owner = owner;
    made->fd = memfd_create("ligament index", MFD_CLOEXEC);
    if (made->fd < 0) {
        lig_status status = ligi_fail_errno(errno, "%s: memfd_create failed", owner->place);
        free(made);
        return status;
    }
    *out = made;
    return LIG_OK;
}

static int open_env(private_index *self, uint64_t map_bytes)
{
    char path[64];
    MDB_txn *txn;

    if (self->env != NULL)
        mdb_env_close(self->env);
    self->env = NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", self->fd);
    int number = mdb_env_create(&self->env);
    if (number == MDB_SUCCESS)
        number = mdb_env_set_mapsize(self->env, map_bytes);
    if (number == MDB_SUCCESS)
        number =
            mdb_env_open(self->env, path, MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOTLS | MDB_NOSYNC, 0600);
    if (number == MDB_SUCCESS)
        number = mdb_txn_begin(self->env, NULL, MDB_RDONLY, &txn);
    if (number == MDB_SUCCESS) {
        number = mdb_dbi_open(txn, NULL, 0, &self->dbi);
        int committed = mdb_txn_commit(txn);
        number = number != MDB_SUCCESS ? number : committed;
    }
    return number;
}

static uint64_t map_for(const private_index *self)
{
    struct stat info;
    uint64_t bytes = MAP_BYTES_FIRST;

    if (fstat(self->fd, &info) == 0)
        while (bytes < 4 * (uint64_t)info.st_size)
            bytes *= 2;
    return bytes;
}

/* `info` NULL: continues after the position of the index; `damaged`: uses the intact part. */
static lig_status fill_once(private_index *self, const ligi_checkpoint_info *info, int damaged,
                            int *number)
{
    ligi_file_log *log = &self->owner->log;
    ligi_mdb_txn index = {.dbi = self->dbi, .at = self->at};
    ligi_clog_end end;

    *number = mdb_txn_begin(self->env, NULL, 0, &index.txn);
    if (*number != MDB_SUCCESS)
        return LIG_OK;
    lig_status status;
    if (damaged) {
        status = ligi_repair_fill(log, &index);
    } else if (info != NULL) {
        status = ligi_mdb_build(log, &index, info, 0);
    } else {
        status = ligi_file_log_read(log, &index.at, ligi_mdb_apply, &index, &end);
        if (status == LIG_OK && end == LIGI_CLOG_DAMAGED)
            status = LIG_E_CORRUPT;
        if (status == LIG_OK)
            index.number = ligi_mdb_position_put(&index);
    }
    *number = index.number;
    if (status == LIG_OK && *number == MDB_SUCCESS)
        *number = mdb_txn_commit(index.txn);
    else
        mdb_txn_abort(index.txn);
    if (status == LIG_OK && *number == MDB_SUCCESS)
        self->at = index.at;
    return *number == MDB_SUCCESS ? status : LIG_OK;
}

static lig_status fill(private_index *self, const ligi_checkpoint_info *info, int damaged)
{
    uint64_t map_bytes = map_for(self);
    int number = self->env == NULL ? open_env(self, map_bytes) : MDB_SUCCESS;

    lig_status status = LIG_OK;
    if (number == MDB_SUCCESS)
        status = fill_once(self, info, damaged, &number);
    while (status == LIG_OK && number == MDB_MAP_FULL && map_bytes < MAP_BYTES_MAX) {
        number = open_env(self, map_bytes *= 4);
        if (number == MDB_SUCCESS)
            status = fill_once(self, info, damaged, &number);
    }
    return status == LIG_OK ? ligi_mdb_fail(number, self->owner->place, "cannot be read") : status;
}

/* --- sources of the index --- */

/* LIG_E_NOTFOUND if no process guarantees that the shared index is valid. */
static lig_status copy_shared(ligi_file_reader *self, private_index *made)
{
    struct stat info;
    uint64_t txnid;
    int head, from;

    LIG_TRY(ligi_entry_open(self->folder_fd, self->log.folder.fd, self->log.folder.log_place,
                            LIGI_NAME_HEAD, O_RDONLY, &head));
    lig_status status = ligi_entry_open(self->folder_fd, self->folder_fd, self->place,
                                        LIGI_NAME_INDEX, O_RDONLY, &from);
    if (status == LIG_OK) {
        if (fstat(from, &info) != 0 || !ligi_head_vouches(head, &info))
            status = LIG_E_NOTFOUND;
        if (status == LIG_OK)
            status = ligi_file_catalog_copy_file(from, made->fd, self->place, &txnid);
        close(from);
    }
    close(head);
    LIG_TRY(status);
    MDB_txn *txn;
    int number = open_env(made, map_for(made));
    if (number == MDB_SUCCESS)
        number = mdb_txn_begin(made->env, NULL, MDB_RDONLY, &txn);
    LIG_TRY(ligi_mdb_fail(number, self->place, "cannot be read"));
    status = ligi_mdb_bound(txn, made->dbi, self->log.id) ? LIG_OK : LIG_E_NOTFOUND;
    if (status == LIG_OK)
        status = ligi_mdb_position(txn, made->dbi, &made->at);
    mdb_txn_abort(txn);
    return status;
}

/* One attempt; `info` NULL: of a damaged log. */
static lig_status build_from(ligi_file_reader *self, const ligi_checkpoint_info *info,
                             private_index **out)
{
    private_index *made;

    LIG_TRY(index_create(self, &made));
    self->log.thorough = 1;
    lig_status status = fill(made, info, info == NULL);
    self->log.thorough = 0;
    if (status == LIG_OK)
        *out = made;
    else
        index_destroy(made);
    return status;
}

static lig_status build_whole(ligi_file_reader *self, private_index **out)
{
    ligi_checkpoint_info info;
    uint64_t below = UINT64_MAX;
    size_t damaged = 0;
    lig_status status;

    do {
        LIG_TRY(ligi_mdb_base(&self->log, below, &info, &damaged));
        status = build_from(self, &info, out);
        below = info.version;
    } while (status == LIG_E_CORRUPT && info.version != 0);
    return status;
}

/* Superseded files may be removed while they are read: a missing or apparently damaged file is an
 * error only if it is found twice. */
static lig_status build_private(ligi_file_reader *self, private_index **out)
{
    lig_status status = LIG_E_CORRUPT;

    for (int i = 0; i < VERIFY_TIMES && (status == LIG_E_CORRUPT || status == LIG_E_NOTFOUND); i++)
        status = build_whole(self, out);
    return status == LIG_E_CORRUPT ? build_from(self, NULL, out) : status;
}

static lig_status make_index(ligi_file_reader *self, private_index **out)
{
    private_index *made;

    LIG_TRY(index_create(self, &made));
    lig_status status = copy_shared(self, made);
    if (status == LIG_OK)
        status = fill(made, NULL, 0);
    if (status == LIG_OK) {
        *out = made;
        return LIG_OK;
    }
    index_destroy(made);
    return build_private(self, out);
}

/* --- reading on --- */

static lig_status stop_at_first(void *context, const uint8_t *record,
                                const ligi_clog_header *header, const ligi_clog_position *at)
{
    (void)context, (void)record, (void)header, (void)at;
    return LIG_E_CLOSED;
}

/* Everything that the head reports as durable must be found in the log afterwards. */
static void look_at_head(ligi_file_reader *self)
{
    int fd;

    if (ligi_entry_open(self->folder_fd, self->log.folder.fd, self->place, LIGI_NAME_HEAD, O_RDONLY,
                        &fd) != LIG_OK)
        return;
    self->log.witnessed = ligi_head_witness(fd);
    close(fd);
}

/* 1 if the log continues after the index. */
static int is_behind(ligi_file_reader *self, const private_index *index)
{
    ligi_clog_position at = index->at;
    ligi_clog_end end;

    return ligi_file_log_read(&self->log, &at, stop_at_first, NULL, &end) != LIG_OK ||
           at.segment != index->at.segment || end == LIGI_CLOG_DAMAGED;
}

static lig_status copy_memory(ligi_file_reader *self, const private_index *from,
                              private_index **out)
{
    private_index *made;
    uint64_t txnid;

    LIG_TRY(index_create(self, &made));
    lig_status status = ligi_file_catalog_copy_file(from->fd, made->fd, self->place, &txnid);
    made->at = from->at;
    if (status == LIG_OK)
        status = fill(made, NULL, 0);
    if (status == LIG_OK)
        *out = made;
    else
        index_destroy(made);
    return status;
}

/* Makes the current index that of the log's end; the lock is held. An index without readers is
 * changed in place: LMDB without locks must not write concurrently with a reader. */
static lig_status refresh(ligi_file_reader *self)
{
    private_index *last = self->current, *made = NULL;

    look_at_head(self);
    if (last != NULL && !is_behind(self, last))
        return LIG_OK;
    lig_status status = LIG_E_NOTFOUND;
    if (last != NULL && last->refs == 1)
        status = fill(last, NULL, 0);
    else if (last != NULL)
        status = copy_memory(self, last, &made);
    if (status == LIG_OK && made == NULL)
        return LIG_OK;
    if (status != LIG_OK)
        LIG_TRY(make_index(self, &made));
    self->current = made;
    if (last != NULL && --last->refs == 0)
        index_destroy(last);
    return LIG_OK;
}

/* --- the calls --- */

lig_status ligi_file_reader_open(ligi_file_reader **reader, int folder_fd, const char *place)
{
    ligi_file_reader *self;
    ligi_clog_position first;

    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "a reader of the catalog"));
    self->folder_fd = folder_fd;
    self->place = place;
    self->log.head.fd = -1;
    pthread_mutex_init(&self->lock, NULL);
    lig_status status = ligi_clog_folder_open(&self->log.folder, folder_fd, place, 0, 1);
    if (status == LIG_OK)
        status = ligi_file_log_numbering(&self->log);
    if (status == LIG_OK)
        status = ligi_file_log_first(&self->log, &first);
    if (status == LIG_OK || status == LIG_E_CORRUPT)
        status = refresh(self);
    if (status == LIG_OK) {
        *reader = self;
        return LIG_OK;
    }
    ligi_file_reader_close(self, 0);
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

void ligi_file_reader_close(ligi_file_reader *self, int forked)
{
    if (self == NULL)
        return;
    if (self->current != NULL && !forked)
        index_destroy(self->current);
    ligi_clog_folder_close(&self->log.folder);
    pthread_mutex_destroy(&self->lock);
    free(self);
}

/* The contents of a snapshot must survive a power failure. A reader cannot tell whether the writer
 * has synced. */
static lig_status make_durable(ligi_file_reader *self, const ligi_clog_position *at)
{
    ligi_clog_file *file;

    if (self->log.numbered != 0) /* segments are durable before they are named */
        return ligi_folder_sync(self->log.folder.fd, self->place);
    LIG_TRY(ligi_clog_folder_file(&self->log.folder, LIGI_NAME_SEGMENT, at->segment, &file));
    int number = fdatasync(file->fd) == 0 ? 0 : errno;
    ligi_clog_folder_release(&self->log.folder, file);
    return number == 0 || number == EROFS || number == EINVAL
               ? LIG_OK
               : ligi_fail_errno(number, "%s/" LIGI_NAME_LOG ": fdatasync failed", self->place);
}

lig_status ligi_file_reader_begin(ligi_file_reader *self, void **snapshot, uint64_t *version)
{
    MDB_txn *txn;

    pthread_mutex_lock(&self->lock);
    uint64_t before = self->current->at.version;
    lig_status status = refresh(self);
    private_index *used = self->current;
    if (status == LIG_OK && used->at.version != before)
        status = make_durable(self, &used->at);
    if (status == LIG_OK)
        used->refs++;
    pthread_mutex_unlock(&self->lock);
    LIG_TRY(status);
    status = ligi_mdb_fail(mdb_txn_begin(used->env, NULL, MDB_RDONLY, &txn), self->place,
                           "cannot be read");
    if (status == LIG_OK) {
        const ligi_file_snapshot_source source = {txn, used->dbi, &self->log, index_release, used};
        status = ligi_file_snapshot_create(&source, snapshot, version);
    }
    if (status != LIG_OK)
        index_release(used);
    return status;
}

/* Where several hosts write, each has its own lock. */
void ligi_file_reader_writer(ligi_file_reader *self, char *text, size_t text_bytes)
{
    int fd;

    text[0] = '\0';
    if (ligi_entry_open(self->folder_fd, self->log.folder.fd, self->place, LIGI_NAME_HEAD, O_RDONLY,
                        &fd) != LIG_OK)
        return;
    ligi_head_writer(fd, text, text_bytes);
    close(fd);
}

/* A reader has no lock that keeps writers from replacing files: apparent damage is read again
 * before it is reported. */
lig_status ligi_file_reader_verify(ligi_file_reader *self, lig_catalog_problem problem,
                                   void *context)
{
    ligi_salvage salvage = {.problem = problem, .context = context};

    for (int i = 0; i < VERIFY_TIMES; i++) {
        int sound;
        ligi_clog_folder_forget(&self->log.folder, LIGI_NAME_SEGMENT, UINT64_MAX);
        ligi_clog_folder_forget(&self->log.folder, LIGI_NAME_CHECKPOINT, UINT64_MAX);
        LIG_TRY(ligi_salvage_sound(&self->log, &sound));
        if (sound)
            return LIG_OK;
    }
    lig_status status = ligi_salvage_verify(&self->log, &salvage);
    return status != LIG_E_NOTFOUND
               ? status
               : lig_fail(LIG_E_BUSY, "%s: the log changes while it is verified (try again)",
                          self->place);
}

lig_status ligi_file_reader_events(ligi_file_reader *self, uint64_t since, lig_catalog_visit visit,
                                   void *context)
{
    ligi_clog_events_range range = {.since = since};
    void *snapshot;

    LIG_TRY(ligi_file_reader_begin(self, &snapshot, &range.last));
    ligi_file_catalog_end(snapshot);
    pthread_mutex_lock(&self->lock);
    range.reached = self->events;
    pthread_mutex_unlock(&self->lock);
    lig_status status = ligi_clog_events_between(&self->log, &range, visit, context);
    pthread_mutex_lock(&self->lock);
    if (status == LIG_OK && range.reached.segment != 0)
        self->events = range.reached;
    pthread_mutex_unlock(&self->lock);
    return status;
}

/* A reader has no way to be notified: it polls. */
lig_status ligi_file_reader_wait(ligi_file_reader *self, uint64_t since, int64_t timeout_ns)
{
    int64_t deadline = ligi_now_ns() + timeout_ns;

    for (;;) {
        uint64_t version;
        void *snapshot;
        LIG_TRY(ligi_file_reader_begin(self, &snapshot, &version));
        ligi_file_catalog_end(snapshot);
        int64_t left = deadline - ligi_now_ns();
        if (version > since)
            return LIG_OK;
        if (left <= 0)
            return LIG_E_TIMEOUT;
        struct timespec pause = {0, left < POLL_NS ? (long)left : (long)POLL_NS};
        (void)ppoll(NULL, 0, &pause, NULL);
    }
}
