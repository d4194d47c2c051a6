/* Formulas of the config: what they mean, their errors with places, their derivatives. ctest-labels: unit */
#include "base/expression/expression.h"

#include <math.h>
#include <stdio.h>

#include "check_main.h"

static const char *const names[] = {"x", "y", "z", NULL};
static const struct expression_options options = {.names = names}, numbers = {.names = names, .is_of_numbers = true};

static struct expression parsed(const char *text) {
    struct expression e;
    size_t at;
    status s = expression_parse(text, &options, &e, &at, NULL);
    ck_assert_msg(!s, "%s: %s", text, status_message(s));
    return e;
}

static double value_of(const char *text, double x, double y) {
    struct expression e = parsed(text);
    return expression_evaluate(&e, (const double[]){x, y, 0});
}

static const struct {
    const char *text;
    double x, y, value;
} values[] = {
    {"1 + 2 * 3", 0, 0, 7},
    {"x - y - 1", 10, 3, 6},
    {"x / y / 2", 12, 3, 2},
    {"-x ^ 2", 3, 0, -9},
    {"x ** 2 ^ y", 2, 3, 256}, /* from the right */
    {"2 ^ -1", 0, 0, 0.5},
    {"x ^ 1.5", 4, 0, 8},
    {"x ^ 3", -2, 0, -8},
    {"x ^ -2", 2, 0, 0.25},
    {"x ^ 0", 0, 0, 1},
    {"pow(x, 0.3)", 2, 0, 1.2311444133449163},
    {"- - x", 2, 0, 2},
    {"+x", 2, 0, 2},
    {"1e3 + .5 + 1.", 0, 0, 1001.5},
    {"x < y", 1, 2, 1},
    {"x > y", 1, 2, 0},
    {"x <= 1", 1, 0, 1},
    {"x >= 2", 1, 0, 0},
    {"x == 1 and y != 1", 1, 2, 1},
    {"x == 2 or y == 2", 1, 2, 1},
    {"not x", 0, 0, 1},
    {"not x == 0", 0, 0, 0},
    {"x < 1 or y and 0", 2, 1, 0},
    {"where(x > 0, y, -y)", -1, 5, -5},
    {"clamp(x, -1, 1)", 3, 0, 1},
    {"clamp(x, -1, 1)", -3, 0, -1},
    {"min(x, y) + 10 * max(x, y)", 1, 2, 21},
    {"abs(x) + sign(x)", -3, 0, 2},
    {"floor(x) + 100 * round(y)", -1.5, 2.5, 198},
    {"x % y + 100 * (12 % 4)", -7, 3, 2},
    {"2 * x % 3", 5, 0, 1},
    {"sqrt(x) * exp(y)", 4, 1, 5.43656365691809},
    {"log(x) + log1p(y) + log10(1000)", 2, 1e-10, 3.6931471806599453},
    {"expm1(x)", 1e-10, 0, 1.00000000005e-10},
    {"sin(x) + cos(y)", 1, 2, 0.4253241482607541},
    {"tanh(x) + erf(y)", 0.5, 0.5, 0.9826170350728225},
    {"sigmoid(x) + softplus(y)", 1, 1, 2.0443202661482276},
    {"relu(x) + silu(y) + gelu(y)", -1, 2, 3.716093892059396},
    {"pi", 0, 0, 3.141592653589793},
    {"`x` + `y`", 1, 2, 3},
    {"sum(x) + mean(x) + max(x) + min(x) + logsumexp(x)", 2, 0, 10}, /* of one number */
    {"norm(x) + softmax(y) + index", -3, 1, 4},
    {"detach(x)", 3, 0, 3},
    {" x\n+\ty ", 1, 2, 3},
    {"(x)", 4, 0, 4},
    {"x / 0", 1, 0, INFINITY},
    {"log(0)", 0, 0, -INFINITY},
};

TEST_EACH(values_of_formulas, values) {
    double value = value_of(values[_i].text, values[_i].x, values[_i].y);
    bool is_equal = value == values[_i].value || fabs(value - values[_i].value) <= 1e-11 * fabs(values[_i].value);
    ck_assert_msg(is_equal, "%s: %.17g", values[_i].text, value);
}

