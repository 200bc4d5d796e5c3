/* A model in several .safetensors files with an index that maps tensors to files, as large models
 * are published. The index is written last: without it the directory holds no model. Small models
 * are published as one file in a directory of the same layout. */
#include "batch.h"
#include "formats/side_files.h"

#include <dirent.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX_END ".safetensors.index.json"
#define INDEX_BYTES_MAX (UINT64_C(1) << 30)

int cli_is_sharded_index(const char *path)
{
    size_t bytes = strlen(path), end = strlen(INDEX_END);
    return bytes > end && strcmp(path + bytes - end, INDEX_END) == 0;
}

int cli_sharded_index(const char *folder, char *path, size_t path_bytes)
{
    DIR *open_folder = opendir(folder);
    struct dirent *one;
    struct stat info;
    int found = 0;
    while (open_folder != NULL && (one = readdir(open_folder)) != NULL)
        if (cli_is_sharded_index(one->d_name) &&
            fstatat(dirfd(open_folder), one->d_name, &info, 0) == 0 && S_ISREG(info.st_mode) &&
            ++found == 1)
            snprintf(path, path_bytes, "%s/%s", folder, one->d_name);
    if (open_folder != NULL)
        closedir(open_folder);
    return found == 1;
}

/* --- reading -----------------------------------------------------------------------------------
 */

typedef struct shards {
    cli_batch *batch;
    const char *folder, *index;
    const char **files; /* distinct file names, sorted */
    size_t file_count, tensor_count;
} shards;

typedef struct entry {
    const char *name, *file;
} entry;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

