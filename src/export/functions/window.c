/* A kernel or window over an image: [0] along the height, [1] along the width. */
struct model_window {
    size_t kernel[2], stride[2], padding[2], dilation[2];
};

/* (height, width, channels), channels innermost */
struct model_image {
    size_t height, width, channels;
};
