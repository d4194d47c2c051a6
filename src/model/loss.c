/* The code that all losses share. */
#include "model/half_storage.h"
#include "model/losses/losses.h"

static const struct loss_type *const types[] = {
#define X(name) &loss_##name,
    LOSS_TYPES(X)
#undef X
};

const struct loss_type *loss_type_at(size_t index) {
    return index < sizeof types / sizeof *types ? types[index] : NULL;
}

static const struct schema_variant *variant_at(size_t index) {
    const struct loss_type *type = loss_type_at(index);
    return type ? &type->variant : NULL;
}

void loss_run(const struct loss_type *loss, const void *config, struct model *model, const float *output,
              const void *targets, size_t rows, float scale, struct loss_sums *sums) {
    half_set(model, half_loss(model));
    loss->run(config, model->device, &model->out, output, targets, rows, scale, model_output_gradient(model), sums);
    half_set(model, (struct half_operands){0});
}

/* The layer that computes the output's values, before views; NULL: a sum. */
static const struct layer *last_layer(const struct model *model) {
    size_t tensor = model->output;
    while (model->tensors[tensor].alias != NO_TENSOR) tensor = model->tensors[tensor].alias;
    for (size_t i = 0; i < model->step_count; i++)
        if (model->steps[i].out == tensor) return model->steps[i].layer;
    return NULL;
}

void loss_warn_of_activation(const struct loss_type *loss, const struct model *model, struct text *out) {
    const struct layer *layer = last_layer(model);
    if (!loss->own_activation || !layer || !layer->type->gives_probabilities) return;
    text_printf(out, "%s:%d:%d: %s: it is before the loss %s, which applies %s itself; remove the layer",
                layer->place.file, layer->place.line, layer->place.column, layer->path, loss->variant.name,
                loss->own_activation);
}

/* The first layer whose input is an image and that uses only the last dimension, so that a flatten is missing. NULL:
 * none. */
static const struct layer *layer_without_flatten(const struct model *model) {
    for (size_t i = 0; i < model->layer_count; i++)
        if (model->layers[i].type->uses_last_dimension && model->layers[i].in.dims >= 3) return &model->layers[i];
    return NULL;
}

status loss_check(const struct loss_type *loss, const void *config, const struct model *model,
                  const struct loss_targets *targets) {
    status s = loss->check(config, &model->out, targets->size, targets->classes);
    if (!s) return OK;
    const struct layer *linear = layer_without_flatten(model);
    struct text hint = {0};
    if (linear) {
        text_printf(&hint, "; %s, line %d, gets ", linear->path, linear->place.line);
        shape_print(&linear->in, &hint);
        text_add(&hint, " and uses only the last dimension: insert '- flatten' before it");
    } else if (targets->first_class > 0) {
        text_printf(&hint,
                    "; the smallest class is %lld: number the labels from 0, or give the last layer %lld outputs",
                    (long long)targets->first_class, (long long)targets->classes);
    }
    status explained = status_new(status_code(s), "%s%s", status_message(s), text_string(&hint));
    text_free(&hint);
    status_free(s);
    return explained;
}

const struct schema_variants loss_variants = {.what = "loss", .at = variant_at};

status loss_check_values(const struct shape *output, size_t target_size) {
    if (shape_elements(output) == target_size) return OK;
    struct text shape = {0};
    shape_print(output, &shape);
    status s = status_new(STATUS_USAGE, "the model's output is %s, but a target row has %zu value%s",
                          text_string(&shape), target_size, text_plural(target_size, "s"));
    text_free(&shape);
    return s;
}

void loss_mean_of_elements(const struct elementwise_options *options, struct device *device,
                           const struct shape *output_shape, const float *output, const void *targets, size_t rows,
                           float scale, float *gradient, struct loss_sums *sums) {
    size_t count = rows * shape_elements(output_shape);
    device_ops(device)->losses->elementwise(device, options, output, targets, count, scale / (float)count,
                                            (double)count, gradient, sums);
}
