#include "models/copied_names.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void cli_copied_names_next(cli_copied_names *self)
{
    if (self->count > 0)
        qsort(self->names, self->count, sizeof *self->names, compare);
    self->earlier = self->count;
}

lig_status cli_copied_names_add(cli_copied_names *self, const char *name)
{
    if (self->earlier > 0 &&
        bsearch(&name, self->names, self->earlier, sizeof name, compare) != NULL)
        return lig_fail(LIG_E_EXISTS,
                        "two sources would be copied to the model '%s' (copy one of them alone, to "
                        "STORE#NAME)",
                        name);
    if (self->count == self->room) {
        size_t room = self->room > 0 ? 2 * self->room : 8;
        char **grown = realloc(self->names, room * sizeof *grown);
        if (grown == NULL)
            return lig_fail(LIG_E_NOMEM, "out of memory for %zu names", room);
        self->names = grown;
        self->room = room;
    }
    LIG_TRY(cli_format(&self->names[self->count], "%s", name));
    self->count++;
    return LIG_OK;
}

void cli_copied_names_fini(cli_copied_names *self)
{
    cli_names_destroy(self->names, self->count);
    *self = (cli_copied_names){0};
}
