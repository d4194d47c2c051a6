/* expression: a layer that is a formula of the config, of the outputs that it takes: `expression: {from: [a, b], value:
 * "a * sigmoid(b)"}`. The language is that of base/expression/expression.h, which also derives it. Without reductions
 * it is of each element, in whatever memory format; with them the features are the last dimension. */
#include "base/expression/expression.h"

#include <stdio.h>

#include "device/expression.h"
#include "model/build.h"
#include "model/layers/layers.h"

struct expression_config {
    const char *value;
};

/* The formula of a layer, with its derivatives by each input. */
struct layer_formula {
    const char *value;
    struct expression formula;
    uint16_t derivatives[EXPRESSION_MAX_VARIABLES];
};

#define MAX_NAMES (EXPRESSION_MAX_VARIABLES - 1) /* of inputs; another variable is the derivative of the output */

/* ---- names ---- */

/* The names of the inputs, NULL-terminated: those of `from`; `x` is the output of the layer before, which is an input
 * if at most one is named. */
struct input_names {
    const char *items[MAX_NAMES + 2];
    size_t count;
};

static void add_name(struct input_names *names, const char *name) {
    if (names->count < MAX_NAMES + 1) names->items[names->count++] = name;
}

static struct input_names names_of(const struct string_list *from) {
    struct input_names names = {0};
    if (from->count <= 1) add_name(&names, "x");
    for (size_t i = 0; i < from->count; i++) add_name(&names, from->items[i]);
    return names;
}

static void check_value(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct node *value = node_get(where, "value"), *from = node_get(where, "from");
    struct string_list list = {0};
    const char *one[1], *many[MAX_NAMES + 1];
    struct text at = {0};
    struct expression formula;
    if (from && from->kind == NODE_SCALAR && !node_is_null(from)) {
        one[0] = from->text;
        list = (struct string_list){one, 1};
    }
    for (list.items = from && from->kind == NODE_SEQUENCE ? many : list.items;
         from && from->kind == NODE_SEQUENCE && list.count < from->count && list.count < MAX_NAMES + 1; list.count++)
        many[list.count] = from->items[list.count]->text;
    struct input_names names = names_of(&list);
    text_printf(&at, "%s.value", path);
    if (value)
        expression_bind(value, text_string(&at), &(struct expression_options){.names = names.items}, &formula,
                        problems);
    text_free(&at);
}

static const struct schema_row rows[] = {
    SCHEMA_ROW(STRING, struct expression_config, value, .flags = SCHEMA_REQUIRED,
               .doc = "A formula of the outputs in `from`, by their names; x is the output of the layer before, unless "
                      "`from` has two names or more: `a * sigmoid(b)`. Reductions such as mean are over the last "
                      "dimension (docs/expressions.md)."),
    {0},
};
static const struct schema schema = SCHEMA("model.layers.expression", struct expression_config, .rows = rows,
                                           .shorthand = "value", .check = check_value);

/* ---- shapes ---- */

static int64_t last_of(const struct shape *shape) { return shape->dims ? shape->size[shape->dims - 1] : 1; }

/* Vectors of all inputs: the size of the last dimension, where some may be 1. */
static int64_t features_of(const struct layer *layer) {
    int64_t size = 1;
    for (size_t i = 0; i < layer->in_count; i++)
        if (last_of(&layer->ins[i]) > size) size = last_of(&layer->ins[i]);
    return size;
}

static status differ(const struct layer *layer, size_t input) {
    const struct layer_formula *f = layer->config;
    return status_new(
        STATUS_USAGE,
        "'%s': the inputs have different shapes: input 1 has %s, input %zu has %s; only the last dimension may be 1",
        short_text(f->value).s, shape_text(&layer->ins[0]).s, input + 1, shape_text(&layer->ins[input]).s);
}

static status plan_features(struct layer *layer, struct planning *planning) {
    const struct layer_formula *f = layer->config;
    bool are_vectors[EXPRESSION_MAX_VARIABLES] = {0};
    int64_t size = features_of(layer);
    layer->out = layer->in;
    if (layer->in.dims == 0 || layer->in.dims > 2)
        return status_usage("'%s': reductions and inputs of different sizes are for (features) and (positions, "
                            "features); insert '- flatten' or '- permute' before it",
                            short_text(f->value).s);
    for (size_t i = 0; i < layer->in_count; i++) {
        const struct shape *in = &layer->ins[i];
        bool fits = in->dims == layer->in.dims && (in->dims == 1 || in->size[0] == layer->in.size[0]);
        if (!fits || (last_of(in) != size && last_of(in) != 1)) return differ(layer, i);
        are_vectors[i] = last_of(in) > 1;
    }
    bool is_vector = expression_is_vector(&f->formula, f->formula.value, are_vectors);
    layer->out.size[layer->out.dims - 1] = is_vector ? size : 1;
    return OK;
}

