/* Declarations shared by the commands: how a command is declared, its arguments, failures, places,
 * tables and progress.
 *
 * A new command is a file cmd_<name>.c that defines `const cli_command cli_cmd_<name>` and a line
 * in the table of ligament.c. The program uses the public headers only. */
#ifndef CLI_H
#define CLI_H

#include <ligament/ligament.h>
#include <stdio.h>

/* --- commands and their arguments
 * --------------------------------------------------------------------------------- */

typedef struct cli_flag {
    const char *name;  /* without "--" */
    char letter;       /* of the short form; 0 if it has none */
    const char *value; /* name of its value in the help; NULL if it takes none */
    const char *help;
} cli_flag;

typedef struct cli_given {
    const cli_flag *flag;
    const char *value;
} cli_given;

typedef struct cli_command cli_command;

typedef struct cli_call {
    const cli_command *command;
    const char **words; /* positional arguments */
    size_t word_count;
    cli_given *given; /* in command-line order */
    size_t given_count;
    int json;     /* --json was given */
    int *misused; /* set by cli_wrong; the program then exits with 2 */
} cli_call;

struct cli_command {
    const char *name;
    const char *usage;   /* "STORE[#PATTERN] [options]" */
    const char *summary; /* one line */
    const char *details; /* further paragraphs of --help; may be NULL */
    const cli_flag
        *flags; /* ends with a NULL name; --json and --help are common to all commands and listed
                 * only if their help differs */
    size_t word_min, word_max;
    /* Returns the exit status: 0, or the result of cli_failed or cli_misused. */
    int (*run)(cli_call *call);
};

int cli_has(const cli_call *call, const char *flag);
/* The last value given for the flag, or NULL. */
const char *cli_value(const cli_call *call, const char *flag);
/* The next value of a flag that may be repeated: start with *at = 0; NULL at the end. */
const char *cli_value_next(const cli_call *call, const char *flag, size_t *at);
/* Refuses a second value of a flag where the last one must not silently win. */
lig_status cli_once(const cli_call *call, const char *flag);
/* A flag's value as an integer from `least` to `most`; *number is untouched if the flag is
 * absent. */
lig_status cli_number(const cli_call *call, const char *flag, uint64_t least, uint64_t most,
                      uint64_t *number);

/* Likewise as a number of bytes: 4096, 64K, 500M, 5G, 5GiB. */
lig_status cli_bytes(const cli_call *call, const char *flag, uint64_t *bytes);
/* Of a flag that has more than the size in its value. */
lig_status cli_bytes_text(const cli_call *call, const char *flag, const char *text,
                          uint64_t *bytes);

/* Reads NAME=VALUE flags; a name with two values is refused. Both return arrays, freed with
 * free(), that borrow the command line. */
lig_status cli_tags(const cli_call *call, const char *flag, lig_tag **tags, size_t *count);
lig_status cli_metrics(const cli_call *call, const char *flag, lig_metric **metrics, size_t *count);

/* Splits the positional arguments from number `first` on, each NAME=VALUE, into `pairs`, which has
 * room for them. */
lig_status cli_pairs(const cli_call *call, size_t first, lig_tag *pairs);
/* Their values as numbers; the array is freed with free() and borrows the names. */
lig_status cli_numbers(const cli_call *call, const lig_tag *pairs, size_t count,
                       lig_metric **numbers);

/* Fills `call`; returns 0, or the program's exit status (--help or wrong usage). */
int cli_call_parse(cli_call *call, const cli_command *command, int argc, char **argv);
void cli_call_fini(cli_call *call);
void cli_help(FILE *file, const cli_command *command);

/* Writes this thread's error message to stderr; returns 1. */
int cli_failed(void);
/* Writes the error message and a pointer to --help to stderr; returns 2. */
int cli_misused(const cli_call *call, const char *format, ...) LIG_PRINTF(2, 3);

/* Marks `status`, whose message is set, as wrong usage: cli_failed prints it and the program exits
 * with 2. Returns `status`. */
lig_status cli_wrong(const cli_call *call, lig_status status);

/* malloc and friends that set the error message. */
lig_status cli_alloc(void *out, size_t count, size_t size);
/* A formatted string; the caller frees it. */
lig_status cli_format(char **out, const char *format, ...) LIG_PRINTF(2, 3);
/* A string that is written as a file. */
typedef struct cli_text {
    FILE *file;
    char *data; /* once closed; the caller frees it */
    size_t bytes;
} cli_text;
lig_status cli_text_open(cli_text *text);
/* On failure of the writer (`status`) or of memory nothing is left to free. */
lig_status cli_text_close(cli_text *text, lig_status status);
/* LIG_E_IO, _NOTFOUND or _DENIED by errno: "cannot `verb` 'path': No such file". */
lig_status cli_fail_path(const char *path, const char *verb);

/* Whether a path has this suffix and something before it. */
int cli_ends_with(const char *text, const char *end);
/* Whether the folder holds a regular file of that name. */
int cli_folder_holds(const char *folder, const char *name);

/* Passes access keys for s3: URIs on to the library: from AWS_* variables and ~/.aws. */
lig_status cli_aws_profile(void);

/* --- places: URI#name
 * --------------------------------------------------------------------------------------------- */

typedef enum cli_place_kind { CLI_STORE, CLI_SAFETENSORS, CLI_NPZ, CLI_SHARDED } cli_place_kind;

typedef struct cli_place {
    char *uri;  /* the part before the first '#'; for files, the path */
    char *name; /* the part after it, verbatim; NULL without a '#' */
    cli_place_kind kind;
    int in_folder;  /* the uri is the only file of the directory that was named */
    uint64_t limit; /* bytes that a compressed file may claim; 0 for the default */
} cli_place;

