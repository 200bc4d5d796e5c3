#include "backend/file/file.h"
#include "backend/file/leases/file_pins.h"
#include "backend/file/leases/named_lock.h"

#include "backend/file/catalog/catalog.h"
#include "backend/file/catalog/catalog_copy.h"
#include "backend/file/catalog/catalog_snapshot.h"
#include "backend/file/catalog/log_events.h"
#include "backend/file/catalog/reader.h"
#include "backend/file/folder.h"
#include "backend/file/index/repair.h"
#include "backend/file/index/sharing.h"
#include "backend/file/marker.h"
#include "backend/file/names.h"
#include "backend/file/packs/pack_folder.h"
#include "backend/file/packs/pack_read.h"
#include "backend/file/packs/pack_warm.h"
#include "backend/file/packs/pack_write.h"
#include "base/error.h"
#include "base/uri/option.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_HELP                                                                                  \
    "seconds that a commit waits for the write lock, or a reader for the sync of a commit"
#define AT(field) offsetof(ligi_file_options, field)
static const ligi_option option_table[] = {
    {"mode", LIGI_OPTION_TEXT, "a",
     "r: read only, w: create a new store, a: create it if it does not exist", AT(mode)},
    {"fsync", LIGI_OPTION_BOOL, "1", "0: a save may be lost or torn if the machine crashes",
     AT(fsync)},
    {"cache", LIGI_OPTION_BYTES, "16MiB",
     "saves up to this size go through the page cache; 0: none do", AT(cache)},
    {"direct", LIGI_OPTION_TEXT, "auto", "O_DIRECT: 0, 1 or auto (where it helps)", AT(direct)},
    {"uring", LIGI_OPTION_TEXT, "auto", "io_uring: 0, 1 (fail if unavailable) or auto", AT(uring)},
    {"share", LIGI_OPTION_TEXT, "auto",
     "local, network (several hosts) or auto (by type of file system)", AT(share)},
    {"index", LIGI_OPTION_TEXT, "",
     "network: folder of this host for the index (/var/tmp/ligament-<user>)", AT(index)},
    {"map", LIGI_OPTION_BYTES, "16GiB", "initial address space for the index; grows when needed",
     AT(map)},
    {"log", LIGI_OPTION_BYTES, "64MiB", "write a checkpoint of the log after this many bytes",
     AT(log)},
    {"wait", LIGI_OPTION_INT, "30", WAIT_HELP, AT(wait)},
};
#define OPTION_COUNT (sizeof option_table / sizeof option_table[0])

static const lig_backend_option shown_options[] = {
    {"mode", "text", "a", "r: read only, w: create a new store, a: create it if it does not exist"},
    {"fsync", "bool", "1", "0: a save may be lost or torn if the machine crashes"},
    {"cache", "bytes", "16MiB", "saves up to this size go through the page cache; 0: none do"},
    {"direct", "text", "auto", "O_DIRECT: 0, 1 or auto (where it helps)"},
    {"uring", "text", "auto", "io_uring: 0, 1 (fail if unavailable) or auto"},
    {"share", "text", "auto", "local, network (several hosts) or auto (by type of file system)"},
    {"index", "text", "", "network: folder of this host for the index (/var/tmp/ligament-<user>)"},
    {"map", "bytes", "16GiB", "initial address space for the index; grows when needed"},
    {"log", "bytes", "64MiB", "write a checkpoint of the log after this many bytes"},
    {"wait", "int", "30", WAIT_HELP},
    {NULL, NULL, NULL, NULL},
};

static lig_status check_word(const char *name, const char *value, const char *first,
                             const char *second, const char *third)
{
    if (strcmp(value, first) == 0 || strcmp(value, second) == 0 || strcmp(value, third) == 0)
        return LIG_OK;
    return lig_fail(LIG_E_INVALID, "invalid value for %s: '%s' (expected %s, %s or %s)", name,
                    value, first, second, third);
}

static lig_status check_options(const ligi_file_options *options)
{
    LIG_TRY(check_word("mode", options->mode, "r", "w", "a"));
    LIG_TRY(check_word("direct", options->direct, "auto", "0", "1"));
    LIG_TRY(check_word("uring", options->uring, "auto", "0", "1"));
    LIG_TRY(check_word("share", options->share, "auto", "local", "network"));
    if (options->map < (UINT64_C(1) << 16) || options->map > (UINT64_C(1) << 46))
        return lig_fail(LIG_E_INVALID, "map must be between 64KiB and 64TiB");
    if (options->log < (UINT64_C(4) << 10) || options->log > (UINT64_C(1) << 40))
        return lig_fail(LIG_E_INVALID, "log must be between 4KiB and 1TiB");
    if (options->wait < 1 || options->wait > 86400)
        return lig_fail(LIG_E_INVALID, "wait must be between 1 and 86400 seconds");
    return LIG_OK;
}

