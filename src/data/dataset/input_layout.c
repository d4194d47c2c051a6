/* The same operations on the same types as in table.c, so that the numbers have the same bits. */
#include "data/dataset/input_layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset/open_dataset.h"

struct input_scaling {
    size_t size;
    double divide;
    bool is_bytes;
    struct scaler scaler;
    struct byte_table bytes;
};

struct input_layout dataset_input_layout(const struct dataset *dataset) {
    const struct dataset_info *info = &dataset->info;
    struct input_layout layout = {.kind = info->input_kind,
                                  .vocabulary = info->vocabulary,
                                  .dims = info->input_dims,
                                  .size = info->input_size,
                                  .tokens = info->input_tokens,
                                  .divide = dataset->divide,
                                  .is_bytes = dataset->is_bytes,
                                  .inputs = info->inputs,
                                  .input_count = info->input_count};
    memcpy(layout.shape, info->input_shape, sizeof layout.shape);
    return layout;
}

struct dataset_info input_layout_info(const struct input_layout *layout) {
    struct dataset_info info = {.input_kind = layout->kind,
                                .vocabulary = layout->vocabulary,
                                .input_dims = layout->dims,
                                .input_size = layout->size,
                                .input_tokens = layout->tokens,
                                .inputs = layout->inputs,
                                .input_count = layout->input_count};
    memcpy(info.input_shape, layout->shape, sizeof info.input_shape);
    return info;
}

static status fill(struct input_scaling *s, const struct input_layout *layout, const struct scale_config *config) {
    struct source shape = {
        .input_kind = layout->kind, .input_dims = layout->dims, .input_size = layout->size, .divide = layout->divide};
    memcpy(shape.input_shape, layout->shape, sizeof shape.input_shape);
    TRY(scaler_create(config, &shape, NULL, &s->scaler));
    return s->is_bytes ? byte_table_create(&s->scaler, s->divide, s->size, &s->bytes) : OK;
}

status input_scaling_create(const struct input_layout *layout, const struct scale_config *config,
                            struct input_scaling **out) {
    struct input_scaling *scaling = calloc(1, sizeof *scaling);
    *out = NULL;
    if (!scaling) return status_memory("the scaler");
    *scaling = (struct input_scaling){.size = layout->size, .divide = layout->divide, .is_bytes = layout->is_bytes};
    status s = fill(scaling, layout, config);
    if (s) input_scaling_destroy(scaling);
    if (!s) *out = scaling;
    return s;
}

void input_scaling_destroy(struct input_scaling *scaling) {
    if (!scaling) return;
    scaler_free(&scaling->scaler);
    byte_table_free(&scaling->bytes);
    free(scaling);
}

static status reject(const struct input_scaling *s, size_t first, size_t index, const char *sentence) {
    return status_data("row %zu, value %zu: %s", first + index / s->size, index % s->size, sentence);
}

static status scale_bytes(const struct input_scaling *s, size_t first, const double *rows, size_t count, float *out) {
    const struct byte_table *table = &s->bytes;
    for (size_t i = 0; i < count * s->size; i++) {
        if (!(rows[i] >= 0 && rows[i] <= 255 && rows[i] == floor(rows[i])))
            return reject(s, first, i, "the model was trained with bytes, and this is not an integer from 0 to 255");
        out[i] = table->values[i % s->size / table->block * 256 + (size_t)rows[i]];
    }
    return OK;
}

status input_scaling_apply(const struct input_scaling *s, size_t first, double *rows, size_t count, float *out) {
    size_t values = count * s->size;
    if (s->is_bytes) return scale_bytes(s, first, rows, count, out);
    for (size_t i = 0; s->divide != 1 && i < values; i++) rows[i] /= s->divide;
    scaler_apply(&s->scaler, rows, count, s->size, out);
    for (size_t i = 0; i < values; i++)
        if (!isfinite(out[i]))
            return reject(s, first, i,
                          isfinite(rows[i]) ? "the scaled value is too large for float32"
                                            : "it is not a finite number");
    return OK;
}
