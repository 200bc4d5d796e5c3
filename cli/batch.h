/* A batch of named tensors in transit between a store and a file of another format. Tensors stay in
 * mapped memory, so a model may be larger than the machine's RAM. */
#ifndef CLI_BATCH_H
#define CLI_BATCH_H

#include "cli.h"
#include "formats/graphs_json.h"
#include "formats/json.h"

typedef struct cli_file { /* a file next to the weights (formats/side_files.h) */
    const char *name;
    const void *data;
    size_t bytes;
} cli_file;

typedef struct cli_batch { /* embedded; zero-initialised is valid and empty */
    lig_tensor *tensors;
    size_t count;
    lig_tag *tags;
    size_t tag_count;
    lig_metric *metrics;
    size_t metric_count;
    const char *meta, *structure; /* NULL for none */
    cli_file *files;
    size_t file_count;
    const lig_graph *graphs;
    size_t graph_count;

    /* Memory that the pointers above refer to; freed by fini. */
    int64_t *shapes;
    char **texts;
    size_t text_count;
    cli_json *json, *metric_json;
    lig_graph *stored_graphs; /* of a model in a store */
    cli_graphs parsed_graphs; /* of a file */
    void *map;
    size_t map_bytes;
    lig_view *view;
    struct cli_batch *parts; /* the files of a sharded directory */
    size_t part_count;
} cli_batch;

void cli_batch_fini(cli_batch *batch);
uint64_t cli_batch_bytes(const cli_batch *batch);

/* Maps `path` read-only into the batch. */
lig_status cli_batch_map(cli_batch *batch, const char *path);
/* Likewise an open file; `path` is used in error messages. */
lig_status cli_batch_map_fd(cli_batch *batch, const char *path, int fd);
/* A NUL-terminated copy of `bytes` bytes that lives as long as the batch. */
lig_status cli_batch_text(cli_batch *batch, const void *text, size_t bytes, char **out);

/* Which tensors, and under which names. All members may be NULL or 0. */
typedef struct cli_renaming {
    const char *part;       /* only tensors below PART. or PART/, without that prefix */
    const char *strip;      /* a prefix to remove from the names that have it */
    const lig_tag *renames; /* the first that fits: a whole name, or what precedes a '.' or '/' */
    size_t rename_count;
} cli_renaming;

/* LIG_E_NOTFOUND for a part, prefix or name that no tensor has. Layers of graphs are renamed
 * likewise. The structure of a binding's tree is dropped: its names no longer exist. */
lig_status cli_batch_rename(cli_batch *batch, const cli_renaming *renaming);

/* Loads a model of a store, mapped and verified. */
lig_status cli_batch_from_store(cli_batch *batch, lig_store *store, const char *model);

/* Any file or sharded directory that cli_place_parse recognises. On failure the batch is empty. */
lig_status cli_batch_from_file(cli_batch *batch, const cli_place *place);
lig_status cli_safetensors_parse(cli_batch *batch, const char *path, const void *data,
                                 size_t bytes);
/* Through Python (python.h); np.savez and np.savez_compressed, no pickled objects. */
lig_status cli_npz_read(cli_batch *batch, const cli_place *place);
/* The directory of an index, or the index file. */
lig_status cli_sharded_read(cli_batch *batch, const char *path);

/* --- writing ------------------------------------------------------------------------------------
 */

/* A file that appears under its name complete and durable, or not at all. */
typedef struct cli_outfile {
    char *path, *folder, *temporary; /* temporary is NULL while the file has no name */
    int fd;
    int is_socket; /* of a reader, whose end is LIG_E_PEER; such an outfile is never committed */
    uint64_t at;   /* bytes written so far */
    cli_bar *bar;  /* advanced by every byte written; may be NULL */
} cli_outfile;

lig_status cli_outfile_open(cli_outfile *out, const char *path);
lig_status cli_outfile_put(cli_outfile *out, const void *data, uint64_t bytes);
/* Commits the file if `status` (of its writer) is OK, otherwise drops it and returns `status`. With
 * `replace` 0, LIG_E_EXISTS if the name is taken. */
lig_status cli_outfile_close(cli_outfile *out, lig_status status, int replace);
/* A whole file: open, put, close. */
lig_status cli_outfile_write(const char *path, const void *data, uint64_t bytes, int replace);
/* LIG_E_EXISTS with a message that names --replace. */
lig_status cli_fail_taken(const char *path);

lig_status cli_batch_to_file(const cli_batch *batch, const cli_place *place, int replace,
                             cli_bar *bar);
/* A tensor that the format cannot represent is rejected by name before the first byte is
 * written. */
lig_status cli_safetensors_write(const cli_batch *batch, cli_outfile *out);
lig_status cli_npz_write(const cli_batch *batch, cli_outfile *out);
/* Files of about `shard_bytes` and their index, in `folder`, which is created if necessary, with
 * batch->files. */
lig_status cli_sharded_write(const cli_batch *batch, const char *folder, uint64_t shard_bytes,
                             int replace, cli_bar *bar);
/* Likewise, but a model of at most `shard_bytes` is one model.safetensors without an index. */
lig_status cli_folder_write(const cli_batch *batch, const char *folder, uint64_t shard_bytes,
                            int replace, cli_bar *bar);
/* The elements of one tensor in row-major order. */
lig_status cli_put_tensor(cli_outfile *out, const lig_tensor *tensor);

#endif