/* A reader without a catalog uses the packs. If there was a catalog, they are not enough. */
static lig_status check_not_lost(const ligi_file *self)
{
    struct stat info;

    if (ligi_entry_look(self->folder_fd, self->folder_fd, self->place, LIGI_NAME_INDEX, &info) !=
            LIG_OK ||
        info.st_size == 0)
        return LIG_OK;
    return lig_fail(LIG_E_CORRUPT,
                    "%s: the log of commits is missing (restore " LIGI_NAME_LOG
                    "/, or run ligament check --repair)",
                    self->place);
}

/* Converts the store to a shared one if requested, and opens this host's folder. */
static lig_status open_shared(ligi_file *self, ligi_file_catalog_place *place, int *index_fd)
{
    const char *parent = self->options.index;
    int shared;

    LIG_TRY(ligi_sharing_find(self->folder_fd, self->place, &shared));
    if (!shared && !self->network)
        return LIG_OK;
    if (!shared) {
        lig_status status = ligi_sharing_begin(place, parent);
        if (status != LIG_OK && status != LIG_E_BUSY)
            return status;
        ligi_failure failure;
        ligi_failure_take(&failure, status);
        LIG_TRY(ligi_sharing_find(self->folder_fd, self->place, &shared));
        if (!shared)
            return ligi_failure_publish(&failure);
    }
    self->network = 1;
    self->options.fsync = 1; /* other hosts see what the server has */
    LIG_TRY(ligi_sharing_folder(self->folder_fd, self->place, parent, index_fd));
    place->index_fd = *index_fd;
    return LIG_OK;
}

/* self->reader stays NULL if there is no log. */
static lig_status open_reader(ligi_file *self)
{
    ligi_file_reader *opened = NULL;
    lig_status status = LIG_OK;

    pthread_mutex_lock(&self->lock);
    if (self->reader == NULL) {
        status = ligi_file_reader_open(&opened, self->folder_fd, self->place);
        self->reader = opened;
    }
    pthread_mutex_unlock(&self->lock);
    return status;
}

static lig_status open_catalog(ligi_file *self)
{
    int index_fd = -1;

    /* The catalog of format 1 cannot be copied while another host writes to it. */
    if (self->read_only && self->network && self->format == LIGI_FORMAT_CATALOG)
        return LIG_OK;
    if (self->read_only && self->format == LIGI_FORMAT_CATALOG) {
        lig_status status = ligi_file_catalog_copy_open(&self->copy, self->folder_fd, self->place);
        if (self->copy != NULL || (status != LIG_OK && status != LIG_E_CLOSED))
            return status;
    }
    if (self->read_only) {
        LIG_TRY(open_reader(self));
        return self->reader == NULL ? check_not_lost(self) : LIG_OK;
    }
    ligi_file_catalog_place place = {
        .folder_fd = self->folder_fd,
        .index_fd = self->folder_fd,
        .place = self->place,
        .map_bytes = self->options.map,
        .log_bytes = self->options.log,
        .wait_ns = self->options.wait * INT64_C(1000000000),
        .sync = self->options.fsync,
    };
    lig_status status = open_shared(self, &place, &index_fd);
    if (status == LIG_OK)
        status = ligi_file_catalog_open(&self->catalog, &place);
    if (index_fd >= 0)
        close(index_fd);
    return status;
}

/* The folder if it exists, or its nearest existing ancestor. */
static int open_nearest(const char *place, int *exists)
{
    char path[PATH_MAX];

    *exists = 1;
    snprintf(path, sizeof path, "%s", place);
    for (;;) {
        int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        char *slash = strrchr(path, '/');
        if (fd >= 0 || errno != ENOENT)
            return fd;
        *exists = 0;
        if (slash == NULL)
            return open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        slash[slash == path] = '\0';
    }
}

/* Checked before anything is created: a folder for the index that has no effect, or cannot be
 * used. */
static lig_status check_index(const ligi_file *self)
{
    const char *share = self->options.share, *parent = self->options.index;
    int exists, shared = 0;

    int fd = open_nearest(self->place, &exists);
    int network = strcmp(share, "network") == 0 ||
                  (strcmp(share, "auto") == 0 && fd >= 0 && ligi_folder_network(fd, NULL));
    if (fd >= 0 && exists)
        (void)ligi_sharing_find(fd, self->place, &shared); /* what fails does so again */
    if (fd >= 0)
        close(fd);
    if (!network && !shared)
        return parent[0] == '\0'
                   ? LIG_OK
                   : lig_fail(LIG_E_INVALID,
                              "index=%s requires share=network: the index of %s is in the store",
                              parent, self->place);
    return self->read_only ? LIG_OK : ligi_sharing_check(self->place, parent);
}

