/* host_device: marks small inline functions that the GPU's kernels use, too; nothing for a compiler of C. */
#ifndef BASE_HOST_DEVICE_H
#define BASE_HOST_DEVICE_H

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

#endif
