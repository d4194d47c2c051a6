/* A recursive descent parser, whose operators become a tree, and its evaluation. */
#include "data/source/row_filter.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/csv/csv.h"

#define MAX_DEPTH 64
#define MAX_NODES 4096 /* also of the names and values of lists */

enum kind { NODE_OR, NODE_AND, NODE_NOT, NODE_COMPARE, NODE_IN, NODE_MISSING };
enum operator{ EQUAL, NOT_EQUAL, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL };

struct operand {
    bool is_column, is_number;
    size_t column;
    const char *text; /* of a number or a value in quotes */
    double number;
};

struct filter_node {
    enum kind kind;
    enum operator operation;
    struct filter_node *left, *right; /* NODE_OR, NODE_AND; NODE_NOT: left */
    struct operand a, b;              /* NODE_COMPARE; NODE_IN, NODE_MISSING: a */
    struct operand *values;           /* (value_count): of NODE_IN, in the order of compare_values */
    size_t value_count;
};

/* ---- words ---- */

enum token_kind { TOKEN_END, TOKEN_NAME, TOKEN_COLUMN, TOKEN_TEXT, TOKEN_NUMBER, TOKEN_SIGN };

struct parser {
    const char *text, *at; /* at: behind the current token */
    struct arena *arena;
    struct row_filter *filter;
    enum token_kind kind; /* of the current token, which starts at [start] */
    const char *start;
    const char *word; /* a name, a text without its quotes, or a sign */
    double number;
    int depth;
    size_t nodes;
};

/* The position of a byte, counted in characters from 1. */
static size_t position_of(const struct parser *p, const char *at) {
    size_t count = 1;
    for (const char *c = p->text; c < at; c++) count += (*c & 0xc0) != 0x80;
    return count;
}

/* "character 6: expected <what>, not 'x'" */
static status unexpected(const struct parser *p, const char *what) {
    return p->kind == TOKEN_END
               ? status_usage("character %zu: expected %s, but this is the end", position_of(p, p->start), what)
               : status_usage("character %zu: expected %s, not '%s'", position_of(p, p->start), what,
                              text_name(arena_printf(p->arena, "%.*s", (int)(p->at - p->start), p->start)).s);
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* A text in quotes, or a name in backticks; a quote is written twice inside. */
static status read_quoted(struct parser *p) {
    char quote = *p->at++;
    char *out = arena_alloc(p->arena, strlen(p->at) + 1);
    p->kind = quote == '`' ? TOKEN_COLUMN : TOKEN_TEXT;
    p->word = out;
    for (; *p->at; p->at++) {
        if (*p->at == quote && p->at[1] != quote) {
            *out = 0;
            p->at++;
            return OK;
        }
        if (*p->at == quote || *p->at == '\\') p->filter->has_escapes = true;
        if (*p->at == quote) p->at++;
        *out++ = *p->at;
    }
    return status_usage("character %zu: the closing %c is missing", position_of(p, p->start), quote);
}

static status read_number(struct parser *p) {
    p->at += *p->at == '-' || *p->at == '+';
    while (is_digit(*p->at) || is_letter(*p->at) || *p->at == '.' ||
           (strchr("+-", *p->at) && *p->at && strchr("eE", p->at[-1])))
        p->at++;
    p->kind = TOKEN_NUMBER;
    p->word = arena_printf(p->arena, "%.*s", (int)(p->at - p->start), p->start);
    return csv_number(p->word, &p->number) ? OK : unexpected(p, "a number");
}

static status next(struct parser *p) {
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">", "(", ")", "[", "]", ","};
    while (*p->at && strchr(" \t\r\n", *p->at)) p->at++;
    p->start = p->at;
    p->kind = TOKEN_END;
    if (*p->at == 0) return OK;
    if (strchr("'\"`", *p->at)) return read_quoted(p);
    bool has_sign = *p->at == '-' || *p->at == '+' || *p->at == '.';
    if (is_digit(*p->at) || (has_sign && (is_digit(p->at[1]) || p->at[1] == '.'))) return read_number(p);
    if (is_letter(*p->at)) {
        while (is_letter(*p->at) || is_digit(*p->at) || *p->at == '.') p->at++;
        p->kind = TOKEN_NAME;
        p->word = arena_printf(p->arena, "%.*s", (int)(p->at - p->start), p->start);
        return OK;
    }
    p->kind = TOKEN_SIGN;
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (strncmp(p->at, signs[i], strlen(signs[i])) == 0) {
            p->word = signs[i];
            p->at += strlen(signs[i]);
            return OK;
        }
    p->at++;
    return unexpected(
        p,
        *p->start == '='   ? "== to compare"
        : *p->start == '&' ? "and"
        : *p->start == '|' ? "or"
        : strchr("~!", *p->start)
            ? "not"
            : "a column, a number or a text in quotes (columns with other characters are written in backticks: `a b`)");
}

