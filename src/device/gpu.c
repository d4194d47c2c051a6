/* Finds the module of the GPU and says what is missing: the module, a library of it, the driver, or a GPU. */
#include <dlfcn.h>
#include <stdlib.h>

#include "base/module.h"
#include "device/internal.h"

status gpu_find_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver) return OK; /* not closed: the module will open it, too */
    return status_new(STATUS_USAGE,
                      "NVIDIA's driver, which this machine has not (%s): install it, or give the container the GPU "
                      "(docker run --gpus all); without a GPU use device: cpu",
                      dlerror());
}

static status find_none(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible)
        return status_new(STATUS_USAGE,
                          "a GPU, and CUDA_VISIBLE_DEVICES='%s' shows none: unset it or name one, or use device: cpu",
                          visible);
    return status_new(STATUS_USAGE,
                      "a GPU, and the driver finds none: look at what nvidia-smi says, or use device: cpu");
}

status gpu_find(const struct gpu_module **module, int *gpus) {
    void *address;
    status s = module_open("cuda", "ddptrain_cuda_gpus", &address);
    if (s) {
        status told = status_new(STATUS_USAGE,
                                 "a build with CUDA and its libraries: %s; docs/gpu.md says how to build and "
                                 "install them, or use device: cpu",
                                 status_message(s));
        status_free(s);
        return told;
    }
    *module = address;
    TRY(gpu_find_driver());
    TRY((*module)->count(gpus));
    return *gpus > 0 ? OK : find_none();
}
