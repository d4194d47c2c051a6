/* Formulas of the config. A call is translated into steps, each a loop over the elements of a block of rows, and the
 * blocks are run by the threads. Translating takes some 20 ns for each operation, so nothing is kept between calls. */
#include "device/expression.h"

#include <string.h>

#include "device/cpu/parallel.h"
#include "device/cpu/sets/set.h"
#include "device/cpu/sets/sums.h"

/* ---- translation ---- */

#define MAX_STEPS 8192 /* a node of a power has up to 10 */
#define MAX_VALUES 12000
#define NO_VALUE UINT16_MAX
#define BLOCK_FLOATS 6144 /* of all values of a block: they stay in the first-level cache */
#define MAX_BLOCK 1024    /* elements of a value in a block, and at least one row */

/* The steps that no node is: */
enum { STEP_COPY = EXPRESSION_SUM_LIKE + 1, STEP_EXPAND, STEP_PRODUCT_SUM, STEP_PRODUCT, STEP_NONE };

struct step {
    uint8_t op; /* enum expression_op, or one of those above */
    bool is_vector;
    uint16_t to, in[3];
};

/* An array of a block. */
struct value {
    enum { VALUE_LOCAL, VALUE_MEMORY, VALUE_FIXED, VALUE_INDEX } kind;
    bool is_vector;
    uint16_t place;    /* in the block's memory: of VALUE_LOCAL, and of those that are the same in all blocks */
    uint16_t last_use; /* VALUE_LOCAL: a step */
    float fixed;
    float *memory; /* VALUE_MEMORY: of all rows */
};

struct code {
    const struct expression_call *call;
    struct step steps[MAX_STEPS];
    struct value values[MAX_VALUES];
    size_t step_count, value_count;
    uint16_t of_node[EXPRESSION_MAX_NODES], wide[EXPRESSION_MAX_NODES]; /* values; the second: as a vector */
    bool is_vector[EXPRESSION_MAX_NODES], is_used[EXPRESSION_MAX_NODES];
    uint16_t sums[2];
    size_t places, block_rows, width;                                        /* width: floats of a place */
    uint16_t uses[MAX_VALUES], step_of[MAX_VALUES], free_places[MAX_VALUES]; /* while it is made */
};

/* Which operands a step reads: the second one of EXPAND_LIKE and SUM_LIKE, and that of COUNT, are only a shape. */
static int read_operands(enum expression_op op) {
    if (op == EXPRESSION_COUNT) return 0;
    return op == EXPRESSION_EXPAND_LIKE || op == EXPRESSION_SUM_LIKE ? 1 : expression_operands(op);
}

static int step_operands(int op) {
    if (op == STEP_COPY || op == STEP_EXPAND) return 1;
    return op == STEP_PRODUCT_SUM || op == STEP_PRODUCT ? 3 : read_operands((enum expression_op)op);
}

static void mark_used(struct code *c) {
    const struct expression_call *call = c->call;
    const struct expression *e = call->expression;
    memset(c->is_used, 0, e->count);
    for (size_t i = 0; i < call->output_count; i++)
        if (call->outputs[i].node != EXPRESSION_NONE) c->is_used[call->outputs[i].node] = true;
    for (size_t i = 0; i < call->sum_count; i++) c->is_used[call->sums[i].node] = true;
    for (size_t i = e->count; i-- > 0;)
        for (int k = 0; c->is_used[i] && k < read_operands(e->nodes[i].op); k++)
            c->is_used[e->nodes[i].operands[k]] = true;
}

static void find_vectors(struct code *c) {
    const struct expression *e = c->call->expression;
    for (size_t i = 0; i < e->count; i++) {
        const struct expression_node *n = &e->nodes[i];
        const uint16_t *in = n->operands;
        bool is_vector = false;
        for (int k = 0; k < expression_operands(n->op); k++) is_vector = is_vector || c->is_vector[in[k]];
        if (n->op == EXPRESSION_VARIABLE) is_vector = c->call->variables[in[0]].is_vector;
        if (n->op == EXPRESSION_INDEX) is_vector = true;
        if (n->op == EXPRESSION_COUNT || expression_is_reduction(n->op)) is_vector = false;
        if (n->op == EXPRESSION_SUM_LIKE) is_vector = c->is_vector[in[0]] && c->is_vector[in[1]];
        c->is_vector[i] = is_vector && c->call->size > 1;
    }
}

