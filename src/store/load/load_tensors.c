#include "store/load/load_tensors.h"

#include "base/error.h"
#include "store/format/assemble.h"
#include "store/format/slice.h"
#include "store/format/tensor_boxes.h"
#include "store/load/read_ranges.h"
#include "store/load/resolved_model.h"
#include "store/load/target_check.h"
#include "tensor/memory.h"
#include "tensor/staging.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOW_BLOCKS = 8, COPIES = 4096, COARSE_BYTES = 64 << 10 };

/* A range of a buffered block to copy to its destination. */
typedef struct copy {
    uint32_t block, offset, bytes;
    uint16_t memory;
    int32_t device;
    uint8_t *to;
} copy;

/* Blocks that are needed in part are read through a window; others are read directly into the
 * destination. */
typedef struct window {
    ligi_fetch fetch;
    uint8_t *buffer; /* WINDOW_BLOCKS blocks; allocated on first use */
    copy *copies;
    size_t copy_count;
    size_t tensor;          /* being read */
    const lig_tensor *into; /* where to; NULL: host memory */
    struct {
        size_t tensor;
        uint64_t block;
    } blocks[WINDOW_BLOCKS]; /* of as many tensors as fit: one read for all of them */
    uint32_t block_count;
} window;

static lig_status copy_all(const window *self)
{
    for (size_t i = 0; i < self->copy_count; i++) {
        const copy *one = &self->copies[i];
        LIG_TRY(ligi_staging_push(one->to,
                                  self->buffer + one->block * LIG_BLOCK_BYTES + one->offset,
                                  one->bytes, one->memory, one->device));
    }
    return LIG_OK;
}

/* Waits for copies to devices, even after a failure: none may continue after the call. */
static lig_status finish_copies(const window *self, lig_status status)
{
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    for (size_t i = 0; i < self->copy_count; i++) {
        const copy *one = &self->copies[i];
        if (i > 0 && one[-1].memory == one->memory && one[-1].device == one->device)
            continue;
        status = ligi_staging_finish(one->memory, one->device);
        if (failure.status == LIG_OK)
            ligi_failure_take(&failure, status);
    }
    return ligi_failure_publish(&failure);
}

static lig_status flush(window *self)
{
    lig_status status = ligi_fetch_run(&self->fetch);
    if (status == LIG_OK && self->copy_count)
        status = finish_copies(self, copy_all(self));
    self->copy_count = 0;
    return status;
}

static void window_fini(window *self)
{
    ligi_fetch_fini(&self->fetch);
    free(self->buffer);
    free(self->copies);
}

static lig_status window_make(window *self)
{
    if (self->buffer == NULL)
        LIG_TRY(ligi_alloc(&self->buffer, WINDOW_BLOCKS * LIG_BLOCK_BYTES, "a window"));
    if (self->copies == NULL)
        LIG_TRY(ligi_calloc(&self->copies, COPIES, sizeof *self->copies, "a window"));
    return LIG_OK;
}

static uint64_t block_bytes(const window *self, uint64_t block)
{
    uint64_t total = self->fetch.model->manifest.tensors[self->tensor].tensor.bytes;
    uint64_t left = total - block * LIG_BLOCK_BYTES;
    return left < LIG_BLOCK_BYTES ? left : LIG_BLOCK_BYTES;
}

/* The offset of a block in the window. Offsets ascend, so only the last block can be requested
 * again. */
static lig_status find_block(window *self, uint64_t block, uint32_t *at)
{
    for (uint32_t i = self->block_count; i-- > 0;)
        if (self->blocks[i].block == block && self->blocks[i].tensor == self->tensor) {
            *at = i;
            return LIG_OK;
        }
    LIG_TRY(window_make(self));
    if (self->block_count == WINDOW_BLOCKS) {
        LIG_TRY(flush(self));
        self->block_count = 0;
    }
    *at = self->block_count++;
    self->blocks[*at].tensor = self->tensor;
    self->blocks[*at].block = block;
    return ligi_fetch_add(&self->fetch, self->tensor, block * LIG_BLOCK_BYTES,
                          block_bytes(self, block), self->buffer + *at * LIG_BLOCK_BYTES, NULL);
}

