/* Bits, exponentials and sums of numbers. */

/* ---- bits ---- */
/* The bits of a float as an integer, and back. */
INLINE uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- with_sign (bits) ---- */
/* |x| with the sign of [sign] */
INLINE float with_sign(float x, float sign) {
    return from_bits((bits_of(x) & 0x7fffffffu) | (bits_of(sign) & 0x80000000u));
}

/* ---- exponential (bits) ---- */
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

/* ---- tangent (with_sign, exponential) ---- */
/* tanh: Cephes' polynomial below 0.625, 1 - 2 / (e^2x + 1) above. */
INLINE float tangent(float x) {
    float z = x * x, size = fabsf(x), p = -5.70498872745e-3f, small, large;
    p = fmaf(p, z, 2.06390887954e-2f);
    p = fmaf(p, z, -5.37397155531e-2f);
    p = fmaf(p, z, 1.33314422036e-1f);
    p = fmaf(p, z, -3.33332819422e-1f);
    small = fmaf(p * z, x, x);
    large = 1 - 2 / (exponential(2 * size) + 1);
    return size < 0.625f ? small : with_sign(large, x);
}

/* ---- error_function (with_sign, exponential) ---- */
/* erf: a polynomial below 0.93; above, 1 - e^-q(|x|) with a polynomial q. */
INLINE float error_function(float x) {
    float t = fabsf(x), s = x * x, p = -5.96761703e-4f;
    float r = fmaf(-1.72853470e-5f, t, 3.83197126e-4f), u = fmaf(-3.88396438e-3f, t, 2.42546219e-2f), large;
    r = fmaf(r, s, u);
    r = fmaf(r, t, -1.06777877e-1f);
    r = fmaf(r, t, -6.34846687e-1f);
    r = fmaf(r, t, -1.28717512e-1f);
    r = fmaf(r, t, -t);
    large = with_sign(1 - exponential(r), x);
    p = fmaf(p, s, 4.99119423e-3f);
    p = fmaf(p, s, -2.67681349e-2f);
    p = fmaf(p, s, 1.12819925e-1f);
    p = fmaf(p, s, -3.76125336e-1f);
    p = fmaf(p, s, 1.28379166e-1f);
    return t > 0.927734375f ? (t > 4 ? with_sign(1, x) : large) : fmaf(p, x, x);
}

/* ---- total ---- */
/* Sums have 16 partial sums, of the elements with equal index modulo 16, which are added by halves. */
INLINE float total(const float *sums) {
    float four[4];
    size_t i;
    for (i = 0; i < 4; i++) four[i] = (sums[i] + sums[i + 8]) + (sums[i + 4] + sums[i + 12]);
    return (four[0] + four[2]) + (four[1] + four[3]);
}

/* ---- largest ---- */
/* The largest of x (count > 0). */
INLINE float largest(const float *x, size_t count) {
    float best = x[0];
    size_t i;
    for (i = 1; i < count; i++) best = x[i] > best ? x[i] : best;
    return best;
}

/* ---- exp_minus_one (exponential) ---- */
/* e^x - 1 for x <= 0 */
INLINE float exp_minus_one(float x) {
    float p = fmaf(x, 1.98412698e-4f, 1.38888889e-3f), large = exponential(x) - 1;
    p = fmaf(p, x, 8.33333333e-3f);
    p = fmaf(p, x, 4.16666667e-2f);
    p = fmaf(p, x, 1.66666667e-1f);
    p = fmaf(p, x, 0.5f);
    return x < -0.35f ? large : fmaf(p * x, x, x);
}

/* ---- log_plus_one ---- */
/* log(1 + u) for u in [0, 1] */
INLINE float log_plus_one(float u) {
    float s = u / (2 + u), z = s * s, p = fmaf(z, 5.88235294e-2f, 6.66666667e-2f);
    p = fmaf(p, z, 7.69230769e-2f);
    p = fmaf(p, z, 9.09090909e-2f);
    p = fmaf(p, z, 1.11111111e-1f);
    p = fmaf(p, z, 1.42857143e-1f);
    p = fmaf(p, z, 0.2f);
    p = fmaf(p, z, 3.33333333e-1f);
    return 2 * fmaf(p * z, s, s);
}
