/* What the commands share: how one is declared, its arguments, failures, places, tables and
 * progress.
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
    char letter;       /* of the short form, 0 for none */
    const char *value; /* what its value is called in the help; NULL: it takes none */
    const char *help;
} cli_flag;

typedef struct cli_given {
    const cli_flag *flag;
    const char *value;
} cli_given;

typedef struct cli_command cli_command;

typedef struct cli_call {
    const cli_command *command;
    const char **words; /* what stands there besides flags */
    size_t word_count;
    cli_given *given; /* in the order of the command line */
    size_t given_count;
    int json;     /* --json was given */
    int *misused; /* set by cli_wrong: the program ends with 2 */
} cli_call;

struct cli_command {
    const char *name;
    const char *usage;   /* "STORE[#PATTERN] [options]" */
    const char *summary; /* one line */
    const char *details; /* further paragraphs of --help; NULL for none */
    const cli_flag
        *flags; /* ends with a NULL name; --json and --help are everybody's and are not listed */
    size_t word_min, word_max;
    /* Returns the exit status: 0, or what cli_failed and cli_misused return. */
    int (*run)(cli_call *call);
};

int cli_has(const cli_call *call, const char *flag);
/* The last value given for the flag, NULL for none. */
const char *cli_value(const cli_call *call, const char *flag);
/* The next value of a flag that may be given several times: start with *at = 0; NULL at the end. */
const char *cli_value_next(const cli_call *call, const char *flag, size_t *at);
/* A flag's value as a whole number from `least` to `most`; *number is untouched when it was not
 * given. */
lig_status cli_number(const cli_call *call, const char *flag, uint64_t least, uint64_t most,
                      uint64_t *number);

/* Likewise as a number of bytes: 4096, 64K, 500M, 5G, 5GiB. */
lig_status cli_bytes(const cli_call *call, const char *flag, uint64_t *bytes);

/* Reads NAME=VALUE flags. Both return arrays to be freed with free() that borrow the command line.
 */
lig_status cli_tags(const cli_call *call, const char *flag, lig_tag **tags, size_t *count);
lig_status cli_metrics(const cli_call *call, const char *flag, lig_metric **metrics, size_t *count);

/* Fills `call`; returns 0, or the exit status the program ends with (--help, or wrong usage). */
int cli_call_parse(cli_call *call, const cli_command *command, int argc, char **argv);
void cli_call_fini(cli_call *call);
void cli_help(FILE *file, const cli_command *command);

/* Writes this thread's sentence to stderr; returns 1. */
int cli_failed(void);
/* Writes the sentence and how to get help to stderr; returns 2. */
int cli_misused(const cli_call *call, const char *format, ...) LIG_PRINTF(2, 3);

/* `status` with its sentence set, as a wrong use: cli_failed writes it and the program ends with 2.
 * Returns `status`. */
lig_status cli_wrong(const cli_call *call, lig_status status);

/* malloc and friends that set a sentence. */
lig_status cli_alloc(void *out, size_t count, size_t size);
/* A formatted string; the caller frees it. */
lig_status cli_format(char **out, const char *format, ...) LIG_PRINTF(2, 3);
/* LIG_E_IO, _NOTFOUND or _DENIED by errno: "'path' cannot be `verb`: No such file". */
lig_status cli_fail_path(const char *path, const char *verb);

/* --- places: URI#name
 * --------------------------------------------------------------------------------------------- */

typedef enum cli_place_kind { CLI_STORE, CLI_SAFETENSORS, CLI_NPZ, CLI_SHARDED } cli_place_kind;

typedef struct cli_place {
    char *uri;  /* what stands before the first '#'; for files the path */
    char *name; /* what stands behind it, as it is; NULL when there is no '#' */
    cli_place_kind kind;
    int in_folder; /* the uri is the one file of the folder that was named */
} cli_place;