static lig_status add_copy(window *self, uint64_t from, uint64_t bytes, uint8_t *to)
{
    if (self->copy_count == COPIES)
        LIG_TRY(flush(self));
    uint32_t at;
    LIG_TRY(find_block(self, from / LIG_BLOCK_BYTES, &at));
    self->copies[self->copy_count++] = (copy){.block = at,
                                              .offset = (uint32_t)(from % LIG_BLOCK_BYTES),
                                              .bytes = (uint32_t)bytes,
                                              .memory = self->into ? self->into->memory : 0,
                                              .device = self->into ? self->into->device : 0,
                                              .to = to};
    return LIG_OK;
}

/* Bytes [from, from + bytes) of the tensor, contiguous on both sides. */
static lig_status take_stretch(window *self, uint64_t from, uint64_t bytes, uint8_t *to)
{
    while (bytes) {
        uint64_t block = from / LIG_BLOCK_BYTES, whole = block_bytes(self, block);
        if (from % LIG_BLOCK_BYTES == 0 && bytes >= whole) {
            uint64_t straight =
                bytes >= LIG_BLOCK_BYTES ? bytes / LIG_BLOCK_BYTES * LIG_BLOCK_BYTES : whole;
            LIG_TRY(ligi_fetch_add(&self->fetch, self->tensor, from, straight, to, self->into));
            from += straight, to += straight, bytes -= straight;
            continue;
        }
        uint64_t left = whole - from % LIG_BLOCK_BYTES, part = bytes < left ? bytes : left;
        LIG_TRY(add_copy(self, from, part, to));
        from += part, to += part, bytes -= part;
    }
    return LIG_OK;
}

static lig_status take_slices(window *self, const lig_tensor *into, const lig_slice *slices)
{
    const lig_tensor *stored = &self->fetch.model->manifest.tensors[self->tensor].tensor;
    ligi_walker walker;
    ligi_run run;
    ligi_walker_init(&walker, stored, into, slices);
    while (ligi_walker_next(&walker, &run))
        for (uint64_t i = 0; i < run.count; i++)
            LIG_TRY(take_stretch(self, run.from + i * run.from_step, run.bytes,
                                 (uint8_t *)into->data + run.to + (int64_t)i * run.to_step));
    return LIG_OK;
}

static int fills_devices(const window *self)
{
    return (self->fetch.store->volume->backend->flags & LIG_BACKEND_DEVICE) != 0;
}

/* A whole tensor in device memory. Data that the volume cannot write there directly is read through
 * the window, so that the use of host memory is bounded. */
static lig_status take_device(window *self, const lig_tensor *into)
{
    if (fills_devices(self))
        return ligi_fetch_add(&self->fetch, self->tensor, 0, into->bytes, into->data, into);
    LIG_TRY(flush(self));
    LIG_TRY(window_make(self));
    self->block_count = 0;
    const uint64_t step = WINDOW_BLOCKS * LIG_BLOCK_BYTES;
    for (uint64_t at = 0; at < into->bytes; at += step) {
        uint64_t bytes = into->bytes - at < step ? into->bytes - at : step;
        LIG_TRY(ligi_fetch_add(&self->fetch, self->tensor, at, bytes, self->buffer, NULL));
        LIG_TRY(ligi_fetch_run(&self->fetch));
        LIG_TRY(ligi_memory_from_host((uint8_t *)into->data + at, self->buffer, bytes, into->memory,
                                      into->device));
    }
    return LIG_OK;
}

/* 1 if the runs of a slice are long enough to be copied one by one. */
static int is_coarse(const window *self, const lig_tensor *into, const lig_slice *slices)
{
    ligi_walker walker;
    ligi_walker_init(&walker, &self->fetch.model->manifest.tensors[self->tensor].tensor, into,
                     slices);
    return walker.run.bytes >= COARSE_BYTES;
}

/* Fine slices and boxes for device memory are first gathered in host memory of the same size:
 * `host` is to be filled, and freed by to_device. */
static lig_status host_twin(const lig_tensor *into, lig_tensor *host)
{
    if (!lig_tensor_contiguous(into))
        return lig_fail(
            LIG_E_UNSUPPORTED,
            "tensor '%s' is not contiguous in device memory (read into a contiguous one)",
            into->name);
    *host = *into;
    host->memory = LIG_MEMORY_HOST;
    host->device = 0;
    host->strides = NULL;
    return ligi_alloc(&host->data, into->bytes, "a staging buffer for a device");
}

