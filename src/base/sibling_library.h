/* Shared objects that are installed beside this library. */
#ifndef LIGI_SIBLING_LIBRARY_H
#define LIGI_SIBLING_LIBRARY_H

/* dlopen of `name` (a file name) in the folder of this library, otherwise where the loader looks;
 * NULL with dlerror(). It is never unloaded. */
void *ligi_sibling_open(const char *name);

#endif
