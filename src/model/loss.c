/* The code that all losses share. */
#include <string.h>

#include "base/scoped.h"
#include "model/losses/losses.h"
#include "model/objective.h"

static const void *const types[] = {
#define X(name) &loss_##name,
    LOSS_TYPES(X)
#undef X
};

static struct type_table table = {.own = types, .own_count = sizeof types / sizeof *types};

const struct loss_type *loss_type_at(size_t index) { return type_table_at(&table, index); }

size_t loss_type_count(void) { return table.own_count + table.added_count; }

bool loss_type_add(const struct loss_type *type) { return type_table_add(&table, type); }

static const struct schema_variant *variant_at(size_t index) {
    const struct loss_type *type = loss_type_at(index);
    return type ? &type->variant : NULL;
}

struct row_weights loss_weights(const struct model *model, const struct shape *output, const float *values,
                                bool is_counted) {
    struct row_weights weights = {.values = values, .is_counted = is_counted};
    if (!output->lengths) return weights;
    weights.lengths = model->lengths + (output->lengths - 1) * model->batch;
    weights.positions = (size_t)output->size[0];
    return weights;
}

status loss_prepare(const struct loss_type *loss, const void *config, struct device *device, const struct shape *output,
                    size_t target_size, size_t rows, size_t world_size) {
    return loss->prepare ? loss->prepare(config, device, output, target_size, rows, world_size) : OK;
}

bool loss_predicts_logarithms(const struct loss_type *loss, const void *config) {
    return loss->predicts_logarithms && loss->predicts_logarithms(config);
}

bool loss_compares_rows(const struct loss_type *loss, const void *config) {
    const struct objective *objective = loss->is_objective ? config : NULL;
    bool compares = loss->compares_rows;
    for (size_t i = 0; objective && i < objective->count; i++)
        compares = compares || objective->terms[i].loss->compares_rows;
    return compares;
}

void loss_run(const struct loss_type *loss, const void *config, struct model *model, const struct tensor *output,
              const void *targets, const float *weights, const struct all_rows *all, size_t rows, float scale,
              struct loss_sums *sums) {
    struct row_weights of_rows = loss_weights(model, &model->out, weights, false);
    of_rows.target_size = model->target_size;
    of_rows.all = all;
    struct tensor gradient = model_output_gradient(model);
    loss->run(config, &(struct loss_batch){model->device, &model->out, output, targets, &of_rows, rows, scale,
                                           &gradient, sums});
}

/* The layer that computes the values of [tensor], before views; NULL: a sum. */
static const struct layer *producer_of(const struct model *model, size_t tensor) {
    tensor = model_root(model, tensor);
    for (size_t i = 0; i < model->node_count; i++)
        if (model->nodes[i].out == tensor) return model->nodes[i].layer;
    return NULL;
}

void loss_warn_of_activation(const struct loss_type *loss, const struct model *model, struct text *out) {
    loss_warn_of_output(loss, model, model->output, out);
}

void loss_warn_of_output(const struct loss_type *loss, const struct model *model, size_t tensor, struct text *out) {
    const struct layer *layer = producer_of(model, tensor);
    if (layer && loss->takes_logarithms && (layer->type->gives_probabilities || layer->type->multiply_adds))
        text_printf(out,
                    "%s: %s: the loss %s takes log-probabilities, which it does not compute; %s the layer log_softmax",
                    place_text(layer->place).s, layer->path, loss->variant.name,
                    layer->type->gives_probabilities ? "replace it by" : "add");
    if (!loss->own_activation || !layer || !layer->type->gives_probabilities) return;
    text_printf(out, "%s: %s: it is before the loss %s, which applies %s itself; remove the layer",
                place_text(layer->place).s, layer->path, loss->variant.name, loss->own_activation);
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
    return loss_check_output(loss, config, model, model->output, targets);
}

/* Without dimensions of size 1. */
static struct shape squeezed(const struct shape *shape) {
    struct shape out = {0};
    for (int i = 0; i < shape->dims; i++)
        if (shape->size[i] != 1) out.size[out.dims++] = shape->size[i];
    return out;
}