/* Names come from the index: they must not leave the directory. */
static lig_status take_files(shards *self, const cli_json_value *map)
{
    if (map == NULL || map->kind != CLI_JSON_OBJECT)
        return lig_fail(LIG_E_CORRUPT, "'%s' has no weight_map", self->index);
    LIG_TRY(cli_alloc(&self->files, map->count, sizeof *self->files));
    for (const cli_json_value *at = cli_json_first(map); at != NULL; at = cli_json_next(map, at)) {
        if (at->kind != CLI_JSON_STRING || strchr(at->text, '/') != NULL || at->text[0] == '.')
            return lig_fail(
                LIG_E_CORRUPT,
                "'%s': invalid file name for '%.200s' (must be in the directory of the index)",
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

static lig_status compare(const shards *self, const entry *listed, const entry *held)
{
    for (size_t i = 0; i < self->tensor_count; i++) {
        if (strcmp(listed[i].name, held[i].name) != 0)
            return lig_fail(LIG_E_CORRUPT, "'%s' lists '%.200s', which is in none of its files",
                            self->index, listed[i].name);
        if (strcmp(listed[i].file, held[i].file) != 0)
            return lig_fail(LIG_E_CORRUPT, "'%s': '%.200s' is in '%.200s', expected '%.200s'",
                            self->index, listed[i].name, held[i].file, listed[i].file);
    }
    return LIG_OK;
}

/* The index and the files must agree, or a tensor would be missing silently. */
static lig_status merge_parts(const shards *self, const cli_json_value *map)
{
    cli_batch *batch = self->batch;
    entry *listed, *held;
    size_t used = 0, listed_count = 0;
    if (batch->count != self->tensor_count)
        return lig_fail(LIG_E_CORRUPT, "'%s' lists %zu tensors, but its files contain %zu",
                        self->index, self->tensor_count, batch->count);
    LIG_TRY(cli_alloc(&batch->tensors, batch->count, sizeof *batch->tensors));
    LIG_TRY(cli_alloc(&listed, 2 * batch->count, sizeof *listed));
    held = listed + batch->count;
    for (size_t i = 0; i < batch->part_count; i++)
        for (size_t j = 0; j < batch->parts[i].count; j++, used++) {
            batch->tensors[used] = batch->parts[i].tensors[j];
            held[used] = (entry){batch->tensors[used].name, self->files[i]};
        }
    for (const cli_json_value *at = cli_json_first(map); at != NULL; at = cli_json_next(map, at))
        listed[listed_count++] = (entry){at->key, at->text};
    qsort(held, used, sizeof *held, by_name);
    qsort(listed, listed_count, sizeof *listed, by_name);
    lig_status status = compare(self, listed, held);
    free(listed);
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
    batch->graphs = first->graphs;
    batch->graph_count = first->graph_count;
    return LIG_OK;
}

static lig_status read_index(shards *self)
{
    cli_batch *batch = self->batch;
    LIG_TRY(cli_json_read(self->index, INDEX_BYTES_MAX, &batch->json));
    const cli_json_value *map = cli_json_member(cli_json_root(batch->json), "weight_map");
    LIG_TRY(take_files(self, map));
    LIG_TRY(open_parts(self));
    LIG_TRY(merge_parts(self, map));
    return take_tags(batch);
}

lig_status cli_sharded_read(cli_batch *batch, const char *path)
{
    char index[4096 + 512], *copy;
    shards self = {.batch = batch, .folder = path, .index = index};
    LIG_TRY(cli_format(&copy, "%s", path));
    lig_status status = LIG_OK;
    if (cli_is_sharded_index(path)) {
        self.folder = dirname(copy);
        self.index = path;
    } else if (!cli_sharded_index(path, index, sizeof index)) {
        status = lig_fail(LIG_E_NOTFOUND, "expected exactly one index in '%s': *" INDEX_END, path);
    }
    if (status == LIG_OK)
        status = read_index(&self);
    free(self.files);
    free(copy);
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
    cli_text text;
    char *path;
    LIG_TRY(cli_text_open(&text));
    LIG_TRY(cli_text_close(&text, put_index(self, text.file)));
    lig_status status = cli_format(&path, "%s/model" INDEX_END, self->folder);
    if (status == LIG_OK) {
        status = cli_outfile_write(path, text.data, text.bytes, self->replace);
        free(path);
    }
    free(text.data);
    return status;
}

/* All files of a model, or none. */
static lig_status write_files(const folder_out *self)
{
    size_t written = 0;
    char *path;
    lig_status status = LIG_OK;
    for (; written < self->shard_count && status == LIG_OK; written += status == LIG_OK)
        status = write_shard(self, written);
    if (status == LIG_OK)
        status = write_index(self);
    while (status != LIG_OK && written-- > 0) /* remove a partial model */
        if (shard_path(self, written, 1, &path) == LIG_OK) {
            unlink(path);
            free(path);
        }
    return status;
}

static lig_status move_file(const folder_out *self, const char *folder, const char *name)
{
    char *from = NULL, *to = NULL;
    lig_status status = cli_format(&from, "%s/%s", self->folder, name);
    if (status == LIG_OK)
        status = cli_format(&to, "%s/%s", folder, name);
    if (status == LIG_OK && rename(from, to) != 0)
        status = cli_fail_path(to, "replace");
    free(from);
    free(to);
    return status;
}

/* Between the old index and the new one the directory holds no model, rather than some files of
 * each. */
static lig_status move_files(const folder_out *self, const char *folder, const char *index)
{
    if (unlink(index) != 0)
        return cli_fail_path(index, "replace");
    for (size_t i = 0; i < self->shard_count; i++) {
        char *name;
        LIG_TRY(shard_path(self, i, 0, &name));
        lig_status status = move_file(self, folder, name);
        free(name);
        LIG_TRY(status);
    }
    return move_file(self, folder, "model" INDEX_END);
}

/* The new model is written next to the old one, which stays until the new one is complete. */
static lig_status replace_files(folder_out *self, const char *index)
{
    const char *folder = self->folder;
    char *room;
    LIG_TRY(cli_format(&room, "%s/.ligament-XXXXXX", folder));
    lig_status status = mkdtemp(room) ? LIG_OK : cli_fail_path(folder, "write");
    self->folder = room;
    if (status == LIG_OK) {
        status = write_files(self);
        if (status == LIG_OK)
            status = move_files(self, folder, index);
        rmdir(room);
    }
    free(room);
    return status;
}

static lig_status make_folder(const char *folder)
{
    if (mkdir(folder, 0777) != 0 && access(folder, W_OK) != 0)
        return cli_fail_path(folder, "create");
    return LIG_OK;
}

lig_status cli_sharded_write(const cli_batch *batch, const char *folder, uint64_t shard_bytes,
                             int replace, cli_bar *bar)
{
    folder_out self = {batch, folder, bar, shard_bytes, NULL, 0, replace};
    char index[4096 + 512];
    int there = cli_sharded_index(folder, index, sizeof index);
    if (there && !replace)
        return cli_fail_taken(index);
    LIG_TRY(make_folder(folder));
    LIG_TRY(cli_side_files_write(batch, folder, replace));
    lig_status status = spread(&self);
    if (status == LIG_OK)
        status = there ? replace_files(&self, index) : write_files(&self);
    free(self.shard_of);
    return status;
}

lig_status cli_folder_write(const cli_batch *batch, const char *folder, uint64_t shard_bytes,
                            int replace, cli_bar *bar)
{
    cli_place place = {.kind = CLI_SAFETENSORS};
    if (cli_batch_bytes(batch) > shard_bytes)
        return cli_sharded_write(batch, folder, shard_bytes, replace, bar);
    LIG_TRY(make_folder(folder));
    LIG_TRY(cli_side_files_write(batch, folder, replace));
    LIG_TRY(cli_format(&place.uri, "%s/model.safetensors", folder));
    lig_status status = cli_batch_to_file(batch, &place, replace, bar);
    free(place.uri);
    return status;
}
