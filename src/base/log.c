#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static lig_log_fn hook;
static void *hook_context;

void lig_log_set(lig_log_fn function, void *context)
{
    pthread_mutex_lock(&lock);
    hook = function;
    hook_context = context;
    pthread_mutex_unlock(&lock);
}

static void write_stderr(lig_log_level level, const char *text)
{
    if (level <= LIG_LOG_WARNING)
        fprintf(stderr, "ligament: %s: %s\n", level == LIG_LOG_ERROR ? "error" : "warning", text);
}

void ligi_log(lig_log_level level, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *at = text; *at; at++) /* names come from peers: one message is one line */
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    pthread_mutex_lock(&lock);
    lig_log_fn function = hook;
    void *context = hook_context;
    pthread_mutex_unlock(&lock);
    if (function)
        function(context, level, text);
    else
        write_stderr(level, text);
}
