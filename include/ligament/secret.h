/* Secrets shared by a group of processes. With one, all traffic between hosts is encrypted and both ends prove
 * that they have it (docs/security.md). */
#ifndef LIGAMENT_SECRET_H
#define LIGAMENT_SECRET_H

#include <ligament/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LIG_SECRET_LEAST 32    /* bytes; shorter secrets are rejected */
#define LIG_SECRET_MOST 4096   /* bytes */
#define LIG_SECRET_TEXT_MAX 65 /* what lig_secret_make fills, including the NUL */

/* Fills `text` with 32 bytes from the system's random source as 64 hexadecimal digits and a NUL. */
LIG_API lig_status lig_secret_make(char text[LIG_SECRET_TEXT_MAX]);

/* Writes a secret and a newline into a new file that only its owner can read (mode 0600). LIG_E_EXISTS if the
 * file exists: a secret is never overwritten. */
LIG_API lig_status lig_secret_write(const char *path, const void *secret, size_t bytes);

/* Reads a secret file: its bytes, without trailing spaces and newlines. LIG_E_DENIED if group or others may
 * read or write it, or if it belongs to a user other than this one or root; LIG_E_INVALID if it is not a
 * regular file, or has less than LIG_SECRET_LEAST or more than LIG_SECRET_MOST bytes. Returns the bytes,
 * followed by a NUL that does not count, in memory excluded from core dumps and forked children; the caller
 * frees it with lig_secret_free. */
LIG_API lig_status lig_secret_read(const char *path, char **secret, size_t *bytes);

/* Overwrites the secret, then frees it. NULL is valid. */
LIG_API void lig_secret_free(char *secret);

#ifdef __cplusplus
}
#endif
#endif
