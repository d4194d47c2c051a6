/* One C99 file and its header, which compute the model for one row: functions of the layers that it has
 * (model/emit/c.h), tables of weights, and a call for each node, with memory that is planned here. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/files/io.h"
#include "base/scoped.h"
#include "data/csv/csv.h"
#include "export/model.h"
#include "model/emit/c.h"

#define MAX_WEIGHTS ((size_t)1 << 24) /* more make a file that compilers need gigabytes for */
#define MAX_STACK 16384               /* floats of memory between the nodes that are on the stack */

struct c_file {
    struct c_code code;
    const struct export_model *m;
    struct arena *arena;
    struct piece *pieces;  /* (tensor_count) of tensors that have memory, in floats */
    struct piece *scratch; /* (2 * node_count) of nodes: two each */
    size_t *root;          /* (tensor_count) the tensor whose memory a tensor uses; 0: the inputs */
    size_t work;           /* floats of all memory */
    const char **fields;   /* (m->preparation->count) members of struct model_row */
};

/* ---- memory ---- */

static size_t resolve(const struct c_file *c, size_t tensor) {
    size_t alias = c->m->model->tensors[tensor].alias;
    return c->root[alias == NO_TENSOR ? tensor : alias];
}

static bool is_identity(const struct graph_node *node) { return node->layer && layer_is_identity(node->layer); }

static void extend(struct piece *piece, size_t time) {
    if (time > piece->last) piece->last = time;
}

/* Gives memory to each tensor that a node writes, from this node to the last that reads it. The scaled inputs are at
 * time 0, node i at i + 1. */
static void place(struct c_file *c) {
    const struct model *model = c->m->model;
    struct piece **all = arena_alloc(c->arena, (model->tensor_count + 2 * model->node_count) * sizeof(struct piece *));
    size_t count = 0;
    for (size_t t = 0; t < model->tensor_count; t++) c->root[t] = t;
    if (c->m->features || !(c->m->divide >= 1 && c->m->divide <= 1)) c->pieces[0].size = shape_elements(&model->in);
    for (size_t i = 0; i < model->node_count; i++) {
        const struct graph_node *node = &model->nodes[i];
        size_t sizes[2] = {0};
        for (size_t n = 0; n < node->in_count; n++) extend(&c->pieces[resolve(c, node->in[n])], i + 1);
        if (is_identity(node)) {
            c->root[node->out] = resolve(c, node->in[0]);
            continue;
        }
        c->pieces[node->out] = (struct piece){.size = model->tensors[node->out].size, .first = i + 1, .last = i + 1};
        if (node->layer && node->layer->type->c_scratch) node->layer->type->c_scratch(node->layer, sizes);
        for (size_t k = 0; k < 2; k++)
            c->scratch[2 * i + k] = (struct piece){.size = sizes[k], .first = i + 1, .last = i + 1};
    }
    c->pieces[resolve(c, model->output)].size = 0; /* the caller's */
    for (size_t t = 0; t < model->tensor_count; t++)
        if (c->pieces[t].size) all[count++] = &c->pieces[t];
    for (size_t i = 0; i < 2 * model->node_count; i++)
        if (c->scratch[i].size) all[count++] = &c->scratch[i];
    c->work = placement_find(c->arena, all, count);
}

static const char *address(struct c_file *c, const struct piece *piece) {
    return piece->offset ? arena_printf(c->arena, "work + %zu", piece->offset) : "work";
}

static const char *expression(struct c_file *c, size_t tensor) {
    size_t root = resolve(c, tensor);
    if (root == 0) return c->pieces[0].size ? address(c, &c->pieces[0]) : "inputs";
    if (root == resolve(c, c->m->model->output)) return "outputs";
    return address(c, &c->pieces[root]);
}

/* ---- nodes ---- */

static void add_sum(struct c_file *c, const struct graph_node *node) {
    size_t size = c->m->model->tensors[node->out].size;
    const char *y = expression(c, node->out);
    text_printf(&c->code.body, "    add(%s, %s, %s, %zu);\n", expression(c, node->in[0]), expression(c, node->in[1]), y,
                size);
    if (node->has_relu) c_each(&c->code, "relu_value(", y, y, size);
}

