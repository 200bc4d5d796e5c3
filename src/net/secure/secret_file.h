/* Files that hold secrets: checked and read as lig_secret_read does it. */
#ifndef LIGI_SECRET_FILE_H
#define LIGI_SECRET_FILE_H

#include <ligament/base.h>

/* Returns the text of a secret file of at most `most` bytes, without spaces and newlines at its
 * end, followed by a NUL that does not count; the caller frees it with lig_secret_free. Fails as
 * lig_secret_read does, but the caller checks the length of the text. */
lig_status ligi_secret_file_read(const char *path, size_t most, char **text, size_t *bytes);

#endif
