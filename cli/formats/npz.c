/* Reads an .npz: a zip of .npy entries. The central directory is authoritative; local headers are
 * used only to find where the bytes begin. Every value is checked against the file's size before
 * use. */
#include "batch.h"

#include <stdlib.h>
#include <string.h>

#include "formats/npz.h"

typedef struct archive {
    cli_batch *batch;
    const char *path;
    const uint8_t *data;
    uint64_t bytes;
    uint64_t directory, directory_bytes, entry_count;
    uint64_t claimed; /* sum over the entries so far */
} archive;

typedef struct entry {
    const uint8_t *name;
    const uint8_t *extra;
    uint64_t packed_bytes, bytes, offset;
    uint32_t crc;
    uint16_t flags, method, name_bytes, extra_bytes;
} entry;

static uint64_t little(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static lig_status corrupt(const archive *self, const char *what)
{
    return lig_fail(LIG_E_CORRUPT, "'%s' is not a valid .npz file: %s", self->path, what);
}

/* Returns 1 if [offset, offset + bytes) is inside the file. */
static int inside(const archive *self, uint64_t offset, uint64_t bytes)
{
    return offset <= self->bytes && bytes <= self->bytes - offset;
}

static lig_status take_zip64_end(archive *self, uint64_t end)
{
    if (end < ZIP64_LOCATOR_BYTES ||
        little(self->data + end - ZIP64_LOCATOR_BYTES, 4) != ZIP64_LOCATOR)
        return LIG_OK; /* without a zip64 record, fields of all ones are plain large values */
    uint64_t at = little(self->data + end - ZIP64_LOCATOR_BYTES + 8, 8);
    if (!inside(self, at, ZIP64_END_BYTES) || little(self->data + at, 4) != ZIP64_END)
        return corrupt(self, "invalid zip64 end of central directory");
    self->entry_count = little(self->data + at + 32, 8);
    self->directory_bytes = little(self->data + at + 40, 8);
    self->directory = little(self->data + at + 48, 8);
    return LIG_OK;
}

static lig_status take_end(archive *self)
{
    uint64_t least = self->bytes > ZIP_END_BYTES + 65535 ? self->bytes - ZIP_END_BYTES - 65535 : 0;
    uint64_t at = self->bytes - (self->bytes < ZIP_END_BYTES ? self->bytes : ZIP_END_BYTES);
    if (self->bytes < ZIP_END_BYTES)
        return corrupt(self, "too short");
    while (little(self->data + at, 4) != ZIP_END ||
           little(self->data + at + 20, 2) != self->bytes - at - ZIP_END_BYTES) {
        if (at == least)
            return corrupt(self, "no end of central directory record");
        at--;
    }
    self->entry_count = little(self->data + at + 10, 2);
    self->directory_bytes = little(self->data + at + 12, 4);
    self->directory = little(self->data + at + 16, 4);
    LIG_TRY(take_zip64_end(self, at));
    if (!inside(self, self->directory, self->directory_bytes))
        return corrupt(self, "central directory outside the file");
    if (self->entry_count > self->directory_bytes / ZIP_ENTRY_BYTES)
        return corrupt(self, "central directory is truncated");
    return LIG_OK;
}

/* Sizes that do not fit in 32 bits are in the extra field, in this order, only those that are all
 * ones. */
static lig_status take_zip64_extra(const archive *self, entry *item)
{
    const uint8_t *at = item->extra, *end = at + item->extra_bytes;
    uint64_t *const fields[] = {&item->bytes, &item->packed_bytes, &item->offset};
    while (end - at >= 4) {
        uint64_t kind = little(at, 2), bytes = little(at + 2, 2);
        at += 4;
        if (bytes > (uint64_t)(end - at))
            return corrupt(self, "extra field too short");
        const uint8_t *next = at + bytes;
        for (int i = 0; kind == 1 && i < 3; i++) {
            if (*fields[i] != UINT32_MAX)
                continue;
            if (next - at < 8)
                return corrupt(self, "extra field too short");
            *fields[i] = little(at, 8);
            at += 8;
        }
        at = next;
    }
    return LIG_OK;
}

static lig_status take_entry(const archive *self, uint64_t *at, entry *item)
{
    const uint8_t *data = self->data + *at;
    uint64_t room = self->directory + self->directory_bytes - *at;
    if (room < ZIP_ENTRY_BYTES || little(data, 4) != ZIP_ENTRY)
        return corrupt(self, "invalid central directory");
    item->flags = (uint16_t)little(data + 8, 2);
    item->method = (uint16_t)little(data + 10, 2);
    item->crc = (uint32_t)little(data + 16, 4);
    item->packed_bytes = little(data + 20, 4);
    item->bytes = little(data + 24, 4);
    item->name_bytes = (uint16_t)little(data + 28, 2);
    item->extra_bytes = (uint16_t)little(data + 30, 2);
    item->offset = little(data + 42, 4);
    item->name = data + ZIP_ENTRY_BYTES;
    item->extra = item->name + item->name_bytes;
    uint64_t whole =
        ZIP_ENTRY_BYTES + (uint64_t)item->name_bytes + item->extra_bytes + little(data + 32, 2);
    if (whole > room)
        return corrupt(self, "invalid central directory");
    *at += whole;
    return take_zip64_extra(self, item);
}

/* The name without ".npy". */
static lig_status take_name(const archive *self, const entry *item, char **name)
{
    size_t bytes = item->name_bytes;
    if (memchr(item->name, '\0', bytes) != NULL)
        return corrupt(self, "NUL in an entry name");
    if (bytes <= 4 || memcmp(item->name + bytes - 4, ".npy", 4) != 0)
        return lig_fail(LIG_E_UNSUPPORTED, "'%s' contains '%.*s', which is not a .npy array",
                        self->path, (int)(bytes < 200 ? bytes : 200), (const char *)item->name);
    return cli_batch_text(self->batch, item->name, bytes - 4, name);
}

static lig_status find_bytes(const archive *self, const entry *item, const char *name,
                             const uint8_t **begin)
{
    if (item->flags & 1)
        return lig_fail(LIG_E_UNSUPPORTED, "'%s': '%.200s' is encrypted", self->path, name);
    if (item->method != 0)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "'%s': '%.200s' is compressed: use np.savez instead of np.savez_compressed",
                        self->path, name);
    if (!inside(self, item->offset, ZIP_LOCAL_BYTES) ||
        little(self->data + item->offset, 4) != ZIP_LOCAL)
        return corrupt(self, "no local header at the offset of an entry");
    const uint8_t *local = self->data + item->offset;
    uint64_t start = item->offset + ZIP_LOCAL_BYTES + little(local + 26, 2) + little(local + 28, 2);
    if (item->packed_bytes != item->bytes || !inside(self, start, item->bytes))
        return corrupt(self, "entry outside the file");
    if (cli_crc32(0, self->data + start, item->bytes) != item->crc)
        return lig_fail(LIG_E_CORRUPT, "'%s': checksum mismatch in '%.200s'", self->path, name);
    *begin = self->data + start;
    return LIG_OK;
}

