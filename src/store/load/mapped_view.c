#include "base/error.h"
#include "store/format/assemble.h"
#include "store/handle.h"
#include "store/load/read_ranges.h"
#include "store/load/resolved_model.h"
#include "store/load/verify_checksums.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct mapped {
    uint64_t pack;
    lig_mapping mapping;
    int copied; /* into private memory, from the mapping of a removed pack */
} mapped;

struct lig_view {
    ligi_volume *volume; /* holds a reference: packs are unmapped through it */
    ligi_model *model;
    mapped *packs;
    size_t pack_count, pack_capacity;
    void *inlined; /* the bytes of an inline model, with the alignment of a pack */
    void *made;    /* tensors split into boxes: these are copied, not mapped */
    size_t made_bytes;
    void *loaded; /* copies of the tensors, if packs cannot be mapped */
    size_t loaded_bytes;
};

void lig_view_destroy(lig_view *view)
{
    if (view == NULL)
        return;
    for (size_t i = 0; i < view->pack_count; i++) {
        mapped *one = &view->packs[i];
        if (one->copied)
            munmap(one->mapping.base, one->mapping.bytes);
        else
            view->volume->ops->pack_unmap(view->volume->self, &one->mapping);
    }
    ligi_model_free(view->model);
    ligi_volume_drop(view->volume);
    free(view->packs);
    free(view->inlined);
    if (view->made)
        munmap(view->made, view->made_bytes);
    if (view->loaded)
        munmap(view->loaded, view->loaded_bytes);
    free(view);
}

const lig_model *lig_view_model(const lig_view *view)
{
    return &view->model->shown;
}

typedef struct mapping_job {
    uint32_t flags;
    const lig_ref *ref;
    lig_view *view;
    lig_view **out;
} mapping_job;

static void *anonymous(uint64_t bytes)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

static lig_status no_room(uint64_t bytes)
{
    return lig_fail(LIG_E_NOMEM, "out of memory for a view of %llu bytes",
                    (unsigned long long)bytes);
}

/* The ref can still read the pack, but it cannot be mapped any more. */
static lig_status copy_pack(const mapping_job *job, const lig_mapping *from, mapped *one)
{
    void *base = anonymous(from->bytes);
    if (base == NULL)
        return no_room(from->bytes);
    memcpy(base, from->base, from->bytes);
    if (!(job->flags & LIG_VIEW_PRIVATE))
        (void)mprotect(base, from->bytes, PROT_READ);
    one->mapping = (lig_mapping){.base = base, .bytes = from->bytes};
    one->copied = 1;
    return LIG_OK;
}

static lig_status map_pack(const mapping_job *job, mapped *one, int *gone)
{
    ligi_volume *volume = job->view->volume;
    uint32_t flags = job->flags & LIG_VIEW_PRIVATE ? LIG_MAP_PRIVATE : 0;
    lig_status status = volume->ops->pack_map(volume->self, one->pack, flags, &one->mapping);
    if (status != LIG_E_NOTFOUND)
        return status;
    const lig_mapping *kept = ligi_maps_find(&job->ref->maps, one->pack);
    *gone = kept == NULL;
    return kept ? copy_pack(job, kept, one) : status;
}

static lig_status find_pack(mapping_job *job, uint64_t pack, int *gone, const mapped **found)
{
    lig_view *view = job->view;
    for (size_t i = view->pack_count; i-- > 0;)
        if (view->packs[i].pack == pack) {
            *found = &view->packs[i];
            return LIG_OK;
        }
    LIG_TRY(ligi_grow(&view->packs, &view->pack_capacity, view->pack_count + 1, sizeof *view->packs,
                      "a view"));
    mapped one = {.pack = pack};
    LIG_TRY(map_pack(job, &one, gone));
    view->packs[view->pack_count] = one;
    *found = &view->packs[view->pack_count++];
    return LIG_OK;
}

static lig_status copy_inline(lig_view *view)
{
    const ligi_model *model = view->model;
    size_t bytes = (model->inline_bytes + LIGI_ALIGN_SMALL) / LIGI_ALIGN_SMALL * LIGI_ALIGN_SMALL;
    view->inlined = aligned_alloc(LIGI_ALIGN_SMALL, bytes);
    if (view->inlined == NULL)
        return no_room(bytes);
    memcpy(view->inlined, model->inline_data, model->inline_bytes);
    return LIG_OK;
}

