#include "backend/file/catalog/catalog_copy.h"

#include "backend/file/catalog/catalog.h"
#include "backend/file/catalog/catalog_check.h"
#include "backend/file/catalog/catalog_snapshot.h"
#include "backend/file/catalog/upgrade.h"
#include "backend/file/entry.h"
#include "backend/file/names.h"
#include "backend/file/packs/engine.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ATTEMPTS_MAX 100
#define AT_MAP_BYTES 32 /* in a meta page */
#define STEP_BYTES (256u << 10)

typedef struct image { /* one copy; lives as long as a snapshot of it does */
    MDB_env *env;
    MDB_dbi dbi;
    size_t refs; /* under the owner's lock */
    uint64_t txnid;
    int64_t modified_ns; /* of the file: an upgrade is not a transaction */
    ligi_file_catalog_copy *owner;
} image;

struct ligi_file_catalog_copy {
    int folder_fd;
    const char *place;
    pthread_mutex_t lock; /* guards the current image and all counts */
    image *current;
};

static void image_destroy(image *self)
{
    mdb_env_close(self->env);
    free(self);
}

static void image_release(void *opaque)
{
    image *self = opaque;
    ligi_file_catalog_copy *owner = self->owner;

    pthread_mutex_lock(&owner->lock);
    size_t left = --self->refs;
    pthread_mutex_unlock(&owner->lock);
    if (left == 0)
        image_destroy(self);
}

static lig_status copy_bytes(int from, int to, uint64_t bytes, const char *place)
{
    uint8_t *buffer;

    LIG_TRY(ligi_alloc(&buffer, STEP_BYTES, "a copy of the catalog"));
    lig_status status = LIG_OK;
    for (uint64_t at = 0; at < bytes && status == LIG_OK;) {
        ssize_t got = pread(from, buffer, STEP_BYTES, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            status = ligi_fail_errno(errno, "%s: the catalog cannot be read", place);
        if (got <= 0)
            break; /* free pages at the end need not be there */
        status = ligi_write_all(to, buffer, (uint64_t)got, at);
        at += (uint64_t)got;
    }
    free(buffer);
    return status;
}

/* The copy gets the heads that were read before its pages: pages of a later commit may be
 * incomplete. */
static lig_status write_heads(int fd, ligi_file_catalog_meta *meta)
{
    uint64_t bytes = (meta->last_page + 1) * meta->page_bytes;

    for (int i = 0; i < 2; i++) {
        for (int at = 0; at < 8; at++)
            meta->raw[i][AT_MAP_BYTES + at] = (uint8_t)(bytes >> (8 * at));
        LIG_TRY(ligi_write_all(fd, meta->raw[i], LIGI_META_BYTES, (uint64_t)i * meta->page_bytes));
    }
    return LIG_OK;
}

/* LMDB uses a page again three commits after the one that could see it, so a copy during which one
 * commit ended is whole. */
lig_status ligi_file_catalog_copy_file(int from, int to, const char *place, uint64_t *txnid)
{
    ligi_file_catalog_meta before, after;

    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        LIG_TRY(ligi_file_catalog_meta_read(from, place, &before));
        LIG_TRY(copy_bytes(from, to, (before.last_page + 1) * before.page_bytes, place));
        LIG_TRY(ligi_file_catalog_meta_read(from, place, &after));
        if (after.txnid - before.txnid >= 2)
            continue;
        *txnid = before.txnid;
        LIG_TRY(write_heads(to, &before));
        return ligi_file_catalog_check(to, place);
    }
    return lig_fail(LIG_E_BUSY, "%s: the catalog changes faster than it can be copied (try again)",
                    place);
}

static lig_status open_env(image *self, int fd, const char *place)
{
    char path[64];
    MDB_txn *txn;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int number = mdb_env_create(&self->env);
    if (number == MDB_SUCCESS)
        number =
            mdb_env_open(self->env, path, MDB_NOSUBDIR | MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS, 0);
    if (number == MDB_SUCCESS)
        number = mdb_txn_begin(self->env, NULL, MDB_RDONLY, &txn);
    int superseded = 0;
    if (number == MDB_SUCCESS) {
        number = mdb_dbi_open(txn, NULL, 0, &self->dbi);
        superseded = number == MDB_SUCCESS && ligi_upgrade_done(txn, self->dbi);
        int committed = mdb_txn_commit(txn);
        number = number != MDB_SUCCESS ? number : committed;
    }
    if (superseded)
        return lig_fail(LIG_E_CLOSED, "%s was upgraded to format 2 (open it again)", place);
    return ligi_mdb_fail(number, place, "cannot be read");
}

