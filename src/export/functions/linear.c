/* y (rows, out) = x (rows, in) w (in, out) + b; each element is summed over in, in order, by fused multiply-adds. */
#define BLOCK 64 /* outputs that stay in registers */

INLINE void linear_block(const float *x, const float *w, const float *b, float *y, size_t in, size_t out,
                         size_t width) {
    float sum[BLOCK];
    size_t k, l;
    for (l = 0; l < width; l++) sum[l] = b ? b[l] : 0;
    for (k = 0; k < in; k++)
        for (l = 0; l < width; l++) sum[l] = fmaf(w[k * out + l], x[k], sum[l]);
    for (l = 0; l < width; l++) y[l] = sum[l];
}

INLINE void linear(const float *x, const float *w, const float *b, float *y, size_t rows, size_t in, size_t out) {
    size_t r, o;
    for (r = 0; r < rows; r++, x += in, y += out) {
        for (o = 0; o + BLOCK <= out; o += BLOCK) linear_block(x, w + o, b ? b + o : 0, y + o, in, out, BLOCK);
        if (o < out) linear_block(x, w + o, b ? b + o : 0, y + o, in, out, out - o);
    }
}
