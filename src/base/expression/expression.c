/* A recursive descent over the text, rules of derivatives, and the evaluation of one row in double. */
#include "base/expression/expression.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers/portable_math.h"
#include "base/scoped.h"

#define PI 3.14159265358979323846

static const char *const op_names[] = {
#define X(id, name, operands) name,
    EXPRESSION_OPS(X)
#undef X
};

int expression_operands(enum expression_op op) {
    static const int counts[] = {
#define X(id, name, operands) operands,
        EXPRESSION_OPS(X)
#undef X
    };
    return counts[op];
}

/* ---- evaluation in double ---- */

static double log_of(double x) {
    if (isnan(x) || x < 0) return NAN;
    return x == 0 ? -INFINITY : isinf(x) ? x : portable_log(x);
}

/* Kahan's: the error of 1 + x is that of the logarithm, too. */
static double log1p_of(double x) {
    double u = 1 + x;
    return u == 1 || isinf(u) ? x : u <= 0 ? log_of(u) : portable_log(u) * (x / (u - 1));
}

static double expm1_of(double x) {
    double u = portable_exp(x);
    if (u == 1 || isnan(u)) return x;
    return u - 1 == -1 || isinf(u) ? u - 1 : (u - 1) * (x / log_of(u));
}

static double tanh_of(double x) {
    double e = expm1_of(2 * fabs(x));
    return isinf(e) ? copysign(1, x) : copysign(e / (e + 2), x);
}

#define MAX_WHOLE_POWER 64 /* of which the product is computed */

static double power_of(double x, double y) {
    bool is_whole = floor(y) == y;
    if (y == 0) return 1;
    if (is_whole && fabs(y) <= MAX_WHOLE_POWER) {
        double product = 1;
        for (int i = 0; i < (int)fabs(y); i++) product *= x;
        return y < 0 ? 1 / product : product;
    }
    double size = portable_exp(y * log_of(fabs(x)));
    if (x < 0) return !is_whole ? NAN : fmod(y, 2) != 0 ? -size : size;
    return size;
}

static double round_of(double x) { return fabs(x) < 0x1p52 ? copysign((fabs(x) + 0x1p52) - 0x1p52, x) : x; }

static double result_of(enum expression_op op, double a, double b, double c) {
    switch (op) {
    case EXPRESSION_ADD:
        return a + b;
    case EXPRESSION_SUBTRACT:
        return a - b;
    case EXPRESSION_MULTIPLY:
        return a * b;
    case EXPRESSION_DIVIDE:
        return a / b;
    case EXPRESSION_POWER:
        return power_of(a, b);
    case EXPRESSION_SMALLER:
        return a < b || isnan(a) ? a : b;
    case EXPRESSION_LARGER:
        return a > b || isnan(a) ? a : b;
    case EXPRESSION_LESS:
        return a < b;
    case EXPRESSION_LESS_EQUAL:
        return a <= b;
    case EXPRESSION_EQUAL:
        return a == b;
    case EXPRESSION_DIFFERENT:
        return a != b;
    case EXPRESSION_AND:
        return a != 0 && b != 0;
    case EXPRESSION_OR:
        return a != 0 || b != 0;
    case EXPRESSION_NOT:
        return a == 0;
    case EXPRESSION_WHERE:
        return a != 0 ? b : c;
    case EXPRESSION_NEGATE:
        return -a;
    case EXPRESSION_ABS:
    case EXPRESSION_NORM: /* of one number */
        return fabs(a);
    case EXPRESSION_SIGN:
        return a > 0 ? 1 : a < 0 ? -1 : a;
    case EXPRESSION_FLOOR:
        return floor(a);
    case EXPRESSION_ROUND:
        return round_of(a);
    case EXPRESSION_SQRT:
        return sqrt(a);
    case EXPRESSION_EXP:
        return portable_exp(a);
    case EXPRESSION_EXPM1:
        return expm1_of(a);
    case EXPRESSION_LOG:
        return log_of(a);
    case EXPRESSION_LOG1P:
        return log1p_of(a);
    case EXPRESSION_SIN:
        return isinf(a) ? NAN : portable_sin_degrees(a * (180 / PI));
    case EXPRESSION_COS:
        return isinf(a) ? NAN : portable_cos_degrees(a * (180 / PI));
    case EXPRESSION_TANH:
        return tanh_of(a);
    case EXPRESSION_ERF:
        return 2 * portable_normal(a * sqrt(2)) - 1;
    case EXPRESSION_SIGMOID:
        return 1 / (1 + portable_exp(-a));
    case EXPRESSION_SOFTPLUS:
        return (a > 0 ? a : 0) + log1p_of(portable_exp(-fabs(a)));
    case EXPRESSION_RELU:
        return a > 0 || isnan(a) ? a : 0;
    case EXPRESSION_COUNT:
        return 1;
    default: /* what is the operand itself, of one number */
        return a;
    }
}

double expression_evaluate(const struct expression *e, const double *variables) {
    double values[EXPRESSION_MAX_OPERATIONS] = {0};
    for (size_t i = 0; i < e->own; i++) {
        const struct expression_node *n = &e->nodes[i];
        double in[3] = {0, 0, 0};
        for (int k = 0; k < expression_operands(n->op); k++) in[k] = values[n->operands[k]];
        if (n->op == EXPRESSION_NUMBER)
            values[i] = n->value;
        else if (n->op == EXPRESSION_VARIABLE)
            values[i] = variables[n->operands[0]];
        else
            values[i] = n->op == EXPRESSION_INDEX ? 0 : result_of(n->op, in[0], in[1], in[2]);
    }
    return values[e->value];
}

/* ---- the list ---- */

static bool is_number(const struct expression *e, uint16_t node) { return e->nodes[node].op == EXPRESSION_NUMBER; }

/* Whether the node is the number [value], not its negative. */
static bool has_value(const struct expression *e, uint16_t node, double value) {
    return is_number(e, node) && e->nodes[node].value == value;
}

/* Bit by bit: -0 and 0 are two numbers, and NaN is one. */
static bool has_same_bits(double a, double b) {
    uint64_t bits[2];
    memcpy(&bits[0], &a, sizeof a);
    memcpy(&bits[1], &b, sizeof b);
    return bits[0] == bits[1];
}