static lig_status image_create(ligi_file_catalog_copy *owner, int from, image **out)
{
    image *made;

    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a copy of the catalog"));
    made->refs = 1;
    made->owner = owner;
    int fd = memfd_create("ligament catalog", MFD_CLOEXEC);
    lig_status status = LIG_OK;
    if (fd < 0)
        status =
            ligi_fail_errno(errno, "%s: out of memory for a copy of the catalog", owner->place);
    if (status == LIG_OK)
        status = ligi_file_catalog_copy_file(from, fd, owner->place, &made->txnid);
    if (status == LIG_OK)
        status = open_env(made, fd, owner->place);
    if (fd >= 0)
        close(fd);
    if (status == LIG_OK) {
        *out = made;
        return LIG_OK;
    }
    if (made->env != NULL)
        mdb_env_close(made->env);
    free(made);
    return status;
}

/* Updates the current image from the file; the lock is held. LIG_E_NOTFOUND without an error text
 * if there is no catalog. */
static lig_status refresh(ligi_file_catalog_copy *self)
{
    ligi_file_catalog_meta meta;
    image *made = NULL;

    int fd;
    LIG_TRY(ligi_entry_open(self->folder_fd, self->folder_fd, self->place, LIGI_NAME_CATALOG,
                            O_RDONLY, &fd));
    lig_status status = ligi_file_catalog_meta_read(fd, self->place, &meta);
    if (status == LIG_OK && (self->current == NULL || self->current->txnid != meta.txnid ||
                             self->current->modified_ns != meta.modified_ns))
        status = image_create(self, fd, &made);
    close(fd);
    LIG_TRY(status);
    if (made == NULL)
        return LIG_OK;
    made->modified_ns = meta.modified_ns;
    image *last = self->current;
    self->current = made;
    if (last != NULL && --last->refs == 0)
        image_destroy(last);
    return LIG_OK;
}

lig_status ligi_file_catalog_copy_open(ligi_file_catalog_copy **copy, int folder_fd,
                                       const char *place)
{
    ligi_file_catalog_copy *self;

    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "a copy of the catalog"));
    self->folder_fd = folder_fd;
    self->place = place;
    pthread_mutex_init(&self->lock, NULL);
    lig_status status = refresh(self);
    if (status == LIG_OK) {
        *copy = self;
        return LIG_OK;
    }
    ligi_file_catalog_copy_close(self, 0);
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

void ligi_file_catalog_copy_close(ligi_file_catalog_copy *copy, int forked)
{
    if (copy == NULL)
        return;
    if (copy->current != NULL && !forked)
        image_destroy(copy->current);
    pthread_mutex_destroy(&copy->lock);
    free(copy);
}

/* The copy relies on the file's headers, not on the lock file: it shows the commit of a killed
 * process as soon as it is written. */
lig_status ligi_file_catalog_copy_settle(ligi_file_catalog_copy *self)
{
    pthread_mutex_lock(&self->lock);
    lig_status status = refresh(self);
    pthread_mutex_unlock(&self->lock);
    return status == LIG_E_NOTFOUND ? lig_fail(status, "the catalog of %s is missing", self->place)
                                    : status;
}

lig_status ligi_file_catalog_copy_begin(ligi_file_catalog_copy *self, void **snapshot,
                                        uint64_t *version)
{
    MDB_txn *txn = NULL;

    pthread_mutex_lock(&self->lock);
    lig_status status = refresh(self);
    image *used = self->current;
    if (status == LIG_E_BUSY && used != NULL)
        status = LIG_OK; /* consistent, if not the newest: writers never block a reader */
    if (status == LIG_OK)
        used->refs++;
    pthread_mutex_unlock(&self->lock);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(status, "the catalog of %s is missing", self->place);
    LIG_TRY(status);
    status = ligi_mdb_fail(mdb_txn_begin(used->env, NULL, MDB_RDONLY, &txn), self->place,
                           "cannot be read");
    const ligi_file_snapshot_source source = {txn, used->dbi, NULL, image_release, used};
    if (status == LIG_OK)
        status = ligi_file_snapshot_create(&source, snapshot, version);
    if (status != LIG_OK)
        image_release(used);
    return status;
}
