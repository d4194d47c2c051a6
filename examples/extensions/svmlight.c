/* svmlight: the text format of LIBSVM and SVMlight, `target index:value index:value ... # comment`, with indices
 * from 1. dataset.path: FILE.svm. Features that a row does not name are 0; all rows are in memory as a table. */
#include "extension.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct svmlight {
    struct source base; /* first */
    char *path;
    double *inputs, *targets; /* (rows, input_size), (rows) */
    size_t capacity;
};

static void close_svmlight(struct source *source) {
    struct svmlight *s = (struct svmlight *)source;
    free(s->path), free(s->inputs), free(s->targets), free(s);
}

#define MAX_FEATURES 1000000

static status bad(const struct svmlight *s, size_t line, const char *what, const char *at) {
    return status_new(STATUS_DATA, "%s:%zu: %s, got '%.*s'", s->path, line, what, (int)strcspn(at, " \t\r\n"), at);
}

/* Parses a line; [row] NULL: only counts the features. A line without a target has no row. */
static status parse_line(struct svmlight *s, char *text, size_t line, double *row, double *target, size_t *features,
                         bool *is_row) {
    char *end;
    text[strcspn(text, "#")] = 0;
    text += strspn(text, " \t\r\n");
    *is_row = *text != 0;
    if (!*is_row) return OK;
    *target = strtod(text, &end);
    if (end == text) return bad(s, line, "expected a number, the target", text);
    for (text = end; *(text += strspn(text, " \t\r\n"));) {
        unsigned long long index = strtoull(text, &end, 10);
        if (strncmp(text, "qid:", 4) == 0) { /* groups of a ranking, which are no features */
            text += strcspn(text, " \t\r\n");
            continue;
        }
        if (end == text || *end != ':' || index < 1 || index > MAX_FEATURES)
            return bad(s, line, "expected INDEX:VALUE with an index from 1 to 1000000", text);
        char *number = end + 1;
        double value = strtod(number, &end);
        if (end == number || (*end && !strchr(" \t\r\n", *end))) return bad(s, line, "expected a number", number);
        if (index > *features) *features = (size_t)index;
        if (row && index <= s->base.input_size) row[index - 1] = value;
        text = end;
    }
    return OK;
}

/* Reads the file; the first time to count rows and features, the second time their values. */
static status read_file(struct svmlight *s, bool has_memory, size_t *rows, size_t *features) {
    FILE *file = fopen(s->path, "r");
    char *text = NULL;
    size_t capacity = 0, line = 0;
    status failure = OK;
    *rows = 0;
    if (!file) return status_new(STATUS_DATA, "cannot read '%s'", s->path);
    while (!failure && getline(&text, &capacity, file) >= 0) {
        double target = 0;
        bool is_row = false;
        failure = parse_line(s, text, ++line, has_memory ? s->inputs + *rows * s->base.input_size : NULL, &target,
                             features, &is_row);
        if (!failure && is_row && has_memory) s->targets[*rows] = target;
        *rows += is_row;
    }
    free(text);
    fclose(file);
    return failure;
}

static status load(struct svmlight *s, const struct source *train) {
    size_t features = 0;
    TRY(read_file(s, false, &s->base.rows, &features));
    if (s->base.rows == 0) return status_new(STATUS_DATA, "%s has no rows", s->path);
    if (train && features > train->input_size)
        return status_new(STATUS_DATA, "%s has a feature %zu, the training file only %zu", s->path, features,
                          train->input_size);
    s->base.input_size = train ? train->input_size : features;
    if (s->base.input_size == 0) return status_new(STATUS_DATA, "%s has no features", s->path);
    s->base.input_dims = 1;
    s->base.input_shape[0] = (int64_t)s->base.input_size;
    s->inputs = calloc(s->base.rows * s->base.input_size, sizeof *s->inputs);
    s->targets = calloc(s->base.rows, sizeof *s->targets);
    if (!s->inputs || !s->targets) return status_memory("%zu rows of '%s'", s->base.rows, s->path);
    return read_file(s, true, &s->base.rows, &features);
}

static const struct dataset_format svmlight;

static status open_svmlight(const struct dataset_config *config, const char *path, bool wants_classes,
                            const struct source *train, struct source **out) {
    struct svmlight *s = calloc(1, sizeof *s);
    (void)wants_classes;
    if (!s || !(s->path = strdup(path))) status_exit_without_memory();
    s->base.format = &svmlight;
    s->base.target_size = config->request.without_targets ? 0 : 1;
    s->base.is_small = true;
    status failure = load(s, train);
    if (failure)
        close_svmlight(&s->base);
    else
        *out = &s->base;
    return failure;
}

static status read_rows(struct source *source, size_t first, size_t count, double *inputs, double *targets) {
    const struct svmlight *s = (const struct svmlight *)source;
    size_t size = source->input_size;
    if (inputs) memcpy(inputs, s->inputs + first * size, count * size * sizeof *inputs);
    if (targets) memcpy(targets, s->targets + first, count * sizeof *targets);
    return OK;
}

static void describe(const struct source *source, enum row_value kind, size_t row, size_t element, struct text *out) {
    text_printf(out, "%s: row %zu", ((const struct svmlight *)source)->path, row);
    if (kind == ROW_INPUT) text_printf(out, ", feature %zu", element + 1);
}

static const char *const extensions[] = {".svm", ".svmlight", ".libsvm", NULL};
static const struct dataset_format svmlight = {
    .name = "svmlight",
    .extensions = extensions,
    .open = open_svmlight,
    .read = read_rows,
    .describe = describe,
    .close = close_svmlight,
};

DDPTRAIN_EXTENSION(.format = &svmlight);
