/* Ligament: statuses, errors, log and tickets. All other headers include this one.
 *
 * Terms used in all headers:
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

/* The values are fixed: they are part of protocols and of other languages' bindings. */
typedef enum lig_status {
    LIG_OK = 0,
    LIG_E_INVALID = 1,      /* invalid argument */
    LIG_E_NOTFOUND = 2,     /* no such model, tensor, plugin or file */
    LIG_E_EXISTS = 3,       /* the name is already in use */
    LIG_E_NOMEM = 4,        /* out of memory */
    LIG_E_IO = 5,           /* a system call failed; lig_error_number() is its errno */
    LIG_E_CORRUPT = 6,      /* stored bytes differ from those written */
    LIG_E_TIMEOUT = 7,      /* the timeout expired */
    LIG_E_CLOSED = 8,       /* the handle is closed, or belongs to the parent of this forked process */
    LIG_E_BUSY = 9,         /* in use by another caller; retry later */
    LIG_E_UNSUPPORTED = 10, /* not supported by this plugin, build or machine */
    LIG_E_MISMATCH = 11,    /* names, dtypes or shapes differ from what is stored */
    LIG_E_PEER = 12,        /* another process is lost */
    LIG_E_DENIED = 13,      /* no permission */
    LIG_E_LIMIT = 14,       /* larger than a stated limit */
    LIG_E_INTERNAL = 15     /* a bug in Ligament */
} lig_status;

/* "0.1.0"; static storage. */
LIG_API const char *lig_version(void);

/* The status's name in lower case ("notfound"); static storage. */
LIG_API const char *lig_status_name(lig_status status);

/* Sets this thread's error text and returns `status`, so that a function can end with `return
 * lig_fail(LIG_E_INVALID, "tensor '%s' has no name", ...)`. Texts are truncated to 1023 bytes. */
LIG_API lig_status lig_fail(lig_status status, const char *format, ...) LIG_PRINTF(2, 3);

/* This thread's last error text; "" before the first failure. Valid until this thread's next failing call. */
LIG_API const char *lig_error_text(void);

/* The errno of this thread's last failure, 0 if there was none. */
LIG_API int lig_error_number(void);

/* Returns from the calling function when `call` fails. The only macro that returns. */
#define LIG_TRY(call)                                                                                                  \
    do {                                                                                                               \
        lig_status lig_try_status_ = (call);                                                                           \
        if (lig_try_status_ != LIG_OK)                                                                                 \
            return lig_try_status_;                                                                                    \
    } while (0)

/* --- log: for events without a caller --- */

typedef enum lig_log_level { LIG_LOG_ERROR = 0, LIG_LOG_WARNING = 1, LIG_LOG_INFO = 2 } lig_log_level;
typedef void (*lig_log_fn)(void *context, lig_log_level level, const char *text);

/* Replaces the log hook; NULL restores the default, which writes warnings and errors to stderr.
 * The hook may be called from any thread and must not call the library. */
LIG_API void lig_log_set(lig_log_fn hook, void *context);

/* --- hashes --- */

#define LIG_SECRET_BYTES 192 /* size of the key of a store's hashes */

/* The keyed 64-bit hash of a block (XXH3 with a secret of LIG_SECRET_BYTES). */
LIG_API uint64_t lig_hash_block(const void *secret, const void *data, uint64_t bytes);

/* "sse2", "avx2", "avx512": the implementation selected on this machine. Static storage. */
LIG_API const char *lig_hash_kind(void);

/* --- tickets, which asynchronous calls return --- */

typedef struct lig_ticket lig_ticket;

#define LIG_FOREVER INT64_C(-1)

/* Waits until the operation has ended and returns its status, with its error text on this thread; LIG_E_TIMEOUT
 * after `timeout_ns` (the operation continues); LIG_FOREVER waits without limit. Shared: any thread may wait,
 * and more than once. */
LIG_API lig_status lig_ticket_wait(lig_ticket *ticket, int64_t timeout_ns);

/* Waits until more than `seen` steps are done or the operation has ended, and fills *done. The call that
 * returned the ticket defines a step (for a save: one tensor whose memory may be reused). */
LIG_API lig_status lig_ticket_progress(lig_ticket *ticket, uint64_t seen, int64_t timeout_ns, uint64_t *done);

/* 1 if the operation has ended. Never blocks. */
LIG_API int lig_ticket_done(lig_ticket *ticket);

/* Asks the operation to stop; it then ends with LIG_E_CLOSED unless it was past its commit point. */
LIG_API void lig_ticket_cancel(lig_ticket *ticket);

/* Waits for the end, then frees. NULL is valid. */
LIG_API void lig_ticket_destroy(lig_ticket *ticket);

#ifdef __cplusplus
}
#endif
#endif
