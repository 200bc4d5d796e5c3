#include "formats/side_files.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 256 << 20 };

int cli_is_side_file(const lig_tensor *tensor)
{
    return strncmp(tensor->name, CLI_FILE_PREFIX, strlen(CLI_FILE_PREFIX)) == 0;
}

/* By suffix: a directory of a model also holds weights in other formats, logs and states. */
static int belongs(const char *name)
{
    static const char *const ends[] = {".json", ".txt", ".model", ".jinja", ".tiktoken", ".vocab",
                                       ".bpe",  ".spm", ".yaml",  ".md",    ".py"};
    if (name[0] == '.' || cli_is_sharded_index(name))
        return 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (cli_ends_with(name, ends[i]))
            return 1;
    return 0;
}

/* --- a directory ----------------------------------------------------------------------------- */

static lig_status read_file(cli_batch *batch, const char *path, const char *name, size_t bytes)
{
    cli_batch source = {0};
    cli_file *file = &batch->files[batch->file_count];
    char *copy, *text = NULL;
    LIG_TRY(cli_batch_text(batch, name, strlen(name), &copy));
    if (bytes > FILE_BYTES_MAX)
        return lig_fail(LIG_E_LIMIT,
                        "'%s' has %zu bytes, but the limit for a file stored with a model is %d",
                        path, bytes, FILE_BYTES_MAX);
    if (bytes > 0)
        LIG_TRY(cli_batch_map(&source, path));
    lig_status status =
        cli_batch_text(batch, source.map != NULL ? source.map : "", source.map_bytes, &text);
    *file = (cli_file){copy, text, source.map_bytes};
    cli_batch_fini(&source);
    batch->file_count += status == LIG_OK;
    return status;
}

static int keep_file(const struct dirent *entry)
{
    return belongs(entry->d_name);
}

static lig_status read_entries(cli_batch *batch, const char *folder, struct dirent **entries,
                               int count)
{
    LIG_TRY(cli_alloc(&batch->files, (size_t)count, sizeof *batch->files));
    for (int i = 0; i < count; i++) {
        struct stat info;
        char *path;
        LIG_TRY(cli_format(&path, "%s/%s", folder, entries[i]->d_name));
        lig_status status = LIG_OK;
        if (stat(path, &info) == 0 && S_ISREG(info.st_mode))
            status = read_file(batch, path, entries[i]->d_name, (size_t)info.st_size);
        free(path);
        LIG_TRY(status);
    }
    return LIG_OK;
}

lig_status cli_side_files_read(cli_batch *batch, const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, keep_file, alphasort);
    if (count < 0)
        return cli_fail_path(folder, "read");
    lig_status status = read_entries(batch, folder, entries, count);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return status;
}

static lig_status write_file(const cli_file *file, const char *folder, int replace)
{
    char *path;
    if (strchr(file->name, '/') != NULL || file->name[0] == '.' || file->name[0] == '\0')
        return lig_fail(LIG_E_INVALID, "invalid name of a file stored with a model: '%.200s'",
                        file->name);
    LIG_TRY(cli_format(&path, "%s/%s", folder, file->name));
    int keep = !replace && access(path, F_OK) == 0;
    lig_status status = keep ? LIG_OK : cli_outfile_write(path, file->data, file->bytes, 1);
    free(path);
    return status;
}

lig_status cli_side_files_write(const cli_batch *batch, const char *folder, int replace)
{
    for (size_t i = 0; i < batch->file_count; i++)
        LIG_TRY(write_file(&batch->files[i], folder, replace));
    return LIG_OK;
}

/* --- tensors --------------------------------------------------------------------------------- */

static lig_status pack_file(cli_batch *batch, const cli_file *file, lig_tensor *tensor)
{
    int64_t length = (int64_t)file->bytes;
    char *full, *name, *shape;
    LIG_TRY(cli_format(&full, CLI_FILE_PREFIX "%s", file->name));
    lig_status status = cli_batch_text(batch, full, strlen(full), &name);
    free(full);
    LIG_TRY(status);
    LIG_TRY(cli_batch_text(batch, &length, sizeof length, &shape));
    *tensor = (lig_tensor){.name = name,
                           .data = (void *)(uintptr_t)file->data,
                           .bytes = file->bytes,
                           .shape = (const int64_t *)(void *)shape,
                           .ndim = 1,
                           .dtype = LIG_UINT8};
    return LIG_OK;
}

lig_status cli_side_files_pack(cli_batch *batch)
{
    lig_tensor *grown =
        realloc(batch->tensors, (batch->count + batch->file_count + 1) * sizeof *grown);
    if (grown == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for %zu files", batch->file_count);
    batch->tensors = grown;
    for (size_t i = 0; i < batch->file_count; i++) {
        LIG_TRY(pack_file(batch, &batch->files[i], &batch->tensors[batch->count]));
        batch->count++;
    }
    batch->file_count = 0;
    return LIG_OK;
}

lig_status cli_side_files_unpack(cli_batch *batch)
{
    size_t kept = 0;
    LIG_TRY(cli_alloc(&batch->files, batch->count, sizeof *batch->files));
    for (size_t i = 0; i < batch->count; i++) {
        const lig_tensor *tensor = &batch->tensors[i];
        if (cli_is_side_file(tensor))
            batch->files[batch->file_count++] = (cli_file){tensor->name + strlen(CLI_FILE_PREFIX),
                                                           tensor->data, (size_t)tensor->bytes};
        else
            batch->tensors[kept++] = *tensor;
    }
    batch->count = kept;
    return LIG_OK;
}
