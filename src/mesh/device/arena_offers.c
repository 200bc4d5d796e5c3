#include "mesh/device/arena_offers.h"

#include "base/error.h"
#include "mesh/device/mesh_device.h"
#include "mesh/mesh.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "tensor/cuda/cuda_device.h"

#include <stdlib.h>
#include <string.h>

void ligi_imports_hold(ligi_imports *imports)
{
    atomic_fetch_add_explicit(&imports->refs, 1, memory_order_relaxed);
}

void ligi_imports_drop(ligi_imports *imports)
{
    if (imports == NULL || atomic_fetch_sub_explicit(&imports->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < LIGI_MESSAGE_ARENAS; i++)
        if (imports->arenas[i].data && !imports->arenas[i].same_process)
            ligi_cuda_import_close(imports->device, imports->arenas[i].data);
    free(imports);
}

void ligi_arenas_reset(ligi_arenas *arenas)
{
    ligi_imports_drop(arenas->imports);
    *arenas = (ligi_arenas){0};
}

static int is_near(const ligi_party *party)
{
    return party->peer.link != NULL && ligi_link_near(party->peer.link);
}

static lig_status offer_one(ligi_mesh_device *device, ligi_party *party, uint32_t arena)
{
    uint8_t head[LIGI_MESSAGE_OFFER_BYTES];
    ligi_offer offer = {.arena = arena};
    ligi_cuda_handle handle = {{0}};
    void *data;
    LIG_TRY(ligi_cuda_process(offer.process));
    LIG_TRY(ligi_arena_heap_export(device->memory, arena, &handle, &data, &offer.bytes));
    offer.address = (uint64_t)(uintptr_t)data;
    memcpy(offer.device, device->uuid, sizeof offer.device);
    memcpy(offer.handle, handle.bytes, sizeof offer.handle);
    return ligi_net_send(party->peer.link,
                         &(ligi_send){.head = head, .head_bytes = ligi_message_offer(&offer, head)},
                         NULL);
}

/* An offer that fails is not repeated: what would have gone through the arena goes through host
 * memory. */
void ligi_arena_offer(ligi_mesh_device *device, ligi_party *party)
{
    if (!is_near(party))
        return;
    if (ligi_arena_heap_count(device->memory) == 0) { /* the first: peers open it meanwhile */
        ligi_arena_chunk *chunk = NULL;
        if (party->arenas.offered & 1 ||
            ligi_arena_heap_take(device->memory, 1, &chunk) != LIG_OK) {
            party->arenas.offered |= 1;
            return;
        }
        ligi_arena_chunk_drop(chunk);
    }
    uint32_t count = ligi_arena_heap_count(device->memory);
    for (uint32_t i = 0; i < count; i++) {
        if (party->arenas.offered >> i & 1)
            continue;
        party->arenas.offered |= UINT64_C(1) << i;
        (void)offer_one(device, party, i);
    }
}

static lig_status import_arena(ligi_mesh_device *device, ligi_imports *imports,
                               const ligi_offer *offer)
{
    ligi_cuda_handle handle;
    void *data = (void *)(uintptr_t)offer->address;
    uint8_t process[sizeof offer->process];
    LIG_TRY(ligi_cuda_process(process));
    int same_process = memcmp(offer->process, process, sizeof process) == 0;
    if (imports->arenas[offer->arena].data)
        return lig_fail(LIG_E_CORRUPT, "arena %u was offered twice", (unsigned)offer->arena);
    memcpy(handle.bytes, offer->handle, sizeof handle.bytes);
    LIG_TRY(same_process ? ligi_cuda_check(data, offer->bytes, device->number)
                         : ligi_cuda_import(device->number, &handle, &data));
    imports->arenas[offer->arena].data = data;
    imports->arenas[offer->arena].bytes = offer->bytes;
    imports->arenas[offer->arena].same_process = same_process;
    return LIG_OK;
}

static lig_status open_offer(ligi_party *party, const ligi_offer *offer)
{
    lig_mesh *mesh = party->mesh;
    ligi_mesh_device *device;
    if (!is_near(party) || mesh->receive_memory != LIG_MEMORY_CUDA)
        return lig_fail(LIG_E_UNSUPPORTED, "this server does not receive tensors in device memory");
    LIG_TRY(ligi_mesh_device_open(mesh, mesh->receive_device, &device));
    if (memcmp(offer->device, device->uuid, sizeof device->uuid) != 0)
        return lig_fail(LIG_E_UNSUPPORTED, "the worker's tensors are on a different device");
    if (party->arenas.imports == NULL) {
        LIG_TRY(ligi_calloc(&party->arenas.imports, 1, sizeof *party->arenas.imports,
                            "a peer's memory"));
        party->arenas.imports->device = device->number;
        atomic_init(&party->arenas.imports->refs, 1);
    }
    LIG_TRY(import_arena(device, party->arenas.imports, offer));
    party->arenas.opened |= UINT64_C(1) << offer->arena;
    return LIG_OK;
}

lig_status ligi_arena_on_offer(ligi_party *party, const void *head, size_t bytes)
{
    uint8_t answer[LIGI_MESSAGE_SMALL_BYTES];
    ligi_offer offer;
    if (party->mesh->role != LIG_MESH_SERVER)
        return lig_fail(LIG_E_CORRUPT, "protocol error: a server offered device memory");
    LIG_TRY(ligi_message_decode_offer(head, bytes, &offer));
    lig_status status = open_offer(party, &offer);
    if (status == LIG_E_CORRUPT)
        return status;
    size_t size = ligi_message_opened((uint32_t)offer.arena, status, answer);
    return ligi_net_send(party->peer.link, &(ligi_send){.head = answer, .head_bytes = size}, NULL);
}

void ligi_arena_on_opened(ligi_party *party, const ligi_message *message)
{
    if (message->status == LIG_OK && message->serial < LIGI_MESSAGE_ARENAS &&
        party->arenas.offered >> message->serial & 1)
        party->arenas.opened |= UINT64_C(1) << message->serial;
}

uint8_t *ligi_arenas_find(const ligi_arenas *arenas, const ligi_place *place, uint64_t bytes)
{
    const ligi_imports *imports = arenas->imports;
    if (imports == NULL || place->arena >= LIGI_MESSAGE_ARENAS ||
        imports->arenas[place->arena].data == NULL)
        return NULL;
    uint64_t size = imports->arenas[place->arena].bytes;
    if (place->offset > size || bytes > size - place->offset)
        return NULL;
    return imports->arenas[place->arena].data + place->offset;
}