/* A text without '#' that ends in .safetensors or .npz and is not a directory is a file; a
 * directory with an index of .safetensors files, or that index, is sharded; a directory with only
 * model.safetensors is that file; anything else is a store. LIG_E_UNSUPPORTED for formats that
 * need Python (python.h), which only cp takes. */
lig_status cli_place_parse(cli_place *place, const char *text);
/* For commands on whole stores: a name after '#' is wrong usage. */
lig_status cli_place_refuse_name(const cli_call *call, const cli_place *place);
void cli_place_fini(cli_place *place);
/* Returns 1 and fills the path of the index if the directory holds exactly one. */
int cli_sharded_index(const char *folder, char *path, size_t path_bytes);
int cli_is_sharded_index(const char *path);
/* Opens with `mode` ("r", "w", "a", or "x": writable, must exist) unless the URI specifies one. */
lig_status cli_place_open(const cli_place *place, const char *mode, lig_store **store);
/* Runs a command on the store that its first word names, opened with `mode`; returns the exit
 * status. */
typedef lig_status cli_store_command(const cli_call *call, const cli_place *place,
                                     lig_store *store);
int cli_run_on_store(const cli_call *call, const char *mode, cli_store_command *command);
/* Calls `visit` for each alias of the store, until it fails. */
typedef lig_status cli_alias_visit(void *context, const char *alias, const char *model);
lig_status cli_each_alias(lig_store *store, cli_alias_visit *visit, void *context);
/* The model with the place's name or alias, to be destroyed; NULL without a name or with only a
 * pattern. Any other name must exist. */
lig_status cli_place_model(const cli_place *place, lig_store *store, lig_model **model);
/* The names of the models that the place denotes: its name or alias, all that match its pattern, or
 * all models without a name, in an order of lig_query. An empty result is an error unless there was
 * no name. Returns *names (cli_names_destroy). */
lig_status cli_place_names(const cli_place *place, lig_store *store, const char *order,
                           char ***names, size_t *count);
void cli_names_destroy(char **names, size_t count);

/* --- checkpoints of training runs (checkpoints.c) --- */

typedef struct cli_run {
    char *name, *latest; /* latest: the model with the highest step */
    uint64_t step;       /* step of `latest` */
    int64_t created_ns;  /* when it was saved */
    size_t checkpoints;
} cli_run;

/* The runs that have a checkpoint, by name. Returns *runs (cli_runs_destroy). */
lig_status cli_runs(lig_store *store, cli_run **runs, size_t *count);
void cli_runs_destroy(cli_run *runs, size_t count);
/* A copy of `name`. For "latest" or "RUN/latest", if no model or alias has that name, the name of
 * the run's checkpoint with the highest step. Returns *resolved (free). */
lig_status cli_checkpoint_name(lig_store *store, const char *name, char **resolved);

/* --- human-readable output ------------------------------------------------------------------- */

/* What may be done to a column so that a table fits the terminal. */
enum cli_fit { CLI_FIT_NEVER = 0, CLI_FIT_SHRINK = 1, CLI_FIT_DROP = 2 };

typedef struct cli_column {
    const char *title;
    int right; /* right-aligned */
    int fit;   /* enum cli_fit */
} cli_column;

typedef struct cli_table cli_table;

/* Cells are copied; control characters and characters that could manipulate a terminal are
 * escaped. */
lig_status cli_table_create(cli_table **table, const cli_column *columns, size_t count);
lig_status cli_table_add(cli_table *table, const char *const *cells);
void cli_table_print(const cli_table *table, FILE *file);
void cli_table_destroy(cli_table *table);
/* Prints it to stdout unless `status` is an error, and destroys it. Returns `status`. */
lig_status cli_table_end(cli_table *table, lig_status status);

/* The text with control characters escaped; returns memory for free(). */
lig_status cli_escape(const char *text, char **out);
/* Prints it escaped; for single lines. */
void cli_put_escaped(FILE *file, const char *text);
/* Likewise, truncated to `width` columns. */
void cli_put_cut(FILE *file, const char *text, size_t width);

void cli_size_text(uint64_t bytes, char *text, size_t text_bytes); /* "1.5 GiB" */
void cli_date_text(int64_t ns, char *text,
                   size_t text_bytes); /* "2026-01-31 08:05:00", local time */
void cli_shape_text(const lig_tensor *tensor, char *text, size_t text_bytes); /* "[3, 4]", "[]" */

/* "acc=0.91 loss=0.3" and "run=a host=b", truncated to the buffer. */
void cli_metrics_text(const lig_model *model, char *text, size_t text_bytes);
void cli_tags_text(const lig_model *model, char *text, size_t text_bytes);

/* Members of the JSON object of a model (without its tensors) and of a tensor. */
struct cli_json_writer;
void cli_put_model(struct cli_json_writer *writer, const lig_model *model);
void cli_put_tensor_json(struct cli_json_writer *writer, const lig_tensor *tensor);

/* A progress bar on stderr, shown only if stderr is a terminal and the operation is not
 * instantaneous. Embedded. */
typedef struct cli_bar {
    const char *title;
    uint64_t total, done;
    int64_t start_ns, shown_ns;
    int on;
} cli_bar;
void cli_bar_start(cli_bar *bar, const cli_call *call, const char *title, uint64_t total);
void cli_bar_add(cli_bar *bar, uint64_t bytes);
void cli_bar_end(cli_bar *bar);

/* If stderr is a terminal, shows how far the index of a store has been rebuilt, which may take
 * minutes. */
void cli_show_rebuilds(const cli_call *call);

#endif