/* ---- passes ---- */

/* The call for [batch] rows: with features one for each position, else one for each element. */
static struct expression_call call_of(const struct layer *layer, size_t batch, const struct tensor *x) {
    const struct layer_formula *f = layer->config;
    struct expression_call call = {.expression = &f->formula, .rows = batch * layer->in_size, .size = 1};
    if (layer->type->memory_format == FORMAT_CONTIGUOUS) {
        call.size = (size_t)features_of(layer);
        call.rows = batch * shape_elements(&layer->in) / (size_t)last_of(&layer->in);
    }
    for (size_t i = 0; i < layer->in_count; i++) {
        call.variables[i].values = floats(&x[i]);
        call.variables[i].is_vector = call.size > 1 && last_of(&layer->ins[i]) > 1;
    }
    return call;
}

static bool is_vector(const struct expression_call *call, const struct shape *shape) {
    return call->size > 1 && last_of(shape) > 1;
}

static void add_value(const struct layer *layer, struct expression_call *call, float *y) {
    const struct layer_formula *f = layer->config;
    call->outputs[call->output_count++] = (struct expression_output){f->formula.value, y, is_vector(call, &layer->out)};
}

/* [to]: NULL: of none. */
static void add_derivatives(const struct layer *layer, struct expression_call *call, const float *dy,
                            float *const *to) {
    const struct layer_formula *f = layer->config;
    call->variables[layer->in_count].values = dy;
    call->variables[layer->in_count].is_vector = is_vector(call, &layer->out);
    for (size_t i = 0; i < layer->in_count; i++)
        if (to[i])
            call->outputs[call->output_count++] =
                (struct expression_output){f->derivatives[i], to[i], is_vector(call, &layer->ins[i])};
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct expression_call call = call_of(layer, pass->rows, o.x);
    add_value(layer, &call, floats(o.y));
    pass->ops->formulas->run(pass->device, &call);
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct expression_call call = call_of(layer, pass->rows, o.x);
    float *to[EXPRESSION_MAX_VARIABLES];
    for (size_t i = 0; i < layer->in_count; i++) to[i] = floats(&o.dx[i]);
    add_derivatives(layer, &call, floats(o.dy), to);
    if (call.output_count) pass->ops->formulas->run(pass->device, &call);
}

/* The workspace of both passes. */
static status prepare(struct layer *layer, struct device *device, size_t batch, bool is_training) {
    const struct formula_ops *ops = device_ops(device)->formulas;
    struct tensor x[EXPRESSION_MAX_VARIABLES];
    float any, *to[EXPRESSION_MAX_VARIABLES];
    for (size_t i = 0; i < layer->in_count; i++) {
        x[i] = (struct tensor){.data = &any};
        to[i] = &any;
    }
    struct expression_call call = call_of(layer, batch, x);
    add_value(layer, &call, &any);
    TRY(ops->prepare(device, &call));
    if (!is_training) return OK;
    call = call_of(layer, batch, x);
    add_derivatives(layer, &call, &any, to);
    return ops->prepare(device, &call);
}

/* ---- ONNX ---- */

static const char *onnx_truth(struct onnx_graph *g, const char *x) {
    const char *zero = onnx_scalar(g, 0);
    return onnx_node1(g, "Not", onnx_node2(g, "Equal", x, zero), NULL);
}

static const char *onnx_of_truth(struct onnx_graph *g, const char *condition) {
    return onnx_cast(g, condition, ONNX_FLOAT);
}

/* Of the last dimension, which stays with the size 1. */
static const char *onnx_reduction(struct onnx_graph *g, const char *type, const char *x) {
    struct text attributes = {0};
    const int64_t axis = -1;
    const char *axes = onnx_numbers(g, &axis, 1);
    onnx_int(&attributes, "keepdims", 1);
    return onnx_node(g, type, (const char *const[]){x, axes}, 2, &attributes);
}