/* An explicitly requested option is not replaced by another. */
static lig_status check_wishes(ligi_file *self)
{
    ligi_engine *engine;

    if (strcmp(self->options.direct, "1") == 0 && !self->direct)
        return lig_fail(LIG_E_UNSUPPORTED, "%s: direct=1, but the file system refuses O_DIRECT",
                        self->place);
    if (strcmp(self->options.uring, "1") != 0)
        return LIG_OK;
    LIG_TRY(ligi_file_engine(self, &engine));
    int number = ligi_engine_ring(engine) ? 0 : ligi_engine_refusal(engine);
    ligi_file_engine_return(self, engine);
    if (number != 0)
        return lig_fail(LIG_E_UNSUPPORTED, "%s: uring=1, but the kernel refuses io_uring: %s",
                        self->place, strerror(number));
    return LIG_OK;
}

static lig_status open_all(ligi_file *self)
{
    LIG_TRY(check_options(&self->options));
    self->read_only = self->options.mode[0] == 'r';
    LIG_TRY(check_index(self));
    LIG_TRY(ligi_folder_open(self));
    LIG_TRY(check_wishes(self));
    if (strcmp(self->options.share, "auto") == 0)
        self->network = ligi_folder_network(self->folder_fd, NULL);
    else
        self->network = strcmp(self->options.share, "network") == 0;
    LIG_TRY(open_catalog(self));
    if (!self->read_only) {
        ligi_file_packs_clean(self);
        ligi_file_pins_clean(self);
    }
    return LIG_OK;
}

static void file_close(void *opaque)
{
    ligi_file *self = opaque;

    if (self == NULL)
        return;
    int forked = self->pid != getpid();
    ligi_file_warm_end(self, forked);
    for (size_t i = 0; i < self->idle_count; i++)
        ligi_engine_destroy(self->idle[i], forked);
    if (!forked)
        ligi_file_catalog_close(self->catalog);
    ligi_file_reader_close(self->reader, forked);
    ligi_file_catalog_copy_close(self->copy, forked);
    ligi_file_pins_close(self, forked);
    if (self->folder_fd >= 0)
        close(self->folder_fd);
    if (self->packs_fd >= 0)
        close(self->packs_fd);
    pthread_mutex_destroy(&self->lock);
    ligi_options_fini(option_table, OPTION_COUNT, &self->options);
    free(self->pack_ids);
    free(self->packs_place);
    free(self->place);
    free(self);
}

static lig_status open_uri(void **out, const ligi_uri *uri)
{
    ligi_file *self;

    if (uri->rest[0] == '\0')
        return lig_fail(LIG_E_INVALID, "file: needs a folder (example: file:///models)");
    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "a volume"));
    self->folder_fd = self->packs_fd = -1;
    self->pid = getpid();
    pthread_mutex_init(&self->lock, NULL);
    lig_status status = ligi_strdup(&self->place, uri->rest);
    if (status == LIG_OK)
        status = ligi_options_fill(option_table, OPTION_COUNT, uri, NULL, &self->options);
    if (status == LIG_OK)
        status = open_all(self);
    if (status == LIG_OK)
        *out = self;
    else
        file_close(self);
    return status;
}

static lig_status file_open(void **out, const char *config)
{
    char text[LIGI_URI_BYTES_MAX + 8];
    ligi_uri uri;

    if (snprintf(text, sizeof text, "file:%s", config) >= (int)sizeof text)
        return lig_fail(LIG_E_LIMIT, "the path of a store is too long");
    LIG_TRY(ligi_uri_parse(&uri, text));
    lig_status status = open_uri(out, &uri);
    ligi_uri_fini(&uri);
    return status;
}

lig_status ligi_file_usable(const ligi_file *self)
{
    if (self->pid != getpid())
        return lig_fail(
            LIG_E_CLOSED,
            "%s was opened before this process was forked (open it again in this process)",
            self->place);
    return LIG_OK;
}

lig_status ligi_file_writable(const ligi_file *self)
{
    LIG_TRY(ligi_file_usable(self));
    if (self->read_only)
        return lig_fail(LIG_E_DENIED, "%s was opened with mode=r", self->place);
    return LIG_OK;
}