/* The outputs in the unit of the targets, in double as predict computes them. */
static void add_target_scale(struct c_file *c) {
    const struct target_scale *scale = c->m->target_scale;
    const char *value = "expm1((double)outputs[i])";
    if (scale->type != TARGET_SCALE_LOG1P) {
        c_doubles(&c->code, "target_scale", scale->scale, scale->size);
        c_doubles(&c->code, "target_mean", scale->mean, scale->size);
        value = "((double)outputs[i] * target_scale[i] + target_mean[i])";
    }
    text_printf(&c->code.body, "    for (i = 0; i < %zu; i++) outputs[i] = (float)%s;\n", scale->size, value);
}

static void add_nodes(struct c_file *c) {
    const struct model *model = c->m->model;
    for (size_t i = 0; i < model->node_count; i++) {
        const struct graph_node *node = &model->nodes[i];
        const char *scratch[] = {address(c, &c->scratch[2 * i]), address(c, &c->scratch[2 * i + 1])};
        if (is_identity(node)) continue;
        if (!node->layer) {
            add_sum(c, node);
            continue;
        }
        const char **inputs = arena_alloc(c->arena, node->in_count * sizeof *inputs);
        for (size_t n = 0; n < node->in_count; n++) inputs[n] = expression(c, node->in[n]);
        c_layer(&(struct c_call){.c = &c->code,
                                 .layer = node->layer,
                                 .x = inputs[0],
                                 .y = expression(c, node->out),
                                 .inputs = inputs,
                                 .scratch = scratch});
    }
    if (resolve(c, model->output) == 0)
        text_printf(&c->code.body, "    memcpy(outputs, %s, %zu * sizeof *outputs);\n", expression(c, 0),
                    model->out_size);
    if (c->m->target_scale) add_target_scale(c);
}

/* x = (float)((x / divide - mean) / scale) in double, as the dataset does it */
static void add_preparation(struct c_file *c, struct text *out) {
    const struct export_model *m = c->m;
    size_t size = shape_elements(&m->model->in);
    text_printf(out,
                "    for (i = 0; i < %zu; i++) {\n        double value = doubles ? doubles[i] : (double)inputs[i];\n",
                size);
    if (!(m->divide >= 1 && m->divide <= 1)) text_printf(out, "        value /= %a;\n", m->divide);
    if (m->features) {
        const char *index = m->features == size ? "i" : arena_printf(c->arena, "i / %zu", size / m->features);
        c_doubles(&c->code, "input_mean", m->mean, m->features);
        c_doubles(&c->code, "input_scale", m->scale, m->features);
        text_printf(out, "        value = (value - input_mean[%s]) / input_scale[%s];\n", index, index);
    }
    text_printf(out, "        (%s)[i] = (float)value;\n    }\n", address(c, &c->pieces[0]));
}

/* ---- the columns of a table: a struct of raw values, and the function that makes features of them as
 * preparation_encode does ---- */

static void add_string(struct text *out, const char *string) {
    text_add(out, "\"");
    for (; *string; string++) {
        unsigned char byte = (unsigned char)*string;
        if (isalnum(byte) || strchr(" _-+.,:;()=<>#%&/!", byte))
            text_add_bytes(out, string, 1);
        else
            text_printf(out, "\\%03o", byte);
    }
    text_add(out, "\"");
}

/* Whether its raw value is a text. */
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

static void preparation_plan(struct c_file *c) {
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
        text_add(out, c_comment(&c->code, column->categories.items[i]));
    }
    if (shown < column->categories.count) text_printf(out, ", ... (%zu categories)", column->categories.count);
}

