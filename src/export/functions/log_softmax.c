/* y (rows, size) = x - log(sum of exp(x)) of each row */
INLINE void log_softmax(const float *x, float *y, size_t rows, size_t size) {
    size_t r, i;
    for (r = 0; r < rows; r++, x += size, y += size) {
        float sums[16] = {0}, max = largest(x, size), shift;
        for (i = 0; i < size; i++) sums[i % 16] += exponential(x[i] - max);
        shift = logf(total(sums));
        for (i = 0; i < size; i++) y[i] = x[i] - max - shift;
    }
}
