/* Shared objects that are loaded at run time and never unloaded. Plugins compile this file into
 * themselves: it uses nothing else of the library. */
#ifndef LIGI_LOADED_LIBRARY_H
#define LIGI_LOADED_LIBRARY_H

#include <stddef.h>

/* dlopen of `name` (a file name) in the folder of this library, otherwise where the loader looks;
 * NULL with dlerror(). */
void *ligi_library_beside(const char *name);

typedef struct ligi_library_call {
    const char *const *library; /* its file names in order of preference; NULL at the end */
    const char *name;
    size_t offset; /* of its address in the table that is filled */
} ligi_library_call;

/* Fills `table` with the addresses of the calls. Returns NULL, or what is missing: a text that is
 * valid until this thread's next call of dlopen. */
const char *ligi_library_load(const ligi_library_call *calls, size_t count, void *table);

#endif
