/* A model in several .safetensors files with an index that tells which tensor is where, as large
 * models are published. The index is written last: without it the folder holds no model. */
#include "batch.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX_END ".safetensors.index.json"
#define INDEX_BYTES_MAX (UINT64_C(1) << 30)

static int is_index(const char *name)
{
    size_t bytes = strlen(name), end = strlen(INDEX_END);
    return bytes > end && strcmp(name + bytes - end, INDEX_END) == 0;
}

int cli_sharded_index(const char *folder, char *path, size_t path_bytes)
{
    DIR *open_folder = opendir(folder);
    struct dirent *entry;
    int found = 0;
    while (open_folder != NULL && (entry = readdir(open_folder)) != NULL)
        if (is_index(entry->d_name) && ++found == 1)
            snprintf(path, path_bytes, "%s/%s", folder, entry->d_name);
    if (open_folder != NULL)
        closedir(open_folder);
    return found == 1;
}

/* --- reading -----------------------------------------------------------------------------------
 */

typedef struct shards {
    cli_batch *batch;
    const char *folder, *index;
    const char **files; /* their names, sorted, each once */
    size_t file_count, tensor_count;
} shards;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names come from the index: they stay inside the folder. */
static lig_status take_files(shards *self, const cli_json_value *map)
{
    if (map == NULL || map->kind != CLI_JSON_OBJECT)
        return lig_fail(LIG_E_CORRUPT, "'%s' has no weight_map", self->index);
    LIG_TRY(cli_alloc(&self->files, map->count, sizeof *self->files));
    for (const cli_json_value *at = cli_json_first(map); at != NULL; at = cli_json_next(map, at)) {
        if (at->kind != CLI_JSON_STRING || strchr(at->text, '/') != NULL || at->text[0] == '.')
            return lig_fail(LIG_E_CORRUPT, "'%s': '%.200s' is in no file of its folder",
                            self->index, at->key);
        self->files[self->tensor_count++] = at->text;
    }
    qsort(self->files, self->tensor_count, sizeof *self->files, by_text);
    for (size_t i = 0; i < self->tensor_count; i++)
        if (self->file_count == 0 || strcmp(self->files[i], self->files[self->file_count - 1]) != 0)
            self->files[self->file_count++] = self->files[i];
    return LIG_OK;
}

static lig_status open_parts(shards *self)
{
    cli_batch *batch = self->batch;
    LIG_TRY(cli_alloc(&batch->parts, self->file_count, sizeof *batch->parts));
    for (size_t i = 0; i < self->file_count; i++) {
        cli_place place = {.kind = CLI_SAFETENSORS};
        LIG_TRY(cli_format(&place.uri, "%s/%s", self->folder, self->files[i]));
        lig_status status = cli_batch_from_file(&batch->parts[i], &place);
        free(place.uri);
        LIG_TRY(status);
        batch->part_count++;
        batch->count += batch->parts[i].count;
    }
    return LIG_OK;
}

/* The index and the files must agree, or a tensor would be missing without a word. */
static lig_status merge_parts(const shards *self, const cli_json_value *map)
{
    cli_batch *batch = self->batch;
    size_t used = 0;
    if (batch->count != self->tensor_count)
        return lig_fail(LIG_E_CORRUPT, "'%s' lists %zu tensors, its files hold %zu", self->index,
                        self->tensor_count, batch->count);
    LIG_TRY(cli_alloc(&batch->tensors, batch->count, sizeof *batch->tensors));
    for (size_t i = 0; i < batch->part_count; i++) {
        memcpy(batch->tensors + used, batch->parts[i].tensors,
               batch->parts[i].count * sizeof *batch->tensors);
        used += batch->parts[i].count;
    }
    const char **names, **listed;
    lig_status status = cli_alloc(&names, 2 * batch->count, sizeof *names);
    LIG_TRY(status);
    listed = names + batch->count;
    used = 0;
    for (const cli_json_value *at = cli_json_first(map); at != NULL; at = cli_json_next(map, at))
        listed[used++] = at->key;
    for (size_t i = 0; i < batch->count; i++)
        names[i] = batch->tensors[i].name;
    qsort(names, batch->count, sizeof *names, by_text);
    qsort(listed, batch->count, sizeof *listed, by_text);
    for (size_t i = 0; status == LIG_OK && i < batch->count; i++)
        if (strcmp(names[i], listed[i]) != 0)
            status = lig_fail(LIG_E_CORRUPT, "'%s' lists '%.200s', which its files do not hold",
                              self->index, listed[i]);
    free(names);
    return status;
}

static lig_status take_tags(cli_batch *batch)
{
    const cli_batch *first = batch->part_count > 0 ? &batch->parts[0] : batch;
    LIG_TRY(cli_alloc(&batch->tags, first->tag_count, sizeof *batch->tags));
    LIG_TRY(cli_alloc(&batch->metrics, first->metric_count, sizeof *batch->metrics));
    for (size_t i = 0; i < first->tag_count; i++)
        batch->tags[i] = first->tags[i];
    for (size_t i = 0; i < first->metric_count; i++)
        batch->metrics[i] = first->metrics[i];
    batch->tag_count = first->tag_count;
    batch->metric_count = first->metric_count;
    batch->meta = first->meta;
    batch->structure = first->structure;
    return LIG_OK;
}

