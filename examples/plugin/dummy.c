/* A backend in one file: it keeps sets of tensors in memory until it is closed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ligament/plugin.h>

typedef struct set { /* the first of the list is only its head */
    struct set *next;
    char *name, *blob; /* blob: name, bytes and data of each tensor, one after the other */
    size_t bytes;
} set;

static set *find_set(set *at, const char *name)
{
    for (at = at->next; at != NULL && strcmp(at->name, name) != 0;)
        at = at->next;
    return at;
}

static const char *find_tensor(const set *from, const lig_tensor *tensor, uint64_t *bytes)
{
    for (const char *at = from->blob; at < from->blob + from->bytes; at += *bytes) {
        const char *name = at;
        at += strlen(name) + 1 + sizeof *bytes;
        memcpy(bytes, at - sizeof *bytes, sizeof *bytes);
        if (strcmp(name, tensor->name) == 0)
            return at;
    }
    return NULL;
}

static lig_status dummy_open(void **self, const char *config)
{
    (void)config; /* a path, JSON, anything: the plugin defines its meaning */
    *self = calloc(1, sizeof(set));
    return *self != NULL ? LIG_OK : lig_fail(LIG_E_NOMEM, "dummy: no memory");
}

static lig_status dummy_save(void *self, const char *name, const lig_tensor *tensors, size_t count)
{
    set *head = self, *kept = find_set(head, name), made = {0};
    FILE *out = open_memstream(&made.blob, &made.bytes);
    for (size_t i = 0; out != NULL && i < count; i++) {
        fwrite(tensors[i].name, strlen(tensors[i].name) + 1, 1, out);
        fwrite(&tensors[i].bytes, sizeof tensors[i].bytes, 1, out);
        fwrite(tensors[i].bytes > 0 ? tensors[i].data : "", 1, tensors[i].bytes, out);
    }
    if (out == NULL || fclose(out) != 0)
        return lig_fail(LIG_E_NOMEM, "dummy: no memory for set '%s'", name);
    if (kept == NULL && (kept = calloc(1, sizeof *kept)) != NULL) {
        kept->name = strdup(name);
        kept->next = head->next;
        head->next = kept;
    }
    if (kept == NULL || kept->name == NULL)
        return lig_fail(LIG_E_NOMEM, "dummy: no memory for set '%s'", name);
    free(kept->blob); /* the new blob is complete and replaces the old one */
    kept->blob = made.blob;
    kept->bytes = made.bytes;
    return LIG_OK;
}

static lig_status dummy_load(void *self, const char *name, const lig_tensor *tensors, size_t count)
{
    const set *from = find_set(self, name);
    uint64_t bytes;
    if (from == NULL)
        return lig_fail(LIG_E_NOTFOUND, "dummy: there is no set '%s'", name);
    for (size_t i = 0; i < count; i++) { /* check all of them before copying the first */
        if (find_tensor(from, &tensors[i], &bytes) == NULL)
            return lig_fail(LIG_E_NOTFOUND, "dummy: no tensor '%s' in '%s'", tensors[i].name, name);
        if (bytes != tensors[i].bytes)
            return lig_fail(LIG_E_MISMATCH, "dummy: '%s' has a different size", tensors[i].name);
    }
    for (size_t i = 0; i < count; i++)
        if (tensors[i].bytes > 0)
            memcpy(tensors[i].data, find_tensor(from, &tensors[i], &bytes), tensors[i].bytes);
    return LIG_OK;
}

static void dummy_close(void *self)
{
    for (set *at = self, *next; at != NULL; at = next) {
        next = at->next;
        free(at->name);
        free(at->blob);
        free(at);
    }
}

LIG_REGISTER_BACKEND(dummy, .open = dummy_open, .save = dummy_save, .load = dummy_load,
                     .close = dummy_close)
