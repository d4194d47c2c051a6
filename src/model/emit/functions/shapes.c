/* Values in another order, sums and products of values. */

/* y (rows, width) = x (rows, width); neighbouring rows are x_stride and y_stride elements apart */
INLINE void columns(const float *x, size_t x_stride, float *y, size_t y_stride, size_t rows, size_t width) {
    size_t r;
    for (r = 0; r < rows; r++) memcpy(y + r * y_stride, x + r * x_stride, width * sizeof *y);
}

/* y (count) = a * b */
INLINE void multiply(const float *a, const float *b, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = a[i] * b[i];
}

/* y (count) = a + b; y may be a or b */
INLINE void add(const float *a, const float *b, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = a[i] + b[i];
}

/* x above 0, else x times the slope of its channel */
INLINE void prelu(const float *x, const float *slopes, float *y, size_t count, size_t channels) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : slopes[i % channels] * x[i];
}

/* x times the factor of its channel */
INLINE void scale(const float *x, const float *factors, float *y, size_t count, size_t channels) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] * factors[i % channels];
}

/* y (width, height) from x (height, width) */
INLINE void transpose(const float *x, float *y, size_t height, size_t width) {
    size_t i, j;
    for (i = 0; i < height; i++)
        for (j = 0; j < width; j++) y[j * height + i] = x[i * width + j];
}

/* y (outer, inner) = the mean over x (outer, size, inner) */
INLINE void mean(const float *x, float *y, size_t outer, size_t size, size_t inner) {
    size_t o, i, j;
    for (o = 0; o < outer; o++, x += size * inner, y += inner) {
        memcpy(y, x, inner * sizeof *y);
        for (i = 1; i < size; i++)
            for (j = 0; j < inner; j++) y[j] += x[i * inner + j];
        for (j = 0; j < inner; j++) y[j] /= (float)size;
    }
}

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

/* y (channels, kernel[0], kernel[1], out[0], out[1]): the windows of x (channels, in[0], in[1]), 0 in the padding */
INLINE void unfold(const float *x, float *y, size_t channels, const size_t *in, const size_t *out, const size_t *kernel,
                   const size_t *stride, const size_t *padding, const size_t *dilation) {
    size_t c, a, b, i, j;
    for (c = 0; c < channels; c++, x += in[0] * in[1])
        for (a = 0; a < kernel[0]; a++)
            for (b = 0; b < kernel[1]; b++)
                for (i = 0; i < out[0]; i++)
                    for (j = 0; j < out[1]; j++) {
                        size_t row = i * stride[0] + a * dilation[0] - padding[0];
                        size_t column = j * stride[1] + b * dilation[1] - padding[1];
                        *y++ = row < in[0] && column < in[1] ? x[row * in[1] + column] : 0;
                    }
}

/* The number of the window that has pixel [i] as element [k]; out: none has */
INLINE size_t fold_window(size_t i, size_t k, size_t out, size_t stride, size_t padding, size_t dilation) {
    size_t at = i + padding, offset = k * dilation;
    return at < offset || (at - offset) % stride || (at - offset) / stride >= out ? out : (at - offset) / stride;
}

/* y (channels, in[0], in[1]): the sums of the elements of all windows x (channels, kernel[0], kernel[1], out[0],
 * out[1]) */
INLINE void fold(const float *x, float *y, size_t channels, const size_t *in, const size_t *out, const size_t *kernel,
                 const size_t *stride, const size_t *padding, const size_t *dilation) {
    size_t c, a, b, i, j, windows = out[0] * out[1];
    for (c = 0; c < channels; c++, x += kernel[0] * kernel[1] * windows)
        for (i = 0; i < in[0]; i++)
            for (j = 0; j < in[1]; j++) {
                float sum = 0;
                for (a = 0; a < kernel[0]; a++) {
                    size_t row = fold_window(i, a, out[0], stride[0], padding[0], dilation[0]);
                    float part = 0;
                    for (b = 0; b < kernel[1] && row < out[0]; b++) {
                        size_t column = fold_window(j, b, out[1], stride[1], padding[1], dilation[1]);
                        if (column < out[1]) part += x[(a * kernel[1] + b) * windows + row * out[1] + column];
                    }
                    sum += part;
                }
                *y++ = sum;
            }
}

/* The element that element [o] of a padded dimension of [in] elements copies; in: none. The mode is 'c', of constants,
 * or that of reflect, edge or wrap. */
INLINE size_t pad_source(size_t in, size_t before, char mode, size_t o) {
    if (o >= before && o - before < in) return o - before;
    if (mode == 'r') return o < before ? before - o : 2 * (in - 1) - (o - before);
    if (mode == 'e') return o < before ? 0 : in - 1;
    if (mode == 'w') return o < before ? o + in - before : o - before - in;
    return in;
}

/* y (rows, out[0], out[1], out[2], inner) from x (rows, in[0], in[1], in[2], inner) */
INLINE void pad(const float *x, float *y, size_t rows, const size_t *in, const size_t *before, const size_t *out,
                size_t inner, char mode, float value) {
    size_t r, a, b, c, i;
    for (r = 0; r < rows; r++, x += in[0] * in[1] * in[2] * inner)
        for (a = 0; a < out[0]; a++)
            for (b = 0; b < out[1]; b++)
                for (c = 0; c < out[2]; c++, y += inner) {
                    size_t image = pad_source(in[0], before[0], mode, a), row = pad_source(in[1], before[1], mode, b);
                    size_t column = pad_source(in[2], before[2], mode, c);
                    if (image < in[0] && row < in[1] && column < in[2])
                        memcpy(y, x + ((image * in[1] + row) * in[2] + column) * inner, inner * sizeof *y);
                    else
                        for (i = 0; i < inner; i++) y[i] = value;
                }
}

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

/* y (in, positions, channels): the sums of the elements of all windows x (out, positions, channels, kernel), of which
 * unfold_depth says where they are; then b */
INLINE void fold_depth(const float *x, const float *b, float *y, size_t in, size_t out, size_t positions,
                       size_t channels, size_t kernel, size_t stride, size_t padding, size_t dilation) {
    size_t o, i, k, slice = positions * channels;
    memset(y, 0, in * slice * sizeof *y);
    for (o = 0; o < out; o++, x += slice * kernel)
        for (k = 0; k < kernel; k++) {
            size_t at = o * stride + k * dilation - padding; /* wraps around before the first */
            if (at >= in) continue;
            for (i = 0; i < slice; i++) y[at * slice + i] += x[i * kernel + k];
        }
    for (i = 0; b && i < in * slice; i++) y[i] += b[i % channels];
}
