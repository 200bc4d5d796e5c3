/* Ligament: flags that synchronise a CUDA stream with a thread of this process, for CUDA graphs whose requests a thread
 * makes. A flag is a number in pinned host memory that is compared with a sequence number in device memory.
 * Experimental. */
#ifndef LIGAMENT_MESH_FLAGS_H
#define LIGAMENT_MESH_FLAGS_H

#include <ligament/mesh.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LIG_MESH_FLAG_WRITE = 0, /* *flag = *sequence */
    LIG_MESH_FLAG_WAIT = 1,  /* until *flag >= *sequence */
    LIG_MESH_FLAG_ADD = 2    /* *sequence += 1; no flag */
};
typedef struct lig_mesh_flag_step {
    int32_t device;
    uint32_t action;
    int64_t *flag, *sequence; /* addresses on the device */
} lig_mesh_flag_step;
/* Queues a kernel on the stream (a CUstream), which may be captured. A wait ends when the flag is at least the sequence
 * number, one second after a server is lost (on a server: the last worker), and at once when the mesh is closed. In
 * that second a thread may write the flag of an answer that arrived before. Later waits after the same loss end at
 * once. */
LIG_API lig_status lig_mesh_flag(lig_mesh *mesh, const lig_mesh_flag_step *step, void *stream);
/* Returns the device address of pinned host memory. Call it before the first wait for a flag runs: later it may block
 * until the device is idle. */
LIG_API lig_status lig_mesh_flag_map(lig_mesh *mesh, int32_t device, void *data, void **mapped);

#ifdef __cplusplus
}
#endif
#endif
