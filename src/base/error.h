/* Errors inside the library: the sentence that lig_fail sets, with an errno, and kept across
 * threads. */
#ifndef LIGI_ERROR_H
#define LIGI_ERROR_H

#include <ligament/base.h>

/* Like lig_fail, for a system call that failed with `number` (an errno value): ": <text of number>"
 * is appended, and the status is chosen by it (ENOMEM NOMEM; EACCES, EPERM, EROFS DENIED; the rest
 * IO). */
lig_status ligi_fail_errno(int number, const char *format, ...) LIG_PRINTF(2, 3);

/* Forgets the sentence, so that one that comes after a call is the call's own. */
void ligi_fail_clear(void);

/* Like lig_fail, for a sentence made of the last one: the errno behind that stays. */
lig_status ligi_fail_again(lig_status status, const char *format, ...) LIG_PRINTF(2, 3);

#define LIGI_ERROR_TEXT_BYTES 1024

/* A failure at rest: taken on the thread that failed, published on the one that waits. */
typedef struct ligi_failure {
    lig_status status;
    int number;
    char text[LIGI_ERROR_TEXT_BYTES];
} ligi_failure;

/* Takes this thread's sentence as the failure behind `status`; LIG_OK gives an empty failure. */
void ligi_failure_take(ligi_failure *failure, lig_status status);
/* Sets this thread's sentence from `failure` and returns its status. */
lig_status ligi_failure_publish(const ligi_failure *failure);

/* malloc, calloc, realloc that fail with LIG_E_NOMEM and a sentence naming `what`. *out is
 * untouched on failure. */
lig_status ligi_alloc(void *out, size_t bytes, const char *what);
lig_status ligi_calloc(void *out, size_t count, size_t bytes, const char *what);
/* Grows *array (of elements of `size` bytes, capacity *capacity) so that `need` elements fit;
 * doubles. */
lig_status ligi_grow(void *array, size_t *capacity, size_t need, size_t size, const char *what);
/* A copy of a string; the caller frees with free(). NULL gives a copy of "". */
lig_status ligi_strdup(char **out, const char *text);

#endif
