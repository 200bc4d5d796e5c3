#include "backend/file/log/log_checkpoint.h"

#include "backend/file/packs/engine.h"
#include "base/codec.h"
#include "base/error.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC "LIGCKP"
#define END_MAGIC "LIGCKEND"
#define FORMAT 1
#define HEADER_BYTES 64
#define TRAILER_BYTES 64
#define ITEM_BYTES 24 /* check, key's size, zeros, value's size, version */
#define FLUSH_BYTES (UINT64_C(1) << 20)
#define MARK_BYTES (UINT64_C(64) << 10) /* every so many bytes one item's offset is kept */

struct ligi_checkpoint_writer {
    ligi_file_log *log;
    ligi_clog_position at;
    char name[LIGI_CLOG_NAME_BYTES];
    int fd;
    ligi_writer buffer;
    uint64_t flushed; /* bytes in the file */
    uint64_t items, sum;
    uint64_t *marks;
    size_t mark_count, mark_capacity;
    int complete;
};

static uint64_t mix(uint64_t sum, uint64_t check)
{
    uint8_t bytes[16];

    ligi_put_be64(bytes, sum);
    ligi_put_be64(bytes + 8, check);
    return ligi_hash64_plain(bytes, sizeof bytes);
}

/* Appends the check of what was written since `start`. */
static void put_check(ligi_writer *writer, size_t start)
{
    if (writer->status == LIG_OK)
        ligi_put_u64(writer, ligi_hash64_plain(writer->data + start, writer->bytes - start));
}

/* --- writing --- */

static lig_status flush(ligi_checkpoint_writer *self)
{
    LIG_TRY(self->buffer.status);
    if (ligi_write_all(self->fd, self->buffer.data, self->buffer.bytes, self->flushed) != LIG_OK)
        return ligi_fail_errno(lig_error_number(), "%s: the checkpoint cannot be written",
                               self->log->folder.place);
    self->flushed += self->buffer.bytes;
    self->buffer.bytes = 0;
    return LIG_OK;
}

lig_status ligi_checkpoint_create(ligi_file_log *log, const ligi_clog_position *at,
                                  ligi_checkpoint_writer **writer)
{
    ligi_checkpoint_writer *self;

    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "a checkpoint"));
    self->log = log;
    self->at = *at;
    lig_status status = ligi_clog_folder_create(&log->folder, self->name, &self->fd);
    if (status != LIG_OK) {
        free(self);
        return status;
    }
    ligi_put_bytes(&self->buffer, MAGIC, 6);
    ligi_put_u8(&self->buffer, FORMAT);
    ligi_put_u8(&self->buffer, 0);
    ligi_put_bytes(&self->buffer, log->id, 16);
    ligi_put_u64(&self->buffer, at->version);
    ligi_put_u64(&self->buffer, at->chain);
    ligi_put_zeros(&self->buffer, 16);
    put_check(&self->buffer, 0);
    *writer = self;
    return LIG_OK;
}

lig_status ligi_checkpoint_put(ligi_checkpoint_writer *self, const ligi_checkpoint_item *item)
{
    ligi_writer *buffer = &self->buffer;
    uint64_t at = self->flushed + buffer->bytes;

    if (self->mark_count == 0 || at - self->marks[self->mark_count - 1] >= MARK_BYTES) {
        LIG_TRY(ligi_grow(&self->marks, &self->mark_capacity, self->mark_count + 1,
                          sizeof *self->marks, "a checkpoint"));
        self->marks[self->mark_count++] = at;
    }
    size_t start = buffer->bytes;
    ligi_put_u64(buffer, 0);
    ligi_put_u8(buffer, (uint8_t)item->key_bytes);
    ligi_put_zeros(buffer, 3);
    ligi_put_u32(buffer, (uint32_t)item->value_bytes);
    ligi_put_u64(buffer, item->version);
    ligi_put_bytes(buffer, item->key, item->key_bytes);
    ligi_put_bytes(buffer, item->value, item->value_bytes);
    size_t bytes = buffer->bytes - start - 8;
    ligi_put_zeros(buffer, (8 - bytes % 8) % 8);
    LIG_TRY(buffer->status);
    uint64_t check = ligi_hash64_plain(buffer->data + start + 8, bytes);
    ligi_store_le(buffer->data + start, check, 8);
    self->sum = mix(self->sum, check);
    self->items++;
    return buffer->bytes < FLUSH_BYTES ? LIG_OK : flush(self);
}