/* Whether the current token is this word or sign. */
static bool is(const struct parser *p, const char *word) {
    return (p->kind == TOKEN_NAME || p->kind == TOKEN_SIGN) && strcmp(p->word, word) == 0;
}

static bool is_keyword(const struct parser *p) {
    return is(p, "and") || is(p, "or") || is(p, "not") || is(p, "in") || is(p, "is") || is(p, "missing");
}

static status expect(struct parser *p, const char *word, const char *what) {
    return is(p, word) ? next(p) : unexpected(p, what);
}

/* ---- grammar ---- */

static status count_node(struct parser *p) {
    if (++p->nodes <= MAX_NODES) return OK;
    return status_usage("character %zu: there are more than %d comparisons and values", position_of(p, p->start),
                        MAX_NODES);
}

static status new_node(struct parser *p, enum kind kind, struct filter_node **out) {
    TRY(count_node(p));
    *out = arena_alloc(p->arena, sizeof **out);
    (*out)->kind = kind;
    return OK;
}

static size_t column_of(struct parser *p, const char *name) {
    struct row_filter *filter = p->filter;
    size_t i = 0;
    while (i < filter->column_count && strcmp(filter->columns[i], name) != 0) i++;
    if (i == filter->column_count) filter->columns[filter->column_count++] = name;
    return i;
}

static status parse_value(struct parser *p, struct operand *out) {
    *out = (struct operand){.is_number = p->kind == TOKEN_NUMBER, .text = p->word, .number = p->number};
    if (p->kind != TOKEN_NUMBER && p->kind != TOKEN_TEXT) return unexpected(p, "a number or a text in quotes");
    TRY(count_node(p));
    return next(p);
}

static status parse_operand(struct parser *p, struct operand *out) {
    bool is_column = p->kind == TOKEN_COLUMN || (p->kind == TOKEN_NAME && !is_keyword(p));
    if (!is_column && p->kind != TOKEN_NUMBER && p->kind != TOKEN_TEXT)
        return unexpected(p, "a column, a number or a text in quotes");
    if (!is_column) return parse_value(p, out);
    TRY(count_node(p));
    *out = (struct operand){.is_column = true, .column = column_of(p, p->word)};
    return next(p);
}

static status add_value(struct parser *p, struct filter_node *node) {
    size_t count = node->value_count;
    if ((count & (count - 1)) == 0) { /* 0 or a power of two: the list is full */
        struct operand *values = arena_alloc(p->arena, (2 * count + 1) * sizeof *values);
        if (count) memcpy(values, node->values, count * sizeof *values);
        node->values = values;
    }
    return parse_value(p, &node->values[node->value_count++]);
}

/* Numbers, then texts. */
static int compare_values(const void *left, const void *right) {
    const struct operand *a = left, *b = right;
    if (a->is_number != b->is_number) return a->is_number ? -1 : 1;
    return a->is_number ? csv_compare(a->text, a->number, b->text, b->number) : strcmp(a->text, b->text);
}

static status parse_list(struct parser *p, struct filter_node *node) {
    TRY(expect(p, "[", "["));
    for (;;) {
        TRY(add_value(p, node));
        if (is(p, "]")) break;
        TRY(expect(p, ",", ", or ]"));
    }
    qsort(node->values, node->value_count, sizeof *node->values, compare_values);
    return next(p);
}

/* [*out] becomes the node below a `not`. */
static status negate(struct parser *p, struct filter_node **out) {
    struct filter_node *inner = *out;
    TRY(new_node(p, NODE_NOT, out));
    (*out)->left = inner;
    return OK;
}

static status parse_comparison(struct parser *p, struct filter_node **out) {
    static const char *const operators[] = {"==", "!=", "<", "<=", ">", ">="};
    struct operand a;
    TRY(parse_operand(p, &a));
    TRY(new_node(p, NODE_COMPARE, out));
    (*out)->a = a;
    for (int i = 0; i < 6; i++)
        if (is(p, operators[i])) {
            (*out)->operation = (enum operator)i;
            TRY(next(p));
            return parse_operand(p, &(*out)->b);
        }
    bool is_missing = is(p, "is"), is_negated = false;
    if (is_missing) TRY(next(p));
    if (is(p, "not")) {
        is_negated = true;
        TRY(next(p));
    }
    struct filter_node *node = *out;
    node->kind = is_missing ? NODE_MISSING : NODE_IN;
    p->filter->asks_for_missing = p->filter->asks_for_missing || is_missing;
    if (!is_missing && !is(p, "in")) return unexpected(p, is_negated ? "in" : "== != < <= > >=, in or is");
    if (is_negated) TRY(negate(p, out));
    if (is_missing) return expect(p, "missing", is_negated ? "missing" : "missing or not missing");
    TRY(next(p));
    return parse_list(p, node);
}

static status parse_joined(struct parser *p, bool is_or, struct filter_node **out);

