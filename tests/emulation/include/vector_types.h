/* Emulated CUDA: the vector types of kernels, with the GPU's alignment, and their constructors. */
#pragma once

#include <cstddef>
#include <cstdint>

#define EMULATED_VECTOR_1(name, scalar)                                                                                \
    struct name##1 {                                                                                                   \
        scalar x;                                                                                                      \
    };                                                                                                                 \
    static inline name##1 make_##name##1(scalar x) { return {x}; }
#define EMULATED_VECTOR_2(name, scalar, alignment)                                                                     \
    struct alignas(alignment) name##2 {                                                                                \
        scalar x, y;                                                                                                   \
    };                                                                                                                 \
    static inline name##2 make_##name##2(scalar x, scalar y) { return {x, y}; }
#define EMULATED_VECTOR_3(name, scalar)                                                                                \
    struct name##3 {                                                                                                   \
        scalar x, y, z;                                                                                                \
    };                                                                                                                 \
    static inline name##3 make_##name##3(scalar x, scalar y, scalar z) { return {x, y, z}; }
#define EMULATED_VECTOR_4(name, scalar, alignment)                                                                     \
    struct alignas(alignment) name##4 {                                                                                \
        scalar x, y, z, w;                                                                                             \
    };                                                                                                                 \
    static inline name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }
#define EMULATED_VECTORS(name, scalar)                                                                                 \
    EMULATED_VECTOR_1(name, scalar)                                                                                    \
    EMULATED_VECTOR_2(name, scalar, (2 * sizeof(scalar)))                                                              \
    EMULATED_VECTOR_3(name, scalar)                                                                                    \
    EMULATED_VECTOR_4(name, scalar, (4 * sizeof(scalar) > 16 ? 16 : 4 * sizeof(scalar)))

EMULATED_VECTORS(char, signed char)
EMULATED_VECTORS(uchar, unsigned char)
EMULATED_VECTORS(short, short)
EMULATED_VECTORS(ushort, unsigned short)
EMULATED_VECTORS(int, int)
EMULATED_VECTORS(uint, unsigned)
EMULATED_VECTORS(float, float)
EMULATED_VECTORS(longlong, long long)
EMULATED_VECTORS(ulonglong, unsigned long long)
EMULATED_VECTORS(double, double)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
