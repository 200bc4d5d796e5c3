#include "tensor/cuda/cuda_kernel.h"

#include "base/error.h"

#define BLOCK 256

/* A driver without a compiler, or older than the PTX, refuses the module. Modules belong to the
 * primary contexts, which are kept as well. */
static lig_status load(const ligi_cuda_module *module, int32_t device, void **kernels)
{
    ligi_cuda_visit visit;
    void *loaded;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = driver->cuModuleLoadDataEx(&loaded, module->ptx, 0, NULL, NULL);
    if (error == 0) {
        for (size_t i = 0; i < LIGI_CUDA_KERNELS && module->names[i] && error == 0; i++)
            error = driver->cuModuleGetFunction(&kernels[i], loaded, module->names[i]);
        if (error != 0)
            driver->cuModuleUnload(loaded);
    }
    ligi_cuda_leave(&visit);
    return error == 0 ? LIG_OK
                      : ligi_cuda_fail(driver, error, "CUDA device %d cannot load %s", device,
                                       module->what);
}

lig_status ligi_cuda_module_load(ligi_cuda_module *module, int32_t device)
{
    LIG_TRY(ligi_cuda_usable(device));
    pthread_mutex_lock(&module->lock);
    lig_status status = LIG_OK;
    if (!module->of[device].tried) {
        module->of[device].tried = 1;
        status = load(module, device, module->of[device].kernels);
        module->of[device].status = status;
    } else if (module->of[device].status != LIG_OK) {
        status = lig_fail(LIG_E_UNSUPPORTED, "CUDA device %d cannot load %s", device, module->what);
    }
    pthread_mutex_unlock(&module->lock);
    return status == LIG_OK ? LIG_OK : LIG_E_UNSUPPORTED;
}

lig_status ligi_cuda_launch_all(const ligi_cuda_module *module, int32_t device, void *stream,
                                const ligi_cuda_launch *launches, size_t count)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = 0;
    for (size_t i = 0; i < count && error == 0; i++) {
        const ligi_cuda_launch *launch = &launches[i];
        void *parameters[] = {launch->parameter};
        unsigned threads = launch->threads < BLOCK ? (unsigned)launch->threads : BLOCK;
        uint64_t blocks = (launch->threads + BLOCK - 1) / BLOCK;
        void *kernel = module->of[device].kernels[launch->kernel];
        error = driver->cuLaunchKernel(kernel, (unsigned)blocks, 1, 1, threads, 1, 1, 0, stream,
                                       parameters, NULL);
    }
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(driver, error, "cannot run %s on CUDA device %d", module->what,
                              device);
    return LIG_OK;
}