/* EXPRESSION_NONE: the list is full. */
static uint16_t append(struct expression *e, const struct expression_node *node) {
    for (size_t i = 0; i < e->count; i++) {
        const struct expression_node *other = &e->nodes[i];
        if (other->op == node->op && memcmp(other->operands, node->operands, sizeof node->operands) == 0 &&
            has_same_bits(other->value, node->value))
            return (uint16_t)i;
    }
    if (e->count == EXPRESSION_MAX_NODES) return EXPRESSION_NONE;
    e->nodes[e->count] = *node;
    return (uint16_t)e->count++;
}

static uint16_t add_number(struct expression *e, double value, size_t at) {
    return append(e, &(struct expression_node){.op = EXPRESSION_NUMBER, .value = value, .at = (uint16_t)at});
}

static uint16_t add_leaf(struct expression *e, enum expression_op op, size_t index, size_t at) {
    return append(e, &(struct expression_node){.op = (uint8_t)op, .operands = {(uint16_t)index}, .at = (uint16_t)at});
}

uint16_t expression_add(struct expression *e, enum expression_op op, uint16_t a, uint16_t b, uint16_t c, size_t at) {
    const uint16_t operands[3] = {a, b, c};
    struct expression_node node = {.op = (uint8_t)op, .at = (uint16_t)at};
    bool is_constant = op != EXPRESSION_EXPAND_LIKE && op != EXPRESSION_SUM_LIKE;
    double in[3] = {0, 0, 0};
    for (int i = 0; i < expression_operands(op); i++) {
        if (operands[i] == EXPRESSION_NONE) return EXPRESSION_NONE;
        node.operands[i] = operands[i];
        is_constant = is_constant && is_number(e, operands[i]);
        in[i] = e->nodes[operands[i]].value;
    }
    if (is_constant) return add_number(e, result_of(op, in[0], in[1], in[2]), at);
    return append(e, &node);
}

bool expression_uses(const struct expression *e, size_t index) {
    for (size_t i = 0; i < e->own; i++)
        if (e->nodes[i].op == EXPRESSION_VARIABLE && e->nodes[i].operands[0] == index) return true;
    return false;
}

bool expression_has_features(const struct expression *e) {
    for (size_t i = 0; i < e->own; i++)
        if (e->nodes[i].op == EXPRESSION_INDEX || expression_is_reduction(e->nodes[i].op)) return true;
    return false;
}

bool expression_is_vector(const struct expression *e, uint16_t node, const bool *are_vectors) {
    bool is_vector[EXPRESSION_MAX_NODES];
    for (size_t i = 0; i <= node; i++) {
        const struct expression_node *n = &e->nodes[i];
        is_vector[i] = n->op == EXPRESSION_INDEX || (n->op == EXPRESSION_VARIABLE && are_vectors[n->operands[0]]);
        for (int k = 0; k < expression_operands(n->op); k++) is_vector[i] = is_vector[i] || is_vector[n->operands[k]];
        if (expression_is_reduction(n->op) || n->op == EXPRESSION_COUNT) is_vector[i] = false;
    }
    return is_vector[node];
}

uint16_t expression_variable(struct expression *e, size_t index) { return add_leaf(e, EXPRESSION_VARIABLE, index, 0); }

void expression_name(const struct expression *e, size_t index, char *to) {
    memcpy(to, e->text + e->names[index].at, e->names[index].length);
    to[e->names[index].length] = '\0';
}

void expression_describe(const struct expression *e, uint16_t node, struct text *out) {
    uint16_t at = e->nodes[node].at;
    enum expression_op op = e->nodes[node].op;
    for (size_t i = 0; node >= e->own && i < e->own; i++)
        if (e->nodes[i].at == at && expression_operands(e->nodes[i].op)) op = e->nodes[i].op;
    text_printf(out, "'%s' (character %u of the expression)", op_names[op], at + 1u);
}

/* ---- parsing ---- */

/* What a name with a parenthesis means. A composite is written as other operations. */
enum composite { ONE_OP, COMPOSITE_CLAMP, COMPOSITE_SILU, COMPOSITE_GELU, COMPOSITE_SOFTMAX, COMPOSITE_LOG10 };

static const struct function {
    const char *name;
    int arguments;
    enum expression_op op;
    enum composite composite;
} functions[] = {
    {"abs", 1, EXPRESSION_ABS, 0},
    {"sign", 1, EXPRESSION_SIGN, 0},
    {"floor", 1, EXPRESSION_FLOOR, 0},
    {"round", 1, EXPRESSION_ROUND, 0},
    {"sqrt", 1, EXPRESSION_SQRT, 0},
    {"exp", 1, EXPRESSION_EXP, 0},
    {"expm1", 1, EXPRESSION_EXPM1, 0},
    {"log", 1, EXPRESSION_LOG, 0},
    {"log1p", 1, EXPRESSION_LOG1P, 0},
    {"log10", 1, EXPRESSION_LOG, COMPOSITE_LOG10},
    {"sin", 1, EXPRESSION_SIN, 0},
    {"cos", 1, EXPRESSION_COS, 0},
    {"tanh", 1, EXPRESSION_TANH, 0},
    {"erf", 1, EXPRESSION_ERF, 0},
    {"sigmoid", 1, EXPRESSION_SIGMOID, 0},
    {"softplus", 1, EXPRESSION_SOFTPLUS, 0},
    {"relu", 1, EXPRESSION_RELU, 0},
    {"silu", 1, EXPRESSION_SIGMOID, COMPOSITE_SILU},
    {"gelu", 1, EXPRESSION_ERF, COMPOSITE_GELU},
    {"detach", 1, EXPRESSION_DETACH, 0},
    {"sum", 1, EXPRESSION_SUM, 0},
    {"mean", 1, EXPRESSION_MEAN, 0},
    {"max", 1, EXPRESSION_LARGEST, 0},
    {"min", 1, EXPRESSION_SMALLEST, 0},
    {"logsumexp", 1, EXPRESSION_LOGSUMEXP, 0},
    {"softmax", 1, EXPRESSION_LOGSUMEXP, COMPOSITE_SOFTMAX},
    {"norm", 1, EXPRESSION_NORM, 0},
    {"max", 2, EXPRESSION_LARGER, 0},
    {"min", 2, EXPRESSION_SMALLER, 0},
    {"pow", 2, EXPRESSION_POWER, 0},
    {"where", 3, EXPRESSION_WHERE, 0},
    {"clamp", 3, EXPRESSION_WHERE, COMPOSITE_CLAMP},
};
#define FUNCTIONS (sizeof functions / sizeof *functions)

