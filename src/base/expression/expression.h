/* expression: a formula in the config, such as "mean(w * abs(y - t) ^ 1.5)": a loss, a metric, a layer or a column of a
 * table (docs/expressions.md has the language).
 *
 * A formula is parsed once into a list of operations. Each refers to earlier ones by their index, and equal operations
 * are in the list once. Its derivatives are more operations behind them (expression_differentiate). The same list is
 * evaluated by blocks of float32 (device/expression.h: loss, metric, layer), in double (expression_evaluate: columns),
 * and written as ONNX and C (model/emit).
 *
 * Each variable is one number for each row, or a vector of as many numbers as all other vectors of the row. The list
 * does not depend on which: an operation of a vector and a number applies to each element, and reductions make a number
 * of a vector. So losses are parsed before the shapes are known. What is one number cannot be wrong; two vectors of
 * different sizes are an error of the caller, who knows the shapes.
 *
 * Everything is in struct expression, whose size is fixed; nothing is allocated. */
#pragma once

#include "base/schema/schema.h"
#include "base/status.h"
#include "base/text.h"

#define EXPRESSION_MAX_TEXT 4096      /* bytes */
#define EXPRESSION_MAX_DEPTH 100      /* nested parentheses and calls */
#define EXPRESSION_MAX_OPERATIONS 256 /* of a formula */
#define EXPRESSION_MAX_NODES 1536     /* with its derivatives */
#define EXPRESSION_MAX_VARIABLES 64

/* X(id, name of the function or operator, operands). The name is that of messages. */
#define EXPRESSION_OPS(X)                                                                                              \
    X(NUMBER, "number", 0)                                                                                             \
    X(VARIABLE, "variable", 0)                                                                                         \
    X(INDEX, "index", 0) /* of an element in its vector: 0, 1, ...; 0 of a number */                                   \
    X(COUNT, "count", 1) /* elements of the operand in a row: 1 of a number */                                         \
    X(ADD, "+", 2)                                                                                                     \
    X(SUBTRACT, "-", 2)                                                                                                \
    X(MULTIPLY, "*", 2)                                                                                                \
    X(DIVIDE, "/", 2)                                                                                                  \
    X(POWER, "^", 2)                                                                                                   \
    X(SMALLER, "min", 2)                                                                                               \
    X(LARGER, "max", 2)                                                                                                \
    X(LESS, "<", 2) /* 1 where it holds, else 0, as the next three */                                                  \
    X(LESS_EQUAL, "<=", 2)                                                                                             \
    X(EQUAL, "==", 2)                                                                                                  \
    X(DIFFERENT, "!=", 2)                                                                                              \
    X(AND, "and", 2) /* of numbers that are not 0 */                                                                   \
    X(OR, "or", 2)                                                                                                     \
    X(NOT, "not", 1)                                                                                                   \
    X(WHERE, "where", 3) /* the second where the first is not 0, else the third */                                     \
    X(NEGATE, "-", 1)                                                                                                  \
    X(ABS, "abs", 1)                                                                                                   \
    X(SIGN, "sign", 1)                                                                                                 \
    X(FLOOR, "floor", 1)                                                                                               \
    X(ROUND, "round", 1) /* ties to even */                                                                            \
    X(SQRT, "sqrt", 1)                                                                                                 \
    X(EXP, "exp", 1)                                                                                                   \
    X(EXPM1, "expm1", 1)                                                                                               \
    X(LOG, "log", 1)                                                                                                   \
    X(LOG1P, "log1p", 1)                                                                                               \
    X(SIN, "sin", 1)                                                                                                   \
    X(COS, "cos", 1)                                                                                                   \
    X(TANH, "tanh", 1)                                                                                                 \
    X(ERF, "erf", 1)                                                                                                   \
    X(SIGMOID, "sigmoid", 1)                                                                                           \
    X(SOFTPLUS, "softplus", 1)                                                                                         \
    X(RELU, "relu", 1)                                                                                                 \
    X(DETACH, "detach", 1) /* the operand, as a constant of derivatives */                                             \
    X(SUM, "sum", 1)       /* reductions: from here on to NORM */                                                      \
    X(MEAN, "mean", 1)                                                                                                 \
    X(LARGEST, "max", 1)                                                                                               \
    X(SMALLEST, "min", 1)                                                                                              \
    X(LOGSUMEXP, "logsumexp", 1)                                                                                       \
    X(NORM, "norm", 1)                                                                                                 \
    X(EXPAND_LIKE, "expand", 2) /* a number as a vector where the second is one (of derivatives, as the next) */       \
    X(SUM_LIKE, "sum", 2)       /* the sum of a vector where the second is a number; a number stays one */

