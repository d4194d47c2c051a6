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
