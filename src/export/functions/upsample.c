/* y (out.height, out.width, channels): each pixel of x (in.height, in.width, channels) several times */
INLINE void upsample(const float *x, struct model_image in, float *y, struct model_image out) {
    size_t i, j, high = out.height / in.height, wide = out.width / in.width;
    for (i = 0; i < out.height; i++)
        for (j = 0; j < out.width; j++)
            memcpy(y + (i * out.width + j) * in.channels, x + (i / high * in.width + j / wide) * in.channels,
                   in.channels * sizeof *y);
}
