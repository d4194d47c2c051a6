/* Formulas of the config (device/expression.h): each operation is a kernel over the rows or all elements. A number of a
 * row that meets a vector is read for each element, so nothing is repeated in memory. The results of operations share
 * scratch memory, as soon as they have been read for the last time. */
#include "device/cuda/rows.cuh"

extern "C" {
#include "device/expression.h"
}

/* ---- operands ---- */

enum formula_kind { FORMULA_CONSTANT, FORMULA_OF_ROWS, FORMULA_OF_ELEMENTS, FORMULA_INDEX };

struct formula_operand {
    const float *values; /* (rows) or (rows, size) */
    float constant;
    enum formula_kind kind;

    bool is_vector() const { return kind == FORMULA_OF_ELEMENTS || kind == FORMULA_INDEX; }
    /* Of element [i] of (rows, size). */
    __device__ float of_element(size_t i, size_t size) const {
        if (kind == FORMULA_OF_ELEMENTS) return values[i];
        if (kind == FORMULA_OF_ROWS) return values[i / size];
        return kind == FORMULA_INDEX ? (float)(i % size) : constant;
    }
};

/* ---- operations ---- */

#define FORMULA_CASE(op, formula)                                                                                      \
    case op:                                                                                                           \
        return (formula);

__device__ static float formula_of(int op, float a, float b, float c) {
    switch (op) {
        FORMULA_CASE(EXPRESSION_ADD, a + b)
        FORMULA_CASE(EXPRESSION_SUBTRACT, a - b)
        FORMULA_CASE(EXPRESSION_MULTIPLY, a * b)
        FORMULA_CASE(EXPRESSION_DIVIDE, a / b)
        FORMULA_CASE(EXPRESSION_POWER, formula_power(a, b))
        FORMULA_CASE(EXPRESSION_SMALLER, a < b || a != a ? a : b)
        FORMULA_CASE(EXPRESSION_LARGER, a > b || a != a ? a : b)
        FORMULA_CASE(EXPRESSION_LESS, a < b ? 1.0f : 0.0f)
        FORMULA_CASE(EXPRESSION_LESS_EQUAL, a <= b ? 1.0f : 0.0f)
        FORMULA_CASE(EXPRESSION_EQUAL, a == b ? 1.0f : 0.0f)
        FORMULA_CASE(EXPRESSION_DIFFERENT, a != b ? 1.0f : 0.0f)
        FORMULA_CASE(EXPRESSION_AND, a != 0 && b != 0 ? 1.0f : 0.0f)
        FORMULA_CASE(EXPRESSION_OR, a != 0 || b != 0 ? 1.0f : 0.0f)
        FORMULA_CASE(EXPRESSION_NOT, a == 0 ? 1.0f : 0.0f)
        FORMULA_CASE(EXPRESSION_WHERE, a != 0 ? b : c)
        FORMULA_CASE(EXPRESSION_NEGATE, -a)
        FORMULA_CASE(EXPRESSION_ABS, fabsf(a))
        FORMULA_CASE(EXPRESSION_SIGN, formula_sign(a))
        FORMULA_CASE(EXPRESSION_FLOOR, floorf(a))
        FORMULA_CASE(EXPRESSION_ROUND, formula_round(a))
        FORMULA_CASE(EXPRESSION_SQRT, sqrtf(a))
        FORMULA_CASE(EXPRESSION_EXP, math_exp(a))
        FORMULA_CASE(EXPRESSION_EXPM1, formula_expm1(a))
        FORMULA_CASE(EXPRESSION_LOG, formula_log(a))
        FORMULA_CASE(EXPRESSION_LOG1P, formula_log1p(a))
        FORMULA_CASE(EXPRESSION_SIN, formula_sine(a, 0))
        FORMULA_CASE(EXPRESSION_COS, formula_sine(a, 1))
        FORMULA_CASE(EXPRESSION_TANH, math_tanh(a))
        FORMULA_CASE(EXPRESSION_ERF, math_erf(a))
        FORMULA_CASE(EXPRESSION_SIGMOID, sigmoid_value(a))
        FORMULA_CASE(EXPRESSION_SOFTPLUS, softplus_value(1, 20, a))
        FORMULA_CASE(EXPRESSION_RELU, relu_value(a))
    default:
        return a;
    }
}

