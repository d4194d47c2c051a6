/* src/device/cuda/shared.cuh for the emulated GPU. */
#ifndef DEVICE_CUDA_SHARED_CUH
#define DEVICE_CUDA_SHARED_CUH

template <typename T> T *gpu_shared() { return (T *)emulated_shared_bytes(); }

#endif
