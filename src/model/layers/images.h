/* Helpers of the layers over images: conversion of shapes, and keys with one number or one per dimension. A signal
 * (channels, length) is an image of height 1. */
#pragma once

#include "model/emit/c.h"
#include "model/layer.h"

/* (channels, height, width), (channels, length) or (channels) */
struct image_shape image_of(const struct shape *shape);

/* A channels-last shape of [dims] dimensions like those of image_of. */
struct shape channels_last_shape(int dims, size_t channels, size_t height, size_t width);

/* The input must have [dims] dimensions: 2 (channels, length), 3 (channels, height, width), 4 (channels, depth, height,
 * width). */
status image_check(const struct layer *layer, int dims);

/* The config, in [arena], of an upsample layer that repeats pixels up to (height, width). */
void *upsample_to(struct arena *arena, int64_t height, int64_t width);

/* Adds a problem of the key [key] of the layer at [path]. */
void key_problem(struct problems *problems, const struct node *where, const char *path, const char *key,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Checks that the list, if it is given, has one or [max] numbers (1 to 3), else adds a problem. */
void sizes_check(const struct int_list *list, const char *key, int max, const struct node *where, const char *path,
                 struct problems *problems);
/* The same for a list of [count] numbers. */
void sizes_check_count(size_t count, const char *key, int max, const struct node *where, const char *path,
                       struct problems *problems);
/* A function of struct schema's check: [function] for lists of [max] numbers. */
#define CHECK_WITH(name_, function, max)                                                                               \
    static void name_(void *config, const struct node *where, const char *path, struct problems *problems) {           \
        function(config, max, where, path, problems);                                                                  \
    }
/* The number of a list for dimension [d]: 0 the depth, 1 the height, 2 the width. */
size_t size_at(const struct int_list *list, int d);

/* The output size along one dimension: (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1; 0 when the window is
 * larger than the padded image. */
size_t window_output(const struct window *window, int d, size_t in);

/* The same rounded up (PyTorch's ceil_mode): one more window may exceed the padded image, if it starts within the image
 * or the padding before it. */
size_t window_output_ceil(const struct window *window, int d, size_t in);

/* The size of the largest adaptive window along one dimension: ceil((o + 1) in / out) - floor(o in / out), at most. */
size_t adaptive_window(size_t in, size_t out);

/* Calls of the exported C that pool [images] images of a row, one after another; [in]: an expression for the shape of
 * one, which is p->in unless some of its rows are padding. */
void c_max_pool(const struct c_call *c, const struct pooling *p, const char *x, const char *in, size_t images);
void c_average_pool(const struct c_call *c, const struct pooling *p, size_t images);

/* ---- volumes: (channels, depth, height, width). In memory a volume is a sequence of images, (depth, height, width,
 * channels), so operators over images compute all but the depth. ---- */

/* One image of a volume. */
struct image_shape volume_image(const struct shape *shape);

struct shape volume_shape(size_t channels, size_t depth, size_t height, size_t width);