/* What one node of ONNX is; NULL: others. */
static const char *onnx_type(enum expression_op op) {
    static const char *const types[EXPRESSION_SUM_LIKE + 1] = {
        [EXPRESSION_ADD] = "Add",
        [EXPRESSION_SUBTRACT] = "Sub",
        [EXPRESSION_MULTIPLY] = "Mul",
        [EXPRESSION_DIVIDE] = "Div",
        [EXPRESSION_POWER] = "Pow",
        [EXPRESSION_SMALLER] = "Min",
        [EXPRESSION_LARGER] = "Max",
        [EXPRESSION_NEGATE] = "Neg",
        [EXPRESSION_ABS] = "Abs",
        [EXPRESSION_SIGN] = "Sign",
        [EXPRESSION_FLOOR] = "Floor",
        [EXPRESSION_ROUND] = "Round",
        [EXPRESSION_SQRT] = "Sqrt",
        [EXPRESSION_EXP] = "Exp",
        [EXPRESSION_LOG] = "Log",
        [EXPRESSION_SIN] = "Sin",
        [EXPRESSION_COS] = "Cos",
        [EXPRESSION_TANH] = "Tanh",
        [EXPRESSION_ERF] = "Erf",
        [EXPRESSION_SIGMOID] = "Sigmoid",
        [EXPRESSION_SOFTPLUS] = "Softplus",
        [EXPRESSION_RELU] = "Relu",
        [EXPRESSION_SUM] = "ReduceSum",
        [EXPRESSION_MEAN] = "ReduceMean",
        [EXPRESSION_LARGEST] = "ReduceMax",
        [EXPRESSION_SMALLEST] = "ReduceMin",
        [EXPRESSION_LOGSUMEXP] = "ReduceLogSumExp",
        [EXPRESSION_NORM] = "ReduceL2",
    };
    return types[op];
}

static const char *onnx_comparison(struct onnx_graph *g, enum expression_op op, const char *a, const char *b) {
    const char *type = op == EXPRESSION_LESS ? "Less" : op == EXPRESSION_LESS_EQUAL ? "LessOrEqual" : "Equal";
    const char *holds = onnx_node2(g, type, a, b);
    if (op == EXPRESSION_DIFFERENT) holds = onnx_node1(g, "Not", holds, NULL);
    return onnx_of_truth(g, holds);
}

static const char *onnx_logic(struct onnx_graph *g, enum expression_op op, const char *a, const char *b) {
    const char *left = onnx_truth(g, a);
    if (op == EXPRESSION_NOT) return onnx_of_truth(g, onnx_node1(g, "Not", left, NULL));
    const char *right = onnx_truth(g, b);
    return onnx_of_truth(g, onnx_node2(g, op == EXPRESSION_AND ? "And" : "Or", left, right));
}

static const char *onnx_operation(struct onnx_graph *g, const struct expression_node *n, const char *const in[3]) {
    const char *one, *type = onnx_type(n->op);
    if (expression_is_reduction(n->op)) return onnx_reduction(g, type, in[0]);
    if (type && expression_operands(n->op) == 2) return onnx_node2(g, type, in[0], in[1]);
    if (type) return onnx_node1(g, type, in[0], NULL);
    switch (n->op) {
    case EXPRESSION_LESS:
    case EXPRESSION_LESS_EQUAL:
    case EXPRESSION_EQUAL:
    case EXPRESSION_DIFFERENT:
        return onnx_comparison(g, n->op, in[0], in[1]);
    case EXPRESSION_AND:
    case EXPRESSION_OR:
    case EXPRESSION_NOT:
        return onnx_logic(g, n->op, in[0], in[1]);
    case EXPRESSION_WHERE:
        return onnx_where(g, onnx_truth(g, in[0]), in[1], in[2]);
    case EXPRESSION_EXPM1:
        one = onnx_scalar(g, 1);
        return onnx_node2(g, "Sub", onnx_node1(g, "Exp", in[0], NULL), one);
    case EXPRESSION_LOG1P:
        one = onnx_scalar(g, 1);
        return onnx_node1(g, "Log", onnx_node2(g, "Add", in[0], one), NULL);
    default: /* detach */
        return in[0];
    }
}

