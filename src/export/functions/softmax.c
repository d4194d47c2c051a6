/* y (rows, size) = exp(x) / sum(exp(x)) of each row; y may be x */
INLINE void softmax(const float *x, float *y, size_t rows, size_t size) {
    size_t r, i;
    for (r = 0; r < rows; r++, x += size, y += size) {
        float sums[16] = {0}, max = largest(x, size), scale;
        for (i = 0; i < size; i++) y[i] = exponential(x[i] - max);
        for (i = 0; i < size; i++) sums[i % 16] += y[i];
        scale = 1 / total(sums);
        for (i = 0; i < size; i++) y[i] *= scale;
    }
}