lig_status ligi_checkpoint_complete(ligi_checkpoint_writer *self)
{
    ligi_writer *buffer = &self->buffer;
    uint64_t marks = self->flushed + buffer->bytes;

    size_t start = buffer->bytes;
    for (size_t i = 0; i < self->mark_count; i++)
        ligi_put_u64(buffer, self->marks[i]);
    put_check(buffer, start);
    start = buffer->bytes;
    ligi_put_bytes(buffer, END_MAGIC, 8);
    ligi_put_u64(buffer, self->items);
    ligi_put_u64(buffer, self->sum);
    ligi_put_u64(buffer, marks);
    ligi_put_u64(buffer, self->mark_count);
    ligi_put_zeros(buffer, 16);
    put_check(buffer, start);
    LIG_TRY(flush(self));
    self->complete = 1;
    return LIG_OK;
}

lig_status ligi_checkpoint_finish(ligi_checkpoint_writer *self)
{
    if (!self->complete)
        LIG_TRY(ligi_checkpoint_complete(self));
    return ligi_clog_folder_publish(&self->log->folder, self->name, self->fd, LIGI_NAME_CHECKPOINT,
                                    self->at.version);
}

void ligi_checkpoint_abort(ligi_checkpoint_writer *self)
{
    if (self == NULL)
        return;
    ligi_clog_folder_discard(&self->log->folder, self->name); /* published: nothing of that name */
    close(self->fd);
    ligi_writer_fini(&self->buffer);
    free(self->marks);
    free(self);
}

/* --- reading --- */

typedef struct checkpoint_file {
    ligi_file_log *log;
    ligi_clog_file *file;
    ligi_checkpoint_info info;
    uint64_t sum, marks, mark_count;
} checkpoint_file;

static lig_status damaged(const checkpoint_file *file)
{
    return lig_fail(LIG_E_CORRUPT,
                    "%s/" LIGI_NAME_LOG "/" LIGI_NAME_CHECKPOINT_START "%016" PRIx64
                    " is damaged (ligament check --repair)",
                    file->log->folder.place, file->info.version);
}

static lig_status read_exact(const checkpoint_file *file, void *data, size_t bytes, uint64_t offset)
{
    size_t got;

    LIG_TRY(ligi_clog_pread(&file->log->folder, file->file->fd, data, bytes, offset, &got));
    return got == bytes ? LIG_OK : damaged(file);
}

static int whole(const uint8_t *bytes, size_t count)
{
    ligi_reader reader = {.data = bytes, .bytes = count, .at = count - 8};
    return ligi_get_u64(&reader) == ligi_hash64_plain(bytes, count - 8);
}

static lig_status read_header(checkpoint_file *file)
{
    uint8_t bytes[HEADER_BYTES];

    LIG_TRY(read_exact(file, bytes, sizeof bytes, 0));
    ligi_reader reader = {.data = bytes, .bytes = sizeof bytes, .at = 8};
    if (memcmp(bytes, MAGIC, 6) != 0 || !whole(bytes, sizeof bytes))
        return damaged(file);
    if (bytes[6] != FORMAT)
        return lig_fail(
            LIG_E_UNSUPPORTED,
            "%s: the checkpoint has format %u, but this library supports %u (use a newer library)",
            file->log->folder.place, bytes[6], FORMAT);
    memcpy(file->info.id, ligi_get_bytes(&reader, 16), 16);
    uint64_t version = ligi_get_u64(&reader);
    file->info.chain = ligi_get_u64(&reader);
    return version == file->info.version ? LIG_OK : damaged(file);
}

static lig_status read_trailer(checkpoint_file *file)
{
    uint8_t bytes[TRAILER_BYTES];
    off_t size = lseek(file->file->fd, 0, SEEK_END);

    if (size < HEADER_BYTES + TRAILER_BYTES)
        return damaged(file);
    file->info.bytes = (uint64_t)size;
    LIG_TRY(read_exact(file, bytes, sizeof bytes, file->info.bytes - sizeof bytes));
    ligi_reader reader = {.data = bytes, .bytes = sizeof bytes, .at = 8};
    if (memcmp(bytes, END_MAGIC, 8) != 0 || !whole(bytes, sizeof bytes))
        return damaged(file);
    file->info.items = ligi_get_u64(&reader);
    file->sum = ligi_get_u64(&reader);
    file->marks = ligi_get_u64(&reader);
    file->mark_count = ligi_get_u64(&reader);
    uint64_t end = file->info.bytes - TRAILER_BYTES;
    if (file->marks > end || end - file->marks < 8 ||
        (end - file->marks - 8) / 8 != file->mark_count)
        return damaged(file);
    return LIG_OK;
}