static const char *write_onnx(const struct onnx_call *c) {
    const struct layer_formula *f = c->layer->config;
    const struct expression *e = &f->formula;
    const char *values[EXPRESSION_MAX_OPERATIONS];
    for (size_t i = 0; i < e->own; i++) {
        const struct expression_node *n = &e->nodes[i];
        const char *in[3] = {NULL, NULL, NULL};
        for (int k = 0; k < expression_operands(n->op); k++) in[k] = values[n->operands[k]];
        if (n->op == EXPRESSION_NUMBER)
            values[i] = onnx_scalar(c->g, (float)n->value);
        else if (n->op == EXPRESSION_VARIABLE)
            values[i] = c->inputs[n->operands[0]];
        else if (n->op == EXPRESSION_INDEX)
            values[i] = onnx_cast(c->g, onnx_range(c->g, 0, features_of(c->layer)), ONNX_FLOAT);
        else
            values[i] = onnx_operation(c->g, n, in);
    }
    return values[e->value];
}

/* ---- C ---- */

/* The operation of elements v<operand>, in C. */
static void add_c_operation(struct text *out, const struct expression_node *n, const char in[3][64]) {
    static const char *const formulas[EXPRESSION_SUM_LIKE + 1] = {
        [EXPRESSION_ADD] = "%1 + %2",
        [EXPRESSION_SUBTRACT] = "%1 - %2",
        [EXPRESSION_MULTIPLY] = "%1 * %2",
        [EXPRESSION_DIVIDE] = "%1 / %2",
        [EXPRESSION_POWER] = "powf(%1, %2)",
        [EXPRESSION_SMALLER] = "%1 < %2 || %1 != %1 ? %1 : %2",
        [EXPRESSION_LARGER] = "%1 > %2 || %1 != %1 ? %1 : %2",
        [EXPRESSION_LESS] = "%1 < %2 ? 1.0f : 0.0f",
        [EXPRESSION_LESS_EQUAL] = "%1 <= %2 ? 1.0f : 0.0f",
        [EXPRESSION_EQUAL] = "%1 == %2 ? 1.0f : 0.0f",
        [EXPRESSION_DIFFERENT] = "%1 != %2 ? 1.0f : 0.0f",
        [EXPRESSION_AND] = "%1 != 0 && %2 != 0 ? 1.0f : 0.0f",
        [EXPRESSION_OR] = "%1 != 0 || %2 != 0 ? 1.0f : 0.0f",
        [EXPRESSION_NOT] = "%1 == 0 ? 1.0f : 0.0f",
        [EXPRESSION_WHERE] = "%1 != 0 ? %2 : %3",
        [EXPRESSION_NEGATE] = "-%1",
        [EXPRESSION_ABS] = "fabsf(%1)",
        [EXPRESSION_SIGN] = "%1 > 0 ? 1.0f : %1 < 0 ? -1.0f : %1",
        [EXPRESSION_FLOOR] = "floorf(%1)",
        [EXPRESSION_ROUND] = "rintf(%1)",
        [EXPRESSION_SQRT] = "sqrtf(%1)",
        [EXPRESSION_EXP] = "math_exp(%1)",
        [EXPRESSION_EXPM1] = "expm1f(%1)",
        [EXPRESSION_LOG] = "logf(%1)",
        [EXPRESSION_LOG1P] = "log1pf(%1)",
        [EXPRESSION_SIN] = "sinf(%1)",
        [EXPRESSION_COS] = "cosf(%1)",
        [EXPRESSION_TANH] = "math_tanh(%1)",
        [EXPRESSION_ERF] = "math_erf(%1)",
        [EXPRESSION_SIGMOID] = "sigmoid_value(%1)",
        [EXPRESSION_SOFTPLUS] = "(%1 > 0 ? %1 : 0) + math_log1p_unit(math_exp(-fabsf(%1)))",
        [EXPRESSION_RELU] = "%1 <= 0 ? 0 : %1",
        [EXPRESSION_DETACH] = "%1",
    };
    for (const char *c = formulas[n->op]; c && *c; c++) {
        if (*c != '%')
            text_add_bytes(out, c, 1);
        else
            text_add(out, in[*++c - '1']);
    }
}

/* A formula while its C is written: a loop over rows, which are elements unless it [has_features]. Vectors of nodes are
 * in the scratch memory. */
struct c_formula {
    const struct c_call *call;
    const struct expression *e;
    bool has_features, are_vectors[EXPRESSION_MAX_VARIABLES];
    size_t size;
};

static bool is_c_vector(const struct c_formula *f, size_t node) {
    return f->has_features && expression_is_vector(f->e, (uint16_t)node, f->are_vectors);
}