static void preparation_add_struct(struct c_file *c, struct text *out) {
    const struct preparation *p = c->m->preparation;
    text_add(out, "\n/* The columns of a row as they are in the table. Missing: NAN; of a text NULL or \"\". "
                  "*/\nstruct model_row {\n");
    for (size_t i = 0; i < p->count; i++) {
        const struct prepared_column *column = &p->items[i];
        text_printf(out, "    %s%s; /* ", is_text(column) ? "const char *" : "double ", c->fields[i]);
        text_add(out, c_comment(&c->code, column->name));
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
            add_string(out, column->categories.items[i]);
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

static void add_features(struct c_file *c, size_t index, const char *type, struct text *out) {
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

static void preparation_add_function(struct c_file *c, const char *type, struct text *out) {
    const struct preparation *p = c->m->preparation;
    text_printf(out, "\nstatic int prepare(const struct model_row *row, %s *features) {\n", type);
    for (size_t i = 0; i < p->count; i++)
        if (p->items[i].type == COLUMN_CATEGORY) add_categories(&p->items[i], i, out);
    text_add(out, "    int is_missing, found = 0, i = 0;\n    double seconds = 0;\n");
    for (size_t i = 0; i < p->count; i++) add_features(c, i, type, out);
    text_add(out, "    (void)found, (void)i, (void)seconds;\n    return 0;\n}\n");
}

/* ---- texts ---- */

static void add_strings(struct text *out, const char *name, const struct string_list *list) {
    if (!list->count) return;
    text_printf(out, "const char *const %s[%zu] = {", name, list->count);
    for (size_t i = 0; i < list->count; i++) {
        text_add(out, i % 8 ? " " : "\n    ");
        add_string(out, list->items[i]);
        if (i + 1 < list->count) text_add(out, ",");
    }
    text_add(out, "\n};\n\n");
}

static const char *input_type(const struct c_file *c) { return c->m->model->in.is_tokens ? "int32_t" : "float"; }

static const char *header_of(struct c_file *c, const char *path) {
    char *header = arena_copy(c->arena, path);
    size_t length = strlen(header);
    header[length - 1] = 'h';
    return header;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void add_range(struct c_file *c, const char *what, const char *name, size_t first, size_t size,
                      struct text *out) {
    text_printf(out, " * %s %zu to %zu: %s\n", what, first, first + size - 1, c_comment(&c->code, name));
}

/* Which elements of a row the inputs and outputs with names are. */
static void add_names(struct c_file *c, struct text *out) {
    const struct model *model = c->m->model;
    for (size_t i = 0; i < model->node_count; i++) {
        const struct layer *layer = model->nodes[i].layer;
        if (!layer || !layer->type->is_input || c->m->preparation) continue;
        const struct model_input *input = layer->config;
        add_range(c, "inputs", input->name, input->first, layer->out_size, out);
    }
    for (size_t i = 0; i < model->output_count; i++)
        add_range(c, "outputs", c->m->outputs.items[i], model->outputs[i].first, model->outputs[i].size, out);
}

/* The codes that every model may return. */
static void add_codes(struct c_file *c, struct text *out) {
    struct c_code *code = &c->code;
    text_add(out, " * 0; 1 without memory");
    if (c_code_calls(code, "embedding") || c_code_calls(code, "embedding_of_values") ||
        c_code_calls(code, "embedding_bag"))
        text_add(out, "; 2 for a token that the model does not have");
    if (c_code_calls(code, "given_length"))
        text_add(out, "; 2 for a length that is not from 1 to the positions of a row");
    if (c_code_calls(code, "hides_all")) text_add(out, "; 2 for a mask that leaves a query without a key");
}

/* Of a model whose inputs are the columns of a table. */
static void add_prepared_header(struct c_file *c, struct text *out) {
    preparation_add_struct(c, out);
    text_add(out, "\n/* Computes outputs (MODEL_OUTPUTS) for one row.\n");
    add_names(c, out);
    add_codes(c, out);
    text_add(out,
             "; 3 for a missing value that is required; 4 for an unknown category where the config has\n * unknown: "
             "error; 5 for a text that is no date; 6 for an infinite number. Thread-safe. */\n"
             "int model_predict(const struct model_row *row, float *outputs);\n");
}

static void add_columns(const struct export_model *m, struct text *out) {
    if (m->columns.count == 0) return;
    if (m->config->dataset.window.steps == 0) {
        text_add(out, "\n/* The name of each input. */\nextern const char *const model_columns[MODEL_INPUTS];\n");
        return;
    }
    text_printf(out,
                "\n/* The inputs are a window of MODEL_STEPS rows, the earliest first, of MODEL_FEATURES numbers each, "
                "with these\n * names. */\n#define MODEL_STEPS %lld\n#define MODEL_FEATURES %zu\n"
                "extern const char *const model_columns[MODEL_FEATURES];\n",
                (long long)m->config->dataset.window.steps, m->columns.count);
}

static void add_plain_header(struct c_file *c, struct text *out) {
    const struct export_model *m = c->m;
    bool is_prepared = c->pieces[0].size > 0, are_tokens = m->model->in.is_tokens;
    add_columns(m, out);
    text_printf(out, "\n/* Computes outputs (MODEL_OUTPUTS) for one row of inputs (MODEL_INPUTS), %s.\n",
                are_tokens ? "the numbers of tokens" : "as they are in the dataset");
    add_names(c, out);
    add_codes(c, out);
    text_add(out, ". Thread-safe. */\n");
    text_printf(out, "int model_predict(const %s *inputs, float *outputs);\n", input_type(c));
    if (is_prepared)
        text_add(out,
                 "\n/* The same for inputs that are not exact as floats. */\nint model_predict_double(const double "
                 "*inputs, float *outputs);\n");
}

static void add_header(struct c_file *c, struct text *out) {
    const struct export_model *m = c->m;
    text_printf(out, "/* The model %s, written by ddptrain export. */\n", m->name);
    text_add(out, "#ifndef MODEL_PREDICT_H\n#define MODEL_PREDICT_H\n\n");
    if (m->model->in.is_tokens) text_add(out, "#include <stdint.h>\n\n");
    text_add(out, "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n");
    if (!m->preparation) text_printf(out, "#define MODEL_INPUTS %zu\n", shape_elements(&m->model->in));
    text_printf(out, "#define MODEL_OUTPUTS %zu\n", m->model->out_size);
    if (m->labels.count)
        text_printf(out,
                    "#define MODEL_LABELS %zu\n\n/* The label of each class. */\nextern const char *const "
                    "model_labels[MODEL_LABELS];\n",
                    m->labels.count);
    if (m->preparation)
        add_prepared_header(c, out);
    else
        add_plain_header(c, out);
    text_add(out, "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
}

static const char preamble[] =
    "#include <math.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdlib.h>\n#include <string.h>\n\n"
    "/* A product and a sum are fused only where the code says fmaf. */\n"
    "#if defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n"
    "#elif defined(__GNUC__)\n#pragma GCC optimize(\"O3\", \"fp-contract=off\")\n#endif\n"
    "#if defined(__GNUC__)\n#define INLINE static __inline__ __attribute__((always_inline, unused))\n"
    "#else\n#define INLINE static\n#endif\n\n";

/* fmaf is an instruction of most x86 processors, but compilers use it only if they are told to. */
static const char dispatch[] =
    "#if defined(__GNUC__) && defined(__x86_64__) && !defined(__FMA__)\n"
    "#define HAS_VARIANTS 1\n"
    "__attribute__((target(\"avx2,fma\"))) static int run_fma(%s) {\n    return run(%s);\n}\n"
    "#endif\n\n"
    "static int run_best(%s) {\n"
    "#if defined(HAS_VARIANTS)\n"
    "    if (__builtin_cpu_supports(\"avx2\") && __builtin_cpu_supports(\"fma\")) return run_fma(%s);\n"
    "#endif\n"
    "    return run(%s);\n}\n\n";

static void add_entry(struct c_file *c, struct text *out, const char *name, const char *type, const char *arguments) {
    text_printf(out, "int %s(const %s *inputs, float *outputs) {\n", name, type);
    if (c->work == 0) {
        text_printf(out, "    return run_best(%s, NULL);\n}\n", arguments);
    } else if (c->work <= MAX_STACK) {
        text_printf(out, "    float work[%zu];\n    return run_best(%s, work);\n}\n", c->work, arguments);
    } else {
        text_printf(out,
                    "    float *work = malloc(%zu * sizeof *work);\n    int result = work ? run_best(%s, work) : 1;\n",
                    c->work, arguments);
        text_add(out, "    free(work);\n    return result;\n}\n");
    }
}

static void add_entries(struct c_file *c, struct text *out) {
    bool is_prepared = c->pieces[0].size > 0;
    add_entry(c, out, "model_predict", input_type(c), is_prepared ? "inputs, NULL, outputs" : "inputs, outputs");
    if (is_prepared) text_add(out, "\n");
    if (is_prepared) add_entry(c, out, "model_predict_double", "double", "NULL, inputs, outputs");
}

/* The features are rounded to float once: after the scaler, which takes doubles. */
static void add_prepared_entry(struct c_file *c, struct text *out) {
    bool is_scaled = c->pieces[0].size > 0;
    size_t features = c->m->preparation->features;
    const char *type = is_scaled ? "double" : "float";
    text_add(out, "static ");
    add_entry(c, out, "predict", type, is_scaled ? "NULL, inputs, outputs" : "inputs, outputs");
    preparation_add_function(c, type, out);
    text_add(out, "\nint model_predict(const struct model_row *row, float *outputs) {\n");
    if (features <= MAX_STACK / 2) {
        text_printf(out, "    %s features[%zu];\n    int code = prepare(row, features);\n", type, features);
        text_add(out, "    return code ? code : predict(features, outputs);\n}\n");
        return;
    }
    text_printf(out, "    %s *features = malloc(%zu * sizeof *features);\n", type, features);
    text_add(out, "    int code = features ? prepare(row, features) : 1;\n    if (code == 0) code = predict(features, "
                  "outputs);\n    free(features);\n    return code;\n}\n");
}

static void add_source(struct c_file *c, const char *header, struct text *out) {
    bool is_prepared = c->pieces[0].size > 0;
    const char *parameters = arena_printf(c->arena, "const %s *inputs,%s float *outputs, float *work", input_type(c),
                                          is_prepared ? " const double *doubles," : "");
    const char *arguments = is_prepared ? "inputs, doubles, outputs, work" : "inputs, outputs, work";
    SCOPED_TEXT preparation = {0}, rest = {0};
    if (is_prepared) add_preparation(c, &preparation);
    add_nodes(c);
    text_printf(
        out,
        "/* The model %s, written by ddptrain export. Its bits are those of ddptrain predict: docs/export.md. */\n",
        c->m->name);
    text_printf(out, "#include \"%s\"\n\n%s", base_name(header), preamble);
    text_printf(&rest, "INLINE int run(%s) {\n%s%s%s%s    return 0;\n}\n\n", parameters,
                is_prepared || c->m->target_scale ? "    size_t i;\n" : "", c->work ? "" : "    (void)work;\n",
                text_string(&preparation), text_string(&c->code.body));
    text_printf(&rest, dispatch, parameters, arguments, parameters, arguments, arguments);
    if (c->m->preparation)
        add_prepared_entry(c, &rest);
    else
        add_entries(c, &rest);
    c_code_add_definitions(&c->code, text_string(&rest), out);
    text_add(out, text_string(&c->code.tables));
    add_strings(out, "model_labels", &c->m->labels);
    if (!c->m->preparation) add_strings(out, "model_columns", &c->m->columns);
    text_add(out, text_string(&rest));
}

/* ---- the format ---- */

static status check(const struct export_source *source, const struct export_model *m, const char *path) {
    size_t length = strlen(path);
    if (length < 3 || strcmp(path + length - 2, ".c") != 0)
        return status_usage("--out: the file of format c must end in .c, because a header .h is written, too; got '%s'",
                            path);
    if (m->model->params.elements > MAX_WEIGHTS)
        return status_usage("%s: the model has %zu weights; a C file for compilers has at most %zu; export it as onnx",
                            source->path, m->model->params.elements, MAX_WEIGHTS);
    return OK;
}

static status write_model(const struct export_source *source, const struct export_model *m, const char *path) {
    const struct model *model = m->model;
    struct arena *arena = source->arena;
    const struct emitted_model emitted = {model, m->params, m->buffers, m->reads_lengths};
    struct c_file c = {.m = m, .arena = arena};
    TRY(check(source, m, path));
    c.pieces = arena_alloc(arena, model->tensor_count * sizeof *c.pieces);
    c.scratch = arena_alloc(arena, 2 * (model->node_count + 1) * sizeof *c.scratch);
    c.root = arena_alloc(arena, model->tensor_count * sizeof *c.root);
    c_code_init(&c.code, &emitted, arena);
    SCOPED_TEXT header = {0}, code = {0};
    const char *header_path = header_of(&c, path);
    place(&c);
    preparation_plan(&c);
    add_source(&c, header_path, &code);
    add_header(&c, &header);
    struct io_part part = {header.data, header.length};
    status s = io_replace(header_path, &part, 1);
    part = (struct io_part){code.data, code.length};
    if (!s) s = io_replace(path, &part, 1);
    c_code_free(&c.code);
    return s;
}

static status write_files(const struct export_source *source, const char *path) {
    struct export_model model;
    status s = export_model_open(source, &model);
    if (!s) s = write_model(source, &model, path);
    export_model_close(&model);
    return s;
}

const struct export_format export_c = {.name = "c", .extension = ".c", .write = write_files};
