#include "store/save/save_part.h"

#include "base/error.h"
#include "base/hash.h"
#include "store/catalog/orphans.h"
#include "store/load/pins.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char magic[4] = {'L', 'I', 'G', 'P'};
enum { PART_VERSION = 1, HASH_BYTES = 8 };

/* Longer than a save of all the others takes. */
#define LEASE_NS (INT64_C(24) * 3600 * 1000000000)

struct lig_part {
    pid_t pid;
    ligi_pin *pin;
    ligi_use *uses;
    size_t use_count;
    lig_store *store; /* of a remote store, held, with what its server keeps; else NULL */
    ligi_lease lease;
    ligi_writer bytes;
};

static void destroy(lig_part *part)
{
    ligi_pin_release(part->pin);
    if (part->store)
        ligi_store_drop(part->store);
    ligi_writer_fini(&part->bytes);
    free(part->uses);
    free(part);
}

static lig_status put_part(const ligi_save_write *writing, ligi_writer *out)
{
    const ligi_plan *plan = writing->plan;
    ligi_put_bytes(out, magic, sizeof magic);
    ligi_put_varint(out, PART_VERSION);
    ligi_put_bytes(out, writing->store->uuid, LIGI_UUID_BYTES);
    ligi_put_varint(out, writing->pack_id);
    ligi_put_varint(out, writing->pack_bytes);
    ligi_put_varint(out, writing->manifest.bytes);
    ligi_put_bytes(out, writing->manifest.data, writing->manifest.bytes);
    for (size_t i = 0; i < plan->count; i++)
        ligi_put_varint(out, plan->orders[i]);
    ligi_put_varint(out, writing->data.bytes);
    ligi_put_bytes(out, writing->data.data, writing->data.bytes);
    LIG_TRY(out->status);
    ligi_put_u64(out, ligi_hash64_plain(out->data, out->bytes));
    return out->status;
}

static lig_status fill_part(ligi_save_write *writing, lig_part *part)
{
    ligi_record record = {0};
    LIG_TRY(ligi_plan_record(writing->plan, writing->pack_id, &record));
    part->uses = record.uses;
    part->use_count = record.use_count;
    if (part->use_count)
        LIG_TRY(ligi_pin_take(writing->store, part->uses, part->use_count, LEASE_NS, &part->pin));
    if (writing->pack_id == 0)
        LIG_TRY(ligi_save_write_manifest(writing));
    return put_part(writing, &part->bytes);
}

lig_status ligi_part_make(ligi_save_write *writing, lig_part **out)
{
    lig_part *part;
    LIG_TRY(ligi_calloc(&part, 1, sizeof *part, "a part"));
    part->pid = writing->store->pid;
    lig_status status = fill_part(writing, part);
    if (status == LIG_OK)
        *out = part;
    else
        destroy(part);
    return status;
}

lig_status ligi_part_remote(lig_store *store, ligi_lease lease, const void *bytes, size_t size,
                            lig_part **out)
{
    lig_part *part;
    LIG_TRY(ligi_calloc(&part, 1, sizeof *part, "a part"));
    part->pid = store->pid;
    ligi_store_hold(store);
    part->store = store;
    part->lease = lease;
    ligi_put_bytes(&part->bytes, bytes, size);
    lig_status status = part->bytes.status;
    if (status == LIG_OK)
        *out = part;
    else
        destroy(part);
    return status;
}

lig_status lig_part_bytes(const lig_part *part, const void **data, size_t *bytes)
{
    *data = part->bytes.data;
    *bytes = part->bytes.bytes;
    return LIG_OK;
}

void lig_part_close(lig_part *part, lig_store *store)
{
    if (part == NULL)
        return;
    if (part->pid != getpid()) /* what it holds is the parent's */
        part->pin = NULL;
    else if (part->lease.number)
        part->store->remote->release(part->store, part->lease);
    int here = part->pin && store && ligi_store_usable(store) == LIG_OK;
    ligi_pin_release(part->pin);
    part->pin = NULL;
    for (size_t i = 0; i < part->use_count && here; i++)
        ligi_orphans_remove_pack(store, part->uses[i].pack);
    destroy(part);
}

