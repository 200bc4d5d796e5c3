#include "backend/credentials.h"

#include <pthread.h>
#include <string.h>

#include "base/error.h"

#define CREDENTIALS_MAX 32

typedef struct credential {
    char name[LIG_CREDENTIAL_NAME_MAX + 1];
    char value[LIG_CREDENTIAL_VALUE_MAX + 1];
} credential;

/* Credentials belong to the process, as in every other client of these services. */
static pthread_mutex_t credentials_lock = PTHREAD_MUTEX_INITIALIZER;
static credential credentials[CREDENTIALS_MAX]; /* an empty name: free */

static int is_name(const char *name)
{
    size_t bytes = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.");

    return bytes > 0 && bytes <= LIG_CREDENTIAL_NAME_MAX && name[bytes] == '\0' &&
           strchr(name, '.') != NULL;
}

/* A line break in a header would begin another header. */
static int is_value(const char *value)
{
    size_t bytes = strnlen(value, LIG_CREDENTIAL_VALUE_MAX + 1);

    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)value[i] < 0x20 || value[i] == 0x7F)
            return 0;
    return bytes <= LIG_CREDENTIAL_VALUE_MAX;
}

/* The entry of this name; "" finds a free one. */
static credential *find(const char *name)
{
    for (size_t i = 0; i < CREDENTIALS_MAX; i++)
        if (strcmp(credentials[i].name, name) == 0)
            return &credentials[i];
    return NULL;
}

static lig_status store(const char *name, const char *value)
{
    credential *entry = find(name);

    if (value == NULL) {
        if (entry != NULL)
            explicit_bzero(entry, sizeof *entry);
        return LIG_OK;
    }
    if (entry == NULL)
        entry = find("");
    if (entry == NULL)
        return lig_fail(LIG_E_LIMIT, "more than %d credentials", CREDENTIALS_MAX);
    explicit_bzero(entry, sizeof *entry);
    memcpy(entry->name, name, strlen(name) + 1);
    memcpy(entry->value, value, strlen(value) + 1);
    return LIG_OK;
}

lig_status lig_credential_set(const char *name, const char *value)
{
    if (name == NULL || !is_name(name))
        return lig_fail(
            LIG_E_INVALID,
            "invalid name of a credential (expected scheme.key, such as s3.access_key)");
    if (value != NULL && !is_value(value))
        return lig_fail(LIG_E_INVALID,
                        "the value of credential '%s' has control characters or more than %d bytes",
                        name, LIG_CREDENTIAL_VALUE_MAX);
    pthread_mutex_lock(&credentials_lock);
    lig_status status = store(name, value);
    pthread_mutex_unlock(&credentials_lock);
    return status;
}

lig_status ligi_credential_get(const char *name, char *value, size_t value_bytes)
{
    lig_status status = LIG_E_NOTFOUND;

    if (name[0] == '\0')
        return status;
    pthread_mutex_lock(&credentials_lock);
    const credential *entry = find(name);
    if (entry != NULL && strlen(entry->value) < value_bytes) {
        memcpy(value, entry->value, strlen(entry->value) + 1);
        status = LIG_OK;
    }
    pthread_mutex_unlock(&credentials_lock);
    return status;
}
