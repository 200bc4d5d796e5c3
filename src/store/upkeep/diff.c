#include "base/error.h"
#include "base/map.h"
#include "store/load/compare_tensors.h"
#include "store/load/resolved_model.h"

#include <stdlib.h>
#include <string.h>

enum { DIFF_TRIES = 100 };

typedef struct diff {
    lig_diff shown; /* first: a lig_diff returned to the caller is one of these */
    ligi_model *a, *b;
    lig_difference *tensors;
    ligi_pair *pairs; /* whose bytes are compared, because the fingerprints are not comparable */
    size_t pair_count;
} diff;

static int same_shape(const lig_tensor *a, const lig_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

static enum lig_change compare(const lig_stored_tensor *a, const lig_stored_tensor *b)
{
    if (b == NULL)
        return LIG_CHANGE_REMOVED;
    if (a == NULL)
        return LIG_CHANGE_ADDED;
    if (!same_shape(&a->tensor, &b->tensor))
        return LIG_CHANGE_SHAPE;
    return a->fingerprint[0] == b->fingerprint[0] && a->fingerprint[1] == b->fingerprint[1]
               ? LIG_CHANGE_NONE
               : LIG_CHANGE_BYTES;
}

static void add_difference(diff *self, const lig_stored_tensor *a, const lig_stored_tensor *b)
{
    enum lig_change change = compare(a, b);
    const lig_tensor *tensor = b ? &b->tensor : &a->tensor;
    self->tensors[self->shown.count++] =
        (lig_difference){.name = tensor->name, .change = (int32_t)change, .a = a, .b = b};
    if (change != LIG_CHANGE_BYTES)
        return;
    ligi_pair pair = {.a = (size_t)(a - self->a->shown.tensors),
                      .b = (size_t)(b - self->b->shown.tensors)};
    if (!ligi_compare_same_boxes(&self->a->manifest, pair.a, &self->b->manifest, pair.b))
        self->pairs[self->pair_count++] = pair;
}

/* Pairs are in the order of a, as the differences are. */
static lig_status settle(diff *self, const lig_ref *a, const lig_ref *b)
{
    if (self->pair_count == 0)
        return LIG_OK;
    LIG_TRY(ligi_compare_tensors(a, b, self->pairs, self->pair_count, LIGI_COMPARE_WINDOW_BYTES));
    for (size_t i = 0; i < self->pair_count; i++)
        if (!self->pairs[i].differ)
            self->tensors[self->pairs[i].a].change = LIG_CHANGE_NONE;
    return LIG_OK;
}

static void sum(diff *self)
{
    for (size_t i = 0; i < self->shown.count; i++) {
        const lig_difference *one = &self->tensors[i];
        self->shown.counts[one->change]++;
        self->shown.bytes[one->change] += one->b ? one->b->tensor.bytes : one->a->tensor.bytes;
    }
}

static lig_status index_names(const lig_model *model, ligi_map *names)
{
    LIG_TRY(ligi_map_reserve(names, model->tensor_count));
    for (size_t i = 0; i < model->tensor_count; i++) {
        const char *name = model->tensors[i].tensor.name;
        LIG_TRY(ligi_map_insert(names, name, strlen(name), i, NULL));
    }
    return LIG_OK;
}

static const lig_stored_tensor *named(const lig_model *model, const ligi_map *names,
                                      const char *name)
{
    uint64_t at;
    return ligi_map_find(names, name, strlen(name), &at) ? &model->tensors[at] : NULL;
}

static lig_status compare_all(diff *self)
{
    const lig_model *a = &self->a->shown, *b = &self->b->shown;
    ligi_map in_a = {0}, in_b = {0};
    LIG_TRY(ligi_calloc(&self->tensors, a->tensor_count + b->tensor_count, sizeof *self->tensors,
                        "a comparison"));
    LIG_TRY(ligi_calloc(&self->pairs, a->tensor_count, sizeof *self->pairs, "a comparison"));
    lig_status status = index_names(a, &in_a);
    if (status == LIG_OK)
        status = index_names(b, &in_b);
    for (size_t i = 0; i < a->tensor_count && status == LIG_OK; i++)
        add_difference(self, &a->tensors[i], named(b, &in_b, a->tensors[i].tensor.name));
    for (size_t i = 0; i < b->tensor_count && status == LIG_OK; i++)
        if (named(a, &in_a, b->tensors[i].tensor.name) == NULL)
            add_difference(self, NULL, &b->tensors[i]);
    ligi_map_fini(&in_a);
    ligi_map_fini(&in_b);
    return status;
}

static lig_status diff_refs(const lig_ref *a, const lig_ref *b, diff *self)
{
    LIG_TRY(ligi_model_copy(a->model, a->store->secret, &self->a));
    LIG_TRY(ligi_model_copy(b->model, b->store->secret, &self->b));
    LIG_TRY(compare_all(self));
    LIG_TRY(settle(self, a, b));
    sum(self);
    self->shown.a = &self->a->shown;
    self->shown.b = &self->b->shown;
    self->shown.tensors = self->tensors;
    return LIG_OK;
}

lig_status lig_ref_diff(const lig_ref *a, const lig_ref *b, lig_diff **out)
{
    LIG_TRY(ligi_ref_usable(a));
    LIG_TRY(ligi_ref_usable(b));
    if (memcmp(a->store->uuid, b->store->uuid, sizeof a->store->uuid) != 0)
        return lig_fail(
            LIG_E_INVALID,
            "models '%s' and '%s' are in different stores (copy one to the other's store first)",
            a->model->record.about.name, b->model->record.about.name);
    diff *self;
    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "a comparison"));
    lig_status status = diff_refs(a, b, self);
    if (status == LIG_OK)
        *out = &self->shown;
    else
        lig_diff_destroy(&self->shown);
    return status;
}

/* LIG_E_NOTFOUND for a model that existed: if nothing can be held, a retry sees its replacement. */
lig_status lig_store_diff(lig_store *store, const char *a, const char *b, lig_diff **out)
{
    lig_status status = LIG_E_BUSY;
    for (int again = 1, i = 0; again && i < DIFF_TRIES; i++) {
        lig_ref *first = NULL, *second = NULL;
        LIG_TRY(lig_store_resolve(store, a, &first));
        status = lig_store_resolve(store, b, &second);
        if (status == LIG_OK)
            status = lig_ref_diff(first, second, out);
        again = second && status == LIG_E_NOTFOUND;
        lig_ref_release(first);
        lig_ref_release(second);
    }
    return status;
}

void lig_diff_destroy(lig_diff *shown)
{
    diff *self = (diff *)shown;
    if (self == NULL)
        return;
    ligi_model_free(self->a);
    ligi_model_free(self->b);
    free(self->tensors);
    free(self->pairs);
    free(self);
}
