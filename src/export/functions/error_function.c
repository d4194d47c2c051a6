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
