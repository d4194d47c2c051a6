/* What the layers over images share: their shapes as the device wants them, and keys given once or per dimension. A
 * signal (channels, length) is an image of height 1. */
#ifndef MODEL_LAYERS_IMAGES_H
#define MODEL_LAYERS_IMAGES_H

#include "model/layer.h"

/* (channels, height, width), (channels, length) or (channels) */
struct image_shape image_of(const struct shape *shape);

/* A channels-last shape of [dims] dimensions like those of image_of. */
struct shape channels_last_shape(int dims, size_t channels, size_t height, size_t width);

/* The input must be (channels, height, width), or for [dims] 2 (channels, length). */
status image_check(const struct layer *layer, int dims);

/* One or [max] numbers, else a problem at [where]. */
void pair_check(const struct int_list *list, const char *key, int max, const struct node *where, const char *path,
                struct problems *problems);
/* to[0] of the height, to[1] of the width; of a signal the height's is [height]. */
void pair_of(const struct int_list *list, int dims, size_t height, size_t to[2]);

/* Elements that a window finds along one dimension: (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1; 0 when
 * it is larger than the image. */
size_t window_count(const struct window *window, int d, size_t in);

/* The same rounded up: one more window may reach out of the padded image, if it starts inside of the image or the
 * padding before it (PyTorch's ceil_mode). */
size_t window_count_up(const struct window *window, int d, size_t in);

#endif
