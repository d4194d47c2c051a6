/* The search has the order of the pass, so that it finds the cause before its consequences. */
#include "train/nonfinite/diagnosis.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "model/half_storage.h"

#define MAX_NAMED_ROWS 5 /* in a message */

struct search {
    const struct diagnosis *diagnosis;
    const struct batch *batch;
    const struct pass *pass;
    struct text found; /* empty: nothing yet */
};

struct matrix {
    const void *values; /* (rows, size) */
    size_t size;
    bool is_half; /* 16 bits (struct half_operands), else floats */
};

static bool is_finite(const struct search *s, const float *values, size_t count) {
    return device_ops(s->pass->device)->is_finite(s->pass->device, values, count);
}

/* Whether rows [first, first + rows) of a matrix are finite. */
static bool are_rows_finite(const struct search *s, const struct matrix *m, size_t first, size_t rows) {
    size_t bytes = m->size * (m->is_half ? sizeof(uint16_t) : sizeof(float));
    half_set(s->diagnosis->model, (struct half_operands){.x = m->is_half});
    bool are_finite = is_finite(s, (const float *)((const char *)m->values + first * bytes), rows * m->size);
    half_set(s->diagnosis->model, (struct half_operands){0});
    return are_finite;
}

typedef bool row_test(const struct search *search, const void *context, size_t row);

/* " for rows 3, 17 and 2 more of the training data" */
static void name_rows(struct search *s, row_test *is_nonfinite, const void *context) {
    struct text rows = {0};
    size_t count = 0;
    for (size_t i = 0; i < s->batch->rows; i++) {
        if (!is_nonfinite(s, context, i)) continue;
        if (count++ < MAX_NAMED_ROWS)
            text_printf(&rows, "%s%lld", count > 1 ? ", " : "",
                        (long long)dataset_row(s->diagnosis->dataset, DATASET_TRAIN, s->batch->positions[i]));
    }
    if (count > 0) text_printf(&s->found, " for row%s %s", text_plural(count, "s"), text_string(&rows));
    if (count > MAX_NAMED_ROWS) text_printf(&s->found, " and %zu more", count - MAX_NAMED_ROWS);
    if (count > 0) text_add(&s->found, " of the training data");
    text_free(&rows);
}

static bool has_nonfinite_values(const struct search *s, const void *matrix, size_t row) {
    return !are_rows_finite(s, matrix, row, 1);
}

static bool find_in_inputs(struct search *s) {
    const struct dataset_info *info = dataset_info(s->diagnosis->dataset);
    struct matrix inputs = {s->batch->inputs, info->input_size, false};
    if (info->input_kind == INPUT_TOKENS || are_rows_finite(s, &inputs, 0, s->batch->rows)) return false;
    text_add(&s->found, "the inputs");
    name_rows(s, has_nonfinite_values, &inputs);
    return true;
}

static const struct param *nonfinite_parameter(const struct search *s, const struct layer *layer) {
    const struct params *params = &s->diagnosis->model->params;
    for (size_t p = layer->first_param; p < layer->first_param + layer->param_count; p++)
        if (!is_finite(s, params_value(params, p), params->items[p].count)) return &params->items[p];
    return NULL;
}

static bool visit(void *search, const struct layer *layer, const float *output, size_t size, bool is_half) {
    struct search *s = search;
    struct matrix values = {output, size, is_half};
    if (are_rows_finite(s, &values, 0, s->batch->rows)) return true;
    const struct param *param = nonfinite_parameter(s, layer);
    if (param) {
        text_printf(&s->found, "the parameter %s, since an earlier update", param->name);
        return false;
    }
    text_printf(&s->found, "the output of layer %s (%s)", layer->name, layer->type->variant.name);
    name_rows(s, has_nonfinite_values, &values);
    return false;
}

/* Computes the loss of one row of the output and its gradient, which backward reads. */
static void run_loss_of_row(const struct search *s, const float *outputs, size_t row) {
    const struct diagnosis *d = s->diagnosis;
    size_t target_bytes = dataset_target_bytes(dataset_info(d->dataset));
    device_zero(s->pass->device, d->sums, sizeof *d->sums);
    loss_run(d->loss, d->loss_config, d->model, outputs, (const char *)s->batch->targets + row * target_bytes, NULL,
             NULL, 1, 1, d->sums);
}