lig_status cli_sharded_read(cli_batch *batch, const char *folder)
{
    char index[4096 + 512];
    shards self = {.batch = batch, .folder = folder, .index = index};
    if (!cli_sharded_index(folder, index, sizeof index))
        return lig_fail(LIG_E_NOTFOUND, "'%s' holds no single *" INDEX_END, folder);
    LIG_TRY(cli_json_read(index, INDEX_BYTES_MAX, &batch->json));
    const cli_json_value *map = cli_json_member(cli_json_root(batch->json), "weight_map");
    lig_status status = take_files(&self, map);
    if (status == LIG_OK)
        status = open_parts(&self);
    if (status == LIG_OK)
        status = merge_parts(&self, map);
    if (status == LIG_OK)
        status = take_tags(batch);
    free(self.files);
    return status;
}

/* --- writing -----------------------------------------------------------------------------------
 */

typedef struct folder_out {
    const cli_batch *batch;
    const char *folder;
    cli_bar *bar;
    uint64_t shard_bytes;
    size_t *shard_of; /* of each tensor */
    size_t shard_count;
    int replace;
} folder_out;

static lig_status spread(folder_out *self)
{
    uint64_t used = 0;
    LIG_TRY(cli_alloc(&self->shard_of, self->batch->count, sizeof *self->shard_of));
    self->shard_count = 1;
    for (size_t i = 0; i < self->batch->count; i++) {
        uint64_t bytes = self->batch->tensors[i].bytes;
        if (used > 0 && bytes > self->shard_bytes - used) {
            self->shard_count++;
            used = 0;
        }
        self->shard_of[i] = self->shard_count - 1;
        used = used + bytes < self->shard_bytes ? used + bytes : self->shard_bytes;
    }
    return LIG_OK;
}

static lig_status shard_path(const folder_out *self, size_t shard, int whole, char **path)
{
    char folder[4096] = "";
    if (whole)
        snprintf(folder, sizeof folder, "%s/", self->folder);
    return cli_format(path, "%smodel-%05zu-of-%05zu.safetensors", folder, shard + 1,
                      self->shard_count);
}

static lig_status write_shard(const folder_out *self, size_t shard)
{
    cli_batch part = *self->batch;
    cli_place place = {.kind = CLI_SAFETENSORS};
    LIG_TRY(cli_alloc(&part.tensors, self->batch->count, sizeof *part.tensors));
    part.count = 0;
    for (size_t i = 0; i < self->batch->count; i++)
        if (self->shard_of[i] == shard)
            part.tensors[part.count++] = self->batch->tensors[i];
    lig_status status = shard_path(self, shard, 1, &place.uri);
    if (status == LIG_OK) {
        status = cli_batch_to_file(&part, &place, self->replace, self->bar);
        free(place.uri);
    }
    free(part.tensors);
    return status;
}

static lig_status put_index(const folder_out *self, FILE *memory)
{
    cli_json_writer writer = {.file = memory};
    cli_json_open(&writer, NULL, '{');
    cli_json_open(&writer, "metadata", '{');
    cli_json_put_u64(&writer, "total_size", cli_batch_bytes(self->batch));
    cli_json_close(&writer, '}');
    cli_json_open(&writer, "weight_map", '{');
    for (size_t i = 0; i < self->batch->count; i++) {
        char *name;
        LIG_TRY(shard_path(self, self->shard_of[i], 0, &name));
        cli_json_put_text(&writer, self->batch->tensors[i].name, name);
        free(name);
    }
    cli_json_close(&writer, '}');
    cli_json_close(&writer, '}');
    return LIG_OK;
}

static lig_status write_index(const folder_out *self)
{
    cli_outfile out;
    char *path, *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (memory == NULL)
        return lig_fail(LIG_E_NOMEM, "no memory for an index");
    lig_status status = put_index(self, memory);
    if (fclose(memory) != 0 && status == LIG_OK)
        status = lig_fail(LIG_E_NOMEM, "no memory for an index");
    if (status == LIG_OK)
        status = cli_format(&path, "%s/model" INDEX_END, self->folder);
    if (status == LIG_OK) {
        status = cli_outfile_open(&out, path);
        free(path);
    }
    if (status == LIG_OK) {
        status = cli_outfile_put(&out, text, bytes);
        if (status == LIG_OK)
            status = cli_outfile_commit(&out, self->replace);
        else
            cli_outfile_abort(&out);
    }
    free(text);
    return status;
}

lig_status cli_sharded_write(const cli_batch *batch, const char *folder, uint64_t shard_bytes,
                             int replace, cli_bar *bar)
{
    folder_out self = {batch, folder, bar, shard_bytes, NULL, 0, replace};
    size_t written = 0;
    char *path, index[4096 + 512];
    if (!replace && cli_sharded_index(folder, index, sizeof index))
        return cli_fail_taken(index);
    if (mkdir(folder, 0777) != 0 && access(folder, W_OK) != 0)
        return cli_fail_path(folder, "made");
    lig_status status = spread(&self);
    for (; written < self.shard_count && status == LIG_OK; written += status == LIG_OK)
        status = write_shard(&self, written);
    if (status == LIG_OK)
        status = write_index(&self);
    while (status != LIG_OK && written-- > 0) /* half a model is none */
        if (shard_path(&self, written, 1, &path) == LIG_OK) {
            unlink(path);
            free(path);
        }
    free(self.shard_of);
    return status;
}
