/* Ligament: statuses, errors, log and tickets. Everything else stands on this header.
 *
 * Words used in every contract of these headers:
 *   borrows   the library reads the memory until the call returns, or until its ticket has been waited for
 *   fills     the library writes into the caller's memory
 *   returns   the caller owns the result and frees it with the named function
 * Pointers are never NULL unless a comment says so. */
#ifndef LIGAMENT_BASE_H
#define LIGAMENT_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LIG_API __attribute__((visibility("default")))
#define LIG_PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
#define LIG_API
#define LIG_PRINTF(at, first)
#endif

#define LIG_VERSION_MAJOR 0
#define LIG_VERSION_MINOR 1
#define LIG_VERSION_PATCH 0

/* The values are pinned: they travel in replies and stand in other people's bindings. */
typedef enum lig_status {
    LIG_OK = 0,
    LIG_E_INVALID = 1,      /* an argument makes no sense */
    LIG_E_NOTFOUND = 2,     /* no such model, tensor, plugin, place */
    LIG_E_EXISTS = 3,       /* the name is taken */
    LIG_E_NOMEM = 4,        /* memory could not be had */
    LIG_E_IO = 5,           /* the system refused; lig_error_number() is its errno */
    LIG_E_CORRUPT = 6,      /* stored bytes are not what was written */
    LIG_E_TIMEOUT = 7,      /* the deadline passed */
    LIG_E_CLOSED = 8,       /* the handle is closed, or belongs to the process this one was forked from */
    LIG_E_BUSY = 9,         /* somebody else holds it; try later */
    LIG_E_UNSUPPORTED = 10, /* this plugin, build or machine cannot do it */
    LIG_E_MISMATCH = 11,    /* names, dtypes or shapes differ from what is stored */
    LIG_E_PEER = 12,        /* another process is gone */
    LIG_E_DENIED = 13,      /* no permission */
    LIG_E_LIMIT = 14,       /* larger than a stated limit */
    LIG_E_INTERNAL = 15     /* a bug of ours */
} lig_status;

/* "0.1.0"; static storage. */
LIG_API const char *lig_version(void);

/* The status's name in lower case ("notfound"); static storage. */
LIG_API const char *lig_status_name(lig_status status);

/* Sets this thread's sentence and returns `status`, so that a function can end with
 * `return lig_fail(LIG_E_INVALID, "tensor '%s' has no name", ...)`. Long sentences are cut at 1023 bytes. */
LIG_API lig_status lig_fail(lig_status status, const char *format, ...) LIG_PRINTF(2, 3);

/* This thread's last sentence; "" before the first failure. Valid until this thread's next failing call. */
LIG_API const char *lig_error_text(void);

/* The errno behind this thread's last failure, 0 when there was none. */
LIG_API int lig_error_number(void);

/* Returns from the calling function when `call` fails. The only macro that returns. */
#define LIG_TRY(call)                                                                                                  \
    do {                                                                                                               \
        lig_status lig_try_status_ = (call);                                                                           \
        if (lig_try_status_ != LIG_OK)                                                                                 \
            return lig_try_status_;                                                                                    \
    } while (0)

/* --- log: for what has no caller --- */

typedef enum lig_log_level { LIG_LOG_ERROR = 0, LIG_LOG_WARNING = 1, LIG_LOG_INFO = 2 } lig_log_level;
typedef void (*lig_log_fn)(void *context, lig_log_level level, const char *text);

/* Replaces the log hook; NULL restores the default, which writes warnings and errors to stderr.
 * The hook may be called from any thread and must not call the library. */
LIG_API void lig_log_set(lig_log_fn hook, void *context);

/* --- hashes --- */

#define LIG_SECRET_BYTES 192 /* the key of a store's hashes */

/* The keyed 64-bit hash of a block (XXH3 with a secret of LIG_SECRET_BYTES). */
LIG_API uint64_t lig_hash_block(const void *secret, const void *data, uint64_t bytes);

/* "sse2", "avx2", "avx512": the code that hashes on this machine. Static storage. */
LIG_API const char *lig_hash_kind(void);

/* --- tickets: what an asynchronous call returns --- */

typedef struct lig_ticket lig_ticket;

#define LIG_FOREVER INT64_C(-1)

/* Waits until the operation has ended and returns its status, with its sentence on this thread; LIG_E_TIMEOUT
 * (the operation goes on) after `timeout_ns`; LIG_FOREVER waits as long as it takes. Shared: any thread may
 * wait, and more than once. */
LIG_API lig_status lig_ticket_wait(lig_ticket *ticket, int64_t timeout_ns);

/* Waits until more than `seen` steps are done or the operation has ended, and fills *done. What a step is stands
 * at the call that returned the ticket (for a save: one tensor whose memory is free again). */
LIG_API lig_status lig_ticket_progress(lig_ticket *ticket, uint64_t seen, int64_t timeout_ns, uint64_t *done);

/* 1 when the operation has ended. Never blocks. */
LIG_API int lig_ticket_done(lig_ticket *ticket);

/* Asks the operation to stop; it then ends with LIG_E_CLOSED unless it was past its commit point. */
LIG_API void lig_ticket_cancel(lig_ticket *ticket);

/* Waits for the end, then frees. NULL is fine. */
LIG_API void lig_ticket_destroy(lig_ticket *ticket);

#ifdef __cplusplus
}
#endif
#endif
