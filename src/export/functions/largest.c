/* The largest of x (count > 0). */
INLINE float largest(const float *x, size_t count) {
    float best = x[0];
    size_t i;
    for (i = 1; i < count; i++) best = x[i] > best ? x[i] : best;
    return best;
}