/* What a node is in C, of its element i. */
static void name_value(const struct c_formula *f, size_t node, char out[64]) {
    const struct expression_node *n = &f->e->nodes[node];
    if (n->op == EXPRESSION_NUMBER)
        snprintf(out, 64, n->value < 0 ? "(%af)" : "%af", (double)(float)n->value);
    else if (n->op == EXPRESSION_INDEX)
        snprintf(out, 64, "(float)i");
    else if (n->op == EXPRESSION_VARIABLE && is_c_vector(f, node))
        snprintf(out, 64, "x%u[r * %zu + i]", n->operands[0], f->size);
    else if (n->op == EXPRESSION_VARIABLE)
        snprintf(out, 64, "x%u[r]", n->operands[0]);
    else if (is_c_vector(f, node))
        snprintf(out, 64, "memory[%zu + i]", node * f->size);
    else
        snprintf(out, 64, "v%zu", node);
}

static void add_c_reduction(struct text *out, const struct expression_node *n, const char *x, size_t to, size_t size) {
    bool is_smallest = n->op == EXPRESSION_SMALLEST;
    bool is_extreme = is_smallest || n->op == EXPRESSION_LARGEST || n->op == EXPRESSION_LOGSUMEXP;
    text_printf(out, "            v%zu = %s;\n            for (i = 0; i < %zu; i++) ", to,
                is_smallest  ? "INFINITY"
                : is_extreme ? "-INFINITY"
                             : "0",
                size);
    if (is_extreme)
        text_printf(out, "v%zu = %s %s v%zu || %s != %s ? %s : v%zu;\n", to, x, is_smallest ? "<" : ">", to, x, x, x,
                    to);
    else if (n->op == EXPRESSION_NORM)
        text_printf(out, "v%zu += %s * %s;\n            v%zu = sqrtf(v%zu);\n", to, x, x, to, to);
    else
        text_printf(out, "v%zu += %s;\n", to, x);
    if (n->op == EXPRESSION_MEAN) text_printf(out, "            v%zu /= %zu;\n", to, size);
    if (n->op != EXPRESSION_LOGSUMEXP) return;
    text_printf(out,
                "            max = v%zu;\n            v%zu = 0;\n"
                "            for (i = 0; i < %zu; i++) v%zu += math_exp(%s - max);\n"
                "            v%zu = max - max == 0 ? max + logf(v%zu) : max;\n",
                to, to, size, to, x, to, to);
}

static void add_c_node(const struct c_formula *f, size_t node, struct text *out) {
    const struct expression_node *n = &f->e->nodes[node];
    char in[3][64] = {"", "", ""}, name[64];
    for (int k = 0; k < expression_operands(n->op); k++) name_value(f, n->operands[k], in[k]);
    name_value(f, node, name);
    if (expression_is_reduction(n->op)) {
        add_c_reduction(out, n, in[0], node, is_c_vector(f, n->operands[0]) ? f->size : 1);
        return;
    }
    text_add(out, "            ");
    if (is_c_vector(f, node)) text_printf(out, "for (i = 0; i < %zu; i++) ", f->size);
    text_printf(out, "%s = ", name);
    add_c_operation(out, n, in);
    text_add(out, ";\n");
}

static void write_c(const struct c_call *c) {
    const struct layer_formula *formula = c->layer->config;
    bool has_features = c->layer->type->memory_format == FORMAT_CONTIGUOUS;
    struct c_formula f = {.call = c, .e = &formula->formula, .has_features = has_features, .size = 1};
    size_t count = c->layer->in_size;
    struct text *out = &c->c->body;
    char value[64];
    if (has_features) {
        f.size = (size_t)features_of(c->layer);
        count /= (size_t)last_of(&c->layer->in);
    }
    for (size_t i = 0; i < c->layer->in_count; i++) f.are_vectors[i] = last_of(&c->layer->ins[i]) > 1;
    text_add(out, "    {\n        size_t i, r;\n        float max = 0;\n");
    if (has_features) text_printf(out, "        float *memory = %s;\n", c->scratch[0]);
    for (size_t i = 0; i < c->layer->in_count; i++)
        text_printf(out, "        const float *x%zu = %s;\n", i, c->inputs[i]);
    for (size_t i = 0; i < f.e->own; i++)
        if (expression_operands(f.e->nodes[i].op) && !is_c_vector(&f, i)) text_printf(out, "        float v%zu;\n", i);
    text_printf(out, "        for (r = 0; r < %zu; r++) {\n", count);
    for (size_t i = 0; i < f.e->own; i++)
        if (expression_operands(f.e->nodes[i].op)) add_c_node(&f, i, out);
    name_value(&f, f.e->value, value);
    text_add(out, "            ");
    if (is_c_vector(&f, f.e->value)) text_printf(out, "for (i = 0; i < %zu; i++) ", f.size);
    text_printf(out, is_c_vector(&f, f.e->value) ? "(%s)[r * %zu + i] = %s;\n" : "(%s)[r * %zu] = %s;\n", c->y,
                is_c_vector(&f, f.e->value) ? f.size : (size_t)1, value);
    text_add(out, has_features ? "        }\n        (void)memory;\n" : "        }\n");
    text_add(out, "        i = 0, (void)i, (void)max;\n    }\n");
}

