/* y (width, height) from x (height, width) */
INLINE void transpose(const float *x, float *y, size_t height, size_t width) {
    size_t i, j;
    for (i = 0; i < height; i++)
        for (j = 0; j < width; j++) y[j * height + i] = x[i * width + j];
}
