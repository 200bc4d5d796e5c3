/* Credentials for storage services (s3:, rados:). The library reads no environment variables and no files of other
 * programs; callers that do, such as the command line and the Python package, pass the values on with these calls. */
#ifndef LIGAMENT_CREDENTIALS_H
#define LIGAMENT_CREDENTIALS_H

#include <ligament/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LIG_CREDENTIAL_NAME_MAX 63
#define LIG_CREDENTIAL_VALUE_MAX 2048

/* Sets a credential of this process; NULL removes it. Names are "scheme.key": "s3.access_key", "s3.secret_key",
 * "s3.session_token", "s3.region", "s3.endpoint". Open stores use a new value from their next request on. The value is
 * copied; it never appears in error messages. LIG_E_INVALID for a malformed name or a value with control characters.
 * Shared. */
LIG_API lig_status lig_credential_set(const char *name, const char *value);

#ifdef __cplusplus
}
#endif
#endif