/* The shape of the values that have a target each, of an output that has as many as there are targets. */
static struct shape shape_of_values(const struct loss_type *loss, const struct model *model, size_t tensor,
                                    size_t target_size) {
    const struct planned_tensor *t = &model->tensors[tensor];
    struct shape shape = t->scores ? *t->scores : t->shape;
    if (loss->wants_classes && t->scores) {
        shape.dims--;
        memmove(shape.size, shape.size + 1, (size_t)shape.dims * sizeof *shape.size);
    } else if (loss->wants_classes && shape.dims > 0) {
        shape.dims--;
    } else if (loss->is_class_list && shape.dims > 1) {
        shape.size[shape.dims - 1] = (int64_t)target_size / shape.size[0];
    } else if (loss->parts && shape.dims > 1) {
        shape.size[shape.lengths ? shape.dims - 1 : 0] /= (int64_t)loss->parts;
    }
    return shape;
}

/* Whether the parts of an output with two dimensions lie one after the other, as run needs them: of (positions,
 * features) that were joined along the last dimension they do not, and only targets can tell it from (channels,
 * length). */
static status check_parts(const struct loss_type *loss, const struct shape *output,
                          const struct loss_targets *targets) {
    const struct shape *target = &targets->shape;
    int64_t parts = (int64_t)loss->parts;
    if (!loss->parts || output->dims != 2 || output->size[0] == 1 || output->size[1] == 1) return OK;
    if (output->lengths) return OK; /* of each position */
    bool is_by_position = target->dims == 2 && target->size[0] == output->size[0];
    if (output->size[0] == parts && !is_by_position) return OK; /* each part is a row, as of conv1d */
    if (target->dims == 2 && output->size[0] == parts * target->size[0] && output->size[1] == target->size[1])
        return OK;
    return status_usage(
        "the model's output is %s: %s needs its %zu parts one after the other; insert '- flatten' after "
        "each part, before concat joins them; or after the last layer, if the parts are its channels",
        shape_text(output).s, loss->variant.name, loss->parts);
}

/* Whether one shape is the other with neighbouring dimensions merged, so that values have the same order in memory. */
static bool is_merged(const struct shape *a, const struct shape *b) {
    for (int i = 0, j = 0; i < a->dims && j < b->dims;) {
        int first_i = i, first_j = j;
        int64_t left = a->size[i++], right = b->size[j++];
        while (left != right) {
            if (left < right ? i == a->dims : j == b->dims) return false;
            if (left < right)
                left *= a->size[i++];
            else
                right *= b->size[j++];
        }
        if (i - first_i > 1 && j - first_j > 1) return false;
    }
    return true;
}

/* Whether each value has the place of its target. */
static status check_shape(const struct loss_type *loss, const struct model *model, size_t tensor,
                          const struct loss_targets *targets) {
    const struct planned_tensor *t = &model->tensors[tensor];
    struct shape values = shape_of_values(loss, model, tensor, targets->size);
    struct shape a = squeezed(&values), b = squeezed(&targets->shape);
    bool is_aligned = loss->aligns_targets || targets->size <= 1;
    if (is_aligned || a.dims < 2 || b.dims < 2 || is_merged(&a, &b)) return OK;
    return status_usage("the model's output is %s, but a target is %s", shape_text(t->scores ? t->scores : &t->shape).s,
                        shape_text(&targets->shape).s);
}

