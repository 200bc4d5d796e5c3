/* Changes of models and aliases. Pure. */
#ifndef LIGI_SERVED_CHANGES_H
#define LIGI_SERVED_CHANGES_H

#include "store/serve/message/served_head.h"

typedef struct ligi_served_update {
    const char *model;
    lig_update update; /* the arrays of a decoded one are freed by fini */
} ligi_served_update;

void ligi_served_update_put(ligi_writer *writer, const ligi_served_update *update);
lig_status ligi_served_update_get(const void *body, size_t bytes, ligi_served_update *update);
void ligi_served_update_fini(ligi_served_update *update);

typedef struct ligi_served_alias {
    const char *alias, *model; /* model NULL: removes the alias */
} ligi_served_alias;

void ligi_served_alias_put(ligi_writer *writer, const ligi_served_alias *alias);
lig_status ligi_served_alias_get(const void *body, size_t bytes, ligi_served_alias *alias);

#endif
