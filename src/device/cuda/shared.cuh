/* A block's dynamic shared memory. The emulated GPU of the tests has a file of this name instead
 * (tests/emulation/include). */
#pragma once

/* Aligned to 128 bytes. */
template <typename T> __device__ T *gpu_shared() {
    extern __shared__ __align__(128) unsigned char gpu_shared_bytes[];
    return (T *)gpu_shared_bytes;
}
