/* The public functions of libddptrain_predict. Each runs its work in call(), which turns everything that would end a
 * program into a status: no memory for a small allocation, a stack that is too small. */
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/hdf5.h"
#include "base/scoped.h"
#include "base/system/machine.h"
#include "data/columns/columns.h"
#include "data/text/vocabulary.h"
#include "predict/ddptrain.h"
#include "train/inference/predictor.h"

struct ddptrain_model {
    struct predictor *predictor;
    ddptrain_info info;
    unsigned char *are_classes; /* (info.predictions) */
};

const char *ddptrain_version(void) { return DDPTRAIN_VERSION; }

/* ---- calls ---- */

/* The lowest address of this thread's stack; NULL: unknown. */
static const char *stack_end(size_t *size) {
    static _Thread_local void *end;
    static _Thread_local size_t bytes;
    pthread_attr_t attributes;
    if (!end && pthread_getattr_np(pthread_self(), &attributes) == 0) {
        if (pthread_attr_getstack(&attributes, &end, &bytes) != 0) end = NULL;
        pthread_attr_destroy(&attributes);
    }
    *size = bytes;
    return end;
}

/* A stack of another kind, as of coroutines, is not known. */
static status check_stack(void) {
    size_t size;
    const char *end = stack_end(&size), *here = __builtin_frame_address(0);
    if (!end || here < end || here > end + size || (size_t)(here - end) >= STACK_MIN) return OK;
    return status_usage("the stack of this thread has %zu KiB left, and a prediction needs %zu KiB",
                        (size_t)(here - end) / 1024, STACK_MIN / 1024);
}

static int code_of(status s) {
    switch (status_code(s)) {
    case STATUS_OK:
        return DDPTRAIN_OK;
    case STATUS_MEMORY:
        return DDPTRAIN_NO_MEMORY;
    case STATUS_USAGE:
        return DDPTRAIN_USAGE;
    case STATUS_DATA:
        return DDPTRAIN_DATA;
    case STATUS_IO:
        return DDPTRAIN_IO;
    default:
        return DDPTRAIN_BUG;
    }
}

static locale_t c_locale;

static void create_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

typedef status work_function(void *context);

/* In the C locale: the decimal point of numbers in configs and messages is that of the caller's locale otherwise. */
static int call(work_function *work, void *context, char *message, size_t size) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, create_locale);
    locale_t before = uselocale(c_locale);
    status s = check_stack();
    if (!s) s = status_catch_memory(work, context);
    if (status_code(s) == STATUS_MEMORY) hdf5_leave_all();
    uselocale(before);
    int code = code_of(s);
    if (message && size) snprintf(message, size, "%s", status_message(s));
    status_free(s);
    return code;
}

/* ---- models ---- */

struct opening {
    const char *path;
    const ddptrain_options *options;
    ddptrain_model *model;
};

static void describe_inputs(ddptrain_info *info, const struct predictor_description *about) {
    const struct input_layout *inputs = &about->inputs;
    info->inputs = about->has_preparation         ? DDPTRAIN_INPUTS_COLUMNS
                   : inputs->kind == INPUT_TOKENS ? DDPTRAIN_INPUTS_TOKENS
                                                  : DDPTRAIN_INPUTS_NUMBERS;
    info->input_size = inputs->size;
    info->input_dims = (size_t)inputs->dims;
    info->input_shape = inputs->shape;
    info->vocabulary = inputs->kind == INPUT_TOKENS ? inputs->vocabulary : 0;
    info->columns = about->columns.count;
    info->column_names = about->columns.items;
}

