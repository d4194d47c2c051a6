/* e^x = 2^n e^r with |r| <= ln(2) / 2, within 2 ulp. */
INLINE float exponential(float x) {
    float shifted, n, r, p = 1.37805939e-3f;
    int32_t power, half;
    x = x < -110 ? -110 : x > 89 ? 89 : x;
    shifted = fmaf(x, 1.44269504f, 0x1.8p23f);
    n = shifted - 0x1.8p23f;
    r = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, x));
    p = fmaf(p, r, 8.37312452e-3f);
    p = fmaf(p, r, 4.16695364e-2f);
    p = fmaf(p, r, 1.66664720e-1f);
    p = fmaf(p, r, 4.99999851e-1f);
    p = fmaf(p, r, 1);
    p = fmaf(p, r, 1);
    power = (int32_t)(bits_of(shifted) - 0x4b400000u);
    half = (power + 512) / 2 - 256;
    return p * from_bits((uint32_t)(half + 127) << 23) * from_bits((uint32_t)(power - half + 127) << 23);
}