struct parser {
    const char *text;
    size_t at; /* of the next byte */
    int depth;
    const struct expression_options *options;
    struct expression *out;
    struct text *python; /* NULL: not wanted */
    status failure;      /* the first */
    size_t failed_at;
};

static uint16_t parse_any(struct parser *p);

static uint16_t fail(struct parser *p, size_t at, const char *format, ...) __attribute__((format(printf, 3, 4)));
static uint16_t fail(struct parser *p, size_t at, const char *format, ...) {
    va_list arguments;
    if (p->failure) return 0;
    va_start(arguments, format);
    p->failure = status_newv(STATUS_USAGE, format, arguments);
    va_end(arguments);
    p->failed_at = at;
    return 0;
}

/* The formula in Python is written token by token; what a token before needs is inserted. */
static void write_python(struct parser *p, const char *text) {
    if (p->python) text_add(p->python, text);
}

static size_t python_at(const struct parser *p) { return p->python ? p->python->length : 0; }

static void insert_python(struct parser *p, size_t at, const char *text) {
    if (!p->python) return;
    size_t length = strlen(text), rest = p->python->length - at;
    text_add(p->python, text);
    memmove(p->python->data + at + length, p->python->data + at, rest);
    memcpy(p->python->data + at, text, length);
}

#define PYTHON_INDEX "ex.index()"

/* The arguments of calls of PYTHON_INDEX: all variables of the formula, since the largest one has the features. */
static void insert_variables(struct parser *p) {
    SCOPED_TEXT names = {0};
    for (size_t i = 0; p->options->python && i < EXPRESSION_MAX_VARIABLES; i++)
        if (expression_uses(p->out, i)) text_printf(&names, "%s%s", names.length ? ", " : "", p->options->python[i]);
    if (!names.length) text_add(&names, p->options->python ? p->options->python[0] : "_");
    for (const char *found; (found = strstr(text_string(p->python), PYTHON_INDEX));)
        insert_python(p, (size_t)(found - p->python->data) + strlen(PYTHON_INDEX) - 1, text_string(&names));
}

static uint16_t add(struct parser *p, enum expression_op op, uint16_t a, uint16_t b, uint16_t c, size_t at) {
    if (p->failure) return 0;
    uint16_t node = expression_add(p->out, op, a, b, c, at);
    if (node == EXPRESSION_NONE || p->out->count > EXPRESSION_MAX_OPERATIONS)
        return fail(p, at, "the expression has more than %d operations", EXPRESSION_MAX_OPERATIONS);
    return node;
}

static uint16_t number(struct parser *p, double value, size_t at) {
    return p->failure ? 0 : add_number(p->out, value, at);
}

