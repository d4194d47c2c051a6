/* y (out, slice, kernel): element k of window o is x[o * stride + k * dilation - padding] of x (in, slice), or 0 */
INLINE void unfold_depth(const float *x, float *y, size_t in, size_t out, size_t slice, size_t kernel, size_t stride,
                         size_t padding, size_t dilation) {
    size_t o, i, k;
    memset(y, 0, out * slice * kernel * sizeof *y);
    for (o = 0; o < out; o++, y += slice * kernel)
        for (k = 0; k < kernel; k++) {
            size_t at = o * stride + k * dilation - padding; /* wraps around before the first */
            if (at >= in) continue;
            for (i = 0; i < slice; i++) y[i * kernel + k] = x[at * slice + i];
        }
}
