/* Layers over images, (height, width, channels) in memory. */

/* A kernel or window over an image: [0] along the height, [1] along the width. */
struct model_window {
    size_t kernel[2], stride[2], padding[2], dilation[2];
};

/* (height, width, channels), channels innermost */
struct model_image {
    size_t height, width, channels;
};

/* Convolution: the pixels under the kernel, zeros beyond the image, times w (groups, kernel height, kernel width, in
 * channels of a group, out channels of a group). [column]: memory for the pixels of one group. */
INLINE void convolution(const float *x, struct model_image in, const float *w, const float *b, float *y,
                        struct model_image out, struct model_window window, size_t groups, float *column) {
    size_t in_group = in.channels / groups, out_group = out.channels / groups, oy, ox, g, ky, kx, i;
    size_t depth = window.kernel[0] * window.kernel[1] * in_group;
    for (oy = 0; oy < out.height; oy++)
        for (ox = 0; ox < out.width; ox++)
            for (g = 0; g < groups; g++, y += out_group) {
                float *to = column;
                for (ky = 0; ky < window.kernel[0]; ky++)
                    for (kx = 0; kx < window.kernel[1]; kx++, to += in_group) {
                        size_t v = oy * window.stride[0] + ky * window.dilation[0] - window.padding[0];
                        size_t h = ox * window.stride[1] + kx * window.dilation[1] - window.padding[1];
                        if (v < in.height && h < in.width) /* before the image the difference wraps around */
                            memcpy(to, x + (v * in.width + h) * in.channels + g * in_group, in_group * sizeof *to);
                        else
                            for (i = 0; i < in_group; i++) to[i] = 0;
                    }
                linear(column, w + g * depth * out_group, b ? b + g * out_group : 0, y, 1, depth, out_group);
            }
}

/* Transposed convolution: each pixel of x times w (groups, kernel height, kernel width, out channels of a group, in
 * channels of a group) is added to the pixels of y that are under the kernel; then b. */
INLINE void convolution_transpose(const float *x, struct model_image in, const float *w, const float *b, float *y,
                                  struct model_image out, struct model_window window, size_t groups) {
    size_t in_group = in.channels / groups, out_group = out.channels / groups, iy, ix, g, ky, kx, o, i;
    size_t pixels = out.height * out.width;
    memset(y, 0, pixels * out.channels * sizeof *y);
    for (iy = 0; iy < in.height; iy++)
        for (ix = 0; ix < in.width; ix++)
            for (g = 0; g < groups; g++, x += in_group)
                for (ky = 0; ky < window.kernel[0]; ky++)
                    for (kx = 0; kx < window.kernel[1]; kx++) {
                        size_t v = iy * window.stride[0] + ky * window.dilation[0] - window.padding[0];
                        size_t h = ix * window.stride[1] + kx * window.dilation[1] - window.padding[1];
                        size_t tap = (g * window.kernel[0] + ky) * window.kernel[1] + kx;
                        const float *from = w + tap * out_group * in_group;
                        float *to;
                        if (v >= out.height || h >= out.width) continue; /* before y the difference wraps around */
                        to = y + (v * out.width + h) * out.channels + g * out_group;
                        for (o = 0; o < out_group; o++, from += in_group) {
                            float sum = 0;
                            for (i = 0; i < in_group; i++) sum = fmaf(x[i], from[i], sum);
                            to[o] += sum;
                        }
                    }
    for (i = 0; b && i < pixels; i++, y += out.channels)
        for (o = 0; o < out.channels; o++) y[o] += b[o];
}

/* The elements of a window along one dimension, in the image; [padded]: with those in the padding. */
struct span {
    size_t from, to, padded;
};

