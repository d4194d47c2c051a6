/* What the program finds in ddptrain_cuda.so: which GPUs there are, and a device on one of them. */
#include "device/cuda/gpu.cuh"

extern "C" {
extern const struct gpu_module ddptrain_cuda_gpus;
}

namespace {

/* "13.0" of 13000 */
#define MAJOR(version) ((version) / 1000)
#define MINOR(version) ((version) % 1000 / 10)

status count(int *gpus) {
    int driver = 0;
    *gpus = 0;
    cudaError_t error = cudaGetDeviceCount(gpus);
    if (error == cudaSuccess) return OK;
    *gpus = 0;
    if (error == cudaErrorNoDevice) return OK;
    if (error == cudaErrorInsufficientDriver) {
        cudaDriverGetVersion(&driver);
        return status_new(STATUS_USAGE,
                          "a driver for CUDA %d.%d or later, and this one is for %d.%d: update it, or use device: cpu",
                          MAJOR(CUDART_VERSION), MINOR(CUDART_VERSION), MAJOR(driver), MINOR(driver));
    }
    return status_new(STATUS_USAGE,
                      "a GPU that can be asked, and the driver says %s (%s): look at what nvidia-smi "
                      "says, or use device: cpu",
                      cudaGetErrorName(error), cudaGetErrorString(error));
}

} // namespace

const struct gpu_module ddptrain_cuda_gpus = {count, gpu_device_create};