static uint16_t add_value(struct code *c, struct value value) {
    c->values[c->value_count] = value;
    return (uint16_t)c->value_count++;
}

static uint16_t fixed(struct code *c, float value) {
    return add_value(c, (struct value){.kind = VALUE_FIXED, .is_vector = true, .fixed = value});
}

static uint16_t add_step(struct code *c, int op, bool is_vector, uint16_t a, uint16_t b, uint16_t third) {
    uint16_t to = add_value(c, (struct value){.kind = VALUE_LOCAL, .is_vector = is_vector});
    c->steps[c->step_count++] = (struct step){(uint8_t)op, is_vector, to, {a, b, third}};
    return to;
}

/* The value of a node as a vector. */
static uint16_t widened(struct code *c, uint16_t node) {
    uint16_t value = c->of_node[node];
    if (c->is_vector[node] || c->call->size == 1 || c->values[value].kind == VALUE_FIXED) return value;
    if (c->wide[node] == NO_VALUE) c->wide[node] = add_step(c, STEP_EXPAND, true, value, value, value);
    return c->wide[node];
}

/* Powers by constants that are small and whole, or as many and a half. */
static bool is_product(const struct expression_node *exponent) {
    double size = fabs(exponent->value), rest = size - floor(size);
    return exponent->op == EXPRESSION_NUMBER && size > 0 && size <= 8 && (rest == 0 || rest == 0.5);
}

static uint16_t add_product(struct code *c, bool is_vector, uint16_t a, double exponent) {
    double size = fabs(exponent), whole = floor(size);
    int factors = (int)whole;
    uint16_t product = size == whole ? a : add_step(c, EXPRESSION_SQRT, is_vector, a, a, a);
    for (int i = size == whole; i < factors; i++) product = add_step(c, EXPRESSION_MULTIPLY, is_vector, product, a, a);
    if (exponent > 0) return product;
    uint16_t one = fixed(c, 1);
    return add_step(c, EXPRESSION_DIVIDE, is_vector, one, product, product);
}

static uint16_t leaf(struct code *c, const struct expression_node *n) {
    if (n->op == EXPRESSION_NUMBER) return fixed(c, (float)n->value);
    if (n->op == EXPRESSION_COUNT) return fixed(c, c->is_vector[n->operands[0]] ? (float)c->call->size : 1);
    if (n->op == EXPRESSION_INDEX)
        return add_value(c, (struct value){.kind = VALUE_INDEX, .is_vector = c->call->size > 1});
    const float *memory = c->call->variables[n->operands[0]].values;
    if (!memory) return fixed(c, c->call->variables[n->operands[0]].constant);
    return add_value(c, (struct value){.kind = VALUE_MEMORY,
                                       .is_vector = c->is_vector[n - c->call->expression->nodes],
                                       .memory = (float *)(uintptr_t)memory});
}

static void translate(struct code *c, uint16_t i) {
    const struct expression *e = c->call->expression;
    const struct expression_node *n = &e->nodes[i];
    enum expression_op op = n->op;
    bool is_vector = c->is_vector[i], is_same = op == EXPRESSION_DETACH;
    uint16_t in[3] = {0, 0, 0}, first = n->operands[0];
    c->wide[i] = NO_VALUE;
    if (read_operands(op) == 0) {
        c->of_node[i] = leaf(c, n);
        return;
    }
    if (op == EXPRESSION_SUM_LIKE) {
        is_same = c->is_vector[first] == is_vector;
        op = EXPRESSION_SUM;
    }
    if (op == EXPRESSION_EXPAND_LIKE) {
        c->of_node[i] = is_vector ? widened(c, first) : c->of_node[first];
        return;
    }
    bool is_reduction = expression_is_reduction(op) && c->is_vector[first];
    if (expression_is_reduction(op) && !is_reduction) {
        is_same = op != EXPRESSION_NORM;
        op = EXPRESSION_ABS; /* the norm of one number */
    }
    for (int k = 0; k < read_operands(op); k++)
        in[k] = is_vector && !is_same ? widened(c, n->operands[k]) : c->of_node[n->operands[k]];
    for (int k = read_operands(op); k < 3; k++) in[k] = in[0];
    if (is_same)
        c->of_node[i] = in[0];
    else if (op == EXPRESSION_POWER && is_product(&e->nodes[n->operands[1]]))
        c->of_node[i] = add_product(c, is_vector, in[0], e->nodes[n->operands[1]].value);
    else
        c->of_node[i] = add_step(c, op, is_vector, in[0], in[1], in[2]);
}

