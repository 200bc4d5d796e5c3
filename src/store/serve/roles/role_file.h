/* The secret files of servers and clients.
 *
 * A server's file has lines "name role key [prefix]", with a prefix like "team/" and a '*'; empty
 * lines and lines that begin with '#' are skipped. `role` is read, write or admin. Without a prefix
 * a reader reads everything, and a writer has the prefix of its name; an admin never has one. A
 * file with a single line of another form contains "name key", or one plain secret whose third
 * word, if any, is shorter than a key: its clients are admins.
 *
 * A client's file has one such line, "name key", or the key alone. */
#ifndef LIGI_ROLE_FILE_H
#define LIGI_ROLE_FILE_H

#include <ligament/base.h>

#define LIGI_ROLE_NAME_BYTES 64
#define LIGI_ROLE_PREFIX_BYTES 256

typedef enum ligi_served_role_kind {
    LIGI_ROLE_READ = 0,
    LIGI_ROLE_WRITE = 1,
    LIGI_ROLE_ADMIN = 2,
    LIGI_ROLE_KINDS = 3
} ligi_served_role_kind;

typedef struct ligi_served_role {
    char name[LIGI_ROLE_NAME_BYTES]; /* "": the only secret of a file without names */
    ligi_served_role_kind kind;
    char prefix[LIGI_ROLE_PREFIX_BYTES]; /* "team/"; "": all models */
    uint64_t tag;                        /* its number, which the server chooses; 0: none */
} ligi_served_role;

/* With its key, borrowed from the file's text. */
typedef struct ligi_served_role_line {
    ligi_served_role role;
    const char *key;
    size_t key_bytes;
} ligi_served_role_line;

/* Zeroed is empty; ligi_served_role_file_fini. */
typedef struct ligi_served_role_file {
    ligi_served_role_line *lines;
    size_t count;
    char *text; /* a secret memory */
} ligi_served_role_file;

const char *ligi_served_role_kind_name(ligi_served_role_kind kind);

/* Takes ownership of the text (lig_secret_free), also on failure, and modifies it. `path` is for
 * error texts, which contain line numbers but never keys. LIG_E_INVALID. */
lig_status ligi_served_role_file_parse(const char *path, char *text, ligi_served_role_file *file);
lig_status ligi_served_role_file_read(const char *path, ligi_served_role_file *file);
void ligi_served_role_file_fini(ligi_served_role_file *file);

/* Gives every role of `file` that is unchanged from `before` (name, kind, prefix and key) the same
 * tag, and the others the next ones. `before` may be empty. */
void ligi_served_role_file_number(ligi_served_role_file *file, const ligi_served_role_file *before,
                                  uint64_t *next_tag);
/* The role with that tag; NULL if there is none. */
const ligi_served_role *ligi_served_role_file_find(const ligi_served_role_file *file, uint64_t tag);

/* The key of a client's secret file. The caller frees it with lig_secret_free. */
lig_status ligi_served_role_key_read(const char *path, char **key, size_t *bytes);

#endif
