/* The columns of a table in an exported C file: a struct of raw values, and the function that makes features of them as
 * preparation_encode does. */
#include <string.h>

#include "data/csv/csv.h"
#include "export/c_file.h"

static bool is_text(const struct prepared_column *column) {
    return column->type == COLUMN_DATE || (column->type == COLUMN_CATEGORY && !column->are_numbers);
}

/* ---- names ---- */

static bool is_used(const char *const *fields, size_t count, const char *identifier) {
    /* of C, gcc and C++; the last ones: macros of gcc on some systems */
    /* clang-format off */
    static const char *const words[] = {
        "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
        "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
        "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "class",
        "new", "delete", "this", "private", "public", "protected", "template", "typename", "using", "virtual",
        "namespace", "operator", "friend", "bool", "true", "false", "try", "catch", "throw", "and", "or", "not",
        "xor", "errno", "asm", "explicit", "export", "mutable", "typeof", "nullptr", "decltype", "noexcept",
        "constexpr", "concept", "requires", "alignas", "alignof", "compl", "bitand", "bitor", "and_eq", "or_eq",
        "xor_eq", "not_eq", "char8_t", "char16_t", "char32_t", "consteval", "constinit", "co_await", "co_yield",
        "co_return", "thread_local", "static_assert", "const_cast", "static_cast", "dynamic_cast", "reinterpret_cast",
        "typeof_unqual", "typeid", "wchar_t", "unix", "linux", "i386"};
    /* clang-format on */
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], identifier) == 0) return true;
    for (size_t i = 0; i < count; i++)
        if (fields[i] && strcmp(fields[i], identifier) == 0) return true;
    return false;
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* A column's name with underscores for what an identifier cannot have, and a suffix if one of the fields (count; NULL:
 * not named yet) has that. Names in capitals may be macros of the C library, so they end in an underscore, too. */
static const char *identifier_of(struct c_file *c, const char *name, const char *const *fields, size_t count) {
    char *identifier = arena_copy(c->arena, arena_printf(c->arena, "%s%s", is_letter(*name) ? "" : "x", name));
    bool has_small = false;
    for (char *at = identifier; *at; at++) {
        if (!is_letter(*at) && (*at < '0' || *at > '9')) *at = '_';
        has_small = has_small || (*at >= 'a' && *at <= 'z');
    }
    const char *found = has_small ? identifier : arena_printf(c->arena, "%s_", identifier);
    while (is_used(fields, count, found)) found = arena_printf(c->arena, "%s_", found);
    return found;
}

void c_preparation_plan(struct c_file *c) {
    const struct preparation *p = c->m->preparation;
    if (!p) return;
    c->fields = arena_alloc(c->arena, (p->count + 1) * sizeof *c->fields);
    for (size_t i = 0; i < p->count; i++) { /* names that need no change, so that no other column gets them */
        const char *name = p->items[i].name, *identifier = identifier_of(c, name, c->fields, p->count);
        if (strcmp(identifier, name) == 0) c->fields[i] = identifier;
    }
    for (size_t i = 0; i < p->count; i++) {
        const struct prepared_column *column = &p->items[i];
        if (!c->fields[i]) c->fields[i] = identifier_of(c, column->name, c->fields, p->count);
        if (column->type == COLUMN_DATE) c_code_use(C_date, &c->used);
        if (column->type == COLUMN_CATEGORY) c_code_use(column->are_numbers ? C_find_number : C_find_text, &c->used);
    }
}

/* ---- the struct ---- */

static void add_meaning(struct c_file *c, const struct prepared_column *column, struct text *out) {
    const char *is = column->type == COLUMN_BOOLEAN ? "0 or 1"
                     : column->type == COLUMN_DATE  ? "a date of ISO 8601"
                                                    : "a number";
    if (column->type != COLUMN_CATEGORY) {
        text_add(out, is);
        return;
    }
    size_t shown = column->categories.count < 8 ? column->categories.count : 8;
    for (size_t i = 0; i < shown; i++) {
        text_add(out, i ? ", " : "");
        text_add(out, c_table_comment(c, column->categories.items[i]));
    }
    if (shown < column->categories.count) text_printf(out, ", ... (%zu categories)", column->categories.count);
}

