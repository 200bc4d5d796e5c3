/* Errors inside the library: the text that lig_fail sets, with an errno, and stored across
 * threads. */
#ifndef LIGI_ERROR_H
#define LIGI_ERROR_H

#include <ligament/base.h>

/* Like lig_fail, for a system call that failed with `number` (an errno value): ": <text of number>"
 * is appended, and the status is chosen by it (ENOMEM NOMEM; EACCES, EPERM, EROFS DENIED; the rest
 * IO). */
lig_status ligi_fail_errno(int number, const char *format, ...) LIG_PRINTF(2, 3);

/* Clears the text, so that a text found after a call was set by that call. */
void ligi_fail_clear(void);

/* Like lig_fail, for a text made from the last one: keeps its errno. */
lig_status ligi_fail_again(lig_status status, const char *format, ...) LIG_PRINTF(2, 3);

#define LIGI_ERROR_TEXT_BYTES 1024

/* A stored failure: taken on the thread that failed, published on the one that waits. */
typedef struct ligi_failure {
    lig_status status;
    int number;
    char text[LIGI_ERROR_TEXT_BYTES];
} ligi_failure;

/* Takes this thread's text as the failure of `status`; LIG_OK gives an empty failure. */
void ligi_failure_take(ligi_failure *failure, lig_status status);
/* Sets this thread's text from `failure` and returns its status. */
lig_status ligi_failure_publish(const ligi_failure *failure);

/* malloc, calloc, realloc that fail with LIG_E_NOMEM and a text naming `what`. *out is unchanged on
 * failure. */
lig_status ligi_alloc(void *out, size_t bytes, const char *what);
lig_status ligi_calloc(void *out, size_t count, size_t bytes, const char *what);
/* Grows *array (of elements of `size` bytes, capacity *capacity) so that `need` elements fit;
 * doubles. */
lig_status ligi_grow(void *array, size_t *capacity, size_t need, size_t size, const char *what);
/* A copy of a string; the caller frees with free(). NULL gives a copy of "". */
lig_status ligi_strdup(char **out, const char *text);

#endif
