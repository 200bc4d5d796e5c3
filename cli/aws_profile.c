/* Access keys for s3: URIs from Amazon's environment variables and files, as other S3 clients read
 * them; the library reads neither. python/ligament/credentials/aws.py does the same for Python. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <ligament/credentials.h>

#include "cli.h"

#define LINE_BYTES (LIG_CREDENTIAL_VALUE_MAX + 128)

enum { ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, REGION, ENDPOINT, ENTRY_COUNT };

static const struct {
    const char *credential, *entry, *variables[2];
} known[ENTRY_COUNT] = {
    {"s3.access_key", "aws_access_key_id", {"AWS_ACCESS_KEY_ID", NULL}},
    {"s3.secret_key", "aws_secret_access_key", {"AWS_SECRET_ACCESS_KEY", NULL}},
    {"s3.session_token", "aws_session_token", {"AWS_SESSION_TOKEN", NULL}},
    {"s3.region", "region", {"AWS_REGION", "AWS_DEFAULT_REGION"}},
    {"s3.endpoint", "endpoint_url", {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}},
};

typedef struct profile {
    char values[ENTRY_COUNT][LIG_CREDENTIAL_VALUE_MAX + 1]; /* "": none */
} profile;

static const char *variable(const char *name)
{
    const char *value = name != NULL ? getenv(name) : NULL;

    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Without spaces at both ends. */
static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    for (size_t end = strlen(text); end > 0 && isspace((unsigned char)text[end - 1]); end--)
        text[end - 1] = '\0';
    return text;
}

/* "[name]" is the profile's section, in the second file also "[profile name]". */
static int is_section(const char *line, const char *name)
{
    char header[256], longer[256];

    snprintf(header, sizeof header, "[%s]", name);
    snprintf(longer, sizeof longer, "[profile %s]", name);
    return strcmp(line, header) == 0 || strcmp(line, longer) == 0;
}

static void take_entry(char *line, profile *into)
{
    char *equals = strchr(line, '=');

    if (equals == NULL)
        return;
    *equals = '\0';
    const char *entry = trim(line), *value = trim(equals + 1);
    for (size_t i = 0; i < ENTRY_COUNT; i++)
        if (strcasecmp(entry, known[i].entry) == 0 && strlen(value) <= LIG_CREDENTIAL_VALUE_MAX)
            memcpy(into->values[i], value, strlen(value) + 1);
}

/* A file that does not exist says nothing. Indented lines belong to nested settings. */
static void read_profile(const char *path, const char *name, profile *into)
{
    char line[LINE_BYTES];
    FILE *file = fopen(path, "re");
    int inside = 0;

    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file) != NULL) {
        int indented = isspace((unsigned char)line[0]);
        char *text = trim(line);
        if (text[0] == '[')
            inside = is_section(text, name);
        else if (inside && !indented && text[0] != '#' && text[0] != ';')
            take_entry(text, into);
    }
    fclose(file);
    explicit_bzero(line, sizeof line);
}

static lig_status read_file(const char *path_variable, const char *file, profile *into)
{
    const char *name = variable("AWS_PROFILE"), *home = variable("HOME");
    const char *given = variable(path_variable);
    char *path;

    if (name == NULL)
        name = variable("AWS_DEFAULT_PROFILE");
    if (given == NULL && home == NULL)
        return LIG_OK;
    if (given != NULL)
        LIG_TRY(cli_format(&path, "%s", given));
    else
        LIG_TRY(cli_format(&path, "%s/.aws/%s", home, file));
    read_profile(path, name != NULL ? name : "default", into);
    free(path);
    return LIG_OK;
}

/* Keys of the environment come together, or not at all: a token belongs to its keys. */
static lig_status pass_on(const profile *files)
{
    int keys = variable("AWS_ACCESS_KEY_ID") && variable("AWS_SECRET_ACCESS_KEY");

    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        const char *value = variable(known[i].variables[0]);
        if (value == NULL)
            value = variable(known[i].variables[1]);
        if (i <= SESSION_TOKEN ? !keys : value == NULL)
            value = files->values[i][0] != '\0' ? files->values[i] : NULL;
        if (value != NULL)
            LIG_TRY(lig_credential_set(known[i].credential, value));
    }
    return LIG_OK;
}

lig_status cli_aws_profile(void)
{
    profile files = {0};

    lig_status status = read_file("AWS_CONFIG_FILE", "config", &files);
    if (status == LIG_OK)
        status = read_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", &files);
    if (status == LIG_OK)
        status = pass_on(&files);
    explicit_bzero(&files, sizeof files);
    return status;
}
