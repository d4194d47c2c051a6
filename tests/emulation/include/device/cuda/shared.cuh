/* src/device/cuda/shared.cuh for the emulated GPU. */
#pragma once

template <typename T> T *gpu_shared() { return (T *)emulated_shared_bytes(); }