static void c_scratch(const struct layer *layer, size_t sizes[2]) {
    const struct layer_formula *f = layer->config;
    if (layer->type->memory_format == FORMAT_CONTIGUOUS) sizes[0] = f->formula.own * (size_t)features_of(layer);
}

/* ---- PyTorch ---- */

static void add_formula(const struct layer *layer, const char *const *inputs, struct text *out) {
    const struct layer_formula *f = layer->config;
    struct expression again;
    size_t at;
    struct input_names names = names_of(&layer->from);
    status_free(expression_parse(f->value, &(struct expression_options){.names = names.items, .python = inputs}, &again,
                                 &at, out));
}

/* ---- building ---- */

#define EXPRESSION_LAYER                                                                                               \
    .onnx = write_onnx, .c = write_c, .c_scratch = c_scratch, .pytorch = "{x_formula}", .add_formula = add_formula,    \
    .joins = true, .ignores = IGNORES_Y, .is_by_position = true, .prepare = prepare, .forward = forward,               \
    .backward = backward

static const struct layer_type of_elements = {
    .variant = {"expression", NULL, "A formula of each element."},
    .memory_format = FORMAT_PRESERVE,
    .plan = layer_plan_same,
    EXPRESSION_LAYER,
};
static const struct layer_type of_features = {
    .variant = {"expression", NULL, "A formula of the features of each position."},
    .memory_format = FORMAT_CONTIGUOUS,
    .plan = plan_features,
    EXPRESSION_LAYER,
};

static status parse(struct layer_formula *f, const struct input_names *names) {
    uint16_t by[EXPRESSION_MAX_VARIABLES];
    size_t at;
    TRY(expression_parse(f->value, &(struct expression_options){.names = names->items}, &f->formula, &at, NULL));
    for (size_t i = 0; i < names->count; i++) {
        by[i] = (uint16_t)i;
        if (!expression_uses(&f->formula, i))
            return status_usage("'%s' does not have '%.60s', which it takes", short_text(f->value).s, names->items[i]);
    }
    uint16_t seed = expression_variable(&f->formula, names->count);
    return expression_differentiate(&f->formula, f->formula.value, seed, by, names->count, f->derivatives);
}

static status expand(struct builder *builder, const struct layer_entry *e, size_t *out) {
    const struct expression_config *c = e->variant->config;
    const struct layer_common *common = e->variant->common;
    struct arena *arena = builder->model->arena;
    struct layer_formula *f = arena_alloc(arena, sizeof *f);
    struct variant own = *e->variant;
    struct input_names names = names_of(common ? &common->from : &(struct string_list){0});
    f->value = arena_copy(arena, c->value);
    own.config = f;
    status s = names.count > MAX_NAMES ? status_usage("from: more than %d names in an expression", MAX_NAMES)
                                       : parse(f, &names);
    if (s) return build_at(e, s);
    bool is_of_elements = !expression_has_features(&f->formula);
    const struct planned_tensor *tensors = builder->model->tensors;
    for (size_t i = 1; i < e->count; i++)
        is_of_elements = is_of_elements && shape_is_equal(&tensors[e->in[0]].shape, &tensors[e->in[i]].shape);
    struct layer_entry layer = {&own, e->path, e->name, e->in, e->count};
    return build_layer(builder, is_of_elements ? &of_elements : &of_features, &layer, out);
}

const struct layer_type layer_expression = {
    .variant = {"expression", &schema,
                "A formula of one or several outputs: `expression: \"x * sigmoid(x)\"`, `expression: {from: [a, b], "
                "value: \"a * sigmoid(b)\"}` (docs/expressions.md)."},
    .joins = true,
    .takes_one = true,
    .expand = expand,
};