static void skip_blanks(struct parser *p) {
    while (p->text[p->at] && strchr(" \t\r\n", p->text[p->at])) p->at++;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

static size_t name_length(const char *text) {
    size_t length = 0;
    while (is_letter(text[length]) || (length && is_digit(text[length]))) length++;
    return length;
}

/* Whether the next token is the operator or the word; it is then behind. */
static bool accept(struct parser *p, const char *token) {
    size_t length = strlen(token);
    skip_blanks(p);
    if (strncmp(p->text + p->at, token, length) != 0) return false;
    if (is_letter(*token) && name_length(p->text + p->at) != length) return false;
    p->at += length;
    return true;
}

static bool is_word(const char *text, size_t length, const char *word) {
    return strlen(word) == length && strncmp(text, word, length) == 0;
}

/* ---- names ---- */

#define MAX_SHOWN 60

static bool is_function(const char *text, size_t length) {
    for (size_t i = 0; i < FUNCTIONS; i++)
        if (is_word(text, length, functions[i].name)) return true;
    return false;
}

/* Adds "; did you mean 'a'? (known: a, b)" */
static void suggest(const char *name, const char *const *known, struct text *out) {
    const char *nearest = known ? schema_nearest(name, known) : NULL;
    if (nearest) text_printf(out, "; did you mean '%s'?", nearest);
    if (!known) return;
    text_add(out, " (known: ");
    for (size_t i = 0; known[i]; i++) {
        if (i == 12) {
            text_add(out, ", ...");
            break;
        }
        text_printf(out, "%s%.60s", i ? ", " : "", known[i]);
    }
    text_add(out, ")");
}

static uint16_t unknown_name(struct parser *p, const char *name, size_t length, size_t at) {
    SCOPED_TEXT hint = {0}, copy = {0};
    text_add_bytes(&copy, name, length);
    if (is_function(name, length))
        text_printf(&hint, "; the function is written %s(...)", text_string(&copy));
    else
        suggest(text_string(&copy), p->options->names, &hint);
    fail(p, at, "unknown name '%.*s'%s", (int)(length < MAX_SHOWN ? length : MAX_SHOWN), name, text_string(&hint));
    return 0;
}

/* The variable of a name that was given, or of one that occurs; EXPRESSION_NONE: there is none. */
static size_t find_variable(struct parser *p, const char *name, size_t length, size_t at) {
    struct expression *e = p->out;
    const char *const *names = p->options->names;
    for (size_t i = 0; names && names[i]; i++)
        if (is_word(name, length, names[i])) return i;
    for (size_t i = 0; !names && i < e->name_count; i++)
        if (e->names[i].length == length && memcmp(e->text + e->names[i].at, name, length) == 0) return i;
    if (names) return EXPRESSION_NONE;
    if (e->name_count == EXPRESSION_MAX_VARIABLES) {
        fail(p, at, "more than %d different names", EXPRESSION_MAX_VARIABLES);
        return 0;
    }
    e->names[e->name_count] = (struct expression_name){(uint16_t)(name - e->text), (uint16_t)length};
    return e->name_count++;
}

static uint16_t parse_name(struct parser *p, const char *name, size_t length, bool is_quoted, size_t at) {
    bool is_known = p->options->names != NULL;
    bool is_pi = !is_quoted && is_word(name, length, "pi"), is_index = !is_quoted && is_word(name, length, "index");
    size_t index = (is_pi || (is_index && !p->options->is_of_numbers)) && !is_known
                       ? EXPRESSION_NONE
                       : find_variable(p, name, length, at);
    if (p->failure) return 0;
    if (index != EXPRESSION_NONE) {
        write_python(p, p->options->python ? p->options->python[index] : "_");
        return add_leaf(p->out, EXPRESSION_VARIABLE, index, at);
    }
    if (is_pi) {
        write_python(p, "math.pi");
        return number(p, PI, at);
    }
    if (!is_index || p->options->is_of_numbers) return unknown_name(p, name, length, at);
    write_python(p, PYTHON_INDEX);
    return add_leaf(p->out, EXPRESSION_INDEX, 0, at);
}

/* ---- calls ---- */

static uint16_t unknown_function(struct parser *p, const char *name, size_t length, size_t at) {
    const char *known[FUNCTIONS + 1] = {0};
    SCOPED_TEXT copy = {0}, list = {0};
    for (size_t i = 0, count = 0; i < FUNCTIONS; i++) {
        bool is_first = true;
        for (size_t k = 0; k < count; k++) is_first = is_first && strcmp(known[k], functions[i].name) != 0;
        if (!is_first) continue;
        known[count++] = functions[i].name;
        text_printf(&list, "%s%s", count > 1 ? ", " : "", functions[i].name);
    }
    text_add_bytes(&copy, name, length);
    const char *nearest = schema_nearest(text_string(&copy), known);
    fail(p, at, "unknown function '%.60s'%s%s%s (known: %s)", text_string(&copy), nearest ? "; did you mean '" : "",
         nearest ? nearest : "", nearest ? "'?" : "", text_string(&list));
    return 0;
}

static uint16_t composite(struct parser *p, enum composite composite, const uint16_t *x, size_t at) {
    uint16_t a = x[0];
    switch (composite) {
    case COMPOSITE_CLAMP: { /* the bound itself has the derivative 1, as torch.clamp's */
        const struct expression_node *nodes = p->out->nodes;
        bool is_known = !p->failure && is_number(p->out, x[1]) && is_number(p->out, x[2]);
        if (is_known && nodes[x[1]].value > nodes[x[2]].value)
            return fail(p, at, "clamp: low is %g, above high, which is %g; it is clamp(x, low, high)",
                        nodes[x[1]].value, nodes[x[2]].value);
        uint16_t upper = add(p, EXPRESSION_WHERE, add(p, EXPRESSION_LESS, x[2], a, 0, at), x[2], a, at);
        return add(p, EXPRESSION_WHERE, add(p, EXPRESSION_LESS, a, x[1], 0, at), x[1], upper, at);
    }
    case COMPOSITE_SILU:
        return add(p, EXPRESSION_MULTIPLY, a, add(p, EXPRESSION_SIGMOID, a, 0, 0, at), 0, at);
    case COMPOSITE_GELU: { /* x (1 + erf(x / sqrt(2))) / 2 */
        uint16_t scaled = add(p, EXPRESSION_MULTIPLY, a, number(p, sqrt(0.5), at), 0, at);
        uint16_t both = add(p, EXPRESSION_ADD, add(p, EXPRESSION_ERF, scaled, 0, 0, at), number(p, 1, at), 0, at);
        return add(p, EXPRESSION_MULTIPLY, add(p, EXPRESSION_MULTIPLY, a, number(p, 0.5, at), 0, at), both, 0, at);
    }
    case COMPOSITE_SOFTMAX: { /* exp(x - logsumexp(x)) */
        uint16_t shifted = add(p, EXPRESSION_SUBTRACT, a, add(p, EXPRESSION_LOGSUMEXP, a, 0, 0, at), 0, at);
        return add(p, EXPRESSION_EXP, shifted, 0, 0, at);
    }
    case COMPOSITE_LOG10:
        return add(p, EXPRESSION_MULTIPLY, add(p, EXPRESSION_LOG, a, 0, 0, at), number(p, 0.43429448190325182765, at),
                   0, at);
    case ONE_OP:
        break;
    }
    return a;
}

static uint16_t call(struct parser *p, const char *name, size_t length, const uint16_t *arguments, int count,
                     size_t at) {
    const struct function *other = NULL;
    for (size_t i = 0; i < FUNCTIONS; i++) {
        const struct function *f = &functions[i];
        if (!is_word(name, length, f->name)) continue;
        other = f;
        if (f->arguments != count) continue;
        bool is_of_features = expression_is_reduction(f->op);
        if (is_of_features && p->options->is_of_numbers)
            return fail(p, at, "'%s' is over the features of a row, and here each name is one number", f->name);
        if (f->composite) return composite(p, f->composite, arguments, at);
        return add(p, f->op, arguments[0], count > 1 ? arguments[1] : 0, count > 2 ? arguments[2] : 0, at);
    }
    if (!other) return unknown_function(p, name, length, at);
    return fail(p, at, "'%s' has %d argument%s, not %d", other->name, other->arguments,
                other->arguments == 1 ? "" : "s", count);
}

#define MAX_ARGUMENTS 3

/* After the opening parenthesis. */
static uint16_t parse_call(struct parser *p, const char *name, size_t length, size_t at) {
    uint16_t arguments[MAX_ARGUMENTS] = {0};
    int count = 0;
    if (!is_function(name, length)) return unknown_function(p, name, length, at);
    write_python(p, "ex.");
    if (p->python) text_add_bytes(p->python, name, length);
    write_python(p, "(");
    while (!accept(p, ")")) {
        if (count && !accept(p, ","))
            return fail(p, p->at, "expected ',' or ')' in the call of '%.*s'", (int)length, name);
        if (count == MAX_ARGUMENTS) return fail(p, p->at, "'%.*s' has too many arguments", (int)length, name);
        if (count) write_python(p, ", ");
        arguments[count++] = parse_any(p);
        if (p->failure) return 0;
    }
    write_python(p, ")");
    return call(p, name, length, arguments, count, at);
}

/* ---- the grammar ---- */

static uint16_t parse_number(struct parser *p) {
    const char *start = p->text + p->at, *c = start;
    size_t at = p->at;
    while (is_digit(*c)) c++;
    if (*c == '.') c++;
    while (is_digit(*c)) c++;
    const char *e = c;
    if (*e == 'e' || *e == 'E') {
        e++;
        if (*e == '+' || *e == '-') e++;
        if (is_digit(*e))
            for (c = e; is_digit(*c);) c++;
    }
    if (c == start + 1 && *start == '.') return fail(p, at, "expected a number, a name or '(', got '.'");
    if (is_letter(*c) || *c == '.')
        return fail(p, at, "'%.*s' is not a number; a product is written 2 * x", (int)(c - start + 1), start);
    double value = strtod(start, NULL);
    if (!isfinite(value) || fabs(value) > 3.4028234663852886e38)
        return fail(p, at, "the number is too large for float32");
    const char *digits = start; /* Python has no numbers such as 010 */
    while (digits[0] == '0' && is_digit(digits[1])) digits++;
    if (p->python) text_add_bytes(p->python, digits, (size_t)(c - digits));
    p->at += (size_t)(c - start);
    return number(p, value, at);
}

static uint16_t parse_quoted(struct parser *p) {
    size_t at = p->at++;
    const char *name = p->text + p->at, *end = strchr(name, '`');
    if (!end) return fail(p, at, "the name after ` has no closing `");
    if (end == name) return fail(p, at, "a name is empty");
    p->at += (size_t)(end - name) + 1;
    return parse_name(p, name, (size_t)(end - name), true, at);
}

/* A character that begins nothing. */
static uint16_t unexpected(struct parser *p) {
    char c = p->text[p->at];
    if (!c) return fail(p, p->at, "the expression ends where a number, a name or '(' is expected");
    if ((unsigned char)c < 0x20 || c == 0x7f) return fail(p, p->at, "a control character");
    return fail(p, p->at, "expected a number, a name or '(', got '%c'%s", c,
                c == '!'                ? "; write not"
                : c == '\'' || c == '"' ? "; texts are not available"
                                        : "");
}

static uint16_t parse_primary(struct parser *p) {
    skip_blanks(p);
    char c = p->text[p->at];
    if (is_digit(c) || c == '.') return parse_number(p);
    if (c == '`') return parse_quoted(p);
    if (accept(p, "(")) {
        write_python(p, "(");
        uint16_t node = parse_any(p);
        if (!p->failure && !accept(p, ")")) return fail(p, p->at, "expected ')'");
        write_python(p, ")");
        return node;
    }
    if (!is_letter(c)) return unexpected(p);
    size_t at = p->at, length = name_length(p->text + at);
    const char *name = p->text + at;
    if (is_word(name, length, "and") || is_word(name, length, "or") || is_word(name, length, "if"))
        return fail(p, at, "expected a number, a name or '(', got '%.*s'%s", (int)length, name,
                    *name == 'i' ? "; a choice is written where(condition, a, b)" : "");
    p->at += length;
    if (accept(p, "(")) return parse_call(p, name, length, at);
    return parse_name(p, name, length, false, at);
}

static bool enter(struct parser *p) {
    if (p->depth++ <= EXPRESSION_MAX_DEPTH) return !p->failure;
    fail(p, p->at, "more than %d operations inside each other", EXPRESSION_MAX_DEPTH);
    return false;
}

/* - and ^: -x ^ 2 is -(x ^ 2), and x ^ y ^ z is x ^ (y ^ z). */
static uint16_t parse_unary(struct parser *p) {
    uint16_t node = 0;
    if (!enter(p)) return 0;
    skip_blanks(p);
    size_t at = p->at;
    if (accept(p, "-")) {
        write_python(p, "-");
        node = add(p, EXPRESSION_NEGATE, parse_unary(p), 0, 0, at);
    } else if (accept(p, "+")) {
        node = parse_unary(p);
    } else {
        node = parse_primary(p);
        skip_blanks(p);
        at = p->at;
        if (!p->failure && (accept(p, "**") || accept(p, "^"))) {
            write_python(p, " ** ");
            uint16_t exponent = parse_unary(p);
            node = add(p, EXPRESSION_POWER, node, exponent, 0, at);
        }
    }
    p->depth--;
    return node;
}

static uint16_t parse_product(struct parser *p) {
    uint16_t node = parse_unary(p);
    while (!p->failure) {
        skip_blanks(p);
        size_t at = p->at;
        bool is_product = accept(p, "*"), is_remainder = !is_product && accept(p, "%");
        if (!is_product && !is_remainder && !accept(p, "/")) break;
        if (p->text[p->at] == '/') return fail(p, at, "'//' is not available; write floor(a / b)");
        write_python(p, is_product ? " * " : is_remainder ? " % " : " / ");
        uint16_t other = parse_unary(p);
        uint16_t result = add(p, is_product ? EXPRESSION_MULTIPLY : EXPRESSION_DIVIDE, node, other, 0, at);
        if (is_remainder) { /* a - floor(a / b) b */
            uint16_t whole = add(p, EXPRESSION_FLOOR, result, 0, 0, at);
            result = add(p, EXPRESSION_SUBTRACT, node, add(p, EXPRESSION_MULTIPLY, whole, other, 0, at), 0, at);
        }
        node = result;
    }
    return node;
}

static uint16_t parse_sum(struct parser *p) {
    uint16_t node = parse_product(p);
    while (!p->failure) {
        skip_blanks(p);
        size_t at = p->at;
        bool is_sum = accept(p, "+");
        if (!is_sum && !accept(p, "-")) break;
        write_python(p, is_sum ? " + " : " - ");
        uint16_t other = parse_product(p);
        node = add(p, is_sum ? EXPRESSION_ADD : EXPRESSION_SUBTRACT, node, other, 0, at);
    }
    return node;
}

static const struct comparison {
    const char *token;
    enum expression_op op;
    bool is_swapped;
} comparisons[] = {
    {"<=", EXPRESSION_LESS_EQUAL, false}, {">=", EXPRESSION_LESS_EQUAL, true}, {"==", EXPRESSION_EQUAL, false},
    {"!=", EXPRESSION_DIFFERENT, false},  {"<", EXPRESSION_LESS, false},       {">", EXPRESSION_LESS, true},
};

static const struct comparison *accept_comparison(struct parser *p) {
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++)
        if (accept(p, comparisons[i].token)) return &comparisons[i];
    return NULL;
}

