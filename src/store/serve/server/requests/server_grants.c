#include "store/serve/server/requests/server_grants.h"

#include "base/error.h"
#include "base/map.h"
#include "store/load/resolved_model.h"
#include "store/serve/server/requests/server_lookups.h"
#include "store/serve/server/server_roles.h"
#include "store/serve/server/server_session.h"

#include <stdlib.h>
#include <string.h>

/* The place of a tensor in a pack. */
typedef struct extent {
    uint64_t begin, end;
    const uint64_t *hashes;
} extent;

typedef struct extents {
    extent *all;
    size_t count, capacity;
} extents;

static const ligi_manifest *manifest_of(const ligi_served_held *held)
{
    if (held->release == ligi_served_ref_release)
        return &((const lig_ref *)held->thing)->model->manifest;
    if (held->release == ligi_served_match_release)
        return &(*(lig_match *const *)held->thing)->ref->model->manifest;
    return NULL;
}

static lig_status add_extents(const ligi_manifest *manifest, uint64_t pack, extents *into)
{
    for (size_t i = 0; manifest && i < manifest->tensor_count; i++) {
        const lig_stored_tensor *stored = &manifest->tensors[i];
        if (stored->pack != pack || stored->tensor.bytes == 0)
            continue;
        LIG_TRY(
            ligi_grow(&into->all, &into->capacity, into->count + 1, sizeof *into->all, "a read"));
        into->all[into->count++] =
            (extent){stored->offset, stored->offset + stored->tensor.bytes, manifest->hashes[i]};
    }
    return LIG_OK;
}

/* The session's lock is held, so that its list does not change. */
static lig_status collect(const ligi_served_session *session, uint64_t pack, extents *into)
{
    lig_status status = LIG_OK;
    for (size_t i = 0; i < session->held_count && status == LIG_OK; i++)
        status = add_extents(manifest_of(session->held[i]), pack, into);
    return status;
}

static lig_status denied(ligi_served_call *call, uint64_t pack)
{
    const ligi_served_role *role = &call->session->role;
    return lig_fail(LIG_E_DENIED,
                    "permission denied: role '%s' may not '%s' these bytes of pack %016llx: they "
                    "belong to no model of '%s*' that this connection holds (resolve it again)",
                    role->name, ligi_served_op_name(call->job->head.op), (unsigned long long)pack,
                    role->prefix);
}

static int by_begin(const void *a, const void *b)
{
    const extent *left = a, *right = b;
    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    return left->end > right->end ? -1 : left->end < right->end;
}

/* The tensor that contains the range; NULL: none does. Extents are in order of their begins; those
 * of different models may overlap. */
static const extent *find_extent(const extents *from, const ligi_served_range *range)
{
    size_t at;
    LIGI_LOWER_BOUND(at, from->count, from->all[at].begin <= range->offset);
    while (at-- > 0)
        if (from->all[at].end > range->offset && from->all[at].end - range->offset >= range->bytes)
            return &from->all[at];
    return NULL;
}

static size_t block_count(uint64_t bytes)
{
    return (bytes + LIG_BLOCK_BYTES - 1) / LIG_BLOCK_BYTES;
}

/* Hashes are of whole blocks, the last one of a tensor may be shorter. */
static const uint64_t *hashes_of(const extent *in, const ligi_served_range *range)
{
    uint64_t offset = range->offset - in->begin, end = range->offset + range->bytes;
    int whole = offset % LIG_BLOCK_BYTES == 0 &&
                (end == in->end || (end - in->begin) % LIG_BLOCK_BYTES == 0);
    return whole ? in->hashes + offset / LIG_BLOCK_BYTES : NULL;
}

/* Copies the hashes, since what the session holds may be released while the pack is read. */
static lig_status grant(ligi_served_call *call, const ligi_served_read *read, const extents *from,
                        lig_range *ranges, uint64_t *hashes)
{
    for (size_t i = 0; i < read->count; i++) {
        const ligi_served_range *range = &read->ranges[i];
        const extent *in = find_extent(from, range);
        if (in == NULL)
            return denied(call, read->pack);
        const uint64_t *known = hashes_of(in, range);
        size_t blocks = block_count(range->bytes);
        if (known) {
            memcpy(hashes, known, blocks * sizeof *hashes);
            ranges[i].hashes = hashes;
            hashes += blocks;
        }
    }
    return LIG_OK;
}

lig_status ligi_served_grant_read(ligi_served_call *call, const ligi_served_read *read,
                                  lig_range *ranges, uint64_t **hashes)
{
    ligi_served_session *session = call->session;
    extents from = {0};
    size_t blocks = 0;
    *hashes = NULL;
    if (ligi_served_scope(session) == NULL)
        return LIG_OK;
    for (size_t i = 0; i < read->count; i++)
        blocks += block_count(read->ranges[i].bytes);
    LIG_TRY(ligi_calloc(hashes, blocks + 1, sizeof **hashes, "a read"));
    pthread_mutex_lock(&session->lock);
    lig_status status = collect(session, read->pack, &from);
    if (status == LIG_OK && from.count)
        qsort(from.all, from.count, sizeof *from.all, by_begin);
    if (status == LIG_OK)
        status = grant(call, read, &from, ranges, *hashes);
    pthread_mutex_unlock(&session->lock);
    free(from.all);
    return ligi_served_denied(session, status);
}

lig_status ligi_served_grant_size(ligi_served_call *call, uint64_t pack, uint64_t *bytes)
{
    ligi_served_session *session = call->session;
    extents from = {0};
    *bytes = 0;
    pthread_mutex_lock(&session->lock);
    lig_status status = collect(session, pack, &from);
    pthread_mutex_unlock(&session->lock);
    for (size_t i = 0; i < from.count; i++)
        if (from.all[i].end > *bytes)
            *bytes = from.all[i].end;
    free(from.all);
    if (status == LIG_OK && *bytes == 0)
        status = denied(call, pack);
    return ligi_served_denied(session, status);
}