TEST(not_a_number) {
    ck_assert(isnan(value_of("log(x)", -1, 0)));
    ck_assert(isnan(value_of("x ^ y", -2, 0.5)));
    ck_assert(isnan(value_of("max(x, y)", NAN, 1)) && isnan(value_of("max(x, y)", 1, NAN)));
    ck_assert(isnan(value_of("x + 1", NAN, 0)) && isnan(value_of("exp(x)", NAN, 0)));
}

static const struct {
    const char *text;
    size_t at;
    const char *message;
} errors[] = {
    {"", 0, "the expression is empty"},
    {"  ", 0, "the expression is empty"},
    {"x +", 3, "ends where a number, a name or '(' is expected"},
    {"x + )", 4, "expected a number, a name or '(', got ')'"},
    {"(x", 2, "expected ')'"},
    {"x)", 1, "')' without '('"},
    {"x y", 2, "expected an operator, such as *, before 'y'"},
    {"2x", 0, "'2x' is not a number; a product is written 2 * x"},
    {"x (y)", 0, "unknown function 'x'"},
    {"clamp(x, 1, -1)", 0, "clamp: low is 1, above high, which is -1; it is clamp(x, low, high)"},
    {"clamp(x, 2 * 3, 5)", 0, "clamp: low is 6, above high, which is 5"},
    {"1.2.3", 0, "'1.2.' is not a number"},
    {"1e999", 0, "the number is too large for float32"},
    {"4e38", 0, "the number is too large for float32"},
    {"x = y", 2, "'=' compares as '=='"},
    {"x & y", 2, "'&' is written 'and'"},
    {"x || y", 2, "'|' is written 'or'"},
    {"!x", 0, "got '!'; write not"},
    {"x // y", 2, "'//' is not available; write floor(a / b)"},
    {"x $ y", 2, "expected an operator, got '$'"},
    {"0 < x < 1", 6, "comparisons are joined by and: (a < b) and (b < c)"},
    {"x if y", 2, "expected an operator, such as *, before 'if'"},
    {"if x", 0, "a choice is written where(condition, a, b)"},
    {"and x", 0, "got 'and'"},
    {"'x'", 0, "texts are not available"},
    {"xx + 1", 0, "unknown name 'xx'; did you mean 'x'? (known: x, y, z)"},
    {"sqrt + 1", 0, "unknown name 'sqrt'; the function is written sqrt(...)"},
    {"sqr(x)", 0, "unknown function 'sqr'; did you mean 'sqrt'?"},
    {"1 + sqrt()", 4, "'sqrt' has 1 argument, not 0"},
    {"where(x, y)", 0, "'where' has 3 arguments, not 2"},
    {"where(x, y, z, x)", 14, "'where' has too many arguments"},
    {"max(x y)", 6, "expected ',' or ')' in the call of 'max'"},
    {"`x", 0, "the name after ` has no closing `"},
    {"``", 0, "a name is empty"},
    {"`a b`", 0, "unknown name 'a b'"},
    {"x\x01", 1, "a control character"},
    {"x + .", 4, "expected a number, a name or '(', got '.'"},
};

TEST_EACH(errors_with_places, errors) {
    struct expression e;
    size_t at;
    status s = expression_parse(errors[_i].text, &options, &e, &at, NULL);
    ck_assert_msg(s != OK, "%s", errors[_i].text);
    ck_assert_msg(strstr(status_message(s), errors[_i].message) != NULL, "%s: %s", errors[_i].text, status_message(s));
    ck_assert_msg(at == errors[_i].at, "%s: at %zu", errors[_i].text, at);
    status_free(s);
}

static void expect_failure(const char *text, const struct expression_options *o, const char *message) {
    struct expression e;
    size_t at;
    status s = expression_parse(text, o, &e, &at, NULL);
    ck_assert_msg(s && strstr(status_message(s), message), "%.40s: %s", text, status_message(s));
    status_free(s);
}