/* The last step of a result writes it where it is wanted, unless that step has another result or none. */
static void direct_outputs(struct code *c) {
    const struct expression_call *call = c->call;
    for (size_t i = 0; i < call->output_count; i++) {
        const struct expression_output *o = &call->outputs[i];
        bool is_vector = o->is_vector && call->size > 1;
        uint16_t value = o->node == EXPRESSION_NONE ? fixed(c, 0)
                         : is_vector                ? widened(c, o->node)
                                                    : c->of_node[o->node];
        if (c->values[value].kind != VALUE_LOCAL) value = add_step(c, STEP_COPY, is_vector, value, value, value);
        c->values[value].kind = VALUE_MEMORY;
        c->values[value].memory = o->to;
    }
}

/* The step that computes a local value which only the step [user] reads, once; NULL: there is none. */
static struct step *only_use(struct code *c, const struct step *user, uint16_t value, const uint16_t *uses,
                             const uint16_t *step_of) {
    if (c->values[value].kind != VALUE_LOCAL || uses[value] != 1) return NULL;
    struct step *step = &c->steps[step_of[value]];
    return step->op == EXPRESSION_MULTIPLY && step->is_vector == user->is_vector ? step : NULL;
}

/* Joins a product with the sum or the product that reads it, with the same roundings: a b + c, a (b c). */
static void join_steps(struct code *c) {
    uint16_t *uses = c->uses, *step_of = c->step_of;
    memset(uses, 0, c->value_count * sizeof *uses);
    for (size_t s = 0; s < c->step_count; s++) {
        step_of[c->steps[s].to] = (uint16_t)s;
        for (int k = 0; k < step_operands(c->steps[s].op); k++) uses[c->steps[s].in[k]]++;
    }
    for (size_t i = 0; i < c->call->sum_count; i++) uses[c->sums[i]] = 2;
    for (size_t s = 0; s < c->step_count; s++) {
        struct step *step = &c->steps[s], *product = NULL;
        int k = 0;
        if (step->op != EXPRESSION_ADD && step->op != EXPRESSION_MULTIPLY) continue;
        for (; k < 2 && !product; k++) product = only_use(c, step, step->in[k], uses, step_of);
        if (!product) continue;
        uint16_t other = step->in[k == 1];
        step->op = step->op == EXPRESSION_ADD ? STEP_PRODUCT_SUM : STEP_PRODUCT;
        step->in[0] = product->in[0], step->in[1] = product->in[1], step->in[2] = other;
        product->op = STEP_NONE;
    }
    size_t count = 0;
    for (size_t s = 0; s < c->step_count; s++)
        if (c->steps[s].op != STEP_NONE) c->steps[count++] = c->steps[s];
    c->step_count = count;
}

/* Gives each local value a place in the block, which it shares with those that are read before it is written. */
static void assign_places(struct code *c) {
    uint16_t *free_places = c->free_places;
    size_t free_count = 0, kept = c->step_count;
    for (size_t s = 0; s < c->step_count; s++)
        for (int k = 0; k < 3; k++) c->values[c->steps[s].in[k]].last_use = (uint16_t)s;
    for (size_t i = 0; i < c->call->sum_count; i++) c->values[c->sums[i]].last_use = (uint16_t)kept;
    c->places = 0;
    for (size_t v = 0; v < c->value_count; v++)
        if (c->values[v].kind == VALUE_FIXED || c->values[v].kind == VALUE_INDEX)
            c->values[v].place = (uint16_t)c->places++;
    for (size_t s = 0; s < c->step_count; s++) {
        const struct step *step = &c->steps[s];
        struct value *to = &c->values[step->to];
        if (to->kind == VALUE_LOCAL) to->place = free_count ? free_places[--free_count] : (uint16_t)c->places++;
        for (int k = 0; k < 3; k++) {
            struct value *in = &c->values[step->in[k]];
            bool is_repeated = (k > 0 && step->in[k] == step->in[0]) || (k > 1 && step->in[k] == step->in[1]);
            if (in->kind == VALUE_LOCAL && in->last_use == s && !is_repeated) free_places[free_count++] = in->place;
        }
    }
}

