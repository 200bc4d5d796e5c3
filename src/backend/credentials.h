/* Credentials that programs set with lig_credential_set, for engines. **shared** */
#ifndef LIGI_CREDENTIALS_H
#define LIGI_CREDENTIALS_H

#include <ligament/credentials.h>

/* Copies the value and a NUL. LIG_E_NOTFOUND, without an error text, if there is none or it does
 * not fit. */
lig_status ligi_credential_get(const char *name, char *value, size_t value_bytes);

#endif
