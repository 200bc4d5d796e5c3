/* Tensors are read in pieces along their first dimension, so that a model larger than memory can
 * be compared. */
#include "models/model_changes.h"

#include "formats/side_files.h"
#include "models/norm.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t piece_bytes = UINT64_C(8) << 20;

/* --- sides ----------------------------------------------------------------------------------- */

lig_status cli_side_resolve(cli_side *side, lig_store *store, const char *name)
{
    char *called;
    side->store = store;
    LIG_TRY(cli_checkpoint_name(store, name, &called));
    lig_status status = lig_store_resolve(store, called, &side->ref);
    free(called);
    LIG_TRY(status);
    const lig_model *model = lig_ref_model(side->ref);
    LIG_TRY(cli_alloc(&side->described, model->tensor_count, sizeof *side->described));
    for (size_t i = 0; i < model->tensor_count; i++)
        if (!cli_is_side_file(&model->tensors[i].tensor))
            side->described[side->count++] = model->tensors[i].tensor;
    side->tensors = side->described;
    return LIG_OK;
}

lig_status cli_side_open(cli_side *side, const cli_place *place)
{
    if (place->kind == CLI_STORE) {
        LIG_TRY(cli_place_open(place, "r", &side->store));
        return cli_side_resolve(side, side->store, place->name);
    }
    LIG_TRY(cli_batch_from_file(&side->file, place));
    side->tensors = side->file.tensors;
    side->count = side->file.count;
    return LIG_OK;
}

void cli_side_close(cli_side *side, const lig_store *borrowed)
{
    lig_ref_release(side->ref);
    free(side->described);
    cli_batch_fini(&side->file);
    if (side->store != borrowed)
        lig_store_close(side->store);
    *side = (cli_side){0};
}

/* --- pieces of a tensor ---------------------------------------------------------------------- */

typedef struct piece {
    int64_t first, rows; /* along the first dimension */
    uint64_t row_bytes;
} piece;

/* The elements of a piece in row-major order: in place for a contiguous tensor of a file, else
 * read into `buffer`. */
static lig_status read_piece(const cli_side *side, const lig_tensor *tensor, const piece *at,
                             void *buffer, const void **data)
{
    int64_t shape[LIG_NDIM_MAX];
    lig_slice slices[LIG_NDIM_MAX];
    *data = buffer;
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        shape[i] = i == 0 ? at->rows : tensor->shape[i];
        slices[i] = (lig_slice){i == 0 ? at->first : 0, 1, shape[i]};
    }
    if (side->ref == NULL && lig_tensor_contiguous(tensor)) {
        *data = (const char *)tensor->data + (uint64_t)at->first * at->row_bytes;
        return LIG_OK;
    }
    lig_tensor part = *tensor;
    part.shape = shape;
    part.bytes = (uint64_t)at->rows * at->row_bytes;
    if (side->ref == NULL) {
        part.data = (char *)tensor->data +
                    at->first * tensor->strides[0] * (int64_t)lig_dtype_bytes(tensor->dtype);
        lig_tensor_pack(&part, buffer);
        return LIG_OK;
    }
    part.data = buffer;
    part.strides = NULL;
    lig_read read = {
        .name = tensor->name, .into = part, .slices = tensor->ndim > 0 ? slices : NULL};
    return lig_ref_read(side->ref, &read, 1, 0);
}

typedef struct comparing {
    const cli_side *a, *b;
    void *buffers[2];
    uint64_t buffer_bytes;
} comparing;

static lig_status grow(comparing *self, uint64_t bytes)
{
    if (bytes <= self->buffer_bytes)
        return LIG_OK;
    for (int i = 0; i < 2; i++) {
        void *grown = realloc(self->buffers[i], bytes);
        if (grown == NULL)
            return lig_fail(LIG_E_NOMEM, "out of memory: %llu bytes", (unsigned long long)bytes);
        self->buffers[i] = grown;
    }
    self->buffer_bytes = bytes;
    return LIG_OK;
}

/* Fills whether the bytes are equal, and the change if not. */
static lig_status compare_bytes(comparing *self, const lig_tensor *a, const lig_tensor *b,
                                int *equal, double *relative)
{
    int64_t rows = a->ndim > 0 ? a->shape[0] : 1;
    cli_norm norm = {0};
    *equal = 1;
    if (a->bytes == 0)
        return LIG_OK;
    uint64_t row_bytes = a->bytes / (uint64_t)rows;
    int64_t most = row_bytes < piece_bytes ? (int64_t)(piece_bytes / row_bytes) : 1;
    LIG_TRY(grow(self, row_bytes * (uint64_t)(most < rows ? most : rows)));
    for (int64_t first = 0; first < rows; first += most) {
        piece at = {first, rows - first < most ? rows - first : most, row_bytes};
        size_t bytes = (size_t)at.rows * row_bytes;
        const void *left, *right;
        LIG_TRY(read_piece(self->a, a, &at, self->buffers[0], &left));
        LIG_TRY(read_piece(self->b, b, &at, self->buffers[1], &right));
        *equal &= memcmp(left, right, bytes) == 0;
        cli_norm_add(&norm, a->dtype, left, right, bytes);
    }
    *relative = cli_norm_relative(&norm);
    return LIG_OK;
}

