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
