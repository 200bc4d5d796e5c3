/* Between two stores the library copies; to and from files of other formats, tensors go straight
 * from one side's mapping to the other side's writer. */
#include "batch.h"
#include "formats/side_files.h"
#include "models/copied_names.h"
#include "python_copy.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SHARD_BYTES (UINT64_C(5) << 30)

typedef struct copying {
    const cli_call *call;
    cli_json_writer *writer;
    cli_place to;
    lig_store *store; /* of `to`, NULL for a file */
    lig_tag *tags;
    size_t tag_count;
    lig_metric *metrics;
    size_t metric_count;
    cli_copied_names copied;
    uint64_t shard_bytes;
    cli_renaming renaming;
    lig_tag *renames;
    int renames_any; /* --part, --strip or --rename was given */
} copying;

/* --- output ---------------------------------------------------------------------------------- */

static void tell(copying *self, const char *from, const char *name, size_t tensors, uint64_t bytes)
{
    char size[24];
    if (self->writer != NULL) {
        cli_json_open(self->writer, NULL, '{');
        cli_json_put_text(self->writer, "from", from);
        cli_json_put_text(self->writer, "to", self->to.uri);
        cli_json_put_text(self->writer, "name", name);
        cli_json_put_u64(self->writer, "tensors", tensors);
        cli_json_put_u64(self->writer, "bytes", bytes);
        cli_json_close(self->writer, '}');
        return;
    }
    cli_size_text(bytes, size, sizeof size);
    cli_put_escaped(stdout, from);
    fputs(" -> ", stdout);
    cli_put_escaped(stdout, self->to.uri);
    fputs(name != NULL ? "#" : "", stdout);
    cli_put_escaped(stdout, name != NULL ? name : "");
    printf("  %zu tensor%s, %s\n", tensors, tensors == 1 ? "" : "s", size);
}

/* --- names
 * ---------------------------------------------------------------------------------------- */

/* The name of `name` at the destination: unchanged, after a prefix that ends in '/', or as
 * given. */
static lig_status new_name(const copying *self, const char *name, char **out)
{
    const char *given = self->to.name;
    size_t bytes = given != NULL ? strlen(given) : 0;
    if (given == NULL)
        return cli_format(out, "%s", name);
    if (given[bytes - 1] == '/')
        return cli_format(out, "%s%s", given, name);
    return cli_format(out, "%s", given);
}

/* Likewise of a model that is about to be copied. With --incremental, the newest of several models
 * of one name is copied. */
static lig_status model_name(copying *self, const char *name, char **out)
{
    char *called;
    LIG_TRY(new_name(self, name, &called));
    lig_status status = cli_has(self->call, "incremental")
                            ? LIG_OK
                            : cli_copied_names_add(&self->copied, called);
    if (status == LIG_OK)
        *out = called;
    else
        free(called);
    return status;
}

/* Before anything is written. */
static lig_status check_count(const copying *self, size_t count)
{
    const char *given = self->to.name;
    if (count < 2)
        return LIG_OK;
    if (self->to.kind != CLI_STORE)
        return lig_fail(LIG_E_INVALID, "cannot write several models to one %s, '%s'",
                        self->to.kind == CLI_SHARDED ? "directory" : "file", self->to.uri);
    if (given != NULL && given[strlen(given) - 1] != '/')
        return lig_fail(LIG_E_INVALID,
                        "cannot copy several models to one name, '%s' (a name that ends in '/' "
                        "is used as a prefix)",
                        given);
    return LIG_OK;
}

/* The file name without its extension; for a model that is a directory, the directory's name. */
static lig_status file_stem(const cli_place *place, char **out)
{
    char *copy;
    LIG_TRY(cli_format(&copy, "%s", place->uri));
    int folders = place->kind == CLI_SHARDED || place->in_folder;
    int index = place->in_folder || cli_is_sharded_index(place->uri);
    char *name = basename(index ? dirname(copy) : copy), *dot = strrchr(name, '.');
    if (dot != NULL && dot > name && !folders)
        *dot = '\0';
    if (strcmp(name, ".") == 0 || strcmp(name, "/") == 0)
        name = "model";
    lig_status status = cli_format(out, "%s", name);
    free(copy);
    return status;
}

