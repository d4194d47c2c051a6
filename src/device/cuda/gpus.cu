/* What ddptrain_cuda.so exports: the number of GPUs, and a device on one of them. */
#include <cstdio>

#include "device/cuda/gpu.cuh"

extern "C" {
extern const struct gpu_module ddptrain_cuda_gpus;
}

namespace {

/* "13.0" of 13000 */
#define MAJOR(version) ((version) / 1000)
#define MINOR(version) ((version) % 1000 / 10)

/* The driver lists the fastest GPU first; GPUs after the first one that is too old are not used. */
status exclude_old(int *gpus) {
    struct cudaDeviceProp properties;
    int capable = 0, major = 0;
    while (capable < *gpus &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, capable) == cudaSuccess && major >= 8)
        capable++;
    bool is_none = *gpus > 0 && capable == 0 && cudaGetDeviceProperties(&properties, 0) == cudaSuccess;
    *gpus = capable;
    if (!is_none) return OK;
    return status_usage("compute capability 8.0 or higher, but cuda:0 (%s) has %d.%d", properties.name,
                        properties.major, properties.minor);
}

status count(int *gpus) {
    int driver = 0;
    *gpus = 0;
    cudaError_t error = cudaGetDeviceCount(gpus);
    if (error == cudaSuccess) return exclude_old(gpus);
    *gpus = 0;
    if (error == cudaErrorNoDevice) return OK;
    if (error == cudaErrorInsufficientDriver) {
        cudaDriverGetVersion(&driver);
        return status_usage("a driver for CUDA %d.%d or later, but the installed one is for %d.%d: update it",
                            MAJOR(CUDART_VERSION), MINOR(CUDART_VERSION), MAJOR(driver), MINOR(driver));
    }
    return status_usage("a usable GPU, but the driver reports %s (%s): check the output of nvidia-smi",
                        cudaGetErrorName(error), cudaGetErrorString(error));
}

/* Parts of one GPU (MIG) differ only in their UUID. */
status identity(int gpu, char text[128]) {
    struct cudaDeviceProp properties;
    char place[32] = "";
    cudaError_t error = cudaGetDeviceProperties(&properties, gpu);
    if (error == cudaSuccess) error = cudaDeviceGetPCIBusId(place, sizeof place, gpu);
    if (error != cudaSuccess)
        return status_usage("a usable GPU: %s; check the output of nvidia-smi", cudaGetErrorString(error));
    int length = snprintf(text, 128, "%.50s at %s, GPU-", properties.name, place);
    for (unsigned i = 0; i < sizeof properties.uuid.bytes && length < 126; i++)
        length += snprintf(text + length, 128 - (size_t)length, "%02x", (unsigned char)properties.uuid.bytes[i]);
    return OK;
}

} // namespace

const struct gpu_module ddptrain_cuda_gpus = {count, gpu_device_create, identity};