INLINE struct span span_of(struct model_window w, int is_adaptive, int d, size_t in, size_t out, size_t o) {
    struct span s = {0, 0, 0};
    size_t start, end, last;
    if (is_adaptive) {
        s.from = o * in / out;
        s.to = ((o + 1) * in + out - 1) / out;
        return s;
    }
    start = o * w.stride[d];
    end = start + w.kernel[d];
    last = in + 2 * w.padding[d];
    s.from = start < w.padding[d] ? 0 : start - w.padding[d];
    s.to = (end < in + w.padding[d] ? end : in + w.padding[d]) - w.padding[d];
    s.padded = (end < last ? end : last) - start;
    return s;
}

/* The maximum of each window; NaN is the maximum. [is_adaptive]: the windows follow from the sizes. */
INLINE void max_pool(const float *x, struct model_image in, float *y, struct model_image out,
                     struct model_window window, int is_adaptive) {
    size_t oy, ox, c, i, j;
    for (oy = 0; oy < out.height; oy++)
        for (ox = 0; ox < out.width; ox++, y += out.channels) {
            struct span v = span_of(window, is_adaptive, 0, in.height, out.height, oy);
            struct span h = span_of(window, is_adaptive, 1, in.width, out.width, ox);
            for (c = 0; c < out.channels; c++) y[c] = x[(v.from * in.width + h.from) * in.channels + c];
            for (i = v.from; i < v.to; i++)
                for (j = h.from; j < h.to; j++)
                    for (c = 0; c < out.channels; c++) {
                        float value = x[(i * in.width + j) * in.channels + c];
                        if (value > y[c] || value != value) y[c] = value;
                    }
        }
}

/* The inverse of the max pool of [before], a volume of [depth] images: each value of x is put where the maximum of its
 * window is, all else is 0. */
INLINE void max_unpool(const float *x, const float *before, size_t depth, struct model_image in, float *y,
                       size_t out_depth, struct model_image out, struct model_window along_depth,
                       struct model_window window) {
    size_t oz, oy, ox, c, i, j, k, size = in.height * in.width * in.channels;
    for (i = 0; i < depth * size; i++) y[i] = 0;
    for (oz = 0; oz < out_depth; oz++)
        for (oy = 0; oy < out.height; oy++)
            for (ox = 0; ox < out.width; ox++) {
                struct span d = span_of(along_depth, 0, 0, depth, out_depth, oz);
                struct span v = span_of(window, 0, 0, in.height, out.height, oy);
                struct span h = span_of(window, 0, 1, in.width, out.width, ox);
                for (c = 0; c < out.channels; c++) {
                    size_t best = d.from * size + (v.from * in.width + h.from) * in.channels + c;
                    for (k = d.from; k < d.to; k++)
                        for (i = v.from; i < v.to; i++)
                            for (j = h.from; j < h.to; j++) {
                                size_t at = k * size + (i * in.width + j) * in.channels + c;
                                if (before[at] > before[best] || before[at] != before[at]) best = at;
                            }
                    y[best] = *x++;
                }
            }
}

/* The average of each window over its elements ([counts_padding]: also those in the padding) or, with [divisor], the
 * sum divided by it. [is_adaptive]: the windows follow from the sizes. */
INLINE void average_pool(const float *x, struct model_image in, float *y, struct model_image out,
                         struct model_window window, int is_adaptive, int counts_padding, size_t divisor) {
    size_t oy, ox, c, i, j;
    for (oy = 0; oy < out.height; oy++)
        for (ox = 0; ox < out.width; ox++, y += out.channels) {
            struct span v = span_of(window, is_adaptive, 0, in.height, out.height, oy);
            struct span h = span_of(window, is_adaptive, 1, in.width, out.width, ox);
            size_t count = counts_padding ? v.padded * h.padded : (v.to - v.from) * (h.to - h.from);
            float factor = 1 / (float)(divisor ? divisor : count);
            for (c = 0; c < out.channels; c++) y[c] = 0;
            for (i = v.from; i < v.to; i++)
                for (j = h.from; j < h.to; j++)
                    for (c = 0; c < out.channels; c++) y[c] += x[(i * in.width + j) * in.channels + c];
            for (c = 0; c < out.channels; c++) y[c] *= factor;
        }
}