/* [before], [count] times [part], [after] */
static char *repeated(const char *before, const char *part, size_t count, const char *after) {
    size_t length = strlen(part);
    char *text = malloc(strlen(before) + count * length + strlen(after) + 1), *to = text;
    to += sprintf(to, "%s", before);
    for (size_t i = 0; i < count; i++, to += length) memcpy(to, part, length);
    sprintf(to, "%s", after);
    return text;
}

TEST(limits) {
    static const struct {
        const char *before, *part;
        size_t count;
        const char *after, *message;
    } cases[] = {
        {"", "(", 100, "x", "expected ')'"},
        {"", "(", 101, "x", "more than 100 operations inside each other"},
        {"", "(", 200, "x", "more than 100 operations inside each other"},
        {"", "-", 4000, "x", "more than 100 operations inside each other"},
        {"", "not ", 400, "x", "more than 100 operations inside each other"},
        {"x", "^x", 400, "", "more than 100 operations inside each other"},
        {"x", " ", 5000, "", "more than 4096 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SCOPED_MEMORY char *text = repeated(cases[i].before, cases[i].part, cases[i].count, cases[i].after);
        expect_failure(text, &options, cases[i].message);
    }
    SCOPED_TEXT long_sum = {0}, many = {0};
    for (int i = 0; i < 300; i++) text_printf(&long_sum, "%sx*%d", i ? "+" : "", i + 2);
    expect_failure(text_string(&long_sum), &options, "more than 256 operations");
    for (int i = 0; i < 65; i++) text_printf(&many, "%sa%d", i ? "+" : "", i);
    expect_failure(text_string(&many), &(struct expression_options){0}, "more than 64 different names");
}

TEST(of_numbers_without_reductions) {
    expect_failure("mean(x)", &numbers, "'mean' is over the features of a row");
    expect_failure("softmax(x)", &numbers, "'softmax' is over the features");
    expect_failure("index", &numbers, "unknown name 'index'");
}

TEST(names_that_occur) {
    struct expression e;
    char name[EXPRESSION_MAX_TEXT];
    size_t at;
    status s = expression_parse("`Age (years)` * weight + mean * gr\xc3\xb6\xc3\x9f"
                                "e + weight",
                                &(struct expression_options){.is_of_numbers = true}, &e, &at, NULL);
    ck_assert(!s);
    static const char *const expected[] = {"Age (years)", "weight", "mean",
                                           ("gr\xc3\xb6\xc3\x9f"
                                            "e")};
    ck_assert_uint_eq(e.name_count, 4);
    for (size_t i = 0; i < 4; i++) {
        expression_name(&e, i, name);
        ck_assert_str_eq(name, expected[i]);
    }
    ck_assert(expression_evaluate(&e, (const double[]){2, 3, 4, 5}) == 2 * 3 + 4 * 5 + 3);
}

TEST(equal_operations_are_one) {
    struct expression e = parsed("exp(x) * exp(x) + exp(x)");
    ck_assert_uint_eq(e.count, 4); /* x, exp, *, + */
    ck_assert_uint_eq(parsed("2 * 3 + 4").count, 1);
    ck_assert(expression_has_features(&(struct expression[]){parsed("mean(x)")}[0]));
}

/* Every function with a derivative, away from where it has none. */
static const char *const derived[] = {
    "x + y",
    "x - y",
    "x * y",
    "x / y",
    "x ^ 2",
    "x ^ 1.5",
    "x ^ -1",
    "x ^ 0.3",
    "x ^ y",
    "2 ^ x",
    "min(x, y)",
    "max(x, y)",
    "where(x > 0.1, x * y, y)",
    "-x",
    "abs(x - y)",
    "sqrt(x)",
    "exp(x)",
    "expm1(x)",
    "log(x)",
    "log1p(x)",
    "log10(x)",
    "sin(x)",
    "cos(x)",
    "tanh(x)",
    "erf(x)",
    "sigmoid(x)",
    "softplus(x)",
    "relu(x)",
    "relu(-x)",
    "silu(x)",
    "gelu(x)",
    "clamp(x, 0, 0.5) * y",
    "clamp(x, 0, 2) * y",
    "floor(x) * x",
    "x % 0.75 * y",
    "round(x) * x",
    "sign(x) * x",
    "(x < y) * x",
    "(x == y) + x",
    "not x + x",
    "(x and y) * x",
    "sum(x * y)",
    "mean(x * y)",
    "max(x) * y",
    "min(x) * y",
    "logsumexp(x * y)",
    "softmax(x) + x",
    "norm(x * y)",
    "x * detach(y) * y",
    "exp(sin(x * y) / (1 + x ^ 2)) ^ 2",
};

/* The derivative by variable [by], as a formula of its own. */
static double slope(const char *text, uint16_t by, double x, double y) {
    struct expression e = parsed(text);
    uint16_t derivative, seed = expression_variable(&e, 2);
    status s = expression_differentiate(&e, e.value, seed, &by, 1, &derivative);
    ck_assert_msg(!s, "%s: %s", text, status_message(s));
    if (derivative == EXPRESSION_NONE) return 0;
    ck_assert_uint_le(e.count, EXPRESSION_MAX_OPERATIONS);
    e.own = e.count;
    e.value = derivative;
    return expression_evaluate(&e, (const double[]){x, y, 1});
}

TEST_EACH(derivatives, derived) {
    const double x = 0.7, y = 1.3, h = 1e-5;
    const char *text = derived[_i];
    bool has_detach = strstr(text, "detach") != NULL;
    double by_x = (value_of(text, x + h, y) - value_of(text, x - h, y)) / (2 * h);
    double by_y = has_detach ? x * y : (value_of(text, x, y + h) - value_of(text, x, y - h)) / (2 * h);
    ck_assert_msg(fabs(slope(text, 0, x, y) - by_x) < 1e-6, "%s by x: %g, %g", text, slope(text, 0, x, y), by_x);
    ck_assert_msg(fabs(slope(text, 1, x, y) - by_y) < 1e-6, "%s by y: %g, %g", text, slope(text, 1, x, y), by_y);
}

/* PyTorch's values where a function has a corner, and no NaN where the result has none. */
TEST(derivatives_at_corners) {
    ck_assert(slope("abs(x)", 0, 0, 0) == 0 && slope("relu(x)", 0, 0, 0) == 0);
    ck_assert(slope("max(x, y)", 0, 2, 2) == 0.5 && slope("min(x, y)", 1, 2, 2) == 0.5);
    ck_assert(slope("clamp(x, 0, 1)", 0, 1, 0) == 1 && slope("clamp(x, 0, 1)", 0, 0, 0) == 1);
    ck_assert(slope("abs(x) ^ 1.5", 0, 0, 0) == 0 && slope("x ^ 2", 0, 0, 0) == 0 && slope("norm(x)", 0, 0, 0) == 0);
    ck_assert(slope("x ^ y", 1, 0, 2) == 0 && slope("x ^ 1", 0, 0, 0) == 1);
}

TEST(python) {
    static const struct {
        const char *text, *python;
    } cases[] = {
        {"mean(x * abs(y - z) ^ 1.5)", "ex.mean(X * ex.abs(Y - Z) ** 1.5)"},
        {"x < 1 and not y or z", "ex.either(ex.both(ex.number(X < 1), ex.neither(Y)), Z)"},
        {"-(`x` + pi) / 2e3", "-(X + math.pi) / 2e3"},
        {"index * (x >= y)", "ex.index(X, Y) * (ex.number(X >= Y))"},
        {"y + index + index", "Y + ex.index(Y) + ex.index(Y)"},
        {"index", "ex.index(X)"},
        {"x * 010 + 000.5 + 0", "X * 10 + 0.5 + 0"},
    };
    static const char *const in_python[] = {"X", "Y", "Z", NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SCOPED_TEXT out = {0};
        struct expression e;
        size_t at;
        status s = expression_parse(cases[i].text, &(struct expression_options){.names = names, .python = in_python},
                                    &e, &at, &out);
        ck_assert(!s);
        ck_assert_str_eq(text_string(&out), cases[i].python);
    }
}

CHECK_MAIN("expression")
