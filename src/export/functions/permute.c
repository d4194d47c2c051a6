/* y (size[0], size[1], ...): its element (i_0, i_1, ...) is element i_0 stride[0] + i_1 stride[1] + ... of x */
INLINE void permute(const float *x, float *y, size_t dims, const size_t *size, const size_t *stride) {
    size_t count = 1, i, d;
    for (d = 0; d < dims; d++) count *= size[d];
    for (i = 0; i < count; i++) {
        size_t rest = i, at = 0;
        for (d = dims; d-- > 0; rest /= size[d]) at += rest % size[d] * stride[d];
        y[i] = x[at];
    }
}
