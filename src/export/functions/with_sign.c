/* |x| with the sign of [sign] */
INLINE float with_sign(float x, float sign) {
    return from_bits((bits_of(x) & 0x7fffffffu) | (bits_of(sign) & 0x80000000u));
}