/* The larger one, or with [sign] -1 the smaller one; NaN if one is. */
struct formula_extreme {
    float sign;
    __device__ float operator()(float a, float b) const { return sign * b > sign * a || b != b ? b : a; }
    __device__ float from_lane(float a, int way) const { return __shfl_xor_sync(0xffffffffu, a, way); }
};

/* y (rows) = a reduction of x (rows, size); a warp for each row. */
__global__ static void formula_reduce(int op, struct formula_operand x, size_t rows, size_t size, float *y) {
    size_t row = (size_t)blockIdx.x * (GPU_THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    size_t first = row * size;
    struct formula_extreme extreme = {op == EXPRESSION_SMALLEST ? -1.0f : 1.0f};
    float largest = 0, sum = 0;
    if (op == EXPRESSION_LARGEST || op == EXPRESSION_SMALLEST || op == EXPRESSION_LOGSUMEXP) {
        largest = x.of_element(first, size);
        for (size_t i = lane; i < size; i += 32) largest = extreme(largest, x.of_element(first + i, size));
        largest = row_join<32>(largest, extreme);
    }
    for (size_t i = lane; i < size; i += 32) {
        float value = x.of_element(first + i, size);
        sum += op == EXPRESSION_NORM ? value * value : op == EXPRESSION_LOGSUMEXP ? math_exp(value - largest) : value;
    }
    sum = row_sum<32>(sum);
    if (lane != 0) return;
    if (op == EXPRESSION_MEAN) sum /= (float)size;
    if (op == EXPRESSION_NORM) sum = sqrtf(sum);
    if (op == EXPRESSION_LOGSUMEXP) sum = fabsf(largest) <= 3.40282347e38f ? largest + formula_log(sum) : largest;
    y[row] = op == EXPRESSION_LARGEST || op == EXPRESSION_SMALLEST ? largest : sum;
}

/* ---- a call ---- */

/* The nodes of a call: what they are, and where their results are. */
struct formula_run {
    operator_call *c;
    const struct expression_call *call;
    struct formula_operand values[EXPRESSION_MAX_NODES];
    bool is_used[EXPRESSION_MAX_NODES], is_vector[EXPRESSION_MAX_NODES];
    uint16_t last_use[EXPRESSION_MAX_NODES]; /* of the memory of a node; the index of a node */
    uint16_t owner[EXPRESSION_MAX_NODES];    /* the node whose memory this one has */
    bool is_scratch[EXPRESSION_MAX_NODES];
    float *outputs[EXPRESSION_MAX_VARIABLES]; /* the memory of call->outputs */
    float *free_places[EXPRESSION_MAX_NODES];
    size_t free_count;
};

static const struct expression_node *formula_node(const struct formula_run *r, size_t i) {
    return &r->call->expression->nodes[i];
}

/* Of COUNT, and the second one of EXPAND_LIKE and SUM_LIKE, only the shape is read. */
static int formula_reads(const struct expression_node *n) {
    if (n->op == EXPRESSION_COUNT) return 0;
    return n->op == EXPRESSION_EXPAND_LIKE || n->op == EXPRESSION_SUM_LIKE
               ? 1
               : expression_operands((enum expression_op)n->op);
}

static bool formula_reduces(const struct expression_node *n) {
    return expression_is_reduction((enum expression_op)n->op);
}

static void formula_plan(struct formula_run *r) {
    const struct expression_call *call = r->call;
    size_t count = call->expression->count;
    for (size_t i = 0; i < count; i++) {
        const struct expression_node *n = formula_node(r, i);
        bool is_vector = n->op == EXPRESSION_INDEX;
        for (int k = 0; k < expression_operands((enum expression_op)n->op); k++)
            is_vector = is_vector || r->is_vector[n->operands[k]];
        if (n->op == EXPRESSION_VARIABLE) is_vector = call->variables[n->operands[0]].is_vector;
        if (n->op == EXPRESSION_COUNT || formula_reduces(n)) is_vector = false;
        if (n->op == EXPRESSION_SUM_LIKE) is_vector = r->is_vector[n->operands[0]] && r->is_vector[n->operands[1]];
        r->is_vector[i] = is_vector && call->size > 1;
        r->is_used[i] = false;
        r->last_use[i] = 0;
        r->is_scratch[i] = false;
        r->owner[i] = (uint16_t)i;
    }
    for (size_t i = 0; i < call->output_count; i++)
        if (call->outputs[i].node != EXPRESSION_NONE) r->is_used[call->outputs[i].node] = true;
    for (size_t i = 0; i < call->sum_count; i++) r->is_used[call->sums[i].node] = true;
    for (size_t i = count; i-- > 0;)
        for (int k = 0; r->is_used[i] && k < formula_reads(formula_node(r, i)); k++) {
            uint16_t in = formula_node(r, i)->operands[k];
            r->is_used[in] = true;
            if (r->last_use[in] < i) r->last_use[in] = (uint16_t)i;
        }
    for (size_t i = 0; i < call->output_count; i++)
        if (call->outputs[i].node != EXPRESSION_NONE) r->last_use[call->outputs[i].node] = EXPRESSION_NONE;
    for (size_t i = 0; i < call->sum_count; i++) r->last_use[call->sums[i].node] = EXPRESSION_NONE;
}

/* Node [i] has the value of node [of], and its memory. */
static void formula_take(struct formula_run *r, size_t i, uint16_t of) {
    uint16_t owner = r->owner[of];
    r->values[i] = r->values[of];
    r->owner[i] = owner;
    if (r->last_use[owner] < r->last_use[i]) r->last_use[owner] = r->last_use[i];
}

/* The memory of the result of node [i]: that of an output if it has its shape. */
static float *formula_place(struct formula_run *r, size_t i, bool is_vector) {
    const struct expression_call *call = r->call;
    for (size_t k = 0; k < call->output_count; k++)
        if (call->outputs[k].node == i && (call->outputs[k].is_vector && call->size > 1) == is_vector)
            return r->outputs[k];
    r->is_scratch[i] = true;
    return r->free_count ? r->free_places[--r->free_count] : r->c->scratch<float>(call->rows * call->size);
}

static void formula_set(struct formula_run *r, size_t i, float *place, bool is_vector) {
    r->values[i] = {place, 0, is_vector ? FORMULA_OF_ELEMENTS : FORMULA_OF_ROWS};
}

static struct formula_operand formula_leaf(struct formula_run *r, size_t i) {
    const struct expression_call *call = r->call;
    const struct expression_node *n = formula_node(r, i);
    if (n->op == EXPRESSION_NUMBER) return {nullptr, (float)n->value, FORMULA_CONSTANT};
    if (n->op == EXPRESSION_COUNT)
        return {nullptr, r->is_vector[n->operands[0]] ? (float)call->size : 1.0f, FORMULA_CONSTANT};
    if (n->op == EXPRESSION_INDEX) return {nullptr, 0, r->is_vector[i] ? FORMULA_INDEX : FORMULA_CONSTANT};
    const float *values = call->variables[n->operands[0]].values;
    if (!values) return {nullptr, call->variables[n->operands[0]].constant, FORMULA_CONSTANT};
    bool is_vector = r->is_vector[i];
    return {r->c->in(values, call->rows * (is_vector ? call->size : 1)), 0,
            is_vector ? FORMULA_OF_ELEMENTS : FORMULA_OF_ROWS};
}

static void formula_compute(struct formula_run *r, size_t i, int op) {
    const struct expression_node *n = formula_node(r, i);
    size_t size = r->call->size, rows = r->call->rows;
    struct formula_operand in[3];
    bool is_vector = false;
    for (int k = 0; k < 3; k++) {
        in[k] = r->values[n->operands[k < formula_reads(n) ? k : 0]];
        is_vector = is_vector || in[k].is_vector();
    }
    float *y = formula_place(r, i, is_vector);
    struct formula_operand a = in[0], b = in[1], c = in[2];
    size_t step = is_vector ? size : 1; /* elements of a row; operands of rows then have one, too */
    r->c->each(is_vector ? rows * size : rows, [=] __device__(size_t k) {
        y[k] = formula_of(op, a.of_element(k, step), b.of_element(k, step), c.of_element(k, step));
    });
    formula_set(r, i, y, is_vector);
}

static void formula_visit(struct formula_run *r, size_t i) {
    const struct expression_node *n = formula_node(r, i);
    size_t rows = r->call->rows, warps = GPU_THREADS / 32;
    uint16_t first = n->operands[0];
    int op = n->op;
    bool reduces = formula_reduces(n) || (op == EXPRESSION_SUM_LIKE && r->is_vector[first] != r->is_vector[i]);
    if (formula_reads(n) == 0) {
        r->values[i] = formula_leaf(r, i);
    } else if (reduces && r->is_vector[first]) {
        float *y = formula_place(r, i, false);
        r->c->launch(formula_reduce, (unsigned)((rows + warps - 1) / warps), GPU_THREADS, 0,
                     op == EXPRESSION_SUM_LIKE ? (int)EXPRESSION_SUM : op, r->values[first], rows, r->call->size, y);
        formula_set(r, i, y, false);
    } else if (op == EXPRESSION_NORM) { /* of one number */
        formula_compute(r, i, EXPRESSION_ABS);
    } else if (reduces || op == EXPRESSION_DETACH || op == EXPRESSION_EXPAND_LIKE || op == EXPRESSION_SUM_LIKE) {
        formula_take(r, i, first);
    } else {
        formula_compute(r, i, op);
    }
    for (int k = 0; k < formula_reads(n); k++) {
        uint16_t owner = r->owner[n->operands[k]];
        if (!r->is_scratch[owner] || r->last_use[owner] != i) continue;
        r->is_scratch[owner] = false;
        r->free_places[r->free_count++] = (float *)(uintptr_t)r->values[owner].values;
    }
}

static void formula_write(struct formula_run *r, size_t output) {
    const struct expression_output *o = &r->call->outputs[output];
    float *to = r->outputs[output];
    size_t size = r->call->size, rows = r->call->rows;
    bool is_vector = o->is_vector && size > 1;
    struct formula_operand from = {nullptr, 0, FORMULA_CONSTANT};
    if (o->node != EXPRESSION_NONE) from = r->values[o->node];
    size_t count = is_vector ? rows * size : rows, step = is_vector ? size : 1;
    if (to == from.values) return;
    r->c->each(count, [=] __device__(size_t k) { to[k] = from.of_element(k, step); });
}

static void formula(struct device *device, const struct expression_call *call) {
    operator_call c(device, "an expression");
    struct formula_run *r = (struct formula_run *)calloc(1, sizeof *r);
    if (!r) gpu_fail_as(c.gpu, STATUS_MEMORY, "an expression", "out of memory");
    if (r && call->rows > 0) {
        r->c = &c;
        r->call = call;
        for (size_t i = 0; i < call->output_count; i++)
            r->outputs[i] = c.out(call->outputs[i].to, call->rows * (call->outputs[i].is_vector ? call->size : 1));
        formula_plan(r);
        for (size_t i = 0; i < call->expression->count && c.is_ok(); i++)
            if (r->is_used[i]) formula_visit(r, i);
        for (size_t i = 0; i < call->output_count && c.is_ok(); i++) formula_write(r, i);
        for (size_t i = 0; i < call->sum_count && c.is_ok(); i++) {
            struct formula_operand of = r->values[call->sums[i].node];
            c.sum(
                call->rows, [=] __device__(size_t k) { return of.of_element(k, 1); }, c.inout(call->sums[i].to, 1));
        }
    }
    if (call->count && c.is_ok()) {
        double *count = c.inout(call->count, 1), counted = call->counted;
        c.each(1, [=] __device__(size_t) { *count += counted; });
    }
    free(r);
}

/* The dry run determines the scratch memory. */
static status formula_prepare(struct device *, const struct expression_call *) { return OK; }

const struct formula_ops gpu_formulas = {.run = formula, .prepare = formula_prepare};