lig_status ligi_file_engine(ligi_file *self, ligi_engine **engine)
{
    ligi_engine *taken = NULL;

    pthread_mutex_lock(&self->lock);
    if (self->idle_count > 0)
        taken = self->idle[--self->idle_count];
    pthread_mutex_unlock(&self->lock);
    if (taken == NULL)
        LIG_TRY(ligi_engine_create(&taken));
    *engine = taken;
    return LIG_OK;
}

void ligi_file_engine_return(ligi_file *self, ligi_engine *engine)
{
    if (engine == NULL)
        return;
    ligi_engine_drain(engine);
    pthread_mutex_lock(&self->lock);
    if (self->idle_count < sizeof self->idle / sizeof self->idle[0]) {
        self->idle[self->idle_count++] = engine;
        engine = NULL;
    }
    pthread_mutex_unlock(&self->lock);
    ligi_engine_destroy(engine, 0);
}

static uint32_t file_flags(void *opaque)
{
    const ligi_file *self = opaque;
    uint32_t flags = 0;

    if (self->read_only)
        flags |= LIG_VOLUME_READ_ONLY;
    if (self->catalog == NULL && self->reader == NULL && self->copy == NULL)
        flags |= LIG_VOLUME_NO_CATALOG;
    if (self->network)
        flags |= LIG_VOLUME_NO_HOLD;
    return flags;
}

static void describe_ring(ligi_file *self, char *text, size_t text_bytes)
{
    ligi_engine *engine;

    if (!self->direct || strcmp(self->options.uring, "0") == 0) {
        snprintf(text, text_bytes, "pread and pwrite");
        return;
    }
    if (ligi_file_engine(self, &engine) != LIG_OK) {
        snprintf(text, text_bytes, "out of memory for buffers");
        return;
    }
    if (ligi_engine_ring(engine))
        snprintf(text, text_bytes, "io_uring");
    else
        snprintf(text, text_bytes, "pread and pwrite (io_uring is not available: %s)",
                 strerror(ligi_engine_refusal(engine)));
    ligi_file_engine_return(self, engine);
}

static void file_describe(void *opaque, char *text, size_t text_bytes)
{
    ligi_file *self = opaque;
    char ring[160], share[64] = "", holder[64] = "";
    const char *kind = "a network file system";

    if (ligi_file_usable(self) != LIG_OK) {
        snprintf(text, text_bytes, "opened before this process was forked");
        return;
    }
    describe_ring(self, ring, sizeof ring);
    if (self->network) {
        ligi_folder_network(self->folder_fd, &kind);
        snprintf(share, sizeof share, ", %s: shared by hosts", kind);
    }
    if (self->catalog != NULL)
        ligi_file_catalog_holder(self->catalog, holder, sizeof holder);
    else if (self->reader != NULL)
        ligi_file_reader_writer(self->reader, holder, sizeof holder);
    snprintf(text, text_bytes, "%s, %s%s%s%s%s", ring, self->direct_note,
             self->options.fsync ? "" : ", no fsync", share,
             holder[0] ? ", write lock held by " : "", holder);
}

/* The store has been upgraded since it was opened: it has a log by now. */
static lig_status follow_upgrade(ligi_file *self)
{
    LIG_TRY(open_reader(self));
    return self->reader != NULL
               ? LIG_OK
               : lig_fail(LIG_E_CORRUPT,
                          "%s was upgraded, but has no log (restore " LIGI_NAME_LOG "/)",
                          self->place);
}

static lig_status file_catalog_begin(void *opaque, void **snapshot, uint64_t *version)
{
    ligi_file *self = opaque;

    LIG_TRY(ligi_file_usable(self));
    if (self->catalog != NULL)
        return ligi_file_catalog_begin(self->catalog, snapshot, version);
    if (self->reader != NULL)
        return ligi_file_reader_begin(self->reader, snapshot, version);
    if (self->copy != NULL) {
        lig_status status = ligi_file_catalog_copy_begin(self->copy, snapshot, version);
        if (status != LIG_E_CLOSED)
            return status;
        LIG_TRY(follow_upgrade(self));
        return ligi_file_reader_begin(self->reader, snapshot, version);
    }
    return lig_fail(LIG_E_UNSUPPORTED,
                    "the catalog of %s cannot be read here: use the packs' footers", self->place);
}

static lig_status file_catalog_commit(void *opaque, const lig_catalog_edit *edit)
{
    ligi_file *self = opaque;

    LIG_TRY(ligi_file_writable(self));
    lig_status status = ligi_folder_check(self);
    if (status == LIG_OK)
        return ligi_file_catalog_commit(self->catalog, edit);
    ligi_file_catalog_unlock_mine(self->catalog);
    return status;
}

