#include "mesh/device/device_flags.h"

#include <ligament/mesh_flags.h>

#include "mesh/mesh.h"
#include "tensor/cuda/cuda_kernel.h"
#include "tensor/cuda/cuda_share.h"

/* flag_kernels.ptx, which the build converts to an array; NUL-terminated. */
extern const char ligi_flag_kernels_ptx[];

static ligi_cuda_module module = {
    .ptx = ligi_flag_kernels_ptx,
    .what = "the kernels for flags",
    .names = {[LIG_MESH_FLAG_WRITE] = "ligament_flag_write",
              [LIG_MESH_FLAG_WAIT] = "ligament_flag_wait",
              [LIG_MESH_FLAG_ADD] = "ligament_flag_add"},
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

#define CLOSED UINT64_MAX

typedef struct flag_call { /* as the kernels read it: addresses */
    uint64_t flag, sequence, ended, passed;
} flag_call;

/* A worker needs all servers; a server answers as long as it has a worker. */
static int has_peers(const lig_mesh *mesh, const ligi_session_peer *coming)
{
    uint32_t present = 0;
    for (uint32_t i = 0; i < mesh->party_count; i++) {
        const ligi_session_peer *peer = &mesh->parties[i].peer;
        present += peer == coming || peer->state == LIGI_PRESENT;
    }
    return mesh->role == LIG_MESH_WORKER ? present == mesh->party_count : present > 0;
}

void ligi_flags_update(lig_mesh *mesh, const ligi_session_peer *coming)
{
    ligi_mesh_device *device = mesh->device;
    if (device == NULL || device->flags_ended == NULL)
        return;
    uint64_t before = *device->flags_ended, now = 0;
    if (!has_peers(mesh, coming))
        now = before != 0 ? before : ++device->flags_losses;
    __atomic_store_n(device->flags_ended, now, __ATOMIC_RELEASE);
}

void ligi_flags_close(ligi_mesh_device *device)
{
    if (device->flags_ended)
        __atomic_store_n(device->flags_ended, CLOSED, __ATOMIC_RELEASE);
    device->flags_ended = NULL; /* the words stay allocated: device->stuck */
}

/* The device is opened and the kernels are loaded before the first flag is used: both may wait for
 * kernels that run, and one that waits for a flag runs until the caller continues. */
static lig_status open_flags(lig_mesh *mesh, int32_t number, ligi_mesh_device **device)
{
    LIG_TRY(ligi_mesh_device_open(mesh, number, device));
    if ((*device)->flags_ended)
        return LIG_OK;
    uint64_t *ended;
    LIG_TRY(ligi_cuda_module_load(&module, number));
    if ((*device)->flags_passed == NULL)
        LIG_TRY(ligi_mesh_device_word(*device, &(*device)->flags_passed));
    LIG_TRY(ligi_mesh_device_word(*device, &ended));
    *ended = *(*device)->flags_passed = 0;
    (*device)->flags_ended = ended;
    (*device)->stuck = 1;
    ligi_flags_update(mesh, NULL);
    return LIG_OK;
}

lig_status lig_mesh_flag_map(lig_mesh *mesh, int32_t device, void *data, void **mapped)
{
    ligi_mesh_device *own;
    uint64_t address = 0;
    LIG_TRY(ligi_mesh_enter(mesh));
    lig_status status = open_flags(mesh, device, &own);
    if (status == LIG_OK)
        status = ligi_cuda_pinned_address(device, data, &address);
    if (status == LIG_OK)
        *mapped = (void *)(uintptr_t)address;
    ligi_mesh_leave(mesh);
    return status;
}

lig_status lig_mesh_flag(lig_mesh *mesh, const lig_mesh_flag_step *step, void *stream)
{
    ligi_mesh_device *device;
    if (step->action > LIG_MESH_FLAG_ADD)
        return lig_fail(LIG_E_INVALID, "unknown action %u on a flag", step->action);
    LIG_TRY(ligi_mesh_enter(mesh));
    lig_status status = open_flags(mesh, step->device, &device);
    if (status == LIG_OK) {
        flag_call call = {(uintptr_t)step->flag, (uintptr_t)step->sequence,
                          ligi_mesh_device_address(device, device->flags_ended),
                          ligi_mesh_device_address(device, device->flags_passed)};
        const ligi_cuda_launch launch = {step->action, 1, &call};
        status = ligi_cuda_launch_all(&module, step->device, stream, &launch, 1);
    }
    ligi_mesh_leave(mesh);
    return status;
}