static lig_status place_tensor(mapping_job *job, size_t index, int *gone)
{
    lig_view *view = job->view;
    lig_stored_tensor *stored = &view->model->manifest.tensors[index];
    if (stored->tensor.bytes == 0)
        return LIG_OK;
    if (stored->pack == 0) {
        stored->tensor.data = (char *)view->inlined + stored->offset;
        return LIG_OK;
    }
    const mapped *pack;
    LIG_TRY(find_pack(job, stored->pack, gone, &pack));
    if (stored->offset > pack->mapping.bytes ||
        stored->tensor.bytes > pack->mapping.bytes - stored->offset)
        return lig_fail(LIG_E_CORRUPT, "pack %016llx is too short for tensor '%s'",
                        (unsigned long long)stored->pack, stored->tensor.name);
    stored->tensor.data = (char *)pack->mapping.base + stored->offset;
    return LIG_OK;
}

static uint64_t room_of(const lig_stored_tensor *stored)
{
    return (stored->tensor.bytes + LIGI_ALIGN_SMALL - 1) / LIGI_ALIGN_SMALL * LIGI_ALIGN_SMALL;
}

static int is_loaded(const lig_stored_tensor *stored)
{
    return stored->pack && stored->tied < 0 && stored->tensor.bytes;
}

static lig_status make_load_room(lig_view *view)
{
    const ligi_manifest *manifest = &view->model->manifest;
    uint64_t bytes = 0;
    for (size_t i = 0; i < manifest->tensor_count; i++)
        if (is_loaded(&manifest->tensors[i]) &&
            (__builtin_add_overflow(bytes, room_of(&manifest->tensors[i]), &bytes) ||
             bytes > SIZE_MAX / 2))
            return lig_fail(LIG_E_LIMIT, "its tensors are too large for a view");
    view->loaded = anonymous(bytes);
    if (view->loaded == NULL)
        return no_room(bytes);
    view->loaded_bytes = bytes;
    return LIG_OK;
}

/* For a volume that cannot map its packs: the view has private memory. The tensors are verified as
 * they are read. */
static lig_status load_tensors(mapping_job *job, int *gone)
{
    lig_view *view = job->view;
    lig_stored_tensor *tensors = view->model->manifest.tensors;
    size_t count = view->model->manifest.tensor_count;
    ligi_fetch fetch = {.store = job->ref->store,
                        .model = view->model,
                        .verify = !(job->flags & LIG_READ_UNVERIFIED),
                        .gone = gone,
                        .maps = &job->ref->maps};
    LIG_TRY(make_load_room(view));
    char *at = view->loaded;
    lig_status status = LIG_OK;
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        if (!is_loaded(&tensors[i]))
            continue;
        tensors[i].tensor.data = at;
        at += room_of(&tensors[i]);
        status =
            ligi_fetch_add(&fetch, i, 0, tensors[i].tensor.bytes, tensors[i].tensor.data, NULL);
    }
    if (status == LIG_OK)
        status = ligi_fetch_run(&fetch);
    ligi_fetch_fini(&fetch);
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        if (tensors[i].pack == 0) /* of an inline model */
            status = place_tensor(job, i, gone);
        else if (tensors[i].tied >= 0)
            tensors[i].tensor.data = tensors[tensors[i].tied].tensor.data;
    if (status == LIG_OK && !(job->flags & LIG_VIEW_PRIVATE))
        (void)mprotect(view->loaded, view->loaded_bytes, PROT_READ);
    return status;
}

static lig_status map_tensors(mapping_job *job, int *gone)
{
    lig_view *view = job->view;
    if (view->model->inline_bytes)
        LIG_TRY(copy_inline(view));
    lig_status status = LIG_OK;
    for (size_t i = 0; i < view->model->manifest.tensor_count && status == LIG_OK; i++)
        status = place_tensor(job, i, gone);
    if (status == LIG_E_UNSUPPORTED)
        return load_tensors(job, gone);
    LIG_TRY(status);
    if (job->flags & LIG_READ_UNVERIFIED || job->ref->store->keyless)
        return LIG_OK;
    return ligi_verify_placed(view->model, job->ref->store->secret);
}

