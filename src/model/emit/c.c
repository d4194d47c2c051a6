/* Numbers are written as hexadecimal floats, which are exact. */
#include "model/emit/c.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/scoped.h"
#include "model/layers/layers.h"
#include "model/model.h"

/* ---- functions ---- */

/* The text of each file of functions/, and of the headers with formulas. */
static const struct {
    const char *name, *code;
} files[] = {
#include "model/texts.inc"
};

/* A function, struct or macro of these texts. */
struct c_definition {
    const char *name; /* as it stands where it is used: "linear(", "struct span" or "BLOCK" */
    const char *comment, *code;
    bool is_added;
};

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool uses(const char *code, const char *name) {
    size_t length = strlen(name);
    for (const char *at = strstr(code, name); at; at = strstr(at + 1, name))
        if ((at == code || !is_word(at[-1])) && (name[length - 1] == '(' || !is_word(at[length]))) return true;
    return false;
}

/* What a line begins with that defines something. Macros with arguments are none of exported code. */
static const char *const beginnings[] = {
    "HOST_DEVICE static inline ", "FORMULA ", "INLINE ", "static ", "struct ", "#define "};
#define INLINED 3 /* of them are INLINE in exported code */

/* The first line after a definition that begins at [line]. */
static const char *end_of_definition(const char *line) {
    const char *end = strchr(line, '\n');
    bool is_whole = *line == '#' || end[-1] == '}' || end[-1] == ';';
    while (!is_whole) {
        is_whole = end[1] == '}';
        end = strchr(end + 1, '\n');
    }
    return end + 1;
}

static struct c_definition new_definition(struct arena *arena, size_t kind, const char *comment, const char *line,
                                          const char *end) {
    const char *rest = line + strlen(beginnings[kind]), *name = rest;
    bool is_struct = *line == 's' && line[2] == 'r', is_function = *line != '#' && !is_struct;
    size_t length = strcspn(rest, is_function ? "(" : " ;\n");
    for (size_t i = 0; is_function && i < length; i++)
        if (!is_word(rest[i])) name = rest + i + 1;
    length -= (size_t)(name - rest);
    return (struct c_definition){
        .name = arena_printf(arena, "%s%.*s%s", is_struct ? "struct " : "", (int)length, name, is_function ? "(" : ""),
        .comment = arena_printf(arena, "%.*s", (int)(line - comment), comment),
        .code = arena_printf(arena, "%s%.*s", kind < INLINED ? "INLINE " : beginnings[kind], (int)(end - rest), rest)};
}

/* A comment is that of a definition if no empty line is between them. */
static void read_definitions(struct c_code *c, const char *text) {
    const char *comment = text;
    for (const char *line = text, *next; *line; line = next) {
        size_t kind = 0, kinds = sizeof beginnings / sizeof *beginnings;
        while (kind < kinds && strncmp(line, beginnings[kind], strlen(beginnings[kind])) != 0) kind++;
        next = kind < kinds ? end_of_definition(line) : strchr(line, '\n') + 1;
        if (kind < kinds) c->definitions[c->definition_count++] = new_definition(c->arena, kind, comment, line, next);
        if (kind < kinds || *line == '\n') comment = next;
    }
}

void c_code_init(struct c_code *c, const struct emitted_model *m, struct arena *arena) {
    size_t lines = 0;
    *c = (struct c_code){.m = m, .arena = arena};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (const char *at = files[i].code; *at; at++) lines += *at == '\n';
    c->definitions = arena_alloc(arena, lines * sizeof *c->definitions);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) read_definitions(c, files[i].code);
}

void c_code_free(struct c_code *c) {
    text_free(&c->tables);
    text_free(&c->body);
}

bool c_code_calls(struct c_code *c, const char *function) {
    return uses(text_string(&c->body), arena_printf(c->arena, "%s(", function));
}

void c_code_add_definitions(struct c_code *c, const char *code, struct text *out) {
    for (size_t i = 0; i < c->definition_count; i++) {
        struct c_definition *d = &c->definitions[i];
        if (d->is_added || !uses(code, d->name)) continue;
        d->is_added = true;
        c_code_add_definitions(c, d->code, out);
        text_printf(out, "%s%s\n", d->comment, d->code);
    }
}

/* ---- calls ---- */

void c_each(struct c_code *c, const char *call, const char *x, const char *y, size_t count) {
    text_printf(&c->body, "    {\n        size_t i;\n        for (i = 0; i < %zu; i++) (%s)[i] = %s(%s)[i]);\n    }\n",
                count, y, call, x);
}

void c_layer(const struct c_call *call) {
    call->layer->type->c(call);
    if (call->layer->has_relu) c_each(call->c, "relu_value(", call->y, call->y, call->layer->out_size);
}

size_t c_last(const struct shape *shape) { return (size_t)shape->size[shape->dims - 1]; }

const char *c_length(const struct c_call *call, size_t lengths, size_t positions) {
    return lengths ? arena_printf(call->c->arena, "length_%zu", lengths)
                   : arena_printf(call->c->arena, "%zu", positions);
}