static uint16_t parse_comparison(struct parser *p) {
    size_t start = python_at(p);
    uint16_t node = parse_sum(p);
    skip_blanks(p);
    size_t at = p->at;
    const struct comparison *c = p->failure ? NULL : accept_comparison(p);
    if (!c) return node;
    insert_python(p, start, "ex.number(");
    write_python(p, " ");
    write_python(p, c->token);
    write_python(p, " ");
    uint16_t other = parse_sum(p);
    write_python(p, ")");
    node = add(p, c->op, c->is_swapped ? other : node, c->is_swapped ? node : other, 0, at);
    skip_blanks(p);
    at = p->at;
    if (!p->failure && accept_comparison(p)) return fail(p, at, "comparisons are joined by and: (a < b) and (b < c)");
    return node;
}

static uint16_t parse_not(struct parser *p) {
    skip_blanks(p);
    size_t at = p->at;
    if (!accept(p, "not")) return parse_comparison(p);
    if (!enter(p)) return 0;
    write_python(p, "ex.neither(");
    uint16_t node = add(p, EXPRESSION_NOT, parse_not(p), 0, 0, at);
    write_python(p, ")");
    p->depth--;
    return node;
}

/* [next] joined by [word]. */
static uint16_t parse_joined(struct parser *p, const char *word, enum expression_op op, const char *python,
                             uint16_t (*next)(struct parser *p)) {
    size_t start = python_at(p);
    uint16_t node = next(p);
    while (!p->failure) {
        skip_blanks(p);
        size_t at = p->at;
        if (!accept(p, word)) break;
        insert_python(p, start, python);
        write_python(p, ", ");
        uint16_t other = next(p);
        write_python(p, ")");
        node = add(p, op, node, other, 0, at);
    }
    return node;
}

