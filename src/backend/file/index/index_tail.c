#include "backend/file/index/index_tail.h"

#include "backend/file/index/index_items.h"

#define BATCH_RECORDS 32 /* for which the index is written at once */
#define BATCH_BYTES (UINT64_C(1) << 20)
/* An index that cannot be written (a full disk) may fall back further; snapshots then cost more. */
#define READ_RECORDS_MAX 1024
#define READ_BYTES_MAX (UINT64_C(32) << 20)
#define STOP LIG_E_CLOSED /* of a visit: enough */

typedef struct tail_visit {
    ligi_recent **recent;
    uint64_t version; /* enough */
} tail_visit;

static lig_status visit(void *context, const uint8_t *record, const ligi_clog_header *header,
                        const ligi_clog_position *at)
{
    const tail_visit *run = context;
    const ligi_recent *recent = *run->recent;

    if (recent->record_count >= READ_RECORDS_MAX || recent->bytes + header->bytes > READ_BYTES_MAX)
        return STOP;
    LIG_TRY(ligi_recent_add(run->recent, record, header, at));
    return header->version >= run->version ? STOP : LIG_OK;
}

/* 1 when all up to the version was read, or all there is. */
static int read_on(ligi_file_catalog *self, uint64_t version)
{
    ligi_clog_position at = self->recent->at;
    tail_visit run = {&self->recent, version};
    ligi_clog_end end;

    if (at.version >= version)
        return 1;
    lig_status status = ligi_file_log_read(&self->log, &at, visit, &run, &end);
    if (status == STOP)
        return self->recent->at.version >= version;
    return status == LIG_OK && end == LIGI_CLOG_AT_END && version == UINT64_MAX;
}

/* Under LIGI_HEAD_WRITE, which keeps the end where it is. */
static int read_all(ligi_file_catalog *self)
{
    const ligi_clog_position *at = &self->recent->at;

    if (self->end_known && at->version == self->end.version && at->chain == self->end.chain)
        return 1;
    self->end_known = read_on(self, UINT64_MAX);
    self->end = self->recent->at;
    /* Of a process that was killed before it published it. What is shown is published: otherwise
     * nobody would be told when a failed write loses it. */
    if (self->end_known && self->end.version > ligi_head_appended(&self->log.head))
        ligi_head_append(&self->log.head, self->end.version);
    return self->end_known;
}

/* Under the lock: self->recent continues this index, with the commits that are known already. */
static lig_status continue_index(ligi_file_catalog *self, const ligi_clog_position *index,
                                 uint32_t epoch)
{
    ligi_recent *made;

    if (self->recent != NULL && self->recent->epoch == epoch &&
        ligi_recent_fits(self->recent, index))
        return self->recent->after == index->version ? LIG_OK
                                                     : ligi_recent_trim(&self->recent, index);
    LIG_TRY(ligi_recent_create(index, epoch, &made));
    ligi_recent_drop(self->recent);
    self->recent = made;
    return LIG_OK;
}

void ligi_mdb_tail_read(ligi_file_catalog *self, const ligi_clog_position *index, uint32_t epoch,
                        uint64_t version, ligi_recent **recent)
{
    *recent = NULL;
    pthread_mutex_lock(&self->recent_lock);
    if (continue_index(self, index, epoch) == LIG_OK &&
        (version == UINT64_MAX ? read_all(self) : read_on(self, version)) &&
        self->recent->record_count > 0)
        *recent = ligi_recent_hold(self->recent);
    pthread_mutex_unlock(&self->recent_lock);
}

/* A poisoned segment is replaced, a dead process's new one is found, a full one is followed by
 * another: all that concerns the index, too. */
static int is_plain(const ligi_file_catalog *self)
{
    const ligi_head *head = &self->log.head;

    return ligi_head_poisoned(head) == 0 && ligi_head_segment(head) == self->recent->at.segment;
}

int ligi_mdb_tail_index(ligi_file_catalog *self, ligi_clog_position *index)
{
    MDB_txn *txn;

    if (ligi_file_catalog_enter(self) != LIG_OK)
        return 0;
    int known = mdb_txn_begin(self->env, NULL, MDB_RDONLY, &txn) == MDB_SUCCESS;
    if (known) {
        known = ligi_mdb_position(txn, self->dbi, index) == LIG_OK;
        mdb_txn_abort(txn);
    }
    ligi_file_catalog_leave(self);
    return known;
}

int ligi_mdb_tail_end(ligi_file_catalog *self, uint64_t bytes, ligi_clog_position *at)
{
    uint32_t epoch = ligi_head_epoch(&self->log.head);
    ligi_clog_position index;

    if (self->log.numbered != 0 || !ligi_mdb_tail_index(self, &index))
        return 0;
    pthread_mutex_lock(&self->recent_lock);
    int plain = continue_index(self, &index, epoch) == LIG_OK && is_plain(self) && read_all(self);
    if (plain) {
        const ligi_recent *recent = self->recent;
        *at = recent->at;
        plain = recent->record_count < BATCH_RECORDS && recent->bytes + bytes <= BATCH_BYTES &&
                at->version == ligi_head_appended(&self->log.head) &&
                at->offset <= self->log.segment_bytes;
    }
    pthread_mutex_unlock(&self->recent_lock);
    return plain;
}

void ligi_mdb_tail_add(ligi_file_catalog *self, const uint8_t *record,
                       const ligi_clog_header *header, const ligi_clog_position *at)
{
    pthread_mutex_lock(&self->recent_lock);
    /* Another thread may have begun from a newer index. Without memory the log is read again. */
    if (self->recent != NULL && self->recent->at.version == at->version &&
        self->recent->at.chain == at->chain)
        (void)ligi_recent_add(&self->recent, record, header, at);
    pthread_mutex_unlock(&self->recent_lock);
}
