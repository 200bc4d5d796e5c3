/* A backend with every optional member, and ways to break each (-DBREAK=...), so that every check
 * of the conformance suite is seen to fail. It keeps one list of tensors in memory, marked with
 * their set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ligament/plugin.h>

enum {
    NOTHING,
    REPLACE,
    MIX,
    ORDER,
    UNKNOWN,
    SILENT,
    MISMATCH,
    OVERRUN,
    CHANGES,
    LIST,
    DROP,
    RANGE,
    ABORT,
    CRASH,
    DTYPE,
    EMPTY,
    NAMES
};
#ifndef BREAK
#define BREAK NOTHING
#endif

typedef struct kept {
    struct kept *next;
    char *set, *name;
    uint64_t bytes;
    unsigned char *data;
} kept;

typedef struct full {
    kept *first;
} full;

typedef struct stream {
    full *self;
    char *set;
    kept *first;
} stream;

static lig_status full_open(void **self, const char *config)
{
    if (strcmp(config, "refuse") == 0)
        return lig_fail(LIG_E_DENIED, "full: it was told to refuse");
    *self = calloc(1, sizeof(full));
    return LIG_OK;
}

static void push(kept **first, const char *set, const lig_tensor *tensor)
{
    kept *made = calloc(1, sizeof *made);
    made->set = strdup(set);
    made->name = BREAK == NAMES ? strndup(tensor->name, 100) : strdup(tensor->name);
    made->bytes = tensor->bytes;
    made->data = malloc(tensor->bytes + 1);
    if (tensor->bytes > 0)
        memcpy(made->data, tensor->data, tensor->bytes);
    if (BREAK == DTYPE && tensor->dtype == LIG_FLOAT8_E5M2)
        made->data[0] ^= 1;
    made->next = *first;
    *first = made;
}

static void destroy(kept *gone)
{
    free(gone->set);
    free(gone->name);
    free(gone->data);
    free(gone);
}

static size_t forget(full *self, const char *set)
{
    size_t count = 0;
    for (kept **at = &self->first; *at != NULL;) {
        kept *gone = *at;
        if (set != NULL && strcmp(gone->set, set) != 0) {
            at = &gone->next;
            continue;
        }
        *at = gone->next;
        destroy(gone);
        count++;
    }
    return count;
}

static kept *find(full *self, const char *set, const char *name)
{
    for (kept *at = self->first; at != NULL; at = at->next)
        if (strcmp(at->set, BREAK == MIX ? "all" : set) == 0 &&
            (name == NULL || strcmp(at->name, name) == 0))
            return at;
    return NULL;
}

static lig_status full_save(void *self, const char *set, const lig_tensor *tensors, size_t count)
{
    full *f = self;
    if (BREAK == CRASH)
        abort();
    if (BREAK != REPLACE)
        forget(f, set);
    else if (find(f, set, NULL) != NULL)
        return LIG_OK;
    for (size_t i = 0; i < count; i++)
        if (BREAK != EMPTY || tensors[i].bytes > 0)
            push(&f->first, BREAK == MIX ? "all" : set, &tensors[i]);
    if (BREAK == CHANGES && count > 0 && tensors[0].bytes > 0)
        ((char *)tensors[0].data)[0] ^= 1;
    return LIG_OK;
}

static lig_status full_load(void *self, const char *set, const lig_tensor *tensors, size_t count)
{
    if (find(self, set, NULL) == NULL) {
        if (BREAK == UNKNOWN)
            return LIG_OK;
        return BREAK == SILENT ? LIG_E_NOTFOUND
                               : lig_fail(LIG_E_NOTFOUND, "full: no set '%s'", set);
    }
    for (size_t i = 0; i < count; i++) {
        kept *at = find(self, set, tensors[BREAK == ORDER ? 0 : i].name);
        if (BREAK == MISMATCH && (at == NULL || at->bytes != tensors[i].bytes))
            continue;
        if (at == NULL)
            return lig_fail(LIG_E_NOTFOUND, "full: no tensor '%.100s'", tensors[i].name);
        if (at->bytes != tensors[i].bytes && BREAK != ORDER)
            return lig_fail(LIG_E_MISMATCH, "full: '%.100s' has another size", tensors[i].name);
        uint64_t bytes = at->bytes < tensors[i].bytes ? at->bytes : tensors[i].bytes;
        if (bytes > 0)
            memcpy(tensors[i].data, at->data, bytes + (BREAK == OVERRUN));
    }
    return LIG_OK;
}

static void full_close(void *self)
{
    forget(self, NULL);
    free(self);
}

/* The first tensor of each set stands for it. */
static lig_status full_list(void *self, size_t index, char *set, size_t set_bytes)
{
    full *f = self;
    for (kept *at = f->first; at != NULL; at = at->next) {
        int first = BREAK == LIST || find(f, at->set, NULL) == at;
        if (first && index-- == 0) {
            snprintf(set, set_bytes, "%s", at->set);
            return LIG_OK;
        }
    }
    return lig_fail(LIG_E_NOTFOUND, "full: that was the last set");
}

static lig_status full_drop(void *self, const char *set)
{
    if (BREAK == DROP)
        return LIG_OK;
    return forget(self, set) > 0 ? LIG_OK : lig_fail(LIG_E_NOTFOUND, "full: no set '%s'", set);
}

static lig_status full_range(void *self, const char *set, const lig_tensor *tensor, uint64_t offset,
                             uint64_t bytes, void *data)
{
    kept *at = find(self, set, tensor->name);
    if (at == NULL || offset > at->bytes || bytes > at->bytes - offset)
        return lig_fail(LIG_E_INVALID, "full: no such range of '%s'", tensor->name);
    memcpy(data, at->data + (BREAK == RANGE ? 0 : offset), bytes);
    return LIG_OK;
}

static lig_status full_begin(void *self, const char *set, const lig_tensor *tensors, size_t count,
                             void **out)
{
    stream *made = calloc(1, sizeof *made);
    (void)tensors, (void)count;
    made->self = self;
    made->set = strdup(set);
    *out = made;
    return LIG_OK;
}

static lig_status full_put(void *out, size_t index, const lig_tensor *tensor)
{
    stream *s = out;
    (void)index;
    push(BREAK == ABORT ? &s->self->first : &s->first, s->set, tensor);
    return LIG_OK;
}

static void end_stream(stream *s)
{
    free(s->set);
    free(s);
}

static lig_status full_commit(void *out)
{
    stream *s = out;
    if (BREAK != ABORT)
        forget(s->self, s->set);
    while (s->first != NULL) {
        kept *moved = s->first;
        s->first = moved->next;
        moved->next = s->self->first;
        s->self->first = moved;
    }
    end_stream(s);
    return LIG_OK;
}

static void full_abort(void *out)
{
    stream *s = out;
    while (s->first != NULL) {
        kept *gone = s->first;
        s->first = gone->next;
        destroy(gone);
    }
    end_stream(s);
}

static const lig_backend_option full_options[] = {
    {"colour", "text", "blue", "what everything is painted in"}, {NULL, NULL, NULL, NULL}};

LIG_REGISTER_BACKEND(full, .open = full_open, .save = full_save, .load = full_load,
                     .close = full_close, .list = full_list, .drop = full_drop,
                     .read_range = full_range, .begin = full_begin, .put = full_put,
                     .commit = full_commit, .abort = full_abort, .options = full_options)
