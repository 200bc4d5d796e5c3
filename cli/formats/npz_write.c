/* Writes an .npz: entries are stored uncompressed, so a tensor's bytes are in the file as they are.
 * A checksum precedes the bytes it covers, so it is filled in afterwards: bytes are read once. */
#include "batch.h"
#include "formats/npz.h"

#include <stdlib.h>
#include <string.h>

typedef struct placed {
    uint64_t offset, bytes;
    uint32_t crc;
} placed;

typedef struct record { /* a header under construction */
    uint8_t data[128];
    size_t used;
} record;

static void add(record *self, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        self->data[self->used++] = (uint8_t)(value >> (8 * i));
}

static uint32_t narrow(uint64_t value)
{
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

/* Version 4.5 (zip64), flag 11 (names are UTF-8), stored, 1 January 1980: equal tensors make equal
 * files. */
static void add_middle(record *self, const placed *place, size_t name_bytes, size_t extra_bytes)
{
    add(self, 45, 2);
    add(self, 1u << 11, 2);
    add(self, 0, 2);
    add(self, 0, 2);
    add(self, 1u << 5 | 1, 2);
    add(self, place->crc, 4);
    add(self, narrow(place->bytes), 4);
    add(self, narrow(place->bytes), 4);
    add(self, name_bytes, 2);
    add(self, extra_bytes, 2);
}

static void make_local(record *self, const placed *place, size_t name_bytes)
{
    int large = place->bytes >= UINT32_MAX;
    self->used = 0;
    add(self, ZIP_LOCAL, 4);
    add_middle(self, place, name_bytes, large ? 20 : 0);
}

static lig_status put_local_extra(cli_outfile *out, const placed *place)
{
    record extra = {.used = 0};
    if (place->bytes < UINT32_MAX)
        return LIG_OK;
    add(&extra, 1, 2);
    add(&extra, 16, 2);
    add(&extra, place->bytes, 8);
    add(&extra, place->bytes, 8);
    return cli_outfile_put(out, extra.data, extra.used);
}

static lig_status put_counted(cli_outfile *out, const void *data, uint64_t bytes, uint32_t *crc)
{
    const uint64_t piece = UINT64_C(1) << 20; /* the second pass finds it in the cache */
    for (uint64_t done = 0; done < bytes; done += piece) {
        uint64_t now = bytes - done < piece ? bytes - done : piece;
        *crc = cli_crc32(*crc, (const char *)data + done, now);
        LIG_TRY(cli_outfile_put(out, (const char *)data + done, now));
    }
    return LIG_OK;
}

static lig_status put_elements(cli_outfile *out, const lig_tensor *tensor, uint32_t *crc)
{
    void *flat;
    if (lig_tensor_contiguous(tensor))
        return put_counted(out, tensor->data, tensor->bytes, crc);
    LIG_TRY(cli_alloc(&flat, tensor->bytes, 1));
    lig_tensor_pack(tensor, flat);
    lig_status status = put_counted(out, flat, tensor->bytes, crc);
    free(flat);
    return status;
}

static lig_status put_array(cli_outfile *out, const lig_tensor *tensor, placed *place)
{
    char header[CLI_NPY_HEADER_BYTES_MAX];
    size_t header_bytes, name_bytes = strlen(tensor->name);
    record local;
    LIG_TRY(cli_npy_format(tensor, header, &header_bytes));
    *place = (placed){.offset = out->at, .bytes = header_bytes + tensor->bytes};
    make_local(&local, place, name_bytes + 4);
    LIG_TRY(cli_outfile_put(out, local.data, local.used));
    LIG_TRY(cli_outfile_put(out, tensor->name, name_bytes));
    LIG_TRY(cli_outfile_put(out, ".npy", 4));
    LIG_TRY(put_local_extra(out, place));
    LIG_TRY(put_counted(out, header, header_bytes, &place->crc));
    LIG_TRY(put_elements(out, tensor, &place->crc));
    make_local(&local, place, name_bytes + 4);
    return cli_outfile_mend(out, place->offset, local.data, local.used);
}

static lig_status put_entry(cli_outfile *out, const char *name, const placed *place)
{
    record fixed = {.used = 0}, extra = {.used = 0};
    size_t name_bytes = strlen(name);
    int large = place->bytes >= UINT32_MAX, far = place->offset >= UINT32_MAX;
    size_t extra_bytes = (large ? 16 : 0) + (far ? 8 : 0);
    add(&fixed, ZIP_ENTRY, 4);
    add(&fixed, 45 | 3 << 8, 2); /* created on Unix */
    add_middle(&fixed, place, name_bytes + 4, extra_bytes > 0 ? extra_bytes + 4 : 0);
    add(&fixed, 0, 2);
    add(&fixed, 0, 2);
    add(&fixed, 0, 2);
    add(&fixed, UINT64_C(0100644) << 16, 4);
    add(&fixed, narrow(place->offset), 4);
    if (extra_bytes > 0) {
        add(&extra, 1, 2);
        add(&extra, extra_bytes, 2);
    }
    if (large) {
        add(&extra, place->bytes, 8);
        add(&extra, place->bytes, 8);
    }
    if (far)
        add(&extra, place->offset, 8);
    LIG_TRY(cli_outfile_put(out, fixed.data, fixed.used));
    LIG_TRY(cli_outfile_put(out, name, name_bytes));
    LIG_TRY(cli_outfile_put(out, ".npy", 4));
    return cli_outfile_put(out, extra.data, extra.used);
}

static lig_status put_zip64_end(cli_outfile *out, uint64_t count, uint64_t directory)
{
    record end = {.used = 0};
    uint64_t here = out->at;
    add(&end, ZIP64_END, 4);
    add(&end, ZIP64_END_BYTES - 12, 8);
    add(&end, 45 | 3 << 8, 2);
    add(&end, 45, 2);
    add(&end, 0, 8);
    add(&end, count, 8);
    add(&end, count, 8);
    add(&end, here - directory, 8);
    add(&end, directory, 8);
    add(&end, ZIP64_LOCATOR, 4);
    add(&end, 0, 4);
    add(&end, here, 8);
    add(&end, 1, 4);
    return cli_outfile_put(out, end.data, end.used);
}

static lig_status put_end(cli_outfile *out, uint64_t count, uint64_t directory)
{
    record end = {.used = 0};
    uint64_t bytes = out->at - directory, shown = count < UINT16_MAX ? count : UINT16_MAX;
    if (count >= UINT16_MAX || bytes >= UINT32_MAX || directory >= UINT32_MAX)
        LIG_TRY(put_zip64_end(out, count, directory));
    add(&end, ZIP_END, 4);
    add(&end, 0, 4);
    add(&end, shown, 2);
    add(&end, shown, 2);
    add(&end, narrow(bytes), 4);
    add(&end, narrow(directory), 4);
    add(&end, 0, 2);
    return cli_outfile_put(out, end.data, end.used);
}

static lig_status put_all(const cli_batch *batch, cli_outfile *out, placed *places)
{
    for (size_t i = 0; i < batch->count; i++)
        LIG_TRY(put_array(out, &batch->tensors[i], &places[i]));
    uint64_t directory = out->at;
    for (size_t i = 0; i < batch->count; i++)
        LIG_TRY(put_entry(out, batch->tensors[i].name, &places[i]));
    return put_end(out, batch->count, directory);
}

lig_status cli_npz_write(const cli_batch *batch, cli_outfile *out)
{
    char header[CLI_NPY_HEADER_BYTES_MAX];
    size_t header_bytes;
    placed *places;
    for (size_t i = 0; i < batch->count; i++)
        LIG_TRY(cli_npy_format(&batch->tensors[i], header, &header_bytes));
    LIG_TRY(cli_alloc(&places, batch->count, sizeof *places));
    lig_status status = put_all(batch, out, places);
    free(places);
    return status;
}
