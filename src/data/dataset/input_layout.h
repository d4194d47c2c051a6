/* input_layout: what a row of inputs is, before division and scaling. A checkpoint stores it
 * (train/state/data_entries.h), so that a model can be used without its dataset, and input_scaling makes a model's
 * inputs of such rows. */
#pragma once

#include "data/dataset/dataset.h"

struct input_layout {
    enum input_kind kind;
    int64_t vocabulary; /* INPUT_TOKENS */
    int dims;           /* with a preparation 1: the features */
    int64_t shape[MAX_DIMS];
    size_t size;
    int64_t tokens; /* dataset_info.input_tokens */
    double divide;  /* 1: nothing */
    bool is_bytes;  /* values are 0 .. 255, integers, and scaled as bytes (byte_table of scaler.h) */
    const struct dataset_input *inputs; /* (input_count) named inputs; count 0: they have no names */
    size_t input_count;
};

/* Of an open dataset, which owns the names. */
struct input_layout dataset_input_layout(const struct dataset *dataset);

/* The same as far as a model needs it, without rows and targets. */
struct dataset_info input_layout_info(const struct input_layout *layout);

/* Divides and scales rows as dataset_read does. */
struct input_scaling;
status input_scaling_create(const struct input_layout *layout, const struct scale_config *config,
                            struct input_scaling **out);
void input_scaling_destroy(struct input_scaling *scaling); /* takes NULL */

/* rows (count, size), which are changed, to out (count, size). STATUS_DATA with the row, from [first] on, and the
 * element of the first value that is not finite or no byte. Thread-safe. */
status input_scaling_apply(const struct input_scaling *scaling, size_t first, double *rows, size_t count, float *out);
