/* y (positions, channels) = x scale + shift, which contain the running statistics, weight and bias */
INLINE void batch_norm(const float *x, const float *scale, const float *shift, float *y, size_t positions,
                       size_t channels) {
    size_t i, c;
    for (i = 0; i < positions; i++, x += channels, y += channels)
        for (c = 0; c < channels; c++) y[c] = fmaf(x[c], scale[c], shift[c]);
}