static void choose_block(struct code *c) {
    size_t size = c->call->size, floats = BLOCK_FLOATS / (c->places + 1) / SUMS * SUMS;
    floats = floats > MAX_BLOCK ? MAX_BLOCK : floats < 8 * SUMS ? 8 * SUMS : floats;
    c->block_rows = floats / size > 0 ? floats / size : 1;
    if (c->block_rows > c->call->rows) c->block_rows = c->call->rows;
    c->width = (c->block_rows * size + SUMS - 1) / SUMS * SUMS;
}

static void translate_all(const struct expression_call *call, struct code *c) {
    c->call = call;
    c->step_count = c->value_count = 0;
    mark_used(c);
    find_vectors(c);
    for (size_t i = 0; i < call->expression->count; i++)
        if (c->is_used[i]) translate(c, (uint16_t)i);
    for (size_t i = 0; i < call->sum_count; i++) c->sums[i] = c->of_node[call->sums[i].node];
    direct_outputs(c);
    join_steps(c);
    assign_places(c);
    choose_block(c);
}

/* ---- steps ---- */

static float sum_of(const float *x, size_t count) {
    if (count < 2 * SUMS) {
        float sum = x[0];
        for (size_t i = 1; i < count; i++) sum += x[i];
        return sum;
    }
    float sums[SUMS] = {0};
    SUM_INTO(sums, count, i, x[i]);
    return sums_total(sums);
}

static float sum_of_squares(const float *x, size_t count) {
    float sums[SUMS] = {0};
    SUM_INTO(sums, count, i, x[i] * x[i]);
    return sums_total(sums);
}

/* The largest, or with [sign] -1 the smallest; NaN if one is. */
static float extreme_of(const float *x, size_t count, float sign) {
    float best = x[0];
    for (size_t i = 1; i < count; i++) best = sign * x[i] > sign * best || x[i] != x[i] ? x[i] : best;
    return best;
}

static float log_of_sum(const float *x, size_t count) {
    float max = extreme_of(x, count, 1), sums[SUMS] = {0};
    if (!isfinite(max)) return max;
    SUM_INTO(sums, count, i, math_exp(x[i] - max));
    return max + formula_log(sums_total(sums));
}

static void reduce(enum expression_op op, const float *x, float *y, size_t rows, size_t size) {
    for (size_t r = 0; r < rows; r++, x += size) {
        if (op == EXPRESSION_SUM) y[r] = sum_of(x, size);
        if (op == EXPRESSION_MEAN) y[r] = sum_of(x, size) / (float)size;
        if (op == EXPRESSION_LARGEST) y[r] = extreme_of(x, size, 1);
        if (op == EXPRESSION_SMALLEST) y[r] = extreme_of(x, size, -1);
        if (op == EXPRESSION_LOGSUMEXP) y[r] = log_of_sum(x, size);
        if (op == EXPRESSION_NORM) y[r] = sqrtf(sum_of_squares(x, size));
    }
}

static void expand(const float *restrict x, float *restrict y, size_t rows, size_t size) {
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < size; i++) y[r * size + i] = x[r];
}

#define EACH(op, formula)                                                                                              \
    case op:                                                                                                           \
        for (size_t i = 0; i < n; i++) y[i] = (formula);                                                               \
        break;

