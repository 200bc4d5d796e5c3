/* What LMDB prints before it aborts. The build renames stderr and fprintf in its copy of liblmdb.a
 * to these, because an archive compiled for programs cannot refer to stderr from a shared object.
 * LMDB prints in one place only, when one of its assertions fails. */
#include <stdarg.h>
#include <stdio.h>

#define HIDDEN __attribute__((visibility("hidden")))

extern FILE *const ligi_lmdb_stderr;
int ligi_lmdb_fprintf(FILE *stream, const char *format, ...);
int ligi_lmdb_fprintf_chk(FILE *stream, int flag, const char *format, ...);

/* Passed to the functions below, which ignore it. */
HIDDEN FILE *const ligi_lmdb_stderr = NULL;

HIDDEN int ligi_lmdb_fprintf(FILE *stream, const char *format, ...)
{
    va_list arguments;

    (void)stream;
    va_start(arguments, format);
    int written = vfprintf(stderr, format, arguments);
    va_end(arguments);
    return written;
}

HIDDEN int ligi_lmdb_fprintf_chk(FILE *stream, int flag, const char *format, ...)
{
    va_list arguments;

    (void)stream;
    (void)flag;
    va_start(arguments, format);
    int written = vfprintf(stderr, format, arguments);
    va_end(arguments);
    return written;
}
