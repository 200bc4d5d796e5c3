/* Secret files of any bytes: each is refused, or its roles keep the rules of the format. */
#include "store/serve/roles/role_file.h"

#include "net/secure/secret_memory.h"

#include <ligament/secret.h>

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_role(const ligi_served_role_line *line)
{
    const ligi_served_role *role = &line->role;
    size_t length = strlen(role->prefix);
    assert(role->kind < LIGI_ROLE_KINDS);
    assert(memchr(role->name, 0, sizeof role->name));
    assert(memchr(role->prefix, 0, sizeof role->prefix));
    assert(length == 0 || (length > 1 && role->prefix[length - 1] == '/'));
    assert(role->kind != LIGI_ROLE_ADMIN || length == 0);
    assert(line->key_bytes >= LIG_SECRET_LEAST);
}

static void check_file(const ligi_served_role_file *file)
{
    assert(file->count > 0);
    for (size_t i = 0; i < file->count; i++) {
        check_role(&file->lines[i]);
        for (size_t k = 0; k < i; k++)
            assert(file->lines[i].key_bytes != file->lines[k].key_bytes ||
                   memcmp(file->lines[i].key, file->lines[k].key, file->lines[i].key_bytes) != 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ligi_served_role_file none = {0}, file;
    uint64_t next = 1;
    char *text;
    if (bytes > 4096 || memchr(data, 0, bytes) ||
        ligi_secret_memory_alloc(&text, bytes + 1, "a secret file") != LIG_OK)
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (ligi_served_role_file_parse("roles", text, &file) != LIG_OK)
        return 0;
    check_file(&file);
    ligi_served_role_file_number(&file, &none, &next);
    assert(next == file.count + 1);
    ligi_served_role_file_fini(&file);
    return 0;
}