static status describe(ddptrain_model *model) {
    const struct predictor_description *about = predictor_describe(model->predictor);
    ddptrain_info *info = &model->info;
    info->name = about->name;
    info->epoch = about->epoch;
    info->step = about->step;
    info->parameters = about->parameters;
    describe_inputs(info, about);
    info->outputs = about->outputs;
    info->predictions = about->predictions.count;
    info->prediction_names = about->predictions.items;
    info->probabilities = about->probabilities.count;
    info->probability_names = about->probabilities.items;
    info->labels = about->labels.count;
    info->label_names = about->labels.items;
    model->are_classes = calloc(info->predictions + 1, 1);
    if (!model->are_classes) return status_memory("a model");
    for (size_t i = 0; i < info->predictions; i++) model->are_classes[i] = about->are_classes[i];
    info->prediction_is_class = model->are_classes;
    return OK;
}

static status open_model(void *context) {
    struct opening *o = context;
    struct predictor_options options = {0};
    if (!o->path || !o->model) return status_usage("path and model must not be NULL");
    if (o->options && o->options->size < sizeof *o->options)
        return status_usage("options->size is %zu; initialise the options with DDPTRAIN_OPTIONS", o->options->size);
    if (o->options)
        options = (struct predictor_options){.checkpoint = o->options->checkpoint, .weights = o->options->weights};
    TRY(predictor_open(o->path, &options, &o->model->predictor));
    return describe(o->model);
}

int ddptrain_model_open(const char *path, const ddptrain_options *options, ddptrain_model **model, char *message,
                        size_t message_size) {
    struct opening opening = {path, options, model ? calloc(1, sizeof **model) : NULL};
    if (model) *model = NULL;
    if (model && !opening.model) {
        if (message && message_size) snprintf(message, message_size, "no memory for a model");
        return DDPTRAIN_NO_MEMORY;
    }
    int code = call(open_model, &opening, message, message_size);
    if (code == DDPTRAIN_OK)
        *model = opening.model;
    else
        ddptrain_model_close(opening.model);
    return code;
}

void ddptrain_model_close(ddptrain_model *model) {
    if (!model) return;
    predictor_close(model->predictor);
    free(model->are_classes);
    free(model);
}

const ddptrain_info *ddptrain_model_info(const ddptrain_model *model) { return model ? &model->info : NULL; }

/* ---- predictions ---- */

/* The arguments of a prediction; [rows] of one of values, tokens and columns. */
struct prediction {
    ddptrain_model *model;
    size_t rows;
    const ddptrain_results *results;
    struct predictor_values values;
    const int32_t *tokens;
    const ddptrain_column *columns;
    size_t column_count;
};

/* Only pointers that are used. */
static status check(const struct prediction *p, bool has_rows, struct predictor_results *results) {
    if (!p->model || !p->results) return status_usage("model and results must not be NULL");
    if (!has_rows && p->rows > 0) return status_usage("the rows must not be NULL");
    const ddptrain_info *info = &p->model->info;
    size_t values = info->input_size > info->outputs ? info->input_size : info->outputs, bytes;
    if (__builtin_mul_overflow(p->rows, values * sizeof(double), &bytes) || bytes > PTRDIFF_MAX)
        return status_usage("%zu rows are more than memory can hold", p->rows);
    *results = (struct predictor_results){.outputs = p->results->outputs,
                                          .predictions = p->results->predictions,
                                          .probabilities = p->results->probabilities};
    return OK;
}

static status predict_values(void *context) {
    struct prediction *p = context;
    struct predictor_results results;
    TRY(check(p, p->values.floats || p->values.doubles, &results));
    return predictor_run(p->model->predictor, p->values, p->rows, &results);
}

static status predict_tokens(void *context) {
    struct prediction *p = context;
    struct predictor_results results;
    TRY(check(p, p->tokens, &results));
    return predictor_run_tokens(p->model->predictor, p->tokens, p->rows, &results);
}

/* Whether the table has every column of the model. */
static status find_columns(const struct prediction *p, struct arena *arena) {
    const ddptrain_info *info = &p->model->info;
    struct name_index names = name_index_create(arena, p->column_count);
    for (size_t i = 0; i < p->column_count; i++) name_index_add(&names, p->columns[i].name, i);
    name_index_sort(&names);
    for (size_t i = 0; i < info->columns; i++)
        if (name_index_find(&names, info->column_names[i]) == SIZE_MAX)
            return status_data("there is no column '%s', which the model was trained with", info->column_names[i]);
    return OK;
}