/* y (n) = op(a, b, c); y is none of the others */
static void compute(int op, const float *restrict a, const float *restrict b, const float *restrict c,
                    float *restrict y, size_t n) {
    switch (op) {
        EACH(EXPRESSION_ADD, a[i] + b[i])
        EACH(EXPRESSION_SUBTRACT, a[i] - b[i])
        EACH(EXPRESSION_MULTIPLY, a[i] * b[i])
        EACH(EXPRESSION_DIVIDE, a[i] / b[i])
        EACH(EXPRESSION_POWER, formula_power(a[i], b[i]))
        EACH(EXPRESSION_SMALLER, a[i] < b[i] || a[i] != a[i] ? a[i] : b[i])
        EACH(EXPRESSION_LARGER, a[i] > b[i] || a[i] != a[i] ? a[i] : b[i])
        EACH(EXPRESSION_LESS, a[i] < b[i] ? 1.0f : 0.0f)
        EACH(EXPRESSION_LESS_EQUAL, a[i] <= b[i] ? 1.0f : 0.0f)
        EACH(EXPRESSION_EQUAL, a[i] == b[i] ? 1.0f : 0.0f)
        EACH(EXPRESSION_DIFFERENT, a[i] != b[i] ? 1.0f : 0.0f)
        EACH(EXPRESSION_AND, ((a[i] != 0) & (b[i] != 0)) ? 1.0f : 0.0f)
        EACH(EXPRESSION_OR, ((a[i] != 0) | (b[i] != 0)) ? 1.0f : 0.0f)
        EACH(EXPRESSION_NOT, a[i] == 0 ? 1.0f : 0.0f)
        EACH(EXPRESSION_WHERE, a[i] != 0 ? b[i] : c[i])
        EACH(EXPRESSION_NEGATE, -a[i])
        EACH(EXPRESSION_ABS, fabsf(a[i]))
        EACH(EXPRESSION_SIGN, formula_sign(a[i]))
        EACH(EXPRESSION_FLOOR, floorf(a[i]))
        EACH(EXPRESSION_ROUND, formula_round(a[i]))
        EACH(EXPRESSION_SQRT, sqrtf(a[i]))
        EACH(EXPRESSION_EXP, math_exp(a[i]))
        EACH(EXPRESSION_EXPM1, formula_expm1(a[i]))
        EACH(EXPRESSION_LOG, formula_log(a[i]))
        EACH(EXPRESSION_LOG1P, formula_log1p(a[i]))
        EACH(EXPRESSION_SIN, formula_sine(a[i], 0))
        EACH(EXPRESSION_COS, formula_sine(a[i], 1))
        EACH(EXPRESSION_TANH, math_tanh(a[i]))
        EACH(EXPRESSION_ERF, math_erf(a[i]))
        EACH(EXPRESSION_SIGMOID, sigmoid_value(a[i]))
        EACH(EXPRESSION_SOFTPLUS, softplus_value(1, 20, a[i]))
        EACH(EXPRESSION_RELU, relu_value(a[i]))
        EACH(STEP_PRODUCT_SUM, a[i] * b[i] + c[i])
        EACH(STEP_PRODUCT, a[i] * b[i] * c[i])
    default:
        break;
    }
}

/* ---- blocks ---- */

struct blocks {
    const struct code *code;
    size_t count, slots;
    float *memory; /* (slots, places, width) */
    double *sums;  /* (count, sum_count) */
};

static void fill_fixed(const struct code *c, float *memory) {
    size_t count = c->block_rows * c->call->size;
    for (size_t v = 0; v < c->value_count; v++) {
        const struct value *value = &c->values[v];
        float *to = memory + value->place * c->width;
        if (value->kind == VALUE_FIXED)
            for (size_t i = 0; i < count; i++) to[i] = value->fixed;
        if (value->kind == VALUE_INDEX)
            for (size_t i = 0; i < count; i++) to[i] = (float)(i % c->call->size);
    }
}

/* In double, in an order that depends on their number alone. */
static double sum_in_double(const float *x, size_t count) {
    double sums[4] = {0}, sum;
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (size_t k = 0; k < 4; k++) sums[k] += (double)x[i + k];
    sum = (sums[0] + sums[2]) + (sums[1] + sums[3]);
    for (; i < count; i++) sum += (double)x[i];
    return sum;
}

static float *at_block(const struct code *c, uint16_t v, float *memory, size_t first) {
    const struct value *value = &c->values[v];
    if (value->kind == VALUE_MEMORY) return value->memory + first * (value->is_vector ? c->call->size : 1);
    return memory + value->place * c->width;
}

