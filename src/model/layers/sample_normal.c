/* sample_normal: a number of the normal distribution with the mean of one output and the logarithm of the variance of
 * another one, through which gradients flow (Kingma and Welling, "Auto-Encoding Variational Bayes", 2013):
 *
 *   z = mean + exp(log_variance / 2) e,   dmean = dz,   dlog_variance = dz exp(log_variance / 2) e / 2
 *
 * Outside of training z is the mean. The standard normal e is a function of (seed, layer, step, row of the global
 * batch, element), as the masks of dropout. */
#include "base/text.h"
#include "model/layers/layers.h"

static status plan(struct layer *layer, struct planning *planning) {
    layer->out = layer->in;
    if (layer->in_count != 2)
        return status_usage("takes two outputs, the mean and the logarithm of the variance, got %zu", layer->in_count);
    if (shape_is_equal(&layer->ins[0], &layer->ins[1])) return OK;
    return status_usage("the mean has %s, the logarithm of the variance has %s", shape_text(&layer->ins[0]).s,
                        shape_text(&layer->ins[1]).s);
}

static struct draw_key key_of(const struct layer *layer, const struct pass *pass) {
    struct draw_key key = pass->draws;
    key.stream = layer->stream;
    return key;
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct draw_key key = key_of(layer, pass);
    if (pass->is_training)
        pass->ops->sample_normal(pass->device, &key, floats(&o.x[0]), floats(&o.x[1]), floats(o.y), pass->rows,
                                 layer->out_size);
    else
        pass->ops->copy(pass->device, &o.x[0], o.y, pass->rows * layer->out_size);
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct draw_key key = key_of(layer, pass);
    size_t count = pass->rows * layer->out_size;
    if (o.dx[0].data) pass->ops->copy(pass->device, o.dy, &o.dx[0], count);
    if (!o.dx[1].data) return;
    if (pass->is_training)
        pass->ops->sample_normal_backward(pass->device, &key, floats(&o.x[1]), floats(o.dy), floats(&o.dx[1]),
                                          pass->rows, layer->out_size);
    else
        device_zero(pass->device, floats(&o.dx[1]), count * sizeof(float));
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "reparameterize reparametrize rsample Sampling sampling", "sample_normal"),
    {0},
};

const struct layer_type layer_sample_normal = {
    .aliases = aliases,
    .variant = {"sample_normal", NULL,
                "In training, draws from the normal distribution of two outputs, the mean and the logarithm of the "
                "variance: `sample_normal: {from: [mean, log_variance]}` (mean + exp(0.5 * log_variance) * noise, as "
                "in a VAE); outside of training the mean."},
    .joins = true,
    .memory_format = FORMAT_PRESERVE,
    .ignores = IGNORES_Y,
    .is_by_position = true,
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .is_identity = true,
    .pytorch = "SampleNormal(stream={number}{order})",
};
