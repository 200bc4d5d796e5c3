#include "batch.h"
#include "formats/side_files.h"

#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void cli_batch_fini(cli_batch *batch)
{
    free(batch->tensors);
    free(batch->tags);
    free(batch->metrics);
    free(batch->files);
    free(batch->shapes);
    for (size_t i = 0; i < batch->text_count; i++)
        free(batch->texts[i]);
    free(batch->texts);
    cli_json_destroy(batch->json);
    cli_json_destroy(batch->metric_json);
    if (batch->map != NULL)
        munmap(batch->map, batch->map_bytes);
    lig_view_destroy(batch->view);
    lig_graphs_destroy(batch->stored_graphs);
    cli_graphs_fini(&batch->parsed_graphs);
    for (size_t i = 0; i < batch->part_count; i++)
        cli_batch_fini(&batch->parts[i]);
    free(batch->parts);
    *batch = (cli_batch){0};
}

uint64_t cli_batch_bytes(const cli_batch *batch)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < batch->count; i++)
        bytes += batch->tensors[i].bytes;
    return bytes;
}

lig_status cli_batch_map_fd(cli_batch *batch, const char *path, int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return cli_fail_path(path, "read");
    if (!S_ISREG(info.st_mode))
        return lig_fail(LIG_E_INVALID, "'%s' is not a regular file", path);
    if (info.st_size == 0)
        return lig_fail(LIG_E_CORRUPT, "'%s' is empty", path);
    void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return cli_fail_path(path, "map");
    madvise(map, (size_t)info.st_size, MADV_SEQUENTIAL);
    batch->map = map;
    batch->map_bytes = (size_t)info.st_size;
    return LIG_OK;
}

lig_status cli_batch_map(cli_batch *batch, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a FIFO would block until a
                                                             * writer opens it */
    if (fd < 0)
        return cli_fail_path(path, "open");
    lig_status status = cli_batch_map_fd(batch, path, fd);
    close(fd);
    return status;
}

lig_status cli_batch_text(cli_batch *batch, const void *text, size_t bytes, char **out)
{
    char *copy;
    /* Capacity doubles at powers of two. */
    if ((batch->text_count & (batch->text_count - 1)) == 0) {
        size_t capacity = batch->text_count > 0 ? batch->text_count * 2 : 1;
        char **grown = realloc(batch->texts, capacity * sizeof *grown);
        if (grown == NULL)
            return lig_fail(LIG_E_NOMEM, "out of memory for %zu names", capacity);
        batch->texts = grown;
    }
    LIG_TRY(cli_alloc(&copy, bytes + 1, 1));
    memcpy(copy, text, bytes);
    batch->texts[batch->text_count++] = copy;
    *out = copy;
    return LIG_OK;
}

static lig_status take_view(cli_batch *batch)
{
    const lig_model *model = lig_view_model(batch->view);
    LIG_TRY(cli_alloc(&batch->tensors, model->tensor_count, sizeof *batch->tensors));
    LIG_TRY(cli_alloc(&batch->tags, model->tag_count, sizeof *batch->tags));
    LIG_TRY(cli_alloc(&batch->metrics, model->metric_count, sizeof *batch->metrics));
    for (size_t i = 0; i < model->tensor_count; i++)
        batch->tensors[i] = model->tensors[i].tensor;
    for (size_t i = 0; i < model->tag_count; i++)
        batch->tags[i] = model->tags[i];
    for (size_t i = 0; i < model->metric_count; i++)
        batch->metrics[i] = model->metrics[i];
    batch->count = model->tensor_count;
    batch->tag_count = model->tag_count;
    batch->metric_count = model->metric_count;
    batch->meta = model->meta[0] != '\0' ? model->meta : NULL;
    batch->structure = model->structure[0] != '\0' ? model->structure : NULL;
    return cli_side_files_unpack(batch);
}

lig_status cli_batch_from_store(cli_batch *batch, lig_store *store, const char *model)
{
    lig_ref *ref;
    *batch = (cli_batch){0};
    LIG_TRY(lig_store_resolve(store, model, &ref));
    lig_status status = lig_ref_map(ref, 0, &batch->view);
    if (status == LIG_OK)
        status = lig_ref_graphs(ref, &batch->stored_graphs, &batch->graph_count);
    batch->graphs = batch->stored_graphs;
    if (status == LIG_OK)
        status = take_view(batch);
    lig_ref_release(ref);
    if (status != LIG_OK)
        cli_batch_fini(batch);
    return status;
}

static lig_status parse_file(cli_batch *batch, const cli_place *place)
{
    const char *path = place->uri;
    if (place->kind == CLI_SHARDED)
        return cli_sharded_read(batch, path);
    if (place->kind == CLI_NPZ)
        return cli_npz_read(batch, place);
    LIG_TRY(cli_batch_map(batch, path));
    return cli_safetensors_parse(batch, path, batch->map, batch->map_bytes);
}

/* Of a model that is a directory. */
static lig_status read_side_files(cli_batch *batch, const cli_place *place)
{
    int whole = place->kind == CLI_SHARDED && !cli_is_sharded_index(place->uri);
    char *copy;
    if (place->kind != CLI_SHARDED && !place->in_folder)
        return LIG_OK;
    LIG_TRY(cli_format(&copy, "%s", place->uri));
    lig_status status = cli_side_files_read(batch, whole ? copy : dirname(copy));
    free(copy);
    return status;
}

lig_status cli_batch_from_file(cli_batch *batch, const cli_place *place)
{
    *batch = (cli_batch){0};
    lig_status status = parse_file(batch, place);
    if (status == LIG_OK)
        status = read_side_files(batch, place);
    if (status == LIG_OK)
        status = lig_tensors_check(batch->tensors, batch->count);
    if (status != LIG_OK)
        cli_batch_fini(batch);
    return status;
}

lig_status cli_put_tensor(cli_outfile *out, const lig_tensor *tensor)
{
    void *flat;
    if (lig_tensor_contiguous(tensor))
        return cli_outfile_put(out, tensor->data, tensor->bytes);
    LIG_TRY(cli_alloc(&flat, tensor->bytes, 1));
    lig_tensor_pack(tensor, flat);
    lig_status status = cli_outfile_put(out, flat, tensor->bytes);
    free(flat);
    return status;
}

lig_status cli_batch_to_file(const cli_batch *batch, const cli_place *place, int replace,
                             cli_bar *bar)
{
    cli_outfile out;
    if (!replace && access(place->uri, F_OK) == 0)
        return cli_fail_taken(place->uri);
    LIG_TRY(cli_outfile_open(&out, place->uri));
    out.bar = bar;
    return cli_outfile_close(&out,
                             place->kind == CLI_NPZ ? cli_npz_write(batch, &out)
                                                    : cli_safetensors_write(batch, &out),
                             replace);
}
