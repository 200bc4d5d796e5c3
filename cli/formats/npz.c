/* Reads and writes .npz through `python -m ligament.convert.npz`, so that zipfile and NumPy are the
 * only parsers of these files. Python says where the arrays lie and this program maps them; in the
 * other direction it receives tensors through a socket. */
#include "batch.h"
#include "python.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MODULE "ligament.convert.npz"

static lig_status take_shape(const cli_json_value *entry, lig_tensor *tensor, int64_t **next)
{
    const cli_json_value *shape = cli_json_member(entry, "shape"), *at;
    int64_t *sizes = *next, stride = 1;
    if (shape == NULL || shape->count > LIG_NDIM_MAX)
        return lig_fail(LIG_E_LIMIT, "array '%.200s' has more than %d dimensions", tensor->name,
                        LIG_NDIM_MAX);
    tensor->shape = sizes;
    tensor->bytes = lig_dtype_bytes(tensor->dtype);
    for (at = cli_json_first(shape); at != NULL; at = cli_json_next(shape, at)) {
        int64_t *size = &sizes[tensor->ndim++];
        LIG_TRY(cli_json_to_i64(at, "a dimension", size));
        if (*size < 0 || __builtin_mul_overflow(tensor->bytes, (uint64_t)*size, &tensor->bytes))
            return lig_fail(LIG_E_CORRUPT, "array '%.200s': invalid shape", tensor->name);
    }
    *next += 2 * tensor->ndim;
    const cli_json_value *fortran = cli_json_member(entry, "fortran");
    if (fortran == NULL || fortran->kind != CLI_JSON_TRUE || tensor->bytes == 0)
        return LIG_OK;
    tensor->strides = sizes + tensor->ndim;
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        sizes[tensor->ndim + d] = stride;
        stride *= sizes[d];
    }
    return LIG_OK;
}

/* Arrays that were compressed are in the batch's only part. */
static lig_status take_tensor(cli_batch *batch, const cli_json_value *entry, int64_t **next)
{
    lig_tensor *tensor = &batch->tensors[batch->count];
    const cli_json_value *unpacked = cli_json_member(entry, "unpacked");
    const cli_batch *from =
        unpacked != NULL && unpacked->kind == CLI_JSON_TRUE ? &batch->parts[0] : batch;
    const char *dtype;
    uint64_t offset;
    LIG_TRY(cli_json_to_text(cli_json_member(entry, "name"), "name", &tensor->name));
    LIG_TRY(cli_json_to_text(cli_json_member(entry, "dtype"), "dtype", &dtype));
    LIG_TRY(cli_json_to_u64(cli_json_member(entry, "offset"), "offset", &offset));
    tensor->dtype = (uint16_t)lig_dtype_parse(dtype);
    LIG_TRY(take_shape(entry, tensor, next));
    if (offset > from->map_bytes || tensor->bytes > from->map_bytes - offset)
        return lig_fail(LIG_E_CORRUPT, "array '%.200s': data outside the file", tensor->name);
    tensor->data = tensor->bytes > 0 ? (char *)from->map + offset : NULL;
    batch->count++;
    return LIG_OK;
}

static lig_status take_tensors(cli_batch *batch)
{
    const cli_json_value *root = cli_json_root(batch->json), *at;
    const cli_json_value *list = cli_json_member(root, "tensors");
    if (list == NULL || list->kind != CLI_JSON_ARRAY)
        return lig_fail(LIG_E_INTERNAL, "invalid reply from " MODULE);
    LIG_TRY(cli_alloc(&batch->tensors, list->count, sizeof *batch->tensors));
    /* A dimension is a value; its stride takes as much again. */
    LIG_TRY(cli_alloc(&batch->shapes, 2 * (size_t)list->span, sizeof *batch->shapes));
    int64_t *next = batch->shapes;
    for (at = cli_json_first(list); at != NULL; at = cli_json_next(list, at))
        LIG_TRY(take_tensor(batch, at, &next));
    return LIG_OK;
}

static lig_status read_through(cli_batch *batch, const cli_place *place, int unpacked)
{
    char limit[24];
    const char *const words[] = {"read", place->uri, limit};
    cli_python python;
    snprintf(limit, sizeof limit, "%" PRIu64, place->limit);
    LIG_TRY(cli_python_start(&python, MODULE, words, 3, unpacked));
    LIG_TRY(cli_python_finish(&python, batch));
    LIG_TRY(cli_alloc(&batch->parts, 1, sizeof *batch->parts));
    batch->part_count = 1;
    if (lseek(unpacked, 0, SEEK_END) > 0)
        LIG_TRY(cli_batch_map_fd(&batch->parts[0], place->uri, unpacked));
    return take_tensors(batch);
}

lig_status cli_npz_read(cli_batch *batch, const cli_place *place)
{
    LIG_TRY(cli_batch_map(batch, place->uri));
    int unpacked = memfd_create("npz", MFD_CLOEXEC);
    if (unpacked < 0)
        return cli_fail_path(place->uri, "unpack");
    lig_status status = read_through(batch, place, unpacked);
    close(unpacked);
    return status;
}

/* One line of JSON, then the elements of the tensors in its order. */
static lig_status send_batch(const cli_batch *batch, cli_outfile *stream)
{
    cli_text header;
    LIG_TRY(cli_text_open(&header));
    cli_json_writer writer = {.file = header.file, .compact = 1};
    cli_json_open(&writer, NULL, '[');
    for (size_t i = 0; i < batch->count; i++) {
        cli_json_open(&writer, NULL, '{');
        cli_put_tensor_json(&writer, &batch->tensors[i]);
        cli_json_close(&writer, '}');
    }
    cli_json_close(&writer, ']');
    putc('\n', header.file);
    LIG_TRY(cli_text_close(&header, LIG_OK));
    lig_status status = cli_outfile_put(stream, header.data, header.bytes);
    free(header.data);
    for (size_t i = 0; status == LIG_OK && i < batch->count; i++)
        status = cli_put_tensor(stream, &batch->tensors[i]);
    return status;
}

lig_status cli_npz_write(const cli_batch *batch, cli_outfile *out)
{
    const char *const words[] = {"write", out->path};
    cli_batch answer = {0};
    cli_python python;
    LIG_TRY(cli_python_start(&python, MODULE, words, 2, out->fd));
    cli_outfile stream = {.fd = python.fd, .path = out->path, .is_socket = 1, .bar = out->bar};
    lig_status status = send_batch(batch, &stream);
    if (status != LIG_OK && status != LIG_E_PEER) {
        cli_python_stop(&python);
        return status;
    }
    status = cli_python_finish(&python, &answer); /* says why it has ended early, if it has */
    cli_batch_fini(&answer);
    return status;
}