static lig_status open_file(ligi_file_log *log, uint64_t version, checkpoint_file *file)
{
    memset(file, 0, sizeof *file);
    file->log = log;
    file->info.version = version;
    LIG_TRY(ligi_clog_folder_file(&log->folder, LIGI_NAME_CHECKPOINT, version, &file->file));
    lig_status status = read_header(file);
    if (status == LIG_OK)
        status = read_trailer(file);
    if (status != LIG_OK)
        ligi_clog_folder_release(&log->folder, file->file);
    return status;
}

lig_status ligi_checkpoint_look(ligi_file_log *log, uint64_t version, ligi_checkpoint_info *info)
{
    checkpoint_file file;

    LIG_TRY(open_file(log, version, &file));
    *info = file.info;
    ligi_clog_folder_release(&log->folder, file.file);
    return LIG_OK;
}

/* The item in these bytes: its size, or 0 when it is not whole. */
static size_t item_get(const uint8_t *bytes, size_t count, ligi_checkpoint_item *item,
                       uint64_t *check)
{
    ligi_reader reader = {.data = bytes, .bytes = count};

    *check = ligi_get_u64(&reader);
    item->key_bytes = ligi_get_u8(&reader);
    (void)ligi_get_bytes(&reader, 3);
    item->value_bytes = ligi_get_u32(&reader);
    item->version = ligi_get_u64(&reader);
    item->key = ligi_get_bytes(&reader, item->key_bytes);
    item->offset = reader.at;
    item->value = ligi_get_bytes(&reader, item->value_bytes);
    if (reader.failed || *check != ligi_hash64_plain(bytes + 8, reader.at - 8))
        return 0;
    return reader.at + (8 - reader.at % 8) % 8;
}

typedef struct item_window { /* a part of the file in memory */
    uint8_t *data;
    size_t capacity;
} item_window;

/* The size of the item at the offset, as it says. */
static lig_status item_size(const checkpoint_file *file, uint64_t offset, uint64_t *bytes)
{
    uint8_t start[ITEM_BYTES];

    if (offset > file->marks || file->marks - offset < ITEM_BYTES)
        return damaged(file);
    LIG_TRY(read_exact(file, start, sizeof start, offset));
    ligi_reader reader = {.data = start, .bytes = sizeof start, .at = 8};
    uint64_t need = ITEM_BYTES + (uint64_t)ligi_get_u8(&reader);
    (void)ligi_get_bytes(&reader, 3);
    need += ligi_get_u32(&reader);
    need += (8 - need % 8) % 8;
    if (need > file->marks - offset)
        return damaged(file);
    *bytes = need;
    return LIG_OK;
}

/* The item at the offset; *bytes is its size. */
static lig_status read_item(const checkpoint_file *file, item_window *window, uint64_t offset,
                            ligi_checkpoint_item *item, uint64_t *check, uint64_t *bytes)
{
    uint64_t need;

    LIG_TRY(item_size(file, offset, &need));
    LIG_TRY(ligi_grow(&window->data, &window->capacity, need, 1, "an item of a checkpoint"));
    LIG_TRY(read_exact(file, window->data, need, offset));
    *bytes = item_get(window->data, need, item, check);
    item->offset += offset;
    return *bytes ? LIG_OK : damaged(file);
}

static lig_status check_marks(const checkpoint_file *file, item_window *window)
{
    size_t bytes = 8 * (size_t)file->mark_count + 8;

    LIG_TRY(ligi_grow(&window->data, &window->capacity, bytes, 1, "the marks of a checkpoint"));
    LIG_TRY(read_exact(file, window->data, bytes, file->marks));
    return whole(window->data, bytes) ? LIG_OK : damaged(file);
}

lig_status ligi_checkpoint_read(ligi_file_log *log, uint64_t version, ligi_checkpoint_visit visit,
                                void *context)
{
    item_window window = {0};
    checkpoint_file file;
    ligi_checkpoint_item item;
    uint64_t at = HEADER_BYTES, sum = 0, items = 0, check, bytes;

    LIG_TRY(open_file(log, version, &file));
    lig_status status = LIG_OK;
    for (; status == LIG_OK && at < file.marks; at += bytes, items++) {
        status = read_item(&file, &window, at, &item, &check, &bytes);
        sum = mix(sum, check);
        if (status == LIG_OK)
            status = visit(context, &item);
    }
    if (status == LIG_OK && (items != file.info.items || sum != file.sum))
        status = damaged(&file);
    if (status == LIG_OK)
        status = check_marks(&file, &window);
    free(window.data);
    ligi_clog_folder_release(&log->folder, file.file);
    return status;
}

