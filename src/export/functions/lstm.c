/* One direction of an LSTM: y (steps, hidden; rows stride apart) from gates (steps, 4 * hidden), x W + b of i, f, g, o.
 * w (hidden, 4 * hidden), c (hidden) */
INLINE void lstm(float *gates, const float *w, float *c, float *y, size_t stride, size_t steps, size_t hidden,
                 int is_reverse) {
    size_t s, j;
    const float *before = 0;
    for (j = 0; j < hidden; j++) c[j] = 0;
    for (s = 0; s < steps; s++) {
        size_t t = is_reverse ? steps - 1 - s : s;
        float *i = gates + t * 4 * hidden, *f = i + hidden, *g = f + hidden, *o = g + hidden, *h = y + t * stride;
        if (before) linear(before, w, i, i, 1, hidden, 4 * hidden);
        sigmoid(i, i, 2 * hidden);
        hyperbolic_tangent(g, g, hidden);
        sigmoid(o, o, hidden);
        for (j = 0; j < hidden; j++) c[j] = fmaf(f[j], c[j], i[j] * g[j]);
        hyperbolic_tangent(c, h, hidden);
        for (j = 0; j < hidden; j++) h[j] = o[j] * h[j];
        before = h;
    }
}
