/* e^x - 1 for x <= 0 */
INLINE float exp_minus_one(float x) {
    float p = fmaf(x, 1.98412698e-4f, 1.38888889e-3f), large = exponential(x) - 1;
    p = fmaf(p, x, 8.33333333e-3f);
    p = fmaf(p, x, 4.16666667e-2f);
    p = fmaf(p, x, 1.66666667e-1f);
    p = fmaf(p, x, 0.5f);
    return x < -0.35f ? large : fmaf(p * x, x, x);
}
