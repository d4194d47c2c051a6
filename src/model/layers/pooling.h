/* pooling: the keys that poolings of signals, images and volumes have in common. */
#ifndef MODEL_LAYERS_POOLING_H
#define MODEL_LAYERS_POOLING_H

#include "model/layer.h"

/* The keys of all of them. */
struct pool_config {
    struct int_list kernel_size, stride, padding;
    struct int_list output_size; /* adaptive only */
    bool ceil_mode, count_include_pad;
    int64_t divisor_override; /* at most 0: none */
};

#define POOL_SIZES(key_, min_, doc_, ...)                                                                              \
    {                                                                                                                  \
        .key = #key_, .type = SCHEMA_INT_LIST, .offset = offsetof(struct pool_config, key_), .min = min_, .max = 4096, \
        .doc = doc_, __VA_ARGS__                                                                                       \
    }

/* [sizes]: one number, and the form of a list, such as " one number, or [height, width].". */
#define POOL_WINDOW_ROWS(sizes)                                                                                        \
    POOL_SIZES(kernel_size, 1, "Size of the window:" sizes, .flags = SCHEMA_REQUIRED),                                 \
        POOL_SIZES(stride, 1, "Step of the window; null: its size.", .fallback = "null"),                              \
        POOL_SIZES(padding, 0, "Padding around the input, at most half the window.", .fallback = "0"), {               \
        .key = "ceil_mode", .type = SCHEMA_BOOL, .offset = offsetof(struct pool_config, ceil_mode),                    \
        .fallback = "false",                                                                                           \
        .doc =                                                                                                         \
            "Whether the size of the output is rounded up: a last window may exceed the padded input, if it starts "   \
            "in the input or the padding before it."                                                                   \
    }

#define POOL_COUNT_ROW                                                                                                 \
    {                                                                                                                  \
        .key = "count_include_pad", .type = SCHEMA_BOOL, .offset = offsetof(struct pool_config, count_include_pad),    \
        .fallback = "true",                                                                                            \
        .doc = "Whether padded zeros count in the average; elements beyond the padding (ceil_mode) never count."       \
    }

#define POOL_DIVISOR_ROW                                                                                               \
    {                                                                                                                  \
        .key = "divisor_override", .type = SCHEMA_INT, .offset = offsetof(struct pool_config, divisor_override),       \
        .fallback = "null", .min = 1, .max = 1 << 24,                                                                  \
        .doc = "Divisor of the sum of a window; null: the number of its elements."                                     \
    }

#define POOL_OUTPUT_ROW(sizes) POOL_SIZES(output_size, 1, "Size of the output:" sizes, .flags = SCHEMA_REQUIRED)

/* The schema of the layer [name_], in the variable name_##_schema. */
#define POOL_SCHEMA(name_, rows_, shorthand_, check_)                                                                  \
    static const struct schema name_##_schema = {.name = "model.layers." #name_,                                       \
                                                 .size = sizeof(struct pool_config),                                   \
                                                 .rows = rows_,                                                        \
                                                 .shorthand = shorthand_,                                              \
                                                 .check = check_}

#endif