/* Shape, followed by strides if the array is in Fortran order. */
static void take_layout(lig_tensor *tensor, const cli_npy *npy, int64_t *shape)
{
    int64_t stride = 1;
    tensor->shape = shape;
    for (uint32_t d = 0; d < npy->ndim; d++) {
        shape[d] = npy->shape[d];
        shape[npy->ndim + d] = stride;
        stride *= npy->shape[d] > 0 ? npy->shape[d] : 1;
    }
    if (npy->fortran && npy->ndim > 1 && npy->bytes > 0)
        tensor->strides = shape + npy->ndim;
}

static lig_status take_array(const archive *self, const entry *item)
{
    lig_tensor *tensor = &self->batch->tensors[self->batch->count];
    const uint8_t *begin;
    cli_npy npy;
    char *name, *numbers;
    LIG_TRY(take_name(self, item, &name));
    LIG_TRY(find_bytes(self, item, name, &begin));
    LIG_TRY(cli_npy_parse(&npy, name, begin, item->bytes));
    *tensor = (lig_tensor){.name = name, .bytes = npy.bytes, .ndim = npy.ndim};
    tensor->dtype = (uint16_t)npy.dtype;
    tensor->data = (void *)(uintptr_t)(begin + npy.header_bytes);
    LIG_TRY(cli_batch_text(self->batch, npy.shape, npy.ndim * 2 * sizeof(int64_t), &numbers));
    take_layout(tensor, &npy, (int64_t *)(void *)numbers);
    self->batch->count++;
    return LIG_OK;
}

lig_status cli_npz_parse(cli_batch *batch, const char *path, const void *data, size_t bytes)
{
    archive self = {.batch = batch, .path = path, .data = data, .bytes = bytes};
    LIG_TRY(take_end(&self));
    LIG_TRY(cli_alloc(&batch->tensors, self.entry_count, sizeof *batch->tensors));
    uint64_t at = self.directory;
    for (uint64_t i = 0; i < self.entry_count; i++) {
        entry item;
        LIG_TRY(take_entry(&self, &at, &item));
        /* Overlapping entries would turn a small file into terabytes. Compressed ones are rejected
         * elsewhere. */
        if (item.method == 0 && item.bytes > bytes - self.claimed)
            return corrupt(&self, "total size of the entries exceeds the file");
        self.claimed += item.method == 0 ? item.bytes : 0;
        LIG_TRY(take_array(&self, &item));
    }
    return LIG_OK;
}
