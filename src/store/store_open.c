#include "backend/registry.h"
#include "base/boot.h"
#include "base/error.h"
#include "base/log.h"
#include "base/uri/uri.h"
#include "store/catalog/catalog_view.h"
#include "store/catalog/commit_event.h"
#include "store/catalog/orphans.h"
#include "store/catalog/rebuild/catalog_from_footers.h"
#include "store/catalog/rebuild/lost_notice.h"
#include "store/save/save_async.h"
#include "store/serve/client/client_open.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A path is passed to the backend as the rest of a URI: characters with a special meaning are
 * escaped. */
static lig_status config_of_path(const char *path, const char *query, char **config)
{
    ligi_writer writer = {0};
    if (path[0] == '/' && path[1] == '/')
        ligi_put_bytes(&writer, "//", 2);
    for (const char *c = path; *c; c++) {
        if (*c == '%' || *c == '?')
            ligi_put_bytes(&writer, *c == '%' ? "%25" : "%3F", 3);
        else
            ligi_put_bytes(&writer, c, 1);
    }
    ligi_put_bytes(&writer, query, strlen(query) + 1);
    lig_status status = writer.status;
    if (status != LIG_OK)
        ligi_writer_fini(&writer);
    else
        *config = (char *)writer.data;
    return status;
}

/* Fills the store's uri and mode, and *config with what the backend gets. */
static lig_status read_uri(lig_store *store, const char *text, const ligi_uri *uri, char **config)
{
    const char *mode = ligi_uri_option_get(uri, "mode");
    if (mode && (strlen(mode) != 1 || strchr("rwa", mode[0]) == NULL))
        return lig_fail(LIG_E_INVALID, "invalid mode '%s' (expected r, w or a)", mode);
    store->mode = mode ? mode[0] : 'a';
    const char *wait = ligi_uri_option_get(uri, "wait"); /* the volume checks it */
    long seconds = wait ? strtol(wait, NULL, 10) : 0;
    if (seconds > 0 && seconds <= 86400)
        store->commit_ns = (int64_t)seconds * 1000000000;
    size_t scheme = strlen(uri->scheme);
    int is_path = strncasecmp(text, uri->scheme, scheme) != 0 || text[scheme] != ':';
    const char *query = is_path ? text + strlen(uri->rest) : strchr(text, '?');
    if (query == NULL)
        query = text + strlen(text);
    LIG_TRY(ligi_strdup(&store->uri, text));
    store->uri[query - text] = '\0';
    return is_path ? config_of_path(uri->rest, query, config)
                   : ligi_strdup(config, text + scheme + 1);
}

static lig_status open_volume(lig_store *store, const char *scheme, const char *config)
{
    ligi_volume *volume;
    LIG_TRY(ligi_calloc(&volume, 1, sizeof *volume, "a store"));
    lig_status status = ligi_backend_open_raw(scheme, config, &volume->backend, &volume->self);
    if (status == LIG_OK && volume->backend->volume == NULL) {
        status = lig_fail(LIG_E_UNSUPPORTED,
                          "backend '%s' has no volume and cannot hold a store (use it with "
                          "save_weights or lig_checkpoint_open)",
                          scheme);
        ligi_backend_close_raw(volume->backend, volume->self);
    }
    if (status != LIG_OK) {
        free(volume);
        return status;
    }
    volume->ops = volume->backend->volume;
    volume->holders = 1;
    store->volume = volume;
    return LIG_OK;
}

static int has_packs(ligi_volume *volume, lig_status *status)
{
    uint64_t id;
    *status = volume->ops->pack_next(volume->self, 0, &id);
    int found = *status == LIG_OK;
    if (*status == LIG_E_NOTFOUND)
        *status = LIG_OK;
    return found;
}

/* A watch from version 0 receives the models found in the footers. `bytes` holds the memory that
 * the events borrow. */
static lig_status tell_models(const ligi_footers *footers, const void *secret, ligi_writer *bytes,
                              lig_catalog_event *events, size_t *event_count)
{
    for (size_t i = 0; i < ligi_footers_count(footers); i++) {
        lig_catalog_item item = ligi_footers_item(footers, i);
        ligi_record record = {0};
        if (item.key_bytes == 0 || *(const uint8_t *)item.key != LIGI_TABLE_MODEL)
            continue;
        lig_status status = ligi_record_get(&item, secret, &record);
        lig_event event = {
            .kind = LIG_EVENT_SAVED, .model = record.about.id, .name = record.about.name};
        size_t before = bytes->bytes;
        if (status == LIG_OK)
            ligi_event_put(bytes, &event);
        ligi_record_fini(&record);
        LIG_TRY(status);
        events[(*event_count)++].bytes = bytes->bytes - before;
    }
    const uint8_t *at = bytes->data;
    for (size_t i = 0; i < *event_count; at += events[i++].bytes)
        events[i].data = at;
    return bytes->status;
}