static lig_status file_catalog_sync(void *opaque, lig_catalog_pending *pending)
{
    ligi_file *self = opaque;

    lig_status status = ligi_file_writable(self);
    if (status == LIG_OK)
        return ligi_file_catalog_sync(self->catalog, pending);
    *pending = (lig_catalog_pending){0}; /* in a forked child, its lock may never be released */
    return status;
}

static lig_status file_catalog_settle(void *opaque)
{
    ligi_file *self = opaque;

    LIG_TRY(ligi_file_usable(self));
    if (self->catalog != NULL)
        return ligi_file_catalog_settle(self->catalog);
    /* A reader of the log, or of the packs' footers, has no view that could be behind. */
    if (self->reader != NULL || self->copy == NULL)
        return LIG_OK;
    lig_status status = ligi_file_catalog_copy_settle(self->copy);
    return status == LIG_E_CLOSED ? follow_upgrade(self) : status;
}

static lig_status file_catalog_lock(void *opaque, int64_t timeout_ns)
{
    const ligi_file *self = opaque;

    LIG_TRY(ligi_file_writable(self));
    return ligi_file_catalog_lock(self->catalog, timeout_ns);
}

static void file_catalog_unlock(void *opaque)
{
    const ligi_file *self = opaque;

    ligi_file_catalog_unlock(self->catalog);
}

static lig_status no_events(const ligi_file *self)
{
    return lig_fail(LIG_E_UNSUPPORTED,
                    "%s: a store of format 1 has no events (open it once for writing)",
                    self->place);
}

static lig_status file_catalog_events(void *opaque, uint64_t since, lig_catalog_visit visit,
                                      void *context)
{
    const ligi_file *self = opaque;

    LIG_TRY(ligi_file_usable(self));
    if (self->catalog != NULL)
        return ligi_clog_events(self->catalog, since, visit, context);
    if (self->reader != NULL)
        return ligi_file_reader_events(self->reader, since, visit, context);
    return no_events(self);
}

static lig_status file_catalog_wait(void *opaque, uint64_t since, int64_t timeout_ns)
{
    const ligi_file *self = opaque;

    LIG_TRY(ligi_file_usable(self));
    if (self->catalog != NULL)
        return ligi_clog_events_wait(self->catalog, since, timeout_ns);
    if (self->reader != NULL)
        return ligi_file_reader_wait(self->reader, since, timeout_ns);
    return no_events(self);
}

static lig_status file_catalog_verify(void *opaque, int repair, lig_catalog_problem problem,
                                      void *context)
{
    const ligi_file *self = opaque;

    LIG_TRY(ligi_file_usable(self));
    if (self->reader != NULL)
        return ligi_file_reader_verify(self->reader, problem, context);
    if (self->catalog == NULL)
        return LIG_OK;
    return ligi_repair_verify(self->catalog, repair, problem, context);
}

static const lig_volume_ops file_volume = {
    .struct_bytes = sizeof(lig_volume_ops),
    .flags = file_flags,
    .describe = file_describe,
    .pack_create = ligi_file_pack_create,
    .pack_put = ligi_file_pack_put,
    .pack_seal = ligi_file_pack_seal,
    .pack_close = ligi_file_pack_close,
    .pack_size = ligi_file_pack_size,
    .pack_read = ligi_file_pack_read,
    .pack_warm = ligi_file_pack_warm,
    .pack_map = ligi_file_pack_map,
    .pack_unmap = ligi_file_pack_unmap,
    .pack_claim = ligi_file_pack_claim,
    .pack_remove = ligi_file_pack_remove,
    .pack_next = ligi_file_pack_next,
    .pin = ligi_file_pin,
    .unpin = ligi_file_unpin,
    .catalog_begin = file_catalog_begin,
    .catalog_end = ligi_file_catalog_end,
    .catalog_get = ligi_file_catalog_get,
    .catalog_seek = ligi_file_catalog_seek,
    .catalog_commit = file_catalog_commit,
    .catalog_lock = file_catalog_lock,
    .catalog_unlock = file_catalog_unlock,
    .catalog_settle = file_catalog_settle,
    .catalog_verify = file_catalog_verify,
    .catalog_events = file_catalog_events,
    .catalog_wait = file_catalog_wait,
    .lock = ligi_file_lock,
    .unlock = ligi_file_unlock,
    .pack_descriptor = ligi_file_pack_descriptor,
    .catalog_sync = file_catalog_sync,
};

extern const lig_backend_ops ligi_backend_file;
const lig_backend_ops ligi_backend_file = {
    .flags = LIG_BACKEND_DEVICE,
    .open = file_open,
    .close = file_close,
    .volume = &file_volume,
    .options = shown_options,
};