/* `status` is the result of filling the host buffer. */
static lig_status to_device(window *self, const lig_tensor *into, lig_tensor *host,
                            lig_status status)
{
    if (status == LIG_OK)
        status = flush(self);
    if (status == LIG_OK)
        status =
            ligi_memory_from_host(into->data, host->data, into->bytes, into->memory, into->device);
    free(host->data);
    return status;
}

static lig_status take_device_slice(window *self, const lig_tensor *into, const lig_slice *slices)
{
    lig_tensor host;
    if (fills_devices(self) && is_coarse(self, into, slices)) {
        self->into = into;
        lig_status status = take_slices(self, into, slices);
        self->into = NULL;
        return status;
    }
    LIG_TRY(host_twin(into, &host));
    return to_device(self, into, &host, take_slices(self, &host, slices));
}

/* All of a stored tensor, or a slice of it. */
static lig_status take_stored(window *self, size_t tensor, const lig_tensor *into,
                              const lig_slice *slices)
{
    self->tensor = tensor;
    int flat = lig_tensor_contiguous(into) && slices == NULL;
    if (into->memory != LIG_MEMORY_HOST)
        return flat ? take_device(self, into) : take_device_slice(self, into, slices);
    return flat ? ligi_fetch_add(&self->fetch, tensor, 0, into->bytes, into->data, NULL)
                : take_slices(self, into, slices);
}

/* Loads the part of one box that a slice of the tensor needs into the destination. */
static lig_status take_box(window *self, size_t tensor, const lig_tensor *into,
                           const lig_slice *slices)
{
    const ligi_manifest *manifest = &self->fetch.model->manifest;
    const lig_tensor *stored = &manifest->tensors[tensor].tensor;
    const ligi_box_position *place = &manifest->places[tensor];
    ligi_tile tile = {place->start, stored->shape};
    lig_slice within[LIG_NDIM_MAX];
    int64_t first[LIG_NDIM_MAX], shape[LIG_NDIM_MAX], strides[LIG_NDIM_MAX];
    if (!ligi_tiling_meet(place->whole, stored->ndim, &tile, slices, within, first))
        return LIG_OK;
    lig_tensor part = *into;
    int64_t flat = 1, element = (int64_t)lig_dtype_bytes(stored->dtype), offset = 0;
    int all = 1;
    for (uint32_t d = stored->ndim; d-- > 0;) {
        strides[d] = into->strides ? into->strides[d] : flat;
        flat *= into->shape[d];
        shape[d] = within[d].count;
        offset += first[d] * strides[d] * element;
        all &= within[d].start == 0 && within[d].step == 1 && shape[d] == stored->shape[d];
    }
    part.data = (uint8_t *)into->data + offset;
    part.shape = shape;
    part.strides = strides;
    (void)ligi_shape_bytes(shape, part.ndim, part.dtype, &part.bytes);
    return take_stored(self, tensor, &part, all && lig_tensor_contiguous(&part) ? NULL : within);
}

static lig_status take_boxes(window *self, const ligi_whole *whole, const lig_tensor *into,
                             const lig_slice *slices)
{
    for (size_t i = 0; i < whole->count; i++)
        LIG_TRY(take_box(self, whole->first + i, into, slices));
    return LIG_OK;
}

static lig_status take_device_boxes(window *self, const ligi_whole *whole, const lig_tensor *into,
                                    const lig_slice *slices)
{
    lig_tensor host;
    LIG_TRY(host_twin(into, &host));
    return to_device(self, into, &host, take_boxes(self, whole, &host, slices));
}

/* A tensor as the caller sees it. */
static lig_status take(window *self, size_t shown, const lig_tensor *into, const lig_slice *slices)
{
    const ligi_manifest *manifest = &self->fetch.model->manifest;
    ligi_whole whole = ligi_manifest_whole(manifest, shown);
    if (manifest->places == NULL || manifest->places[whole.first].whole == NULL)
        return take_stored(self, whole.first, into, slices);
    if (into->bytes == 0)
        return LIG_OK;
    return into->memory == LIG_MEMORY_HOST ? take_boxes(self, &whole, into, slices)
                                           : take_device_boxes(self, &whole, into, slices);
}

