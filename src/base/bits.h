/* bits: floats as their bits, and what 16-bit floats are worth. No branches, so loops over them vectorise. */
#ifndef BASE_BITS_H
#define BASE_BITS_H

#include <stdint.h>
#include <string.h>

#include "base/host_device.h"

HOST_DEVICE static inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

HOST_DEVICE static inline float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double bits_to_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float bits_from_bfloat16(uint16_t half) { return bits_to_float((uint32_t)half << 16); }

/* Exponent and fraction are moved into place and the difference of the biases (112) is multiplied away, which also
 * normalises subnormal numbers. */
static inline float bits_from_float16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = (uint32_t)(half & 0x7fff) << 13;
    uint32_t bits = bits_of_float(bits_to_float(rest) * 0x1p112f);
    return bits_to_float(sign | (rest >= 0x0f800000 ? rest | 0x7f800000 : bits)); /* infinite or NaN */
}

#endif