/* --- tags and metrics of the command line ---------------------------------------------------- */

static lig_status add_tags(const copying *self, cli_batch *batch)
{
    size_t count = batch->tag_count;
    lig_tag *tags = realloc(batch->tags, (count + self->tag_count + 1) * sizeof *tags);
    if (tags == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for tags");
    batch->tags = tags;
    for (size_t i = 0; i < self->tag_count; i++) {
        size_t at = 0;
        while (at < count && strcmp(tags[at].name, self->tags[i].name) != 0)
            at++;
        tags[at] = self->tags[i];
        count += at == count;
    }
    batch->tag_count = count;
    return LIG_OK;
}

static lig_status add_metrics(const copying *self, cli_batch *batch)
{
    size_t count = batch->metric_count;
    lig_metric *metrics =
        realloc(batch->metrics, (count + self->metric_count + 1) * sizeof *metrics);
    if (metrics == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for metrics");
    batch->metrics = metrics;
    for (size_t i = 0; i < self->metric_count; i++) {
        size_t at = 0;
        while (at < count && strcmp(metrics[at].name, self->metrics[i].name) != 0)
            at++;
        metrics[at] = self->metrics[i];
        count += at == count;
    }
    batch->metric_count = count;
    return LIG_OK;
}

/* --- a batch into a store or a file
 * ------------------------------------------------------------------- */

static lig_status watch(lig_ticket *ticket, const cli_batch *batch, cli_bar *bar)
{
    uint64_t done = 0, before = 0;
    while (!lig_ticket_done(ticket) && done < batch->count) {
        lig_status status = lig_ticket_progress(ticket, done, INT64_C(100000000), &done);
        for (; before < done && before < batch->count; before++)
            cli_bar_add(bar, batch->tensors[before].bytes);
        if (status != LIG_OK && status != LIG_E_TIMEOUT)
            break;
    }
    return lig_ticket_wait(ticket, LIG_FOREVER);
}

static lig_status save_batch(const copying *self, const cli_batch *batch, const char *name,
                             cli_bar *bar)
{
    lig_save_options options = LIG_SAVE_INIT;
    lig_ticket *ticket;
    options.flags = cli_has(self->call, "replace") ? LIG_SAVE_REPLACE : 0;
    options.tags = batch->tags;
    options.tag_count = batch->tag_count;
    options.metrics = batch->metrics;
    options.metric_count = batch->metric_count;
    options.meta = batch->meta;
    options.structure = batch->structure;
    options.graphs = batch->graphs;
    options.graph_count = batch->graph_count;
    if (!bar->on)
        return lig_store_save(self->store, name, batch->tensors, batch->count, &options);
    LIG_TRY(
        lig_store_save_start(self->store, name, batch->tensors, batch->count, &options, &ticket));
    lig_status status = watch(ticket, batch, bar);
    lig_ticket_destroy(ticket);
    return status;
}

static lig_status write_batch(const copying *self, const cli_batch *batch, cli_bar *bar)
{
    int replace = cli_has(self->call, "replace");
    if (self->to.kind == CLI_SHARDED)
        return (cli_has(self->call, "folder") ? cli_folder_write : cli_sharded_write)(
            batch, self->to.uri, self->shard_bytes, replace, bar);
    return cli_batch_to_file(batch, &self->to, replace, bar);
}

static lig_status put_batch(copying *self, cli_batch *batch, const char *from, const char *name)
{
    char *called = NULL;
    cli_bar bar;
    LIG_TRY(add_tags(self, batch));
    LIG_TRY(add_metrics(self, batch));
    LIG_TRY(cli_batch_rename(batch, &self->renaming));
    if (self->store != NULL) {
        LIG_TRY(cli_side_files_pack(batch));
        LIG_TRY(model_name(self, name, &called));
    }
    cli_bar_start(&bar, self->call, name, cli_batch_bytes(batch));
    lig_status status = self->store != NULL ? save_batch(self, batch, called, &bar)
                                            : write_batch(self, batch, &bar);
    cli_bar_end(&bar);
    if (status == LIG_OK)
        tell(self, from, called, batch->count, cli_batch_bytes(batch));
    free(called);
    return status;
}

/* When the first source is open: a wrong source name creates no store. */
static lig_status open_target(copying *self)
{
    return self->to.kind == CLI_STORE && self->store == NULL
               ? cli_place_open(&self->to, "a", &self->store)
               : LIG_OK;
}

static lig_status copy_file(copying *self, cli_place *place)
{
    cli_batch batch;
    char *stem;
    LIG_TRY(cli_number(self->call, "limit", 1, UINT64_MAX, &place->limit));
    LIG_TRY(cli_batch_from_file(&batch, place));
    lig_status status = open_target(self);
    if (status == LIG_OK)
        status = file_stem(place, &stem);
    if (status == LIG_OK) {
        status = put_batch(self, &batch, place->uri, stem);
        free(stem);
    }
    cli_batch_fini(&batch);
    return status;
}

/* --- a store's models
 * ----------------------------------------------------------------------------------- */

static lig_status update_copy(const copying *self, const char *name)
{
    lig_update update = LIG_UPDATE_INIT;
    if (self->tag_count == 0 && self->metric_count == 0)
        return LIG_OK;
    update.tags = self->tags;
    update.tag_count = self->tag_count;
    update.metrics = self->metrics;
    update.metric_count = self->metric_count;
    return lig_store_update(self->store, name, &update);
}

static lig_status copy_between(copying *self, const lig_ref *ref, const char *label)
{
    const lig_model *model = lig_ref_model(ref);
    uint32_t flags = cli_has(self->call, "incremental") ? LIG_COPY_NEWER
                     : cli_has(self->call, "replace")   ? LIG_SAVE_REPLACE
                                                        : 0;
    char *called;
    LIG_TRY(model_name(self, model->name, &called));
    lig_status status = lig_ref_copy(ref, self->store, called, flags);
    int skipped = flags == LIG_COPY_NEWER && status == LIG_E_EXISTS;
    if (skipped)
        status = LIG_OK;
    else if (status == LIG_OK)
        status = update_copy(self, called);
    if (status == LIG_OK && !skipped)
        tell(self, label, called, model->tensor_count, model->bytes);
    free(called);
    return status;
}

static lig_status copy_model(copying *self, lig_store *from, const cli_place *place,
                             const char *name)
{
    cli_batch batch;
    lig_ref *ref;
    char *label;
    LIG_TRY(cli_format(&label, "%s#%s", place->uri, name));
    lig_status status;
    if (self->store != NULL && !self->renames_any) {
        status = lig_store_resolve(from, name, &ref);
        if (status == LIG_OK) {
            status = copy_between(self, ref, label);
            lig_ref_release(ref);
        }
    } else {
        status = cli_batch_from_store(&batch, from, name);
        if (status == LIG_OK) {
            /* `name` may be an alias */
            status = put_batch(self, &batch, label, lig_view_model(batch.view)->name);
            cli_batch_fini(&batch);
        }
    }
    free(label);
    return status;
}

static lig_status copy_alias(void *context, const char *alias, const char *model)
{
    const copying *self = context;
    char *called;
    LIG_TRY(new_name(self, model, &called));
    lig_status status = lig_store_alias(self->store, alias, called);
    free(called);
    if (status == LIG_E_NOTFOUND && cli_has(self->call, "incremental"))
        return LIG_OK; /* retired meanwhile */
    return status;
}

static lig_status copy_store(copying *self, const cli_place *place)
{
    lig_store *from;
    char **names;
    size_t count;
    LIG_TRY(cli_place_open(place, "r", &from));
    /* Parents first: a copy is linked with a parent that exists there. */
    lig_status status = cli_place_names(place, from, "created", &names, &count);
    if (status != LIG_OK)
        goto close_store;
    if (count > 1 && self->to.kind != CLI_STORE)
        status = lig_fail(LIG_E_INVALID, "'%s' holds one model, but %zu were selected",
                          self->to.uri, count);
    else
        status = check_count(self, count);
    if (status == LIG_OK)
        status = open_target(self);
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        status = copy_model(self, from, place, names[i]);
        if (status == LIG_E_NOTFOUND && cli_has(self->call, "incremental"))
            status = LIG_OK; /* retired since they were listed */
    }
    cli_names_destroy(names, count);
    if (status == LIG_OK && place->name == NULL && self->store != NULL)
        status = cli_each_alias(from, copy_alias, self);
close_store:
    lig_store_close(from);
    return status;
}

static lig_status copy_all(copying *self)
{
    const cli_call *call = self->call;
    LIG_TRY(check_count(self, call->word_count - 1));
    for (size_t i = 0; i + 1 < call->word_count; i++) {
        cli_place place;
        cli_copied_names_next(&self->copied);
        LIG_TRY(cli_place_parse(&place, call->words[i]));
        lig_status status =
            place.kind == CLI_STORE ? copy_store(self, &place) : copy_file(self, &place);
        cli_place_fini(&place);
        LIG_TRY(status);
    }
    return LIG_OK;
}

/* --- options -------------------------------------------------------------------------------- */

static lig_status read_options(copying *self)
{
    const cli_call *call = self->call;
    LIG_TRY(cli_tags(call, "tag", &self->tags, &self->tag_count));
    LIG_TRY(cli_metrics(call, "metric", &self->metrics, &self->metric_count));
    LIG_TRY(cli_tags(call, "rename", &self->renames, &self->renaming.rename_count));
    self->renaming.part = cli_value(call, "part");
    self->renaming.strip = cli_value(call, "strip");
    self->renaming.renames = self->renames;
    self->renames_any = self->renaming.part != NULL || self->renaming.strip != NULL ||
                        self->renaming.rename_count > 0;
    self->shard_bytes = DEFAULT_SHARD_BYTES;
    return cli_bytes(call, "shard", &self->shard_bytes);
}

static int has_tag(const copying *self, const char *name)
{
    for (size_t i = 0; i < self->tag_count; i++)
        if (strcmp(self->tags[i].name, name) == 0)
            return 1;
    return 0;
}

/* Readers of such a directory refuse weights that do not name their framework. */
static lig_status add_format(copying *self)
{
    if (has_tag(self, "format"))
        return LIG_OK;
    lig_tag *grown = realloc(self->tags, (self->tag_count + 1) * sizeof *grown);
    if (grown == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for tags");
    grown[self->tag_count++] = (lig_tag){"format", "pt"};
    self->tags = grown;
    return LIG_OK;
}

static lig_status choose_folder(copying *self)
{
    const cli_call *call = self->call;
    int folder = cli_has(call, "folder");
    if (folder || cli_has(call, "shard")) {
        if (self->to.name != NULL || self->to.kind == CLI_NPZ ||
            (self->to.kind == CLI_SAFETENSORS && !self->to.in_folder))
            return lig_fail(LIG_E_INVALID,
                            "--%s writes a directory of files, but '%s' is not a directory name",
                            folder ? "folder" : "shard", call->words[call->word_count - 1]);
        if (self->to.in_folder) { /* an existing directory, which place parsing took for its file */
            free(self->to.uri);
            self->to.uri = NULL;
            self->to.in_folder = 0;
            LIG_TRY(cli_format(&self->to.uri, "%s", call->words[call->word_count - 1]));
        }
        self->to.kind = CLI_SHARDED;
    }
    if (folder)
        LIG_TRY(add_format(self));
    if (self->to.kind == CLI_SHARDED && cli_is_sharded_index(self->to.uri))
        return lig_fail(LIG_E_INVALID,
                        "an index is written together with its files: pass the directory of '%s'",
                        self->to.uri);
    return LIG_OK;
}

static lig_status open_and_copy(copying *self)
{
    LIG_TRY(read_options(self));
    LIG_TRY(cli_place_parse(&self->to, self->call->words[self->call->word_count - 1]));
    LIG_TRY(choose_folder(self));
    if (cli_has(self->call, "incremental") &&
        (self->to.kind != CLI_STORE || self->renames_any || cli_has(self->call, "replace") ||
         self->tag_count > 0 || self->metric_count > 0))
        return lig_fail(LIG_E_INVALID,
                        "--incremental copies models unchanged between stores (without --replace, "
                        "--tag, --metric and options that change names)");
    return copy_all(self);
}

/* --- the command ----------------------------------------------------------------------------- */

static lig_status check_values(const cli_call *call)
{
    const char *target = call->words[call->word_count - 1];
    if (strcmp(target, "-") == 0)
        return cli_wrong(call, lig_fail(LIG_E_INVALID,
                                        "cp does not write to standard output, '-' (name a file, "
                                        "or './-' for a store)"));
    LIG_TRY(cli_once(call, "part"));
    LIG_TRY(cli_once(call, "strip"));
    if (cli_has(call, "like") && !cli_ends_with(target, ".keras"))
        return lig_fail(LIG_E_INVALID, "--like applies to .keras files only, not to '%s'", target);
    return LIG_OK;
}

static int run(cli_call *call)
{
    cli_json_writer writer = {.file = stdout};
    copying self = {.call = call, .writer = call->json ? &writer : NULL};
    if (check_values(call) != LIG_OK)
        return cli_failed();
    if (cli_copy_needs_python(call)) {
        cli_copy_by_python(call);
        return cli_failed();
    }
    if (call->json)
        cli_json_open(&writer, NULL, '[');
    lig_status status = open_and_copy(&self);
    if (call->json)
        cli_json_close(&writer, ']');
    lig_store_close(self.store);
    cli_place_fini(&self.to);
    free(self.tags);
    free(self.metrics);
    free(self.renames);
    cli_copied_names_fini(&self.copied);
    return status == LIG_OK ? 0 : cli_failed();
}

static const cli_flag flags[] = {
    {"replace", 'f', NULL, "replace an existing model or file of the same name"},
    {"tag", 't', "NAME=VALUE", "add a tag to the copy"},
    {"metric", 'm', "NAME=NUMBER", "add a metric to the copy"},
    {"shard", 's', "SIZE",
     "write a directory of .safetensors files of about this size, with an index"},
    {"folder", 'd', NULL,
     "write a Hugging Face directory: weights, config and tokenizer, for from_pretrained"},
    {"part", 'p', "NAME", "copy only tensors below NAME. or NAME/, and remove that prefix"},
    {"strip", 0, "PREFIX", "remove a prefix from the tensor names that have it"},
    {"incremental", 'r', NULL,
     "copy only models that the destination store lacks, or has in an older version"},
    {"rename", 'n', "OLD=NEW", "rename a tensor, or a prefix before '.' or '/'; may be repeated"},
    {"like", 'l', "FILE", "a .keras file with the architecture, for writing .keras"},
    {"limit", 0, "BYTES",
     "memory limit for the tensors of a compressed .npz, .pt, .keras or .h5 file"},
    {"dcp", 0, NULL, "write a torch.distributed.checkpoint directory"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_cp = {
    .name = "cp",
    .usage = "SOURCE... DESTINATION [options]",
    .summary = "Copies models between stores and files of other formats",
    .details =
        "SOURCE is STORE#NAME, STORE#PATTERN*, STORE (all models and aliases), a file, a "
        "directory\n"
        "of .safetensors files, or its index. DESTINATION is STORE (names are kept; a file's "
        "model\n"
        "gets the file's name), STORE#NAME, STORE#PREFIX/, a file, or with --folder or --shard a\n"
        "directory. Tags are stored as __metadata__ in .safetensors files and restored from them;\n"
        ".npz files hold tensors only. config.json, tokenizer and similar files of a directory "
        "are\n"
        "stored with the model and written by --folder and --shard. Files are written atomically.\n"
        "-r copies only what changed since an earlier copy, and resumes an interrupted one.\n"
        "Formats: .safetensors; through Python: .npz, .pt, .pth, .bin, .ckpt, .keras, .h5 and\n"
        "torch.distributed.checkpoint directories (python -m ligament.convert is the same "
        "command).",
    .flags = flags,
    .word_min = 2,
    .word_max = SIZE_MAX,
    .run = run,
};
