#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local ligi_failure last;

const char *lig_version(void)
{
#define TEXT_(value) #value
#define TEXT(value) TEXT_(value)
    return TEXT(LIG_VERSION_MAJOR) "." TEXT(LIG_VERSION_MINOR) "." TEXT(LIG_VERSION_PATCH);
}

const char *lig_status_name(lig_status status)
{
    static const char *const names[] = {
        "ok",     "invalid", "notfound",    "exists",   "nomem", "io",     "corrupt", "timeout",
        "closed", "busy",    "unsupported", "mismatch", "peer",  "denied", "limit",   "internal",
    };
    size_t index = (size_t)status;
    return index < sizeof names / sizeof *names ? names[index] : "unknown";
}

const char *lig_error_text(void)
{
    return last.text;
}

int lig_error_number(void)
{
    return last.number;
}

/* Formats into a second buffer first: an argument may be the old text itself. */
static void set_text(const char *format, va_list arguments)
{
    char text[LIGI_ERROR_TEXT_BYTES];
    vsnprintf(text, sizeof text, format, arguments);
    memcpy(last.text, text, sizeof text);
}

lig_status lig_fail(lig_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_text(format, arguments);
    va_end(arguments);
    last.status = status;
    last.number = 0;
    return status;
}

lig_status ligi_fail_again(lig_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_text(format, arguments);
    va_end(arguments);
    return last.status = status;
}

/* For calls of plugins, which may fail without setting an error text. */
void ligi_fail_clear(void)
{
    last = (ligi_failure){0};
}

static lig_status status_of_errno(int number)
{
    switch (number) {
    case ENOMEM: return LIG_E_NOMEM;
    case EACCES:
    case EPERM:
    case EROFS: return LIG_E_DENIED;
    default: return LIG_E_IO;
    }
}

lig_status ligi_fail_errno(int number, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_text(format, arguments);
    va_end(arguments);
    char reason[128];
    const char *text = strerror_r(number, reason, sizeof reason);
    size_t used = strlen(last.text);
    snprintf(last.text + used, sizeof last.text - used, ": %s", text);
    last.number = number;
    return last.status = status_of_errno(number);
}

void ligi_failure_take(ligi_failure *failure, lig_status status)
{
    if (status == LIG_OK) {
        failure->status = LIG_OK;
        failure->number = 0;
        failure->text[0] = '\0';
        return;
    }
    *failure = last;
    failure->status = status;
}

lig_status ligi_failure_publish(const ligi_failure *failure)
{
    if (failure->status != LIG_OK)
        last = *failure;
    return failure->status;
}

static lig_status no_memory(size_t bytes, const char *what)
{
    return lig_fail(LIG_E_NOMEM, "out of memory: %zu bytes for %s", bytes, what);
}

/* `out` points to the caller's pointer of any type; memcpy avoids violations of aliasing rules. */
static void give(void *out, void *memory)
{
    memcpy(out, &memory, sizeof memory);
}

lig_status ligi_alloc(void *out, size_t bytes, const char *what)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (memory == NULL)
        return no_memory(bytes, what);
    give(out, memory);
    return LIG_OK;
}

lig_status ligi_calloc(void *out, size_t count, size_t bytes, const char *what)
{
    void *memory = calloc(count ? count : 1, bytes ? bytes : 1);
    if (memory == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory: %zu x %zu bytes for %s", count, bytes, what);
    give(out, memory);
    return LIG_OK;
}

lig_status ligi_grow(void *array, size_t *capacity, size_t need, size_t size, const char *what)
{
    if (need <= *capacity)
        return LIG_OK;
    size_t wanted = *capacity ? *capacity : 8;
    while (wanted < need) {
        if (wanted > SIZE_MAX / 2)
            return no_memory(SIZE_MAX, what);
        wanted *= 2;
    }
    if (size != 0 && wanted > SIZE_MAX / size)
        return no_memory(SIZE_MAX, what);
    void *memory;
    memcpy(&memory, array, sizeof memory);
    memory = realloc(memory, wanted * size);
    if (memory == NULL)
        return no_memory(wanted * size, what);
    give(array, memory);
    *capacity = wanted;
    return LIG_OK;
}

lig_status ligi_strdup(char **out, const char *text)
{
    size_t bytes = text ? strlen(text) + 1 : 1;
    char *copy = NULL;
    LIG_TRY(ligi_alloc(&copy, bytes, "a text"));
    memcpy(copy, text ? text : "", bytes);
    *out = copy;
    return LIG_OK;
}