/* The first marked item behind the offset. */
static lig_status next_mark(const checkpoint_file *file, uint64_t behind, uint64_t *offset)
{
    uint8_t mark[8];

    for (uint64_t i = 0; i < file->mark_count; i++) {
        LIG_TRY(read_exact(file, mark, sizeof mark, file->marks + 8 * i));
        ligi_reader reader = {.data = mark, .bytes = sizeof mark};
        *offset = ligi_get_u64(&reader);
        if (*offset > behind)
            return LIG_OK;
    }
    *offset = file->marks;
    return LIG_OK;
}

/* The item behind one that is damaged, if its size is whole; otherwise the next that is marked. */
static lig_status next_whole(const checkpoint_file *file, item_window *window, uint64_t *at)
{
    ligi_checkpoint_item item;
    uint64_t check, bytes;

    if (item_size(file, *at, &bytes) == LIG_OK) {
        uint64_t next = *at + bytes;
        if (next == file->marks || read_item(file, window, next, &item, &check, &bytes) == LIG_OK) {
            *at = next;
            return LIG_OK;
        }
    }
    return next_mark(file, *at, at);
}

lig_status ligi_checkpoint_salvage(ligi_file_log *log, uint64_t version,
                                   ligi_checkpoint_visit visit, void *context, size_t *skipped)
{
    item_window window = {0};
    checkpoint_file file;
    ligi_checkpoint_item item;
    uint64_t at = HEADER_BYTES, check, bytes;

    LIG_TRY(open_file(log, version, &file));
    lig_status status = LIG_OK;
    while (status == LIG_OK && at < file.marks) {
        status = read_item(&file, &window, at, &item, &check, &bytes);
        if (status == LIG_OK)
            status = visit(context, &item);
        else if (status == LIG_E_CORRUPT) {
            *skipped += 1;
            status = next_whole(&file, &window, &at);
            continue;
        }
        at += bytes;
    }
    free(window.data);
    ligi_clog_folder_release(&log->folder, file.file);
    return status;
}

static int compare_key(const ligi_checkpoint_item *item, const void *key, size_t key_bytes)
{
    size_t least = item->key_bytes < key_bytes ? item->key_bytes : key_bytes;
    int order = memcmp(item->key, key, least);
    return order != 0 ? order : (item->key_bytes > key_bytes) - (item->key_bytes < key_bytes);
}

/* The offset of the last marked item whose key is not above `key`. */
static lig_status search_marks(const checkpoint_file *file, item_window *window, const void *key,
                               size_t key_bytes, uint64_t *offset)
{
    uint64_t low = 0, high = file->mark_count, check, bytes;
    ligi_checkpoint_item item;
    uint8_t mark[8];

    *offset = HEADER_BYTES;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        LIG_TRY(read_exact(file, mark, sizeof mark, file->marks + 8 * middle));
        ligi_reader reader = {.data = mark, .bytes = sizeof mark};
        uint64_t at = ligi_get_u64(&reader);
        LIG_TRY(read_item(file, window, at, &item, &check, &bytes));
        if (compare_key(&item, key, key_bytes) > 0) {
            high = middle;
        } else {
            low = middle + 1;
            *offset = at;
        }
    }
    return LIG_OK;
}

static lig_status search(const checkpoint_file *file, item_window *window, const void *key,
                         size_t key_bytes, ligi_checkpoint_item *item)
{
    uint64_t at, check, bytes;

    LIG_TRY(search_marks(file, window, key, key_bytes, &at));
    for (; at < file->marks; at += bytes) {
        LIG_TRY(read_item(file, window, at, item, &check, &bytes));
        int order = compare_key(item, key, key_bytes);
        if (order >= 0)
            return order == 0 ? LIG_OK : LIG_E_NOTFOUND;
    }
    return LIG_E_NOTFOUND;
}

lig_status ligi_checkpoint_find(ligi_file_log *log, uint64_t version, ligi_checkpoint_item *item,
                                void **value)
{
    item_window window = {0};
    ligi_checkpoint_item found;
    checkpoint_file file;

    LIG_TRY(open_file(log, version, &file));
    lig_status status = search(&file, &window, item->key, item->key_bytes, &found);
    if (status == LIG_OK)
        status = ligi_alloc(value, found.value_bytes + 1, "a value");
    if (status == LIG_OK) {
        memcpy(*value, found.value, found.value_bytes);
        item->value = *value;
        item->value_bytes = found.value_bytes;
        item->version = found.version;
        item->offset = found.offset;
    }
    free(window.data);
    ligi_clog_folder_release(&log->folder, file.file);
    return status;
}