status loss_check_output(const struct loss_type *loss, const void *config, const struct model *model, size_t tensor,
                         const struct loss_targets *targets) {
    const struct shape *output = &model->tensors[tensor].shape;
    if (output->lengths && loss->without_lengths)
        return status_usage("%s %s", loss->variant.name, loss->without_lengths);
    status s = loss_check_sizes(loss, config, output, targets->size, targets->classes);
    if (!s) {
        TRY(check_parts(loss, output, targets));
        return check_shape(loss, model, tensor, targets);
    }
    const struct layer *linear = layer_without_flatten(model);
    SCOPED_TEXT hint = {0};
    if (linear) {
        text_printf(&hint, "; %s, line %d, gets %s and uses only the last dimension: insert '- flatten' before it",
                    linear->path, linear->place.line, shape_text(&linear->in).s);
    } else if (targets->first_class > 0) {
        text_printf(&hint,
                    "; the smallest class is %lld: number the labels from 0 (in a table dataset.columns: {COLUMN: "
                    "category} does it), or give the last layer %lld outputs",
                    (long long)targets->first_class, (long long)targets->classes);
    } else if (targets->absent_class > 0 && targets->size == 1) {
        text_printf(&hint,
                    "; no row has class %lld: number the labels without gaps (in a table dataset.columns: {COLUMN: "
                    "category} does it), or give the last layer %lld outputs",
                    (long long)targets->absent_class, (long long)targets->classes);
    }
    status explained = status_new(status_code(s), "%s%s", status_message(s), text_string(&hint));
    status_free(s);
    return explained;
}

const char *const loss_reductions[] = {"mean", "batchmean", NULL};

const struct schema_variants loss_variants = {.what = "loss", .at = variant_at, .implied = "expression"};

bool loss_is_balanced(const struct loss_type *loss, const void *config) {
    return loss->class_weight && loss->class_weight((void *)(uintptr_t)config)->word;
}

status loss_check_values(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    if (shape_elements(output) == target_size) return OK;
    return status_usage("the model's output is %s, but a target row has %zu value%s", shape_text(output).s, target_size,
                        text_plural(target_size, "s"));
}

status loss_check_sizes(const struct loss_type *loss, const void *config, const struct shape *output,
                        size_t target_size, int64_t classes) {
    if (loss->check) return loss->check(config, output, target_size, classes);
    if (!loss->parts) return loss_check_values(config, output, target_size, classes);
    return loss_check_parts(loss->variant.name, loss->parts, loss->parts_meaning, output,
                            loss->has_no_target ? 0 : target_size);
}

void loss_mean_of_elements(const struct elementwise_options *options, const struct loss_batch *b) {
    size_t row_elements = shape_elements(b->shape), count = b->rows * row_elements;
    size_t over = options->is_row_mean ? b->rows : count;
    struct elementwise_options own = *options;
    own.rows = *b->weights;
    own.row_elements = row_elements;
    device_ops(b->device)->losses->elementwise(b->device, &own, floats(b->output), b->targets, count,
                                               b->scale / (float)over, (double)over, floats(b->gradient), b->sums);
}

size_t loss_row_positions(const struct shape *output) { return output->lengths ? (size_t)output->size[0] : 1; }

status loss_check_parts(const char *name, size_t parts, const char *meaning, const struct shape *output,
                        size_t target_size) {
    size_t size = shape_elements(output), positions = loss_row_positions(output);
    bool has_lengths = output->lengths,
         is_divided = size / positions % parts == 0 && (!has_lengths || output->dims == 2);
    if (is_divided && (target_size == 0 || size == parts * target_size)) return OK;
    SCOPED_TEXT wanted = {0};
    if (has_lengths && !is_divided)
        text_printf(&wanted, "(positions, features) with a multiple of %zu features, of rows of different lengths",
                    parts);
    else if (target_size > 0)
        text_printf(&wanted, "%zu values for %zu target%s", parts * target_size, target_size,
                    text_plural(target_size, "s"));
    else
        text_printf(&wanted, "a multiple of %zu values", parts);
    return status_usage("the model's output is %s: %s needs %s (%s)", shape_text(output).s, name, text_string(&wanted),
                        meaning);
}

void loss_mean_of_rows(const struct rowwise_options *options, const struct loss_batch *b) {
    struct rowwise_options own = *options;
    size_t positions = loss_row_positions(b->shape), count = b->rows * positions;
    own.rows = *b->weights;
    own.row_masks = positions;
    device_ops(b->device)->losses->rowwise(b->device, &own, floats(b->output), b->targets, count,
                                           shape_elements(b->shape) / positions / options->parts,
                                           b->scale / (float)count, floats(b->gradient), b->sums);
}
