/* convolution: what conv1d, conv2d, conv3d and conv_transpose2d have in common: keys, parameters, initial weights. */
#ifndef MODEL_LAYERS_CONVOLUTION_H
#define MODEL_LAYERS_CONVOLUTION_H

#include "model/layer.h"

/* The keys of all of them. */
struct convolution_config {
    int64_t out, groups;
    struct int_list kernel_size, stride, padding, dilation;
    bool bias;
    struct int_list output_padding; /* conv_transpose2d only */
};

#define CONVOLUTION_SIZES(key_, min_, doc_, ...)                                                                       \
    {                                                                                                                  \
        .key = #key_, .type = SCHEMA_INT_LIST, .offset = offsetof(struct convolution_config, key_), .min = min_,       \
        .max = 4096, .doc = doc_, __VA_ARGS__                                                                          \
    }

/* [sizes]: the form of a list, such as " one number, or [height, width]."; [padding_doc]: what padding means for the
 * layer; after it more of its row. */
#define CONVOLUTION_ROWS(sizes, padding_doc, ...)                                                                      \
    {.key = "out",                                                                                                     \
     .type = SCHEMA_INT,                                                                                               \
     .offset = offsetof(struct convolution_config, out),                                                               \
     .flags = SCHEMA_REQUIRED,                                                                                         \
     .min = 1,                                                                                                         \
     .max = 1 << 20,                                                                                                   \
     .doc = "Output channels (PyTorch's out_channels); the number of inputs is inferred."},                            \
        CONVOLUTION_SIZES(kernel_size, 1, "Size of the kernel:" sizes, .flags = SCHEMA_REQUIRED),                      \
        CONVOLUTION_SIZES(stride, 1, "Step of the kernel:" sizes, .fallback = "1"),                                    \
        CONVOLUTION_SIZES(padding, 0, padding_doc, .fallback = "0", __VA_ARGS__),                                      \
        CONVOLUTION_SIZES(dilation, 1, "Distance between kernel elements:" sizes, .fallback = "1"),                    \
        {.key = "groups",                                                                                              \
         .type = SCHEMA_INT,                                                                                           \
         .offset = offsetof(struct convolution_config, groups),                                                        \
         .fallback = "1",                                                                                              \
         .min = 1,                                                                                                     \
         .max = 1 << 20,                                                                                               \
         .doc = "Number of groups of channels; outputs of a group depend on its inputs only. Must divide the "         \
                "input's and the output's channels."},                                                                 \
    {                                                                                                                  \
        .key = "bias", .type = SCHEMA_BOOL, .offset = offsetof(struct convolution_config, bias), .fallback = "true",   \
        .doc = "Whether a bias is added."                                                                              \
    }

/* Adds a problem for each list that has more than [max] numbers, and if the groups do not divide the channels. */
void convolution_check(const struct convolution_config *c, int max, const struct node *where, const char *path,
                       struct problems *problems);

/* Of an input of [dims] dimensions. */
struct window convolution_window(const struct convolution_config *c, int dims);

/* Declares weight, of the shape that [c] has, and bias (biases) as the layer's parameters. */
void convolution_declare(struct layer *layer, struct planning *planning, const struct convolution *c, size_t biases);

/* Images of a row, one after another: the depth of a volume, else 1. */
size_t convolution_images(const struct layer *layer);

/* alloc of struct layer_type, for a layer whose images [c] describes. */
status convolution_alloc(struct layer *layer, struct device *device, const struct convolution *c, size_t batch);

/* Functions of struct layer_type. */
bool convolution_runs_on(const struct device_ops *ops);
void convolution_release(struct layer *layer, struct device *device);
status convolution_prepare(struct layer *layer, struct device *device, size_t batch, bool is_training);
void convolution_forward(const struct layer *layer, const struct pass *pass, const float *x, float *y);
void convolution_backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                          const float *dy, float *dx);

size_t convolution_multiply_adds(const struct convolution *c);

/* Draws weight and bias as torch.nn.modules.conv._ConvNd does: the fan in is that of the second dimension. */
void convolution_init(const struct layer *layer, const struct params *params, struct rng *rng,
                      const struct convolution *c);

#endif