static uint16_t parse_and(struct parser *p) { return parse_joined(p, "and", EXPRESSION_AND, "ex.both(", parse_not); }

static uint16_t parse_any(struct parser *p) { return parse_joined(p, "or", EXPRESSION_OR, "ex.either(", parse_and); }

/* What follows a complete expression. */
static void reject_rest(struct parser *p) {
    const char *rest = p->text + p->at;
    if (rest[0] == '=')
        fail(p, p->at, "'=' compares as '=='");
    else if (rest[0] == '&' || rest[0] == '|')
        fail(p, p->at, "'%c' is written '%s'", rest[0], rest[0] == '&' ? "and" : "or");
    else if (rest[0] == ')')
        fail(p, p->at, "')' without '('");
    else if (is_letter(rest[0]) || is_digit(rest[0]) || rest[0] == '(' || rest[0] == '`')
        fail(p, p->at, "expected an operator, such as *, before '%.*s'",
             is_letter(rest[0]) ? (int)name_length(rest) : 1, rest);
    else if ((unsigned char)rest[0] < 0x20 || rest[0] == 0x7f)
        fail(p, p->at, "a control character");
    else
        fail(p, p->at, "expected an operator, got '%c'", rest[0]);
}

/* Removes the nodes that the result does not need: operands of what was computed while the formula was read. */
static void remove_unused(struct expression *e) {
    uint16_t moved[EXPRESSION_MAX_NODES];
    bool is_used[EXPRESSION_MAX_NODES] = {0};
    size_t count = 0;
    is_used[e->value] = true;
    for (size_t i = e->count; i-- > 0;)
        for (int k = 0; is_used[i] && k < expression_operands(e->nodes[i].op); k++)
            is_used[e->nodes[i].operands[k]] = true;
    for (size_t i = 0; i < e->count; i++) {
        if (!is_used[i]) continue;
        struct expression_node *n = &e->nodes[count];
        *n = e->nodes[i];
        for (int k = 0; k < expression_operands(n->op); k++) n->operands[k] = moved[n->operands[k]];
        moved[i] = (uint16_t)count++;
    }
    e->value = moved[e->value];
    e->count = count;
}

status expression_parse(const char *text, const struct expression_options *options, struct expression *out, size_t *at,
                        struct text *python) {
    struct parser p = {.text = text, .options = options, .out = out, .python = python};
    out->text = text;
    out->count = out->own = out->name_count = 0;
    *at = 0;
    if (strlen(text) > EXPRESSION_MAX_TEXT)
        return status_usage("the expression has more than %d bytes", EXPRESSION_MAX_TEXT);
    skip_blanks(&p);
    if (!text[p.at]) return status_usage("the expression is empty");
    out->value = parse_any(&p);
    skip_blanks(&p);
    if (!p.failure && text[p.at]) reject_rest(&p);
    if (!p.failure) remove_unused(out);
    out->own = out->count;
    if (!p.failure && python) insert_variables(&p);
    *at = p.failed_at;
    return p.failure;
}

bool expression_bind(const struct node *value, const char *path, const struct expression_options *options,
                     struct expression *out, struct problems *problems) {
    size_t at;
    status s = expression_parse(value->text, options, out, &at, NULL);
    if (!s) return true;
    struct place place = value->place;
    if (place.column) place.column += (int)at + value->is_quoted;
    problems_add(problems, place, path, "%s (character %zu of the expression)", status_message(s), at + 1);
    status_free(s);
    return false;
}

/* ---- derivatives ---- */

struct derivation {
    struct expression *e;
    uint16_t adjoint[EXPRESSION_MAX_NODES]; /* of each node: EXPRESSION_NONE: 0 */
    bool depends[EXPRESSION_MAX_NODES];     /* on a variable that is asked for */
    size_t at;
    bool is_full;
};

static uint16_t make(struct derivation *d, enum expression_op op, uint16_t a, uint16_t b, uint16_t c) {
    if (d->is_full) return 0;
    uint16_t node = expression_add(d->e, op, a, b, c, d->at);
    if (node != EXPRESSION_NONE) return node;
    d->is_full = true;
    return 0;
}

