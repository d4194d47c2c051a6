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