/* The elements of x that element [o] of an upsampled dimension is made of: (1 - weight) x[first] + weight x[second] */
struct tap {
    size_t first, second;
    float weight;
};

INLINE struct tap tap_of(size_t in, size_t out, float scale, int is_nearest, int align_corners, size_t o) {
    struct tap t = {0, 0, 0};
    float at = scale * (float)o;
    if (!is_nearest && !align_corners) at = scale * ((float)o + 0.5f) - 0.5f;
    if (at < 0) at = 0;
    t.first = in == out && !(is_nearest && scale < 1) ? o : (size_t)at;
    if (t.first >= in) t.first = in - 1;
    t.second = t.first;
    if (is_nearest || in == out) return t;
    t.weight = at - (float)t.first;
    if (t.weight > 1) t.weight = 1;
    if (t.first + 1 < in) t.second = t.first + 1;
    return t;
}

/* y (out.height, out.width, channels) from x (in.height, in.width, channels): the nearest pixel, or a mean of the four
 * around a point. [high], [wide]: of a coordinate of y to one of x */
INLINE void upsample(const float *x, struct model_image in, float *y, struct model_image out, float high, float wide,
                     int is_nearest, int align_corners) {
    size_t i, j, c;
    for (i = 0; i < out.height; i++) {
        struct tap v = tap_of(in.height, out.height, high, is_nearest, align_corners, i);
        for (j = 0; j < out.width; j++, y += in.channels) {
            struct tap h = tap_of(in.width, out.width, wide, is_nearest, align_corners, j);
            const float *x0 = x + (v.first * in.width + h.first) * in.channels;
            const float *x1 = x + (v.first * in.width + h.second) * in.channels;
            const float *x2 = x + (v.second * in.width + h.first) * in.channels;
            const float *x3 = x + (v.second * in.width + h.second) * in.channels;
            float a = (1 - v.weight) * (1 - h.weight), b = (1 - v.weight) * h.weight;
            float d = v.weight * (1 - h.weight), e = v.weight * h.weight;
            if (is_nearest)
                memcpy(y, x0, in.channels * sizeof *y);
            else
                for (c = 0; c < in.channels; c++) y[c] = a * x0[c] + b * x1[c] + d * x2[c] + e * x3[c];
        }
    }
}

/* y (positions, channels) = x scale + shift, which contain the running statistics, weight and bias */
INLINE void batch_norm(const float *x, const float *scale, const float *shift, float *y, size_t positions,
                       size_t channels) {
    size_t i, c;
    for (i = 0; i < positions; i++, x += channels, y += channels)
        for (c = 0; c < channels; c++) y[c] = fmaf(x[c], scale[c], shift[c]);
}

/* y (positions, channels) = (x - mean) / sqrt(variance + eps) w + b over each group of channels */
INLINE void group_norm(const float *x, const float *w, const float *b, double eps, float *y, size_t positions,
                       size_t channels, size_t groups) {
    size_t size = channels / groups, g, i, c;
    for (g = 0; g < groups; g++) {
        const float *from = x + g * size;
        double sum = 0, squares = 0, count = (double)(size * positions), origin = (double)from[0], mean, variance;
        float center, inverse;
        for (i = 0; i < positions; i++)
            for (c = 0; c < size; c++) {
                double d = (double)from[i * channels + c] - origin;
                sum += d;
                squares += d * d;
            }
        mean = origin + sum / count;
        variance = squares / count - sum / count * (sum / count);
        center = (float)mean;
        inverse = (float)(1 / sqrt((variance < 0 ? 0 : variance) + eps));
        for (i = 0; i < positions; i++)
            for (c = 0; c < size; c++) {
                float v = (from[i * channels + c] - center) * inverse;
                y[i * channels + g * size + c] = w ? fmaf(v, w[g * size + c], b[g * size + c]) : v;
            }
    }
}