void c_columns(const struct c_call *call, const char *x, size_t x_stride, const char *y, size_t y_stride, size_t rows,
               size_t width) {
    text_printf(&call->c->body, "    columns(%s, %zu, %s, %zu, %zu, %zu);\n", x, x_stride, y, y_stride, rows, width);
}

const char *c_list(const struct c_call *call, const size_t *values, size_t count) {
    SCOPED_TEXT list = {0};
    for (size_t i = 0; i < count; i++) text_printf(&list, "%s%zu", i ? ", " : "", values[i]);
    return arena_printf(call->c->arena, "(const size_t[]){%s}", text_string(&list));
}

const char *c_image(const struct c_call *call, const struct image_shape *image) {
    return arena_printf(call->c->arena, "(struct model_image){%zu, %zu, %zu}", image->height, image->width,
                        image->channels);
}

const char *c_window(const struct c_call *call, const struct window *w) {
    return arena_printf(call->c->arena, "(struct model_window){{%zu, %zu}, {%zu, %zu}, {%zu, %zu}, {%zu, %zu}}",
                        w->kernel[0], w->kernel[1], w->stride[0], w->stride[1], w->padding[0], w->padding[1],
                        w->dilation[0], w->dilation[1]);
}

size_t c_image_size(const struct image_shape *image) { return image->height * image->width * image->channels; }

void c_begin_images(const struct c_call *call, size_t count) {
    if (count > 1)
        text_printf(&call->c->body, "    {\n        size_t n;\n        for (n = 0; n < %zu; n++)\n        ", count);
}

void c_end_images(const struct c_call *call, size_t count) {
    if (count > 1) text_add(&call->c->body, "    }\n");
}

const char *c_at_image(const struct c_call *call, const char *array, size_t count, size_t size) {
    return count > 1 ? arena_printf(call->c->arena, "%s + n * %zu", array, size) : array;
}

/* ---- tables ---- */

#define PER_LINE 8

struct c_table {
    const float *values;
    size_t count;
    const float *source; /* the rows of a parameter of which this is the transpose; NULL: it is none */
};

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

void c_doubles(struct c_code *c, const char *name, const double *values, size_t count) {
    add_table(&c->tables, "double", name, NULL, NULL, values, count);
}

const char *c_comment(struct c_code *c, const char *name) {
    SCOPED_TEXT printable = {0};
    text_add_value(&printable, name, TEXT_MAX_LINE); /* without characters that change the writing direction */
    char *comment = arena_copy(c->arena, text_string(&printable));
    for (char *at = comment; *at; at++)
        if (*at == '*' || *at == '/' || *at == '\\' || *at == '?' || (unsigned char)*at < 32) *at = '_';
    return comment;
}

/* The index of the table with these values; table_count: there is none. */
static size_t find_table(const struct c_code *c, const float *values, size_t count) {
    size_t i = 0;
    while (i < c->table_count &&
           (c->made[i].count != count || memcmp(c->made[i].values, values, count * sizeof *values) != 0))
        i++;
    return i;
}

static void keep_table(struct c_code *c, struct c_table table) {
    if (c->table_count == c->table_capacity) {
        struct c_table *larger = arena_alloc(c->arena, (2 * c->table_capacity + 16) * sizeof *larger);
        if (c->table_count) memcpy(larger, c->made, c->table_count * sizeof *larger);
        c->table_capacity = 2 * c->table_capacity + 16;
        c->made = larger;
    }
    c->made[c->table_count++] = table;
}

/* The name of the table with these values, which is added unless it is there. */
static const char *add_values(const struct c_call *call, const float *source, const float *values, size_t count,
                              const char *what) {
    struct c_code *c = call->c;
    size_t i = find_table(c, values, count);
    const char *name = arena_printf(c->arena, "table_%zu", i);
    if (i < c->table_count) return name;
    keep_table(c, (struct c_table){values, count, source});
    add_table(&c->tables, "float", name, c_comment(c, what), values, NULL, count);
    return name;
}

const char *c_table(const struct c_call *call, const float *values, size_t count, const char *what) {
    return add_values(call, NULL, values, count, what);
}

const char *c_plain(const struct c_call *call, size_t param) {
    if (param == NO_PARAM) return "0";
    const struct param *p = &call->c->m->model->params.items[param];
    return c_table(call, call->c->m->params[param], p->count, p->name);
}

const char *c_matrix_rows(const struct c_call *call, size_t param, size_t first, size_t count) {
    const struct param *p = &call->c->m->model->params.items[param];
    size_t columns = (size_t)p->shape[1];
    const float *from = call->c->m->params[param] + first * columns;
    for (size_t i = 0; i < call->c->table_count; i++) /* that of a layer with the same weight */
        if (call->c->made[i].source == from && call->c->made[i].count == count * columns)
            return arena_printf(call->c->arena, "table_%zu", i);
    float *to = arena_alloc(call->c->arena, count * columns * sizeof *to);
    for (size_t o = 0; o < count; o++)
        for (size_t i = 0; i < columns; i++) to[i * count + o] = from[o * columns + i];
    return add_values(call, from, to, count * columns, p->name);
}

const char *c_matrix(const struct c_call *call, size_t param) {
    return c_matrix_rows(call, param, 0, (size_t)call->c->m->model->params.items[param].shape[0]);
}
