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