/* The first commit of a catalog that is made from footers, of a lost one, or of a new one. */
typedef struct first_commit {
    ligi_footers *footers; /* NULL: there are no packs */
    uint64_t version;      /* that the volume has reached */
    ligi_header header;
    ligi_writer header_bytes, notice, event_bytes;
    ligi_catalog_key header_key, notice_key; /* the ops point into them */
    lig_catalog_op *ops;
    size_t op_count;
    lig_catalog_event *events;
    size_t event_count;
} first_commit;

static lig_status make_header(first_commit *self)
{
    ligi_pack_header known;
    self->header.next_id = 1;
    if (self->footers && ligi_footers_header(self->footers, &known)) {
        memcpy(self->header.uuid, known.uuid, sizeof self->header.uuid);
        memcpy(self->header.secret, known.secret, sizeof self->header.secret);
        self->header.next_id = ligi_footers_next_id(self->footers);
    } else {
        LIG_TRY(ligi_random(self->header.uuid, sizeof self->header.uuid));
        LIG_TRY(ligi_random(self->header.secret, sizeof self->header.secret));
    }
    ligi_header_put(&self->header_bytes, &self->header);
    return self->header_bytes.status;
}

/* `check` reports the losses until a repair has reported them. */
static lig_status make_notice(first_commit *self)
{
    char text[LIGI_NOTICE_BYTES];
    if (self->footers == NULL && self->version == 0)
        return LIG_OK;
    ligi_notice_lost(self->footers, self->header.secret, self->version, text);
    ligi_log(LIG_LOG_WARNING, "%s", text);
    ligi_notice_put(&self->notice, &self->notice_key, text, self->header.secret);
    return self->notice.status;
}

static lig_status fill_commit(first_commit *self)
{
    size_t count = self->footers ? ligi_footers_count(self->footers) : 0;
    LIG_TRY(make_header(self));
    LIG_TRY(make_notice(self));
    LIG_TRY(ligi_calloc(&self->ops, count + 2, sizeof *self->ops, "a catalog"));
    LIG_TRY(ligi_calloc(&self->events, count, sizeof *self->events, "a catalog"));
    self->header_key = ligi_catalog_key_header();
    self->ops[self->op_count++] =
        (lig_catalog_op){self->header_key.bytes, self->header_key.size, self->header_bytes.data,
                         self->header_bytes.bytes};
    if (self->notice.bytes)
        self->ops[self->op_count++] = (lig_catalog_op){
            self->notice_key.bytes, self->notice_key.size, self->notice.data, self->notice.bytes};
    for (size_t i = 0; i < count; i++) {
        lig_catalog_item item = ligi_footers_item(self->footers, i);
        self->ops[self->op_count++] =
            (lig_catalog_op){item.key, item.key_bytes, item.value, item.value_bytes};
    }
    return count ? tell_models(self->footers, self->header.secret, &self->event_bytes, self->events,
                               &self->event_count)
                 : LIG_OK;
}

/* Refused if there is a catalog after all, even one that a killed process created and that was not
 * visible. */
static lig_status make_catalog(lig_store *store, int from_footers, uint64_t version)
{
    first_commit self = {.version = version};
    ligi_footers_options options = {.keep_older = 1};
    if (from_footers)
        LIG_TRY(ligi_footers_read(store->volume, NULL, &options, &self.footers));
    lig_status status = fill_commit(&self);
    if (status == LIG_OK) {
        lig_catalog_edit edit = {.version = version,
                                 .ops = self.ops,
                                 .op_count = self.op_count,
                                 .events = self.events,
                                 .event_count = self.event_count};
        status = store->volume->ops->catalog_commit(store->volume->self, &edit);
    }
    free(self.ops);
    free(self.events);
    ligi_writer_fini(&self.event_bytes);
    ligi_writer_fini(&self.notice);
    ligi_writer_fini(&self.header_bytes);
    ligi_footers_drop(self.footers);
    return status;
}