/* A text without '#' that ends in .safetensors or .npz and is no folder is a file; a folder with an
 * index of .safetensors files, or that index, is a sharded one; a folder with one model.safetensors
 * is that file; all else is a store. LIG_E_UNSUPPORTED for what python -m ligament.convert knows.
 */
lig_status cli_place_parse(cli_place *place, const char *text);
void cli_place_fini(cli_place *place);
/* 1 and fills the path of the index when the folder holds exactly one. */
int cli_sharded_index(const char *folder, char *path, size_t path_bytes);
int cli_is_sharded_index(const char *path);
/* Opens with `mode` ("r", "w", "a", or "x": writable, but it must be there) unless the URI says one
 * itself. */
lig_status cli_place_open(const cli_place *place, const char *mode, lig_store **store);
/* The model that has the place's name, or alias, to be destroyed; NULL when there is no name, or
 * only a pattern. Any other name must be there. */
lig_status cli_place_model(const cli_place *place, lig_store *store, lig_model **model);
/* The names of the models that the place means: its name or alias, all that fit its pattern, or all
 * when it has no name. None is an error unless there was no name. Returns *names
 * (cli_names_destroy). */
lig_status cli_place_names(const cli_place *place, lig_store *store, char ***names, size_t *count);
void cli_names_destroy(char **names, size_t count);

/* --- checkpoints of training runs (checkpoints.c) --- */

typedef struct cli_run {
    char *name, *latest; /* latest: the model with the highest step */
    uint64_t step;       /* of that, and ... */
    int64_t created_ns;  /* when it was saved */
    size_t checkpoints;
} cli_run;

/* The runs that have a checkpoint, by name. Returns *runs (cli_runs_destroy). */
lig_status cli_runs(lig_store *store, cli_run **runs, size_t *count);
void cli_runs_destroy(cli_run *runs, size_t count);
/* A copy of `name`; of "latest" or "RUN/latest", when no model or alias is called so, the name of
 * the run's checkpoint with the highest step. Returns *resolved (free). */
lig_status cli_checkpoint_name(lig_store *store, const char *name, char **resolved);

/* --- for people ------------------------------------------------------------------------------ */

typedef struct cli_column {
    const char *title;
    int right;  /* numbers */
    int shrink; /* may be cut to fit the terminal */
} cli_column;

typedef struct cli_table cli_table;

/* Cells are copied; control characters and what could play tricks with a terminal are escaped. */
lig_status cli_table_create(cli_table **table, const cli_column *columns, size_t count);
lig_status cli_table_add(cli_table *table, const char *const *cells);
void cli_table_print(const cli_table *table, FILE *file);
void cli_table_destroy(cli_table *table);

/* The text with control characters escaped; returns memory for free(). */
lig_status cli_escape(const char *text, char **out);
/* Writes it escaped; for single lines. */
void cli_put_escaped(FILE *file, const char *text);
/* Likewise, in at most `width` columns. */
void cli_put_cut(FILE *file, const char *text, size_t width);

void cli_size_text(uint64_t bytes, char *text, size_t text_bytes); /* "1.5 GiB" */
void cli_date_text(int64_t ns, char *text,
                   size_t text_bytes); /* "2026-01-31 08:05:00", local time */
void cli_shape_text(const lig_tensor *tensor, char *text, size_t text_bytes); /* "[3, 4]", "[]" */

/* Members of the JSON object of a model (without its tensors) and of a tensor. */
struct cli_json_writer;
void cli_put_model(struct cli_json_writer *writer, const lig_model *model);
void cli_put_tensor_json(struct cli_json_writer *writer, const lig_tensor *tensor);

/* A bar on stderr, only when that is a terminal and the work takes longer than a moment. Embedded.
 */
typedef struct cli_bar {
    const char *title;
    uint64_t total, done;
    int64_t start_ns, shown_ns;
    int on;
} cli_bar;
void cli_bar_start(cli_bar *bar, const cli_call *call, const char *title, uint64_t total);
void cli_bar_add(cli_bar *bar, uint64_t bytes);
void cli_bar_end(cli_bar *bar);

#endif
