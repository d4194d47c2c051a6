/* expression: a loss that is a formula of the config, of the outputs y, the targets t and the weight w of a row. The
 * language is that of base/expression/expression.h, which also derives it. */
#include "base/expression/expression.h"

#include "device/expression.h"
#include "model/losses/losses.h"

enum { OF_OUTPUT, OF_TARGET, OF_WEIGHT, OF_FACTOR, VARIABLES };
static const char *const names[] = {"y", "t", "w", NULL};

struct expression_config {
    const char *expression;
    struct expression formula; /* with its derivative; set by check_formula */
    uint16_t weighted;         /* the loss of a row, times its weight unless the formula has it */
    uint16_t gradient, weight; /* by the output; the weight of a row */
};

static const struct expression_options options = {.names = names, .python = names};

/* The nodes that a batch needs: the loss of a row, its derivative times a factor, and the weight of the row. */
static status derive(struct expression_config *c) {
    struct expression *f = &c->formula;
    const uint16_t output = OF_OUTPUT;
    uint16_t factor = expression_variable(f, OF_FACTOR);
    c->weight = expression_variable(f, OF_WEIGHT);
    c->weighted =
        expression_uses(f, OF_WEIGHT) ? f->value : expression_add(f, EXPRESSION_MULTIPLY, f->value, c->weight, 0, 0);
    return expression_differentiate(f, c->weighted, factor, &output, 1, &c->gradient);
}

static void check_formula(void *config, const struct node *where, const char *path, struct problems *problems) {
    struct expression_config *c = config;
    const struct node *value = node_get(where, "expression");
    struct text at = {0};
    text_printf(&at, "%s.expression", path);
    if (value && expression_bind(value, text_string(&at), &options, &c->formula, problems)) {
        status s = derive(c);
        if (!s && !expression_uses(&c->formula, OF_OUTPUT))
            s = status_usage("the loss does not depend on y, the output of the model");
        if (s) problems_add(problems, value->place, text_string(&at), "%s", status_message(s));
        status_free(s);
        c->formula.text = c->expression;
    }
    text_free(&at);
}

static const struct schema_row keys[] = {
    SCHEMA_ROW(STRING, struct expression_config, expression, .flags = SCHEMA_REQUIRED,
               .doc = "The loss of a row, one number, such as `mean(abs(y - t) ^ 1.5)`: y is the output of the model, "
                      "t the target, w the weight of the row (docs/expressions.md). The loss is its mean over the "
                      "rows, weighted unless the expression has w."),
    {0},
};
static const struct schema schema =
    SCHEMA("loss.expression", struct expression_config, .rows = keys, .check = check_formula);

static bool is_one_number(const struct expression_config *c, size_t output, size_t target) {
    const bool are_vectors[] = {output > 1, target > 1, false};
    return output == 1 || !expression_is_vector(&c->formula, c->formula.value, are_vectors);
}

static void add_formula(const void *config, struct text *out) {
    const struct expression_config *c = config;
    struct expression again;
    size_t at;
    status_free(expression_parse(c->expression, &options, &again, &at, out));
}

/* The output and the target of a row are one number, or vectors of the same size. */
static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    const struct expression_config *c = config;
    size_t size = shape_elements(output);
    status s = OK;
    bool uses_target = expression_uses(&c->formula, OF_TARGET);
    if (uses_target && target_size != size && target_size != 1 && size != 1)
        s = status_usage("expression '%s': y is %s, but t has %zu values", short_text(c->expression).s,
                         shape_text(output).s, target_size);
    else if (!is_one_number(c, size, uses_target ? target_size : 1))
        s = status_usage(
            "expression '%s': it is as many numbers as y, which is %s, and the loss of a row is one; write "
            "mean(...) or sum(...)",
            short_text(c->expression).s, shape_text(output).s);
    return s;
}