/* A failure of the device is ignored here; the next device_status returns it. */
static bool is_loss_finite(const struct search *s) {
    struct loss_sums sums = {0};
    status_free(device_download(s->pass->device, &sums, s->diagnosis->sums, sizeof sums));
    return isfinite(sums.loss);
}

static bool has_nonfinite_loss(const struct search *s, const void *outputs, size_t row) {
    const struct model *model = s->diagnosis->model;
    size_t bytes = model->out_size * (half_loss(model).x ? sizeof(uint16_t) : sizeof(float));
    run_loss_of_row(s, (const float *)((const char *)outputs + row * bytes), row);
    return !is_loss_finite(s);
}

static bool find_in_loss(struct search *s, const float *outputs) {
    const struct diagnosis *d = s->diagnosis;
    device_zero(s->pass->device, d->sums, sizeof *d->sums);
    loss_run(d->loss, d->loss_config, d->model, outputs, s->batch->targets, s->batch->weights, NULL, s->batch->rows, 1,
             d->sums);
    if (is_loss_finite(s)) return false;
    text_add(&s->found, "the loss");
    name_rows(s, has_nonfinite_loss, outputs);
    return true;
}

const char *diagnosis_gradient(const struct model *model, struct device *device) {
    for (size_t p = model->params.count; p-- > 0;) {
        const struct param *param = &model->params.items[p];
        if (!param->is_frozen &&
            !device_ops(device)->is_finite(device, params_gradient(&model->params, p), param->count))
            return param->name;
    }
    return NULL;
}

static bool has_nonfinite_gradient(const struct search *s, const void *context, size_t row) {
    const struct diagnosis *d = s->diagnosis;
    size_t input_size = dataset_info(d->dataset)->input_size;
    struct pass pass = *s->pass;
    (void)context;
    pass.rows = 1;
    pass.draws.first_row += row * pass.draws.row_stride;
    const float *inputs = s->batch->inputs + row * input_size;
    params_zero_gradients(&d->model->params, pass.device);
    run_loss_of_row(s, model_forward(d->model, &pass, inputs), row);
    model_backward(d->model, &pass, inputs, NULL, NULL);
    return diagnosis_gradient(d->model, pass.device) != NULL;
}

static bool find_in_gradients(struct search *s) {
    struct model *model = s->diagnosis->model;
    params_zero_gradients(&model->params, s->pass->device);
    model_backward(model, s->pass, s->batch->inputs, NULL, NULL);
    const char *name = diagnosis_gradient(model, s->pass->device);
    if (!name) return false;
    text_printf(&s->found, "the gradient of %s", name);
    name_rows(s, has_nonfinite_gradient, NULL);
    return true;
}

/* Statistics are computed over all rows of the batch, so no row is named. */
static bool find_in_statistics(struct search *s) {
    const struct params *buffers = &s->diagnosis->model->buffers;
    for (size_t b = 0; b < buffers->count; b++) {
        if (is_finite(s, params_value(buffers, b), buffers->items[b].count)) continue;
        text_printf(&s->found, "the running statistics %s", buffers->items[b].name);
        return true;
    }
    return false;
}

bool diagnosis_run(const struct diagnosis *diagnosis, const struct batch *batch, const struct pass *pass,
                   char text[DIAGNOSIS_SIZE]) {
    struct search s = {.diagnosis = diagnosis, .batch = batch, .pass = pass};
    if (!find_in_inputs(&s)) {
        const float *outputs = model_forward_visited(diagnosis->model, pass, batch->inputs, visit, &s);
        if (outputs && !find_in_loss(&s, outputs) && !(diagnosis->has_gradients && find_in_gradients(&s)))
            find_in_statistics(&s);
    }
    bool is_found = s.found.length > 0;
    snprintf(text, DIAGNOSIS_SIZE, "%s", text_string(&s.found));
    text_free(&s.found);
    return is_found;
}
