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
