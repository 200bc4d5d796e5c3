/* Secrets that a group of processes shares. With one, everything that leaves the host is encrypted and both ends
 * prove that they hold it (docs/security.md). */
#ifndef LIGAMENT_SECRET_H
#define LIGAMENT_SECRET_H

#include <ligament/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LIG_SECRET_LEAST 32    /* bytes; fewer are refused wherever a secret is taken */
#define LIG_SECRET_MOST 4096   /* bytes */
#define LIG_SECRET_TEXT_MAX 65 /* what lig_secret_make fills, its NUL included */

/* Fills `text` with 32 bytes from the system's random source as 64 hexadecimal digits and a NUL. */
LIG_API lig_status lig_secret_make(char text[LIG_SECRET_TEXT_MAX]);

/* Writes a secret and a newline into a file that must not exist yet and that only its owner can read (mode 0600).
 * LIG_E_EXISTS when the file is there: a secret is never overwritten. */
LIG_API lig_status lig_secret_write(const char *path, const void *secret, size_t bytes);

/* Reads a secret file: its bytes, without spaces and newlines at the end. Refused with LIG_E_DENIED when group or
 * others may read or write it, or when it belongs to somebody else than this user or root; with LIG_E_INVALID when it
 * is no plain file, or holds less than LIG_SECRET_LEAST or more than LIG_SECRET_MOST bytes. Returns the bytes,
 * followed by a NUL that does not count, in memory that is kept out of core dumps and forked children; the caller
 * frees with lig_secret_free. */
LIG_API lig_status lig_secret_read(const char *path, char **secret, size_t *bytes);

/* Overwrites the secret, then frees it. NULL is fine. */
LIG_API void lig_secret_free(char *secret);

#ifdef __cplusplus
}
#endif
#endif