/* The call for a batch. Both sizes may differ if one of them is 1. */
static struct expression_call call_of(const struct expression_config *c, const struct loss_batch *b) {
    size_t size = shape_elements(b->shape);
    size_t target_size = expression_uses(&c->formula, OF_TARGET) ? b->weights->target_size : 1;
    struct expression_call call = {
        .expression = &c->formula, .rows = b->rows, .size = size > target_size ? size : target_size};
    call.variables[OF_OUTPUT].values = floats(b->output);
    call.variables[OF_OUTPUT].is_vector = size > 1;
    call.variables[OF_TARGET].values = b->targets;
    call.variables[OF_TARGET].is_vector = target_size > 1;
    call.variables[OF_WEIGHT].values = b->weights->values;
    call.variables[OF_WEIGHT].constant = 1;
    return call;
}

static status prepare(const void *config, struct device *device, const struct shape *output, size_t target_size,
                      size_t rows, size_t world_size) {
    const struct expression_config *c = config;
    const struct formula_ops *ops = device_ops(device)->formulas;
    double sum = 0;
    float memory = 0;
    struct row_weights weights = {.values = &memory, .target_size = target_size};
    struct expression_call call =
        call_of(c, &(struct loss_batch){
                       .shape = output, .output = F32(&memory), .targets = &memory, .weights = &weights, .rows = rows});
    call.outputs[0] = (struct expression_output){c->gradient, &memory, shape_elements(output) > 1};
    call.output_count = 1;
    call.sums[0].node = c->weighted;
    call.sums[0].to = &sum;
    call.sums[1].node = c->weight;
    call.sum_count = 2;
    return ops->prepare(device, &call);
}

static void run(const void *config, const struct loss_batch *b) {
    const struct expression_config *c = config;
    struct expression_call call = call_of(c, b);
    bool is_weighted = b->weights->values && b->weights->is_counted;
    call.variables[OF_FACTOR].constant = b->scale / (float)b->rows;
    if (floats(b->gradient)) {
        call.outputs[0] = (struct expression_output){c->gradient, floats(b->gradient), shape_elements(b->shape) > 1};
        call.output_count = 1;
    }
    call.sums[0].node = c->weighted;
    call.sums[0].to = &b->sums->loss;
    call.sums[1].node = c->weight;
    call.sums[1].to = &b->sums->count;
    call.sum_count = is_weighted ? 2 : 1;
    call.counted = (double)b->rows;
    call.count = is_weighted ? NULL : &b->sums->count;
    device_ops(b->device)->formulas->run(b->device, &call);
}

/* Each node is computed for all rows, in the order of the list. */
static void explain(const void *config, const struct loss_batch *b, struct text *out) {
    const struct expression_config *c = config;
    struct device *device = b->device;
    size_t rows = b->rows;
    struct expression_call call = call_of(c, b);
    float *values;
    bool is_found = false;
    status no_memory = device_alloc(device, rows * call.size * sizeof *values, "an expression", (void **)&values);
    if (no_memory) values = NULL;
    status_free(no_memory);
    call.variables[OF_FACTOR].constant = 1 / (float)rows;
    for (uint16_t i = 0; values && !is_found && i < c->formula.count; i++) {
        if (expression_operands(c->formula.nodes[i].op) == 0) continue;
        call.outputs[0] = (struct expression_output){i, values, true};
        call.output_count = 1;
        status s = device_ops(device)->formulas->prepare(device, &call);
        if (!s) device_ops(device)->formulas->run(device, &call);
        is_found = !s && !device_ops(device)->is_finite(device, F32(values), rows * call.size);
        status_free(s);
        if (!is_found) continue;
        text_add(out, i < c->formula.own ? " in " : " in the derivative of ");
        expression_describe(&c->formula, i, out);
    }
    device_free(device, values);
}

const struct loss_type loss_expression = {
    .variant = {"expression", &schema,
                "A formula: `loss: {expression: \"mean(abs(y - t) ^ 1.5)\"}`, mean over rows (docs/expressions.md)."},
    .is_regression = true,
    .targets = "values",
    .without_lengths = "is of whole rows, whose positions have different numbers here; insert '- mean: 1' or '- max: "
                       "1' before the last layers",
    .check = check,
    .prepare = prepare,
    .run = run,
    .explain = explain,
    .pytorch = "expression_loss(lambda y, t, w: {formula}, {y}, {t})",
    .add_formula = add_formula,
};