static status parse_factor(struct parser *p, struct filter_node **out) {
    bool is_negated = is(p, "not"), is_open = is(p, "(");
    if (!is_negated && !is_open) return parse_comparison(p, out);
    if (++p->depth > MAX_DEPTH)
        return status_usage("character %zu: more than %d parentheses and `not` inside each other",
                            position_of(p, p->start), MAX_DEPTH);
    TRY(next(p));
    TRY(is_negated ? parse_factor(p, out) : parse_joined(p, true, out));
    p->depth--;
    return is_negated ? negate(p, out) : expect(p, ")", "and, or, or )");
}

/* Factors joined by `and`, which binds more tightly, and by `or`. */
static status parse_joined(struct parser *p, bool is_or, struct filter_node **out) {
    TRY(is_or ? parse_joined(p, false, out) : parse_factor(p, out));
    while (is(p, is_or ? "or" : "and")) {
        struct filter_node *left = *out;
        TRY(next(p));
        TRY(new_node(p, is_or ? NODE_OR : NODE_AND, out));
        (*out)->left = left;
        TRY(is_or ? parse_joined(p, false, &(*out)->right) : parse_factor(p, &(*out)->right));
    }
    return OK;
}

status row_filter_parse(const char *text, struct arena *arena, struct row_filter **out) {
    struct row_filter *filter = *out = arena_alloc(arena, sizeof *filter);
    struct parser p = {.text = text, .at = text, .arena = arena, .filter = filter};
    filter->columns = arena_alloc(arena, (strlen(text) + 1) * sizeof *filter->columns);
    TRY(next(&p));
    TRY(parse_joined(&p, true, &filter->root));
    return p.kind == TOKEN_END ? OK : unexpected(&p, "and, or, or the end");
}

/* ---- rows ---- */

struct test {
    const struct filter_row *row;
    size_t column; /* whose text could not be compared; SIZE_MAX: none */
};

/* A value of the row; text NULL: it is missing. */
struct value {
    const char *text;
    bool is_number, is_literal;
    double number;
};

static struct value value_of(const struct test *test, const struct operand *operand) {
    struct value out = {.text = operand->text, .is_number = operand->is_number, .number = operand->number};
    out.is_literal = !operand->is_column;
    if (out.is_literal) return out;
    out.text = test->row->text(test->row->state, operand->column);
    out.is_number = out.text && test->row->number(test->row->state, out.text, &out.number);
    return out;
}

static bool compare(struct test *test, enum operator operation, const struct operand *a, const struct operand *b) {
    struct value x = value_of(test, a), y = value_of(test, b);
    if (!x.text || !y.text) return operation == NOT_EQUAL;
    bool are_texts = (x.is_literal && !x.is_number) || (y.is_literal && !y.is_number);
    bool are_numbers = x.is_number && y.is_number && !are_texts;
    bool is_mixed = !are_numbers && !are_texts && (x.is_number || y.is_number);
    if (is_mixed && operation >= LESS) test->column = x.is_number ? b->column : a->column;
    if (is_mixed) return operation == NOT_EQUAL;
    int order = are_numbers ? csv_compare(x.text, x.number, y.text, y.number) : strcmp(x.text, y.text);
    switch (operation) {
    case EQUAL:
        return order == 0;
    case NOT_EQUAL:
        return order != 0;
    case LESS:
        return order < 0;
    case LESS_OR_EQUAL:
        return order <= 0;
    case GREATER:
        return order > 0;
    default:
        return order >= 0;
    }
}

/* Whether the value is in the list, as a number or as a text. */
static bool is_in_list(const struct test *test, const struct filter_node *node) {
    struct value x = value_of(test, &node->a);
    struct operand number = {.is_number = true, .text = x.text, .number = x.number}, text = {.text = x.text};
    size_t count = node->value_count, size = sizeof *node->values;
    return x.text && ((x.is_number && bsearch(&number, node->values, count, size, compare_values)) ||
                      bsearch(&text, node->values, count, size, compare_values));
}

static bool test_node(struct test *test, const struct filter_node *node) {
    switch (node->kind) {
    case NODE_OR:
        return test_node(test, node->left) || test_node(test, node->right);
    case NODE_AND:
        return test_node(test, node->left) && test_node(test, node->right);
    case NODE_NOT:
        return !test_node(test, node->left);
    case NODE_MISSING:
        return !value_of(test, &node->a).text;
    case NODE_COMPARE:
        return compare(test, node->operation, &node->a, &node->b);
    default:
        return is_in_list(test, node);
    }
}

void row_filter_test(const struct row_filter *filter, const struct filter_row *row, bool *keeps, size_t *column) {
    struct test test = {.row = row, .column = SIZE_MAX};
    bool result = test_node(&test, filter->root);
    *column = test.column;
    *keeps = result && test.column == SIZE_MAX;
}