/* --- reading --- */

static lig_status ends_early(void)
{
    return lig_fail(LIG_E_CORRUPT, "not a part: truncated data");
}

static lig_status open_part(const void *bytes, size_t size, const void *uuid, ligi_reader *reader)
{
    *reader = (ligi_reader){.data = bytes, .bytes = size};
    const void *found = ligi_get_bytes(reader, sizeof magic);
    if (found == NULL || memcmp(found, magic, sizeof magic) != 0 || size < HASH_BYTES)
        return lig_fail(LIG_E_CORRUPT, "not a part: wrong magic number");
    uint64_t version = ligi_get_varint(reader);
    if (version != PART_VERSION)
        return lig_fail(
            LIG_E_UNSUPPORTED,
            "the part has version %llu, but this library supports version %d (use one version of "
            "Ligament in all processes)",
            (unsigned long long)version, PART_VERSION);
    ligi_reader end = {.data = bytes, .bytes = size, .at = size - HASH_BYTES};
    if (ligi_get_u64(&end) != ligi_hash64_plain(bytes, size - HASH_BYTES))
        return lig_fail(LIG_E_CORRUPT, "the part is damaged");
    reader->bytes = size - HASH_BYTES;
    const void *whose = ligi_get_bytes(reader, LIGI_UUID_BYTES);
    if (whose == NULL)
        return ends_early();
    if (memcmp(whose, uuid, LIGI_UUID_BYTES) != 0)
        return lig_fail(LIG_E_MISMATCH, "the part was written to another store");
    return LIG_OK;
}

/* The part's own tensors are in its pack or in its data. */
static lig_status check_places(const ligi_part_read *part)
{
    for (size_t i = 0; i < part->manifest.tensor_count; i++) {
        const lig_stored_tensor *stored = &part->manifest.tensors[i];
        uint64_t end = stored->pack == 0 ? part->data_bytes : part->pack_bytes;
        if (stored->tensor.bytes == 0 || (stored->pack && stored->pack != part->pack))
            continue;
        if (stored->offset > end || stored->tensor.bytes > end - stored->offset)
            return lig_fail(LIG_E_CORRUPT, "tensor '%s' is outside its part", stored->tensor.name);
    }
    return LIG_OK;
}

lig_status ligi_part_parse(const void *bytes, size_t size, const void *uuid, ligi_part_read *part)
{
    ligi_reader reader;
    LIG_TRY(open_part(bytes, size, uuid, &reader));
    part->pack = ligi_get_varint(&reader);
    part->pack_bytes = ligi_get_varint(&reader);
    size_t manifest_bytes = ligi_get_count(&reader, 1);
    const void *manifest = ligi_get_bytes(&reader, manifest_bytes);
    if (manifest == NULL)
        return ends_early();
    LIG_TRY(ligi_manifest_get(manifest, manifest_bytes, part->pack, &part->manifest));
    if (!part->manifest.part)
        return lig_fail(LIG_E_CORRUPT, "not a part but a model");
    size_t count = part->manifest.tensor_count;
    LIG_TRY(ligi_calloc(&part->orders, count, sizeof *part->orders, "a part"));
    for (size_t i = 0; i < count; i++)
        part->orders[i] = ligi_get_varint(&reader);
    part->data_bytes = ligi_get_count(&reader, 1);
    part->data = ligi_get_bytes(&reader, part->data_bytes);
    if (reader.failed || reader.at != reader.bytes)
        return lig_fail(LIG_E_CORRUPT, "the part has the wrong length");
    return check_places(part);
}

void ligi_part_read_fini(ligi_part_read *part)
{
    ligi_manifest_fini(&part->manifest);
    free(part->orders);
}