/* 1 if the tensor must be assembled. */
static int is_made(const ligi_manifest *manifest, size_t index)
{
    return manifest->shown[index].boxes > 1 && manifest->shown[index].tied < 0 &&
           manifest->shown[index].tensor.bytes != 0;
}

static lig_status make_room(lig_view *view)
{
    const ligi_manifest *manifest = &view->model->manifest;
    uint64_t bytes = 0;
    for (size_t i = 0; i < manifest->shown_count; i++)
        if (is_made(manifest, i) &&
            (__builtin_add_overflow(bytes, room_of(&manifest->shown[i]), &bytes) ||
             bytes > SIZE_MAX / 2))
            return lig_fail(LIG_E_LIMIT, "its tensors are too large for a view");
    if (bytes == 0)
        return LIG_OK;
    view->made = anonymous(bytes);
    if (view->made == NULL)
        return no_room(bytes);
    view->made_bytes = bytes;
    return LIG_OK;
}

/* The tensors as the caller sees them: those stored whole point into the mapping, the others are
 * assembled from the mapped boxes, which have been verified. */
static lig_status show_tensors(mapping_job *job)
{
    lig_view *view = job->view;
    ligi_manifest *manifest = &view->model->manifest;
    if (manifest->wholes == NULL)
        return LIG_OK;
    LIG_TRY(make_room(view));
    char *at = view->made;
    for (size_t i = 0; i < manifest->shown_count; i++) {
        lig_stored_tensor *shown = &manifest->shown[i];
        if (is_made(manifest, i)) {
            shown->tensor.data = at;
            ligi_assemble_copy(manifest, i, at);
            at += room_of(shown);
        } else if (shown->boxes > 1 && shown->tied >= 0) {
            shown->tensor.data = manifest->shown[shown->tied].tensor.data;
        } else {
            shown->tensor.data = manifest->tensors[manifest->wholes[i].first].tensor.data;
        }
    }
    if (view->made && !(job->flags & LIG_VIEW_PRIVATE))
        (void)mprotect(view->made, view->made_bytes, PROT_READ);
    return LIG_OK;
}

static lig_status map_model(void *context, const lig_ref *ref, int *gone)
{
    mapping_job *job = context;
    lig_view *view;
    LIG_TRY(ligi_calloc(&view, 1, sizeof *view, "a view"));
    ligi_volume_hold(ref->store->volume);
    view->volume = ref->store->volume;
    job->view = view;
    job->ref = ref;
    lig_status status = ligi_model_copy(ref->model, ref->store->secret, &view->model);
    if (status == LIG_OK)
        status = map_tensors(job, gone);
    if (status == LIG_OK)
        status = show_tensors(job);
    if (status != LIG_OK) {
        lig_view_destroy(view);
        return ligi_fail_again(*gone ? LIG_E_CORRUPT : status, "model '%s': %s",
                               ref->model->record.about.name, lig_error_text());
    }
    *job->out = view;
    return LIG_OK;
}

static lig_status flags_check(uint32_t flags)
{
    if (flags & ~(LIG_READ_UNVERIFIED | LIG_VIEW_PRIVATE))
        return lig_fail(LIG_E_INVALID, "unknown flags %#x for a view", flags);
    return LIG_OK;
}

lig_status lig_store_map(lig_store *store, const char *model, uint32_t flags, lig_view **view)
{
    LIG_TRY(ligi_store_usable(store));
    LIG_TRY(flags_check(flags));
    mapping_job job = {.flags = flags, .out = view};
    int64_t begin = ligi_now_ns();
    lig_status status = ligi_ref_with(store, model, 0, map_model, &job);
    ligi_stamps_note(&store->stamps, LIGI_STAMP_LOAD, begin);
    return status;
}

lig_status lig_ref_map(const lig_ref *ref, uint32_t flags, lig_view **view)
{
    LIG_TRY(ligi_ref_usable(ref));
    LIG_TRY(flags_check(flags));
    mapping_job job = {.flags = flags, .out = view};
    int gone = 0;
    int64_t begin = ligi_now_ns();
    lig_status status = map_model(&job, ref, &gone);
    ligi_stamps_note(&ref->store->stamps, LIGI_STAMP_LOAD, begin);
    return gone ? ligi_ref_lost(ref) : status;
}