/* --- the list of changes --------------------------------------------------------------------- */

static void count_change(cli_changes *changes, const cli_change *one)
{
    changes->counts[one->change]++;
    changes->bytes[one->change] += (one->b != NULL ? one->b : one->a)->bytes;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const lig_tensor *const *)a)->name, (*(const lig_tensor *const *)b)->name);
}

static lig_status sort_by_name(const cli_side *side, const lig_tensor ***sorted)
{
    LIG_TRY(cli_alloc(sorted, side->count, sizeof **sorted));
    for (size_t i = 0; i < side->count; i++)
        (*sorted)[i] = &side->tensors[i];
    qsort(*sorted, side->count, sizeof **sorted, by_name);
    return LIG_OK;
}

static const lig_tensor *find_tensor(const lig_tensor *const *sorted, size_t count,
                                     const lig_tensor *like)
{
    const lig_tensor *const *found = bsearch(&like, sorted, count, sizeof *sorted, by_name);
    return found != NULL ? *found : NULL;
}

static int same_form(const lig_tensor *a, const lig_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/* Pairs by name; equal forms are still to be compared (LIG_CHANGE_NONE). */
static lig_status pair(cli_changes *changes, const cli_side *a, const cli_side *b)
{
    const lig_tensor **left, **right;
    LIG_TRY(cli_alloc(&changes->tensors, a->count + b->count, sizeof *changes->tensors));
    LIG_TRY(sort_by_name(a, &left));
    lig_status status = sort_by_name(b, &right);
    for (size_t i = 0; status == LIG_OK && i < a->count; i++) {
        const lig_tensor *one = &a->tensors[i], *other = find_tensor(right, b->count, one);
        int change = other == NULL            ? LIG_CHANGE_REMOVED
                     : !same_form(one, other) ? LIG_CHANGE_SHAPE
                                              : LIG_CHANGE_NONE;
        changes->tensors[changes->count++] =
            (cli_change){.name = one->name, .change = change, .a = one, .b = other};
    }
    for (size_t i = 0; status == LIG_OK && i < b->count; i++)
        if (find_tensor(left, a->count, &b->tensors[i]) == NULL)
            changes->tensors[changes->count++] = (cli_change){
                .name = b->tensors[i].name, .change = LIG_CHANGE_ADDED, .b = &b->tensors[i]};
    free(left);
    if (status == LIG_OK)
        free(right);
    return status;
}

/* lig_ref_diff lists the tensors of a first, in the same order as pair; side files come last. */
static lig_status compare_stored(cli_changes *changes, comparing *self)
{
    lig_diff *diff;
    int equal;
    LIG_TRY(lig_ref_diff(self->a->ref, self->b->ref, &diff));
    lig_status status = LIG_OK;
    for (size_t i = 0; i < changes->count && status == LIG_OK; i++) {
        cli_change *one = &changes->tensors[i];
        if (one->change != LIG_CHANGE_NONE || diff->tensors[i].change != LIG_CHANGE_BYTES)
            continue;
        one->change = LIG_CHANGE_BYTES;
        status = compare_bytes(self, one->a, one->b, &equal, &one->relative);
    }
    lig_diff_destroy(diff);
    return status;
}

static lig_status compare_all(cli_changes *changes, comparing *self)
{
    for (size_t i = 0; i < changes->count; i++) {
        cli_change *one = &changes->tensors[i];
        int equal;
        if (one->change != LIG_CHANGE_NONE)
            continue;
        LIG_TRY(compare_bytes(self, one->a, one->b, &equal, &one->relative));
        one->change = equal ? LIG_CHANGE_NONE : LIG_CHANGE_BYTES;
    }
    return LIG_OK;
}

lig_status cli_changes_find(cli_changes *changes, const cli_side *a, const cli_side *b)
{
    comparing self = {.a = a, .b = b};
    *changes = (cli_changes){0};
    lig_status status = pair(changes, a, b);
    if (status == LIG_OK)
        status = a->store != NULL && a->store == b->store ? compare_stored(changes, &self)
                                                          : compare_all(changes, &self);
    free(self.buffers[0]);
    free(self.buffers[1]);
    if (status != LIG_OK) {
        cli_changes_fini(changes);
        return status;
    }
    for (size_t i = 0; i < changes->count; i++)
        count_change(changes, &changes->tensors[i]);
    return LIG_OK;
}

int cli_changes_any(const cli_changes *changes)
{
    return changes->counts[LIG_CHANGE_NONE] < changes->count;
}

void cli_changes_fini(cli_changes *changes)
{
    free(changes->tensors);
    *changes = (cli_changes){0};
}
