/* host_device: marks inline functions that GPU kernels use too; empty for C compilers. */
#pragma once

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif
