/* y (rows, width) = x (rows, width); neighbouring rows are x_stride and y_stride elements apart */
INLINE void columns(const float *x, size_t x_stride, float *y, size_t y_stride, size_t rows, size_t width) {
    size_t r;
    for (r = 0; r < rows; r++) memcpy(y + r * y_stride, x + r * x_stride, width * sizeof *y);
}
