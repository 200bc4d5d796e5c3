#include "batch.h"

#include <stdlib.h>
#include <string.h>

/* 1 if `prefix` is the whole name or is followed by '.' or '/'; *rest is what follows it. */
static int is_below(const char *name, const char *prefix, const char **rest)
{
    size_t bytes = strlen(prefix);
    int ends = bytes > 0 && strchr("./", prefix[bytes - 1]) != NULL;
    if (bytes == 0 || strncmp(name, prefix, bytes) != 0)
        return 0;
    *rest = name + bytes;
    return ends || **rest == '\0' || **rest == '.' || **rest == '/';
}

/* "model, optimizer": what precedes the first '.' or '/' of each name. */
static void list_parts(const cli_batch *batch, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < batch->count && used < text_bytes; i++) {
        const char *name = batch->tensors[i].name;
        size_t bytes = strcspn(name, "./"), j = 0;
        while (j < i && !(strncmp(batch->tensors[j].name, name, bytes) == 0 &&
                          strcspn(batch->tensors[j].name, "./") == bytes))
            j++;
        if (j == i)
            used += (size_t)snprintf(text + used, text_bytes - used, "%s%.*s", used > 0 ? ", " : "",
                                     (int)bytes, name);
    }
}

static lig_status take_part(cli_batch *batch, const char *part)
{
    size_t kept = 0;
    for (size_t i = 0; i < batch->count; i++) {
        lig_tensor tensor = batch->tensors[i];
        const char *rest;
        if (!is_below(tensor.name, part, &rest))
            continue;
        rest += *rest == '.' || *rest == '/';
        if (*rest != '\0') /* a tensor that is itself the part keeps its name */
            tensor.name = rest;
        batch->tensors[kept++] = tensor;
    }
    if (kept == 0) {
        char parts[512];
        list_parts(batch, parts, sizeof parts);
        return lig_fail(LIG_E_NOTFOUND, "the model has no part '%s' (there are %s)", part, parts);
    }
    batch->count = kept;
    return LIG_OK;
}

static lig_status strip_prefix(cli_batch *batch, const char *prefix)
{
    size_t bytes = strlen(prefix), found = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const char *name = batch->tensors[i].name;
        if (strncmp(name, prefix, bytes) != 0 || name[bytes] == '\0')
            continue;
        batch->tensors[i].name = name + bytes;
        found++;
    }
    return found > 0 ? LIG_OK : lig_fail(LIG_E_NOTFOUND, "no tensor name begins with '%s'", prefix);
}

static lig_status rename_one(cli_batch *batch, lig_tensor *tensor, const cli_renaming *renaming,
                             size_t *used)
{
    for (size_t i = 0; i < renaming->rename_count; i++) {
        const lig_tag *rename = &renaming->renames[i];
        const char *rest;
        char *text, *name;
        if (!is_below(tensor->name, rename->name, &rest))
            continue;
        LIG_TRY(cli_format(&text, "%s%s", rename->value, rest));
        lig_status status = cli_batch_text(batch, text, strlen(text), &name);
        free(text);
        LIG_TRY(status);
        tensor->name = name;
        used[i]++;
        return LIG_OK;
    }
    return LIG_OK;
}

static lig_status rename_all(cli_batch *batch, const cli_renaming *renaming)
{
    size_t *used;
    lig_status status = LIG_OK;
    LIG_TRY(cli_alloc(&used, renaming->rename_count, sizeof *used));
    for (size_t i = 0; i < batch->count && status == LIG_OK; i++)
        status = rename_one(batch, &batch->tensors[i], renaming, used);
    for (size_t i = 0; i < renaming->rename_count && status == LIG_OK; i++)
        if (used[i] == 0)
            status = lig_fail(LIG_E_NOTFOUND, "no tensor is named '%s' or is below it",
                              renaming->renames[i].name);
    free(used);
    return status;
}

lig_status cli_batch_rename(cli_batch *batch, const cli_renaming *renaming)
{
    if (renaming->part == NULL && renaming->strip == NULL && renaming->rename_count == 0)
        return LIG_OK;
    if (renaming->part != NULL)
        LIG_TRY(take_part(batch, renaming->part));
    if (renaming->strip != NULL)
        LIG_TRY(strip_prefix(batch, renaming->strip));
    LIG_TRY(rename_all(batch, renaming));
    batch->structure = NULL;
    return lig_tensors_check(batch->tensors, batch->count);
}
