/* One direction of an RNN: y (steps, hidden; rows stride apart) from gates (steps, hidden), x W + b. w (hidden, hidden)
 */
INLINE void recurrence(float *gates, const float *w, float *y, size_t stride, size_t steps, size_t hidden,
                       int is_reverse, int is_relu) {
    size_t s;
    const float *before = 0;
    for (s = 0; s < steps; s++) {
        size_t t = is_reverse ? steps - 1 - s : s;
        float *gate = gates + t * hidden, *h = y + t * stride;
        if (before) linear(before, w, gate, gate, 1, hidden, hidden);
        if (is_relu)
            relu(gate, h, hidden);
        else
            hyperbolic_tangent(gate, h, hidden);
        before = h;
    }
}
