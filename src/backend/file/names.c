#include "backend/file/names.h"

#include <stddef.h>
#include <string.h>

#define ID_DIGITS 16

static const struct form { /* "<start>", or "<start><id><end>" */
    ligi_name_folder folder;
    ligi_name_kind kind;
    const char *start;
    const char *end; /* NULL: no id */
} forms[] = {
    {LIGI_FOLDER_STORE, LIGI_NAME_IN_STORE, LIGI_NAME_MARKER, NULL},
    {LIGI_FOLDER_STORE, LIGI_NAME_IN_STORE, LIGI_NAME_MARKER ".", ""},
    {LIGI_FOLDER_STORE, LIGI_NAME_IN_STORE, LIGI_NAME_CATALOG, NULL},
    {LIGI_FOLDER_STORE, LIGI_NAME_IN_STORE, LIGI_NAME_CATALOG_LOCK, NULL},
    {LIGI_FOLDER_STORE, LIGI_NAME_IN_STORE, LIGI_NAME_INDEX, NULL},
    {LIGI_FOLDER_STORE, LIGI_NAME_IN_STORE, LIGI_NAME_INDEX_LOCK, NULL},
    {LIGI_FOLDER_STORE, LIGI_NAME_IN_STORE, LIGI_NAME_LOG, NULL},
    {LIGI_FOLDER_STORE, LIGI_NAME_IN_STORE, LIGI_NAME_PACKS, NULL},
    {LIGI_FOLDER_STORE, LIGI_NAME_IN_STORE, LIGI_NAME_LEASES, NULL},
    {LIGI_FOLDER_STORE, LIGI_NAME_IN_STORE, LIGI_NAME_WRITER, NULL},
    {LIGI_FOLDER_STORE, LIGI_NAME_IN_STORE, LIGI_NAME_WRITER_BREAK, NULL},
    {LIGI_FOLDER_STORE, LIGI_NAME_IN_STORE, LIGI_NAME_WRITER ".", ""},
    {LIGI_FOLDER_PACKS, LIGI_NAME_PACK, "", ".pack"},
    {LIGI_FOLDER_PACKS, LIGI_NAME_PACK_TEMPORARY, LIGI_NAME_TEMPORARY, ""},
    {LIGI_FOLDER_LEASES, LIGI_NAME_LEASE, "", ""},
    {LIGI_FOLDER_LEASES, LIGI_NAME_LEASE_TEMPORARY, LIGI_NAME_TEMPORARY, ""},
    {LIGI_FOLDER_LEASES, LIGI_NAME_LOCK, LIGI_NAME_RUN, ""},
    {LIGI_FOLDER_LOG, LIGI_NAME_IN_LOG, LIGI_NAME_HEAD, NULL},
    {LIGI_FOLDER_LOG, LIGI_NAME_IN_LOG, LIGI_NAME_NUMBERED, NULL},
    {LIGI_FOLDER_LOG, LIGI_NAME_SEGMENT, LIGI_NAME_SEGMENT_START, ""},
    {LIGI_FOLDER_LOG, LIGI_NAME_CHECKPOINT, LIGI_NAME_CHECKPOINT_START, ""},
    {LIGI_FOLDER_LOG, LIGI_NAME_LOG_TEMPORARY, LIGI_NAME_TEMPORARY, ""},
};

/* The id in a name of the form "<start><16 hex digits><end>"; 0 when it is another. */
static uint64_t id_of(const char *name, const char *start, const char *end)
{
    const char *digits = "0123456789abcdef", *at = name + strlen(start);
    uint64_t id = 0;

    if (strncmp(name, start, strlen(start)) != 0)
        return 0;
    for (int i = 0; i < ID_DIGITS; i++) {
        const char *digit = at[i] == '\0' ? NULL : strchr(digits, at[i]);
        if (digit == NULL)
            return 0;
        id = id << 4 | (uint64_t)(digit - digits);
    }
    return strcmp(at + ID_DIGITS, end) == 0 ? id : 0;
}

ligi_name_kind ligi_name_read(ligi_name_folder folder, const char *name, uint64_t *id)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const struct form *form = &forms[i];
        uint64_t found = 0;
        if (form->folder != folder)
            continue;
        if (form->end == NULL ? strcmp(name, form->start) != 0
                              : (found = id_of(name, form->start, form->end)) == 0)
            continue;
        if (id != NULL)
            *id = found;
        return form->kind;
    }
    if (id != NULL)
        *id = 0;
    return LIGI_NAME_FOREIGN;
}
