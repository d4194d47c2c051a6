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