static void run_block(const struct blocks *b, size_t block, float *memory) {
    const struct code *c = b->code;
    size_t first = block * c->block_rows, rows = c->call->rows - first, size = c->call->size;
    if (rows > c->block_rows) rows = c->block_rows;
    for (size_t s = 0; s < c->step_count; s++) {
        const struct step *step = &c->steps[s];
        const float *a = at_block(c, step->in[0], memory, first);
        float *y = at_block(c, step->to, memory, first);
        size_t n = step->is_vector ? rows * size : rows;
        if (step->op == STEP_COPY)
            memcpy(y, a, n * sizeof *y);
        else if (step->op == STEP_EXPAND)
            expand(a, y, rows, size);
        else if (expression_is_reduction(step->op))
            reduce(step->op, a, y, rows, size);
        else
            compute(step->op, a, at_block(c, step->in[1], memory, first), at_block(c, step->in[2], memory, first), y,
                    n);
    }
    for (size_t i = 0; i < c->call->sum_count; i++)
        b->sums[block * c->call->sum_count + i] = sum_in_double(at_block(c, c->sums[i], memory, first), rows);
}

static void run_slots(void *context, size_t first, size_t last) {
    const struct blocks *b = context;
    for (size_t slot = first; slot < last; slot++) {
        float *memory = b->memory + slot * b->code->places * b->code->width;
        fill_fixed(b->code, memory);
        for (size_t i = b->count * slot / b->slots; i < b->count * (slot + 1) / b->slots; i++) run_block(b, i, memory);
    }
}

/* ---- the operator ---- */

#define SLOT_FLOATS (PARALLEL_FLOATS / 4) /* minimum elements of a thread */

static struct blocks plan_blocks(const struct code *c) {
    size_t elements = c->call->rows * c->call->size, most = elements / SLOT_FLOATS;
    struct blocks b = {.code = c, .count = (c->call->rows + c->block_rows - 1) / c->block_rows, .slots = 1};
    if (most > 1) b.slots = most < parallel_threads() ? most : parallel_threads();
    if (b.slots > b.count) b.slots = b.count;
    return b;
}

/* Of the workspace; false: more than memory has addresses. */
static bool bytes_of(const struct blocks *b, size_t *sums, size_t *bytes) {
    size_t floats;
    *sums = (b->count * b->code->call->sum_count + 7) / 8 * 8 * sizeof(double);
    if (__builtin_mul_overflow(b->code->places + 1, b->slots * b->code->width, &floats)) return false;
    return floats < SIZE_MAX / 8 && !__builtin_add_overflow(*sums, floats * sizeof(float), bytes);
}

/* The code of a call, at the start of the workspace, with the blocks behind it: *b. */
static status make_code(struct device *device, const struct expression_call *call, struct blocks *b) {
    size_t sums, bytes, start = (sizeof(struct code) + 63) / 64 * 64;
    TRY(workspace_reserve(device, start, "an expression"));
    for (int i = 0; i < 2; i++) { /* a larger workspace is another one */
        struct code *code = workspace_of(device);
        translate_all(call, code);
        *b = plan_blocks(code);
        if (!bytes_of(b, &sums, &bytes) || bytes > SIZE_MAX - start) return status_memory("an expression");
        TRY(workspace_reserve(device, start + bytes, "an expression"));
        b->sums = (double *)((char *)workspace_of(device) + start);
        b->memory = (float *)((char *)b->sums + sums);
        if (workspace_of(device) == (void *)code) break;
    }
    return OK;
}

static status expression_prepare(struct device *device, const struct expression_call *call) {
    struct blocks b;
    return call->rows == 0 ? OK : make_code(device, call, &b);
}

static void expression(struct device *device, const struct expression_call *call) {
    struct blocks b;
    if (call->count) *call->count += call->counted;
    if (call->rows == 0) return;
    if (make_code(device, call, &b)) status_exit_without_memory(); /* only without prepare */
    parallel_for(b.slots, 1, run_slots, &b);
    for (size_t block = 0; block < b.count; block++)
        for (size_t i = 0; i < call->sum_count; i++) *call->sums[i].to += b.sums[block * call->sum_count + i];
}

const struct formula_ops IN_SET(formulas) = {.run = expression, .prepare = expression_prepare};