enum expression_op {
#define X(id, name, operands) EXPRESSION_##id,
    EXPRESSION_OPS(X)
#undef X
};

static inline bool expression_is_reduction(enum expression_op op) {
    return op >= EXPRESSION_SUM && op <= EXPRESSION_NORM;
}

/* The number of its operands. */
int expression_operands(enum expression_op op);

#define EXPRESSION_NONE UINT16_MAX /* of an index: there is none */

struct expression_node {
    double value;         /* NUMBER */
    uint16_t operands[3]; /* earlier nodes; VARIABLE: operands[0] is its index */
    uint16_t at;          /* byte of the text: of its name or operator; of a derivative that of what it derives */
    uint8_t op;           /* enum expression_op */
};

struct expression {
    const char *text; /* as it was given; not owned */
    struct expression_node nodes[EXPRESSION_MAX_NODES];
    size_t count, own; /* nodes; of them of the formula, without derivatives */
    uint16_t value;    /* the node of the result */
    /* Names that occur, as bytes of the text; the index of a variable is the place in the names that were given, or
     * without these in this list. */
    struct expression_name {
        uint16_t at, length;
    } names[EXPRESSION_MAX_VARIABLES];
    size_t name_count;
};

struct expression_options {
    const char *const *names;  /* NULL-terminated; NULL: any name is a variable */
    const char *const *python; /* what stands for each in Python; NULL: it is not written */
    bool is_of_numbers;        /* every variable is one number, as in a column: reductions and index are errors */
};

/* Parses [text] into *out. STATUS_USAGE with a sentence without place; *at is then the byte of the text where it
 * is. [python], which may be NULL: the formula for the functions of export/pytorch.py is added. */
status expression_parse(const char *text, const struct expression_options *options, struct expression *out, size_t *at,
                        struct text *python);

/* expression_parse for the value of a key. [value]: its node in the config; a failure is added to [problems] with file,
 * line and column. Returns whether the formula is good. */
bool expression_bind(const struct node *value, const char *path, const struct expression_options *options,
                     struct expression *out, struct problems *problems);

/* Copies name [index] of out->names to [to] (EXPRESSION_MAX_TEXT). */
void expression_name(const struct expression *expression, size_t index, char *to);

/* Whether a node of the formula is the variable [index]. */
bool expression_uses(const struct expression *expression, size_t index);
/* Whether the formula has a reduction, or the index of an element. */
bool expression_has_features(const struct expression *expression);

/* Whether a node is a vector where the variables are. */
bool expression_is_vector(const struct expression *expression, uint16_t node, const bool *are_vectors);

/* The node of a variable, which need not have a name. */
uint16_t expression_variable(struct expression *expression, size_t index);

/* A node behind the others, or an equal one; sizes are checked by expression_differentiate and the caller. */
uint16_t expression_add(struct expression *expression, enum expression_op op, uint16_t a, uint16_t b, uint16_t c,
                        size_t at);

/* Adds the derivatives of node [value] by the variables [by] (count), each multiplied by the node [seed], the
 * derivative of what comes after (summed over the elements where the variable is one number): derivatives[i] is a node,
 * EXPRESSION_NONE where the value does not depend on the variable. STATUS_USAGE if the list becomes too long. */
status expression_differentiate(struct expression *expression, uint16_t value, uint16_t seed, const uint16_t *by,
                                size_t count, uint16_t *derivatives);

/* The result of a formula of numbers, in double, with the same bits on every machine. */
double expression_evaluate(const struct expression *expression, const double *variables);

/* For messages: "'log' (character 7 of the expression)": the operation of a node, or what it derives. */
void expression_describe(const struct expression *expression, uint16_t node, struct text *out);
