/* Option tables: each plugin declares its options; one parser fills a struct and rejects unknown
 * keys. */
#ifndef LIGI_OPTION_H
#define LIGI_OPTION_H

#include "base/uri/uri.h"

typedef enum ligi_option_kind {
    LIGI_OPTION_BOOL,  /* 0 1 false true no yes -> int */
    LIGI_OPTION_INT,   /* -> int64_t */
    LIGI_OPTION_BYTES, /* 4096, 64KiB, 16MiB, 2G -> uint64_t */
    LIGI_OPTION_TEXT   /* -> char *, freed by ligi_options_fini */
} ligi_option_kind;

typedef struct ligi_option {
    const char *name;
    ligi_option_kind kind;
    const char *fallback; /* parsed like a given value; NULL for a TEXT that may be absent */
    const char *help;
    size_t offset; /* in the struct that is filled */
} ligi_option;

/* Fills `into` from uri's options over the table's defaults. Unknown keys are rejected with a text
 * that lists the known ones; `also` (may be NULL) is a NULL-terminated list of keys to skip, which
 * another module handles. */
lig_status ligi_options_fill(const ligi_option *table, size_t count, const ligi_uri *uri,
                             const char *const *also, void *into);
void ligi_options_fini(const ligi_option *table, size_t count, void *into);
/* "64KiB" and the like; whole text must be a size. */
lig_status ligi_parse_bytes(const char *text, uint64_t *bytes);

#endif
