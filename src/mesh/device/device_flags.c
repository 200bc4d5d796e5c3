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
    if (device->flags_ended == NULL)
        return;
    __atomic_store_n(device->flags_ended, CLOSED, __ATOMIC_RELEASE);
    device->flags_ended = NULL; /* the words stay allocated: device->stuck */
}

/* With the lock. */
static lig_status make_words(lig_mesh *mesh)
{
    ligi_mesh_device *device = mesh->device;
    uint64_t *ended;
    if (device->flags_ended)
        return LIG_OK;
    if (device->flags_passed == NULL)
        LIG_TRY(ligi_mesh_device_word(device, &device->flags_passed));
    LIG_TRY(ligi_mesh_device_word(device, &ended));
    *ended = *device->flags_passed = 0;
    device->flags_ended = ended;
    device->stuck = 1;
    ligi_flags_update(mesh, NULL);
    return LIG_OK;
}

/* The device is opened and the kernels are loaded before the first flag is used: both may wait for
 * kernels that run, and one that waits for a flag runs until the caller continues. Loading them
 * needs no lock: kernels of other meshes may wait for their peers. */
static lig_status open_flags(lig_mesh *mesh, int32_t number, flag_call *call)
{
    ligi_mesh_device *device;
    LIG_TRY(ligi_mesh_enter(mesh));
    lig_status status = ligi_mesh_device_open(mesh, number, &device);
    int loaded = status == LIG_OK && device->flags_ended;
    ligi_mesh_leave(mesh);
    LIG_TRY(status);
    if (!loaded)
        LIG_TRY(ligi_cuda_module_load(&module, number));
    LIG_TRY(ligi_mesh_enter(mesh));
    status = make_words(mesh);
    if (status == LIG_OK) {
        call->ended = ligi_mesh_device_address(device, device->flags_ended);
        call->passed = ligi_mesh_device_address(device, device->flags_passed);
    }
    ligi_mesh_leave(mesh);
    return status;
}

/* May wait for the device, so the lock is not held. */
lig_status lig_mesh_flag_map(lig_mesh *mesh, int32_t device, void *data, void **mapped)
{
    flag_call call;
    uint64_t address = 0;
    LIG_TRY(open_flags(mesh, device, &call));
    LIG_TRY(ligi_cuda_pinned_address(device, data, &address));
    *mapped = (void *)(uintptr_t)address;
    return LIG_OK;
}

/* A launch waits while the stream's queue is full: without the lock, which the threads that answer
 * need. The words stay allocated after the mesh is closed. */
lig_status lig_mesh_flag(lig_mesh *mesh, const lig_mesh_flag_step *step, void *stream)
{
    flag_call call = {.flag = (uintptr_t)step->flag, .sequence = (uintptr_t)step->sequence};
    if (step->action > LIG_MESH_FLAG_ADD)
        return lig_fail(LIG_E_INVALID, "unknown action %u on a flag", step->action);
    if (call.sequence == 0 || (call.flag == 0 && step->action != LIG_MESH_FLAG_ADD))
        return lig_fail(LIG_E_INVALID, "the address of a flag or of its sequence number is NULL");
    LIG_TRY(open_flags(mesh, step->device, &call));
    const ligi_cuda_launch launch = {step->action, 1, &call};
    return ligi_cuda_launch_all(&module, step->device, stream, &launch, 1);
}
