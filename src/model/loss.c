/* The table of losses, and what several of them share. */
#include "model/losses/losses.h"
#include "model/narrow.h"

static const struct loss_type *const types[] = {&loss_cross_entropy,   &loss_mse,   &loss_l1, &loss_smooth_l1,
                                                &loss_bce_with_logits, &loss_kl_div};

const struct loss_type *loss_type_at(size_t index) {
    return index < sizeof types / sizeof *types ? types[index] : NULL;
}

static const struct schema_variant *variant_at(size_t index) {
    const struct loss_type *type = loss_type_at(index);
    return type ? &type->variant : NULL;
}

void loss_run(const struct loss_type *loss, const void *config, struct model *model, const float *output,
              const void *targets, size_t rows, float scale, struct loss_sums *sums) {
    narrow_set(model, narrow_loss(model));
    loss->run(config, model->device, &model->out, output, targets, rows, scale, model_output_gradient(model), sums);
    narrow_set(model, (struct narrow){0});
}

const struct schema_variants loss_variants = {.what = "loss", .at = variant_at};

status loss_check_values(const struct shape *output, size_t target_size) {
    if (shape_elements(output) == target_size) return OK;
    struct text shape = {0};
    shape_print(output, &shape);
    status s = status_new(STATUS_USAGE, "the model's output is %s, but a target row has %zu value%s",
                          text_string(&shape), target_size, target_size == 1 ? "" : "s");
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