void c_preparation_add_struct(struct c_file *c, struct text *out) {
    const struct preparation *p = c->m->preparation;
    text_add(out, "\n/* The columns of a row as they are in the table. Missing: NAN; of a text NULL or \"\". "
                  "*/\nstruct model_row {\n");
    for (size_t i = 0; i < p->count; i++) {
        const struct prepared_column *column = &p->items[i];
        text_printf(out, "    %s%s; /* ", is_text(column) ? "const char *" : "double ", c->fields[i]);
        text_add(out, c_table_comment(c, column->name));
        text_add(out, ": ");
        add_meaning(c, column, out);
        text_add(out, column->missing == MISSING_ERROR ? "; required */\n" : " */\n");
    }
    text_add(out, "};\n");
}

/* ---- features ---- */

static void add_categories(const struct prepared_column *column, size_t index, struct text *out) {
    size_t count = column->categories.count;
    text_printf(out, "    static const %s categories_%zu[%zu] = {", column->are_numbers ? "double" : "char *const",
                index, count);
    for (size_t i = 0; i < count; i++) {
        double number = 0;
        text_add(out, i == 0 ? "" : i % 8 ? ", " : ",\n        ");
        if (!column->are_numbers) {
            c_add_string(out, column->categories.items[i]);
            continue;
        }
        csv_number(column->categories.items[i], &number);
        text_printf(out, "%a", number);
    }
    text_add(out, "};\n");
}

static void add_category(const struct prepared_column *column, const char *field, size_t index, const char *type,
                         struct text *out) {
    size_t count = column->categories.count;
    text_printf(out, "    found = is_missing ? %d : find_%s(row->%s, categories_%zu, %zu);\n", (int)column->fill[0],
                column->are_numbers ? "number" : "text", field, index, count);
    if (column->unknown == UNKNOWN_ERROR) text_add(out, "    if (!is_missing && found < 0) return 4;\n");
    if (column->encoding != ENCODING_ONE_HOT)
        text_printf(out, "    features[%zu] = (%s)%s;\n", column->first, type,
                    column->encoding == ENCODING_EMBEDDING ? "(found + 1)" : "found");
    else
        text_printf(out, "    for (i = 0; i < %zu; i++) features[%zu + i] = found == i;\n", count, column->first);
}

static void add_date(const struct prepared_column *column, const char *field, const char *type, struct text *out) {
    text_printf(out, "    seconds = 0;\n    if (!is_missing && !read_date(row->%s, &seconds)) return 5;\n", field);
    for (size_t k = 0; k < column->part_count; k++)
        text_printf(out, "    features[%zu] = (%s)(is_missing ? %a : date_part(seconds, %d));\n", column->first + k,
                    type, column->fill[k], (int)column->parts[k]);
}

static void add_column(struct c_file *c, size_t index, const char *type, struct text *out) {
    const struct prepared_column *column = &c->m->preparation->items[index];
    const char *field = c->fields[index];
    if (is_text(column))
        text_printf(out, "    is_missing = !row->%s || !*row->%s;\n", field, field);
    else
        text_printf(out, "    is_missing = isnan(row->%s) != 0;\n", field);
    if (column->missing == MISSING_ERROR) text_add(out, "    if (is_missing) return 3;\n");
    if (column->type == COLUMN_NUMBER || column->type == COLUMN_BOOLEAN)
        text_printf(out, "    if (isinf(row->%s)) return 6;\n", field);
    if (column->type == COLUMN_CATEGORY)
        add_category(column, field, index, type, out);
    else if (column->type == COLUMN_DATE)
        add_date(column, field, type, out);
    else
        text_printf(out, "    features[%zu] = (%s)(is_missing ? %a : row->%s);\n", column->first, type, column->fill[0],
                    field);
    if (column->has_indicator)
        text_printf(out, "    features[%zu] = (%s)is_missing;\n", column->first + column->width - 1, type);
}

void c_preparation_add_function(struct c_file *c, const char *type, struct text *out) {
    const struct preparation *p = c->m->preparation;
    text_printf(out, "\nstatic int prepare(const struct model_row *row, %s *features) {\n", type);
    for (size_t i = 0; i < p->count; i++)
        if (p->items[i].type == COLUMN_CATEGORY) add_categories(&p->items[i], i, out);
    text_add(out, "    int is_missing, found = 0, i = 0;\n    double seconds = 0;\n");
    for (size_t i = 0; i < p->count; i++) add_column(c, i, type, out);
    text_add(out, "    (void)found, (void)i, (void)seconds;\n    return 0;\n}\n");
}
