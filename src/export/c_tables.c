/* Numbers are written as hexadecimal floats, which are exact. */
#include <math.h>

#include "device/sequence.h"
#include "export/c_file.h"

#define PER_LINE 8

static void add_number(struct text *out, double value, const char *suffix) {
    if (isnan(value))
        text_add(out, "NAN");
    else if (isinf(value))
        text_add(out, value > 0 ? "INFINITY" : "-INFINITY");
    else
        text_printf(out, "%a%s", value, suffix);
}

/* One table; [comment] NULL: none. */
static void add_table(struct text *out, const char *type, const char *name, const char *comment, const float *floats,
                      const double *doubles, size_t count) {
    if (comment) text_printf(out, "/* %s */\n", comment);
    text_printf(out, "static const %s %s[%zu] = {", type, name, count);
    for (size_t i = 0; i < count; i++) {
        text_add(out, i % PER_LINE ? " " : "\n    ");
        add_number(out, floats ? (double)floats[i] : doubles[i], floats ? "f" : "");
        if (i + 1 < count) text_add(out, ",");
    }
    text_add(out, "\n};\n\n");
}

void c_table_doubles(struct c_file *c, const char *name, const double *values, size_t count) {
    add_table(&c->tables, "double", name, NULL, NULL, values, count);
}

/* (out, in) becomes (in, out). */
static void order_linear(const float *from, float *to, size_t out, size_t in) {
    for (size_t o = 0; o < out; o++)
        for (size_t i = 0; i < in; i++) to[i * out + o] = from[o * in + i];
}

/* (out channels, in channels of a group, taps) becomes (groups, taps, in channels, out channels). */
static void order_convolution(const float *from, float *to, const struct convolution *v) {
    size_t in = v->in.channels / v->groups, out = v->out.channels / v->groups;
    size_t taps = v->window.kernel[0] * v->window.kernel[1];
    for (size_t g = 0; g < v->groups; g++)
        for (size_t t = 0; t < taps; t++)
            for (size_t i = 0; i < in; i++)
                for (size_t o = 0; o < out; o++) *to++ = from[((g * out + o) * in + i) * taps + t];
}

static bool is_equal(const struct c_table *a, const struct c_table *b) {
    return a->values == b->values && a->count == b->count && a->layout == b->layout && a->groups == b->groups &&
           a->eps >= b->eps && a->eps <= b->eps;
}

/* The name of a new table, or of the one with the same content; *is_new. */
static const char *name_of(struct c_file *c, struct c_table table, bool *is_new) {
    size_t i = 0;
    while (i < c->table_count && !is_equal(&c->made[i], &table)) i++;
    *is_new = i == c->table_count;
    if (*is_new) c->made[c->table_count++] = table;
    return arena_printf(c->arena, "table_%zu", i);
}

const char *c_table_comment(struct c_file *c, const char *name) {
    struct text printable = {0};
    text_add_value(&printable, name, TEXT_MAX_LINE); /* without characters that change the writing direction */
    char *comment = arena_copy(c->arena, text_string(&printable));
    text_free(&printable);
    for (char *at = comment; *at; at++)
        if (*at == '*' || *at == '/' || *at == '\\' || *at == '?' || (unsigned char)*at < 32) *at = '_';
    return comment;
}

const char *c_table_param(struct c_file *c, size_t index, enum c_layout layout, const struct operation *op) {
    bool is_new;
    if (index == OPERATION_NO_PARAM) return "0";
    const struct param *param = &c->m->model->params.items[index];
    const float *values = c->m->params[index];
    size_t groups = layout == C_CONVOLUTION ? op->convolution.groups : 0;
    const char *name = name_of(
        c, (struct c_table){.values = values, .count = param->count, .layout = layout, .groups = groups}, &is_new);
    if (!is_new) return name;
    float *ordered = layout == C_PLAIN ? NULL : arena_alloc(c->arena, param->count * sizeof *ordered);
    if (layout == C_LINEAR) order_linear(values, ordered, (size_t)param->shape[0], (size_t)param->shape[1]);
    if (layout == C_CONVOLUTION) order_convolution(values, ordered, &op->convolution);
    add_table(&c->tables, "float", name, c_table_comment(c, param->name), ordered ? ordered : values, NULL,
              param->count);
    return name;
}

const char *c_table_rows(struct c_file *c, size_t index, size_t first, size_t count) {
    bool is_new;
    const struct param *param = &c->m->model->params.items[index];
    size_t columns = (size_t)param->shape[1];
    const float *values = c->m->params[index] + first * columns;
    const char *name =
        name_of(c, (struct c_table){.values = values, .count = count * columns, .layout = C_LINEAR}, &is_new);
    if (!is_new) return name;
    float *ordered = arena_alloc(c->arena, count * columns * sizeof *ordered);
    order_linear(values, ordered, count, columns);
    add_table(&c->tables, "float", name, c_table_comment(c, param->name), ordered, NULL, count * columns);
    return name;
}

const char *c_table_angles(struct c_file *c, const struct operation *op, size_t tokens) {
    size_t pairs = op->rotation.head_size / 2, count = tokens * pairs * 2;
    const char *name = arena_printf(c->arena, "angles_%zu", c->angle_count++);
    float *values = arena_alloc(c->arena, count * sizeof *values), *to = values;
    for (size_t t = 0; t < tokens; t++)
        for (size_t i = 0; i < pairs; i++) {
            double angle = rotation_angle(op->rotation.base, op->rotation.head_size, t, i);
            *to++ = (float)cos(angle);
            *to++ = (float)sin(angle);
        }
    add_table(&c->tables, "float", name, "cosines and sines of a rotary embedding", values, NULL, count);
    return name;
}

/* The formulas of batch_norm_forward of the CPU. */
const char *c_table_norm(struct c_file *c, const struct operation *op, size_t channels, enum c_layout layout) {
    bool is_new;
    const float *mean = c->m->buffers[op->mean], *variance = c->m->buffers[op->variance];
    const float *weight = op->weight == OPERATION_NO_PARAM ? NULL : c->m->params[op->weight];
    const float *bias = op->bias == OPERATION_NO_PARAM ? NULL : c->m->params[op->bias];
    const char *name =
        name_of(c, (struct c_table){.values = mean, .count = channels, .layout = layout, .eps = op->eps}, &is_new);
    if (!is_new) return name;
    float *values = arena_alloc(c->arena, channels * sizeof *values);
    for (size_t i = 0; i < channels; i++) {
        float inverse = (float)(1 / sqrt((double)variance[i] + (double)op->eps));
        float scale = weight ? weight[i] * inverse : inverse;
        values[i] = layout == C_SCALE ? scale : fmaf(-mean[i], scale, bias ? bias[i] : 0);
    }
    add_table(&c->tables, "float", name, layout == C_SCALE ? "scale of a batch norm" : "shift of a batch norm", values,
              NULL, channels);
    return name;
}
