/* One direction of a GRU: y (steps, hidden; rows stride apart) from gates (steps, 3 * hidden), x W + b of r, z, n.
 * w (hidden, 3 * hidden), b (3 * hidden) or 0, states (3 * hidden) */
INLINE void gru(float *gates, const float *w, const float *b, float *states, float *y, size_t stride, size_t steps,
                size_t hidden, int is_reverse) {
    size_t s, j;
    const float *before = 0;
    for (s = 0; s < steps; s++) {
        size_t t = is_reverse ? steps - 1 - s : s;
        float *r = gates + t * 3 * hidden, *z = r + hidden, *n = z + hidden, *h = y + t * stride;
        linear(before, w, b, states, 1, before ? hidden : 0, 3 * hidden);
        for (j = 0; j < 2 * hidden; j++) r[j] += states[j];
        sigmoid(r, r, 2 * hidden);
        for (j = 0; j < hidden; j++) n[j] = fmaf(r[j], states[2 * hidden + j], n[j]);
        hyperbolic_tangent(n, n, hidden);
        if (before)
            for (j = 0; j < hidden; j++) h[j] = fmaf(z[j], before[j] - n[j], n[j]);
        else
            for (j = 0; j < hidden; j++) h[j] = fmaf(z[j], 0 - n[j], n[j]);
        before = h;
    }
}