static status check_columns(const struct prediction *p) {
    for (size_t i = 0; i < p->column_count; i++) {
        const ddptrain_column *c = &p->columns[i];
        if (!c->name) return status_usage("column %zu has no name", i);
        if (!c->texts == !c->numbers && p->rows > 0)
            return status_usage("column '%s': give either texts or numbers", c->name);
    }
    SCOPED_ARENA arena = arena_create();
    return find_columns(p, arena);
}

static status predict_table(void *context) {
    struct prediction *p = context;
    struct predictor_results results;
    TRY(check(p, p->columns, &results));
    if (!p->columns && p->column_count > 0) return status_usage("columns must not be NULL");
    TRY(check_columns(p));
    struct cell_column *columns = calloc(p->column_count + 1, sizeof *columns);
    if (!columns) return status_memory("the columns of a table");
    for (size_t i = 0; i < p->column_count; i++)
        columns[i] = (struct cell_column){p->columns[i].name, p->columns[i].texts, p->columns[i].numbers};
    struct cells cells = {columns, p->column_count, p->rows};
    status s = predictor_run_table(p->model->predictor, &cells, &results);
    free(columns);
    return s;
}

int ddptrain_predict(ddptrain_model *model, const float *inputs, size_t rows, const ddptrain_results *results,
                     char *message, size_t message_size) {
    struct prediction p = {.model = model, .rows = rows, .results = results, .values.floats = inputs};
    return call(predict_values, &p, message, message_size);
}

int ddptrain_predict_doubles(ddptrain_model *model, const double *inputs, size_t rows, const ddptrain_results *results,
                             char *message, size_t message_size) {
    struct prediction p = {.model = model, .rows = rows, .results = results, .values.doubles = inputs};
    return call(predict_values, &p, message, message_size);
}

int ddptrain_predict_tokens(ddptrain_model *model, const int32_t *tokens, size_t rows, const ddptrain_results *results,
                            char *message, size_t message_size) {
    struct prediction p = {.model = model, .rows = rows, .results = results, .tokens = tokens};
    return call(predict_tokens, &p, message, message_size);
}

int ddptrain_predict_table(ddptrain_model *model, const ddptrain_column *columns, size_t column_count, size_t rows,
                           const ddptrain_results *results, char *message, size_t message_size) {
    struct prediction p = {
        .model = model, .rows = rows, .results = results, .columns = columns, .column_count = column_count};
    return call(predict_table, &p, message, message_size);
}

/* ---- text ---- */

struct encoding {
    const ddptrain_model *model;
    const char *text;
    int32_t *tokens;
    size_t capacity, *count;
};

static status encode(void *context) {
    struct encoding *e = context;
    int32_t *ids;
    size_t count;
    if (!e->model || !e->text || !e->count || (!e->tokens && e->capacity))
        return status_usage("model, text, tokens and count must not be NULL");
    const struct vocabulary *vocabulary = predictor_describe(e->model->predictor)->vocabulary;
    if (!vocabulary) return status_usage("the model was not trained with a text or a tokenizer");
    TRY(vocabulary_encode(vocabulary, e->text, &ids, &count));
    *e->count = count;
    size_t copied = count < e->capacity ? count : e->capacity;
    if (copied) memcpy(e->tokens, ids, copied * sizeof *ids);
    free(ids);
    return OK;
}

int ddptrain_encode(const ddptrain_model *model, const char *text, int32_t *tokens, size_t capacity, size_t *count,
                    char *message, size_t message_size) {
    struct encoding encoding = {model, text, tokens, capacity, count};
    return call(encode, &encoding, message, message_size);
}