/* --- from a model into tensors --- */

static lig_status serve(void *context, const lig_ref *ref, int *gone)
{
    const ligi_target *self = context;
    const ligi_model *model = ref->model;
    size_t *indexes;
    LIG_TRY(ligi_alloc(&indexes, (self->count + 1) * sizeof *indexes, "a read"));
    window through = {.fetch = {.store = ref->store,
                                .model = model,
                                .verify = !(self->flags & LIG_READ_UNVERIFIED),
                                .warm = 1,
                                .gone = gone,
                                .maps = &ref->maps}};
    int64_t begin = ligi_now_ns();
    lig_status status = ligi_target_check(self, model, indexes);
    for (size_t i = 0; i < self->count && status == LIG_OK; i++)
        status = take(&through, indexes[i], ligi_target_into(self, i),
                      self->reads ? self->reads[i].slices : NULL);
    if (status == LIG_OK)
        status = flush(&through);
    window_fini(&through);
    free(indexes);
    ligi_stamps_note(&ref->store->stamps, LIGI_STAMP_READ, begin);
    return status;
}

static lig_status by_name(lig_store *store, const char *model, ligi_target *self)
{
    int64_t begin = ligi_now_ns();
    lig_status status = ligi_ref_with(store, model, 0, serve, self);
    ligi_stamps_note(&store->stamps, LIGI_STAMP_LOAD, begin);
    return status;
}

static lig_status by_ref(const lig_ref *ref, ligi_target *self)
{
    int gone = 0;
    int64_t begin = ligi_now_ns();
    lig_status status = serve(self, ref, &gone);
    ligi_stamps_note(&ref->store->stamps, LIGI_STAMP_LOAD, begin);
    return gone ? ligi_ref_lost(ref) : status;
}

/* --- load --- */

lig_status lig_store_load(lig_store *store, const char *model, const lig_tensor *tensors,
                          size_t count)
{
    LIG_TRY(ligi_store_usable(store));
    LIG_TRY(ligi_tensors_check(tensors, count, 1));
    ligi_target self = {.tensors = tensors, .count = count};
    return by_name(store, model, &self);
}

lig_status ligi_store_load_exact(lig_store *store, const char *model, const lig_tensor *tensors,
                                 size_t count)
{
    LIG_TRY(ligi_store_usable(store));
    LIG_TRY(ligi_tensors_check(tensors, count, 1));
    ligi_target self = {.tensors = tensors, .count = count, .exact = 1};
    return by_name(store, model, &self);
}

lig_status lig_ref_load(const lig_ref *ref, const lig_tensor *tensors, size_t count)
{
    LIG_TRY(ligi_ref_usable(ref));
    LIG_TRY(ligi_tensors_check(tensors, count, 1));
    ligi_target self = {.tensors = tensors, .count = count};
    return by_ref(ref, &self);
}

/* --- read --- */

static lig_status reads_check(const lig_read *reads, size_t count, uint32_t flags,
                              ligi_target *self)
{
    static const lig_read none;
    if (flags & ~LIG_READ_UNVERIFIED)
        return lig_fail(LIG_E_INVALID, "unknown flags %#x for a read", flags);
    for (size_t i = 0; i < count; i++) {
        lig_tensor into = reads[i].into;
        into.name = reads[i].name ? reads[i].name : into.name;
        LIG_TRY(ligi_tensors_check(&into, 1, 1));
    }
    *self = (ligi_target){.reads = count ? reads : &none, .count = count, .flags = flags};
    return LIG_OK;
}

lig_status lig_store_read(lig_store *store, const char *model, const lig_read *reads, size_t count,
                          uint32_t flags)
{
    ligi_target self;
    LIG_TRY(ligi_store_usable(store));
    LIG_TRY(reads_check(reads, count, flags, &self));
    return by_name(store, model, &self);
}

lig_status lig_ref_read(const lig_ref *ref, const lig_read *reads, size_t count, uint32_t flags)
{
    ligi_target self;
    LIG_TRY(ligi_ref_usable(ref));
    LIG_TRY(reads_check(reads, count, flags, &self));
    return by_ref(ref, &self);
}
