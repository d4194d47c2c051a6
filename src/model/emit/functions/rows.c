/* Layers over the last dimension. */

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

/* y (rows, out) = x (rows, in) w (in, out) + b; each element is summed over in, in order, by fused multiply-adds. */
INLINE void linear(const float *x, const float *w, const float *b, float *y, size_t rows, size_t in, size_t out) {
    size_t r, o;
    for (r = 0; r < rows; r++, x += in, y += out) {
        for (o = 0; o + BLOCK <= out; o += BLOCK) linear_block(x, w + o, b ? b + o : 0, y + o, in, out, BLOCK);
        if (o < out) linear_block(x, w + o, b ? b + o : 0, y + o, in, out, out - o);
    }
}

/* Sums have 16 partial sums, of the elements with equal index modulo 16, which are added by halves. */
INLINE float total(const float *sums) {
    float four[4];
    size_t i;
    for (i = 0; i < 4; i++) four[i] = (sums[i] + sums[i + 8]) + (sums[i + 4] + sums[i + 12]);
    return (four[0] + four[2]) + (four[1] + four[3]);
}

/* The largest of x (count > 0). */
INLINE float largest(const float *x, size_t count) {
    float best = x[0];
    size_t i;
    for (i = 1; i < count; i++) best = x[i] > best ? x[i] : best;
    return best;
}

/* y (rows, size) = (x - mean) / sqrt(variance + eps) w + b of each row */
INLINE void layer_norm(const float *x, const float *w, const float *b, float eps, float *y, size_t rows, size_t size) {
    size_t r, i;
    for (r = 0; r < rows; r++, x += size, y += size) {
        float sums[16] = {0}, squares[16] = {0}, mean, scale;
        for (i = 0; i < size; i++) sums[i % 16] += x[i];
        mean = total(sums) / (float)size;
        for (i = 0; i < size; i++) squares[i % 16] += (x[i] - mean) * (x[i] - mean);
        scale = 1 / sqrtf(total(squares) / (float)size + eps);
        for (i = 0; i < size; i++) {
            float v = (x[i] - mean) * scale;
            y[i] = w && b ? fmaf(v, w[i], b[i]) : w ? v * w[i] : v;
        }
    }
}

/* y (rows, size) = x / sqrt(mean of x^2 + eps) w of each row */
INLINE void rms_norm(const float *x, const float *w, float eps, float *y, size_t rows, size_t size) {
    size_t r, i;
    for (r = 0; r < rows; r++, x += size, y += size) {
        float squares[16] = {0}, scale;
        for (i = 0; i < size; i++) squares[i % 16] += x[i] * x[i];
        scale = 1 / sqrtf(total(squares) / (float)size + eps);
        for (i = 0; i < size; i++) y[i] = w ? x[i] * scale * w[i] : x[i] * scale;
    }
}

/* y (rows, size) = exp(x) / sum(exp(x)) of each row; y may be x */
INLINE void softmax(const float *x, float *y, size_t rows, size_t size) {
    size_t r, i;
    for (r = 0; r < rows; r++, x += size, y += size) {
        float sums[16] = {0}, max = largest(x, size), scale;
        for (i = 0; i < size; i++) y[i] = math_exp(x[i] - max);
        for (i = 0; i < size; i++) sums[i % 16] += y[i];
        scale = 1 / total(sums);
        for (i = 0; i < size; i++) y[i] *= scale;
    }
}

/* y (rows, size) = x - log(sum of exp(x)) of each row */
INLINE void log_softmax(const float *x, float *y, size_t rows, size_t size) {
    size_t r, i;
    for (r = 0; r < rows; r++, x += size, y += size) {
        float sums[16] = {0}, max = largest(x, size), shift;
        for (i = 0; i < size; i++) sums[i % 16] += math_exp(x[i] - max);
        shift = logf(total(sums));
        for (i = 0; i < size; i++) y[i] = x[i] - max - shift;
    }
}
