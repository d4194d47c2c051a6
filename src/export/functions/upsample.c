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