static uint16_t constant(struct derivation *d, double value) {
    uint16_t node = d->is_full ? 0 : add_number(d->e, value, d->at);
    if (node != EXPRESSION_NONE) return node;
    d->is_full = true;
    return 0;
}

/* A constant factor is joined with that of the other factor. */
static uint16_t times(struct derivation *d, uint16_t a, uint16_t b) {
    const struct expression_node *n = &d->e->nodes[a];
    if (has_value(d->e, a, 1)) return b;
    if (has_value(d->e, b, 1)) return a;
    if (is_number(d->e, a) && !is_number(d->e, b)) return times(d, b, a);
    if (is_number(d->e, b) && n->op == EXPRESSION_MULTIPLY && is_number(d->e, n->operands[1])) {
        uint16_t rest = n->operands[0];
        return times(d, rest, make(d, EXPRESSION_MULTIPLY, n->operands[1], b, 0));
    }
    return make(d, EXPRESSION_MULTIPLY, a, b, 0);
}
static uint16_t over(struct derivation *d, uint16_t a, uint16_t b) { return make(d, EXPRESSION_DIVIDE, a, b, 0); }
static uint16_t minus(struct derivation *d, uint16_t a) { return make(d, EXPRESSION_NEGATE, a, 0, 0); }

/* Adds [g], of the kind of node [user], to the adjoint of its operand [node]. */
static void pass_to(struct derivation *d, uint16_t node, uint16_t g, bool has_other_kind) {
    if (!d->depends[node]) return;
    if (has_other_kind) g = make(d, EXPRESSION_SUM_LIKE, g, node, 0);
    d->adjoint[node] = d->adjoint[node] == EXPRESSION_NONE ? g : make(d, EXPRESSION_ADD, d->adjoint[node], g, 0);
}

/* g where a is chosen, half of it where both are equal, as torch.maximum's: [is_a] is the comparison that chooses a. */
static uint16_t of_choice(struct derivation *d, uint16_t is_first, uint16_t is_equal, uint16_t g) {
    uint16_t half = times(d, g, constant(d, 0.5)), zero = constant(d, 0);
    return make(d, EXPRESSION_WHERE, is_equal, half, make(d, EXPRESSION_WHERE, is_first, g, zero));
}

/* d(a ^ b) = b a^(b - 1) da + a^b log(a) db, where 0 a^-1 is 0, and 0^b log(0) is 0 for b >= 0, as torch.pow's */
static void derive_power(struct derivation *d, uint16_t y, uint16_t a, uint16_t b, uint16_t g) {
    if (d->depends[a] && !has_value(d->e, b, 0)) {
        uint16_t less = make(d, EXPRESSION_SUBTRACT, b, constant(d, 1), 0);
        uint16_t power = has_value(d->e, less, 1) ? a : make(d, EXPRESSION_POWER, a, less, 0);
        uint16_t slope = times(d, g, has_value(d->e, b, 1) ? constant(d, 1) : times(d, b, power)),
                 zero = constant(d, 0);
        if (!is_number(d->e, b)) slope = make(d, EXPRESSION_WHERE, make(d, EXPRESSION_EQUAL, b, zero, 0), zero, slope);
        pass_to(d, a, slope, true);
    }
    if (!d->depends[b]) return;
    uint16_t zero = constant(d, 0), is_zero = make(d, EXPRESSION_EQUAL, a, zero, 0);
    uint16_t slope = times(d, y, make(d, EXPRESSION_LOG, a, 0, 0));
    uint16_t has_none = make(d, EXPRESSION_AND, is_zero, make(d, EXPRESSION_LESS_EQUAL, zero, b, 0), 0);
    pass_to(d, b, times(d, g, make(d, EXPRESSION_WHERE, has_none, zero, slope)), true);
}

static void derive_two(struct derivation *d, uint16_t y, const struct expression_node *n, uint16_t g) {
    uint16_t a = n->operands[0], b = n->operands[1];
    switch (n->op) {
    case EXPRESSION_ADD:
        pass_to(d, a, g, true);
        pass_to(d, b, g, true);
        break;
    case EXPRESSION_SUBTRACT:
        pass_to(d, a, g, true);
        if (d->depends[b]) pass_to(d, b, minus(d, g), true);
        break;
    case EXPRESSION_MULTIPLY:
        if (d->depends[a]) pass_to(d, a, times(d, g, b), true);
        if (d->depends[b]) pass_to(d, b, times(d, g, a), true);
        break;
    case EXPRESSION_DIVIDE: /* g / b, -g y / b */
        if (d->depends[a]) pass_to(d, a, over(d, g, b), true);
        if (d->depends[b]) pass_to(d, b, minus(d, over(d, times(d, g, y), b)), true);
        break;
    case EXPRESSION_POWER:
        derive_power(d, y, a, b, g);
        break;
    case EXPRESSION_SMALLER:
    case EXPRESSION_LARGER: {
        bool is_smaller = n->op == EXPRESSION_SMALLER;
        uint16_t is_equal = make(d, EXPRESSION_EQUAL, a, b, 0);
        uint16_t is_less = make(d, EXPRESSION_LESS, a, b, 0), is_more = make(d, EXPRESSION_LESS, b, a, 0);
        if (d->depends[a]) pass_to(d, a, of_choice(d, is_smaller ? is_less : is_more, is_equal, g), true);
        if (d->depends[b]) pass_to(d, b, of_choice(d, is_smaller ? is_more : is_less, is_equal, g), true);
        break;
    }
    case EXPRESSION_WHERE: {
        uint16_t zero = constant(d, 0);
        if (d->depends[b]) pass_to(d, b, make(d, EXPRESSION_WHERE, a, g, zero), true);
        if (d->depends[n->operands[2]]) pass_to(d, n->operands[2], make(d, EXPRESSION_WHERE, a, zero, g), true);
        break;
    }
    default: /* comparisons and logic have no derivative */
        break;
    }
}