/* LIG_E_NOTFOUND, without an error text, if the catalog is empty. */
static lig_status read_header(lig_store *store, uint64_t *version)
{
    ligi_catalog_view view;
    ligi_walk walk = {0};
    lig_catalog_item item;
    ligi_header header;
    lig_status status;
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    *version = view.version;
    int empty = !ligi_catalog_view_next(&view, LIGI_TABLE_HEADER, &walk, &item, &status);
    walk = (ligi_walk){0};
    if (empty && status == LIG_OK)
        empty = !ligi_catalog_view_next(&view, LIGI_TABLE_MODEL, &walk, &item, &status);
    if (status == LIG_OK)
        status = empty ? LIG_E_NOTFOUND : ligi_catalog_view_header(&view, &header);
    ligi_catalog_view_end(&view);
    if (status == LIG_OK) {
        memcpy(store->uuid, header.uuid, sizeof header.uuid);
        memcpy(store->secret, header.secret, sizeof header.secret);
    }
    return status;
}

static lig_status found_catalog(lig_store *store)
{
    uint64_t version;
    lig_status status = read_header(store, &version);
    if (status == LIG_OK && store->mode == 'w')
        return lig_fail(LIG_E_EXISTS, "a store already exists at %s (mode=a opens it)", store->uri);
    if (status != LIG_E_NOTFOUND)
        return status;
    int packs = has_packs(store->volume, &status);
    LIG_TRY(status);
    if (store->mode == 'r') {
        store->by_footers = packs;
        return packs ? LIG_OK : lig_fail(LIG_E_NOTFOUND, "there is no store at %s", store->uri);
    }
    if (store->mode == 'w' && packs)
        return lig_fail(LIG_E_EXISTS, "packs already exist at %s (mode=a opens them as a store)",
                        store->uri);
    status = make_catalog(store, packs, version);
    if (status == LIG_E_BUSY) /* another process created it at the same time */
        status = store->mode == 'w'
                     ? lig_fail(LIG_E_EXISTS, "another process has just created a store at %s",
                                store->uri)
                     : LIG_OK;
    LIG_TRY(status);
    return read_header(store, &version);
}

static lig_status open_parts(lig_store *store, const char *text)
{
    ligi_uri uri;
    char *config = NULL;
    LIG_TRY(ligi_uri_parse(&uri, text));
    lig_status status = read_uri(store, text, &uri, &config);
    if (status == LIG_OK)
        status = strcmp(uri.scheme, LIGI_CLIENT_SCHEME) == 0
                     ? ligi_client_open(store, &uri)
                     : open_volume(store, uri.scheme, config);
    free(config);
    ligi_uri_fini(&uri);
    if (status != LIG_OK || store->remote)
        return status;
    uint32_t flags = store->volume->ops->flags(store->volume->self);
    if (flags & LIG_VOLUME_READ_ONLY)
        store->mode = 'r';
    store->by_footers = (flags & LIG_VOLUME_NO_CATALOG) != 0;
    if (!store->by_footers)
        LIG_TRY(found_catalog(store));
    if (store->by_footers) {
        ligi_catalog_view view;
        LIG_TRY(ligi_catalog_view_begin(store, &view));
        ligi_catalog_view_end(&view);
    }
    return store->mode == 'r' ? LIG_OK : ligi_orphans_tidy(store);
}

lig_status lig_store_open(lig_store **out, const char *uri)
{
    return lig_store_open_interruptible(out, uri, NULL, NULL);
}

lig_status lig_store_open_interruptible(lig_store **out, const char *uri,
                                        int (*hook)(void *context), void *context)
{
    lig_store *store;
    LIG_TRY(ligi_calloc(&store, 1, sizeof *store, "a store"));
    lig_store_set_interrupt(store, hook, context);
    store->pid = getpid();
    store->holders = 1;
    store->commit_ns = LIGI_COMMIT_NS;
    ligi_stamps_init(&store->stamps);
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->idle, NULL);
    lig_status status = open_parts(store, uri);
    if (status == LIG_OK)
        *out = store;
    else
        ligi_store_drop(store);
    return status;
}

void lig_store_close(lig_store *store)
{
    if (store == NULL)
        return;
    if (store->pid == getpid()) {
        store->closed = 1;
        pthread_mutex_lock(&store->lock);
        ligi_save_async_end_open(store);
        while (store->saving)
            pthread_cond_wait(&store->idle, &store->lock);
        pthread_mutex_unlock(&store->lock);
    }
    ligi_store_drop(store);
}

const char *lig_store_uri(const lig_store *store)
{
    return store->uri;
}

lig_status lig_store_describe(lig_store *store, char *text, size_t text_bytes)
{
    LIG_TRY(ligi_store_usable(store));
    if (text_bytes == 0)
        return lig_fail(LIG_E_INVALID, "the buffer for the description is too small");
    text[0] = '\0';
    store->volume->ops->describe(store->volume->self, text, text_bytes);
    return LIG_OK;
}