/* The derivative of a function of one operand [a] with the value [y]; EXPRESSION_NONE: 0. */
static uint16_t slope_of(struct derivation *d, enum expression_op op, uint16_t a, uint16_t y) {
    uint16_t one = constant(d, 1);
    switch (op) {
    case EXPRESSION_NEGATE:
        return constant(d, -1);
    case EXPRESSION_ABS:
        return make(d, EXPRESSION_SIGN, a, 0, 0);
    case EXPRESSION_SQRT:
        return over(d, constant(d, 0.5), y);
    case EXPRESSION_EXP:
        return y;
    case EXPRESSION_EXPM1:
        return make(d, EXPRESSION_ADD, y, one, 0);
    case EXPRESSION_LOG:
        return over(d, one, a);
    case EXPRESSION_LOG1P:
        return over(d, one, make(d, EXPRESSION_ADD, a, one, 0));
    case EXPRESSION_SIN:
        return make(d, EXPRESSION_COS, a, 0, 0);
    case EXPRESSION_COS:
        return minus(d, make(d, EXPRESSION_SIN, a, 0, 0));
    case EXPRESSION_TANH:
        return make(d, EXPRESSION_SUBTRACT, one, times(d, y, y), 0);
    case EXPRESSION_ERF: /* 2 / sqrt(pi) exp(-x^2) */
        return times(d, constant(d, 1.12837916709551257390), make(d, EXPRESSION_EXP, minus(d, times(d, a, a)), 0, 0));
    case EXPRESSION_SIGMOID:
        return times(d, y, make(d, EXPRESSION_SUBTRACT, one, y, 0));
    case EXPRESSION_SOFTPLUS:
        return make(d, EXPRESSION_SIGMOID, a, 0, 0);
    case EXPRESSION_RELU:
        return make(d, EXPRESSION_LESS, constant(d, 0), a, 0);
    default:
        return EXPRESSION_NONE;
    }
}

static void derive_reduction(struct derivation *d, uint16_t y, enum expression_op op, uint16_t a, uint16_t g) {
    uint16_t wide = make(d, EXPRESSION_EXPAND_LIKE, g, a, 0);
    uint16_t zero = constant(d, 0);
    switch (op) {
    case EXPRESSION_SUM:
        pass_to(d, a, wide, false);
        break;
    case EXPRESSION_MEAN:
        pass_to(d, a, make(d, EXPRESSION_EXPAND_LIKE, over(d, g, make(d, EXPRESSION_COUNT, a, 0, 0)), a, 0), false);
        break;
    case EXPRESSION_LARGEST:
    case EXPRESSION_SMALLEST: { /* equal ones share it, as torch.amax's */
        uint16_t is_it = make(d, EXPRESSION_EQUAL, a, y, 0), share = over(d, g, make(d, EXPRESSION_SUM, is_it, 0, 0));
        pass_to(d, a, make(d, EXPRESSION_WHERE, is_it, make(d, EXPRESSION_EXPAND_LIKE, share, a, 0), zero), false);
        break;
    }
    case EXPRESSION_LOGSUMEXP:
        pass_to(d, a, times(d, wide, make(d, EXPRESSION_EXP, make(d, EXPRESSION_SUBTRACT, a, y, 0), 0, 0)), false);
        break;
    default: { /* the norm: x / norm, 0 at 0 */
        uint16_t is_zero = make(d, EXPRESSION_EQUAL, y, zero, 0);
        uint16_t share = make(d, EXPRESSION_WHERE, is_zero, zero, over(d, g, y));
        pass_to(d, a, times(d, make(d, EXPRESSION_EXPAND_LIKE, share, a, 0), a), false);
    }
    }
}

static void derive(struct derivation *d, uint16_t i) {
    const struct expression_node n = d->e->nodes[i];
    uint16_t g = d->adjoint[i];
    d->at = n.at;
    if (expression_operands(n.op) == 0) return;
    if (expression_is_reduction(n.op)) {
        derive_reduction(d, i, n.op, n.operands[0], g);
    } else if (expression_operands(n.op) > 1) {
        derive_two(d, i, &n, g);
    } else {
        uint16_t slope = slope_of(d, n.op, n.operands[0], i);
        if (slope == EXPRESSION_NONE) return;
        if (n.op == EXPRESSION_RELU) /* chosen, not multiplied: g may be infinite where the slope is 0 */
            slope = make(d, EXPRESSION_WHERE, slope, g, constant(d, 0));
        else
            slope = n.op == EXPRESSION_NEGATE ? minus(d, g) : times(d, g, slope);
        pass_to(d, n.operands[0], slope, false);
    }
}

static bool is_among(uint16_t index, const uint16_t *by, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (by[i] == index) return true;
    return false;
}

status expression_differentiate(struct expression *e, uint16_t value, uint16_t seed, const uint16_t *by, size_t count,
                                uint16_t *derivatives) {
    static const enum expression_op flat[] = {EXPRESSION_DETACH, EXPRESSION_FLOOR, EXPRESSION_ROUND, EXPRESSION_SIGN,
                                              EXPRESSION_COUNT};
    struct derivation d = {.e = e};
    for (size_t i = 0; i < EXPRESSION_MAX_NODES; i++) d.adjoint[i] = EXPRESSION_NONE;
    for (size_t i = 0; i <= value; i++) {
        const struct expression_node *n = &e->nodes[i];
        bool is_flat = false;
        for (size_t k = 0; k < sizeof flat / sizeof *flat; k++) is_flat = is_flat || n->op == flat[k];
        if (n->op == EXPRESSION_VARIABLE) d.depends[i] = is_among(n->operands[0], by, count);
        for (int k = 0; !is_flat && k < expression_operands(n->op); k++)
            d.depends[i] = d.depends[i] || d.depends[n->operands[k]];
    }
    if (d.depends[value]) d.adjoint[value] = seed;
    for (size_t i = value + 1u; i-- > 0;)
        if (d.depends[i] && d.adjoint[i] != EXPRESSION_NONE && !d.is_full) derive(&d, (uint16_t)i);
    if (d.is_full) return status_usage("the expression has too many operations for its derivative");
    for (size_t k = 0; k < count; k++) {
        derivatives[k] = EXPRESSION_NONE;
        for (size_t i = 0; i <= value; i++)
            if (e->nodes[i].op == EXPRESSION_VARIABLE && e->nodes[i].operands[0] == by[k])
                derivatives[k] = d.adjoint[i];
    }
    return OK;
}
