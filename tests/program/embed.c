/* Predicts the rows of a file with libddptrain_predict, in one thread or many at once, for test_embed.py:
 *
 *     embed MODEL floats|doubles|tokens|table ROWS THREADS REPEATS <rows >results
 *
 * Rows are binary numbers. A table is texts that end with NUL: the number of columns, their names, the cells row after
 * row; the cell "\1" is NULL, and "\2" before the name of a column makes its cells numbers. Results are binary:
 * outputs, predictions and probabilities of all rows. Each thread predicts all rows as often as asked, in calls of
 * changing size; all must give the same bits. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddptrain.h"

#define MAX_THREADS 64

typedef struct work {
    ddptrain_model *model;
    const char *kind;
    const char *bytes; /* of all rows */
    ddptrain_column *columns;
    size_t column_count, rows, number;
    int repeats, code;
    ddptrain_results results;
    char message[400];
} work;

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count + 1, size);
    if (!memory) exit(3);
    return memory;
}

static char *read_all(size_t *size) {
    size_t capacity = 1 << 16, got;
    char *bytes = allocate(capacity, 1);
    *size = 0;
    while ((got = fread(bytes + *size, 1, capacity - *size, stdin)) > 0) {
        *size += got;
        if (*size < capacity) continue;
        capacity *= 2;
        bytes = realloc(bytes, capacity + 1);
        if (!bytes) exit(3);
    }
    return bytes;
}

static int predict_table(work *w, size_t first, size_t count, const ddptrain_results *to) {
    ddptrain_column *columns = allocate(w->column_count, sizeof *columns);
    size_t i;
    int code;
    for (i = 0; i < w->column_count; i++) {
        columns[i] = w->columns[i];
        if (columns[i].texts) columns[i].texts += first;
        if (columns[i].numbers) columns[i].numbers += first;
    }
    code = ddptrain_predict_table(w->model, columns, w->column_count, count, to, w->message, sizeof w->message);
    free(columns);
    return code;
}

static int predict(work *w, size_t first, size_t count) {
    const ddptrain_info *info = ddptrain_model_info(w->model);
    size_t at = first * info->input_size;
    ddptrain_results to;
    to.outputs = w->results.outputs + first * info->outputs;
    to.predictions = w->results.predictions + first * info->predictions;
    to.probabilities = info->probabilities ? w->results.probabilities + first * info->probabilities : NULL;
    if (strcmp(w->kind, "floats") == 0)
        return ddptrain_predict(w->model, (const float *)(const void *)w->bytes + at, count, &to, w->message,
                                sizeof w->message);
    if (strcmp(w->kind, "doubles") == 0)
        return ddptrain_predict_doubles(w->model, (const double *)(const void *)w->bytes + at, count, &to, w->message,
                                        sizeof w->message);
    if (strcmp(w->kind, "tokens") == 0)
        return ddptrain_predict_tokens(w->model, (const int32_t *)(const void *)w->bytes + at, count, &to, w->message,
                                       sizeof w->message);
    return predict_table(w, first, count, &to);
}

static void *run(void *context) {
    work *w = context;
    int repeat;
    for (repeat = 0; repeat < w->repeats && w->code == DDPTRAIN_OK; repeat++) {
        size_t step = repeat == 0 ? w->rows : 1 + (w->number + (size_t)repeat * 7) % w->rows, first;
        for (first = 0; first < w->rows && w->code == DDPTRAIN_OK; first += step)
            w->code = predict(w, first, w->rows - first < step ? w->rows - first : step);
    }
    return NULL;
}

static void read_table(work *w) {
    const char *text = w->bytes;
    size_t row, column;
    w->column_count = (size_t)strtoul(text, NULL, 10);
    text += strlen(text) + 1;
    w->columns = allocate(w->column_count, sizeof *w->columns);
    for (column = 0; column < w->column_count; column++, text += strlen(text) + 1) {
        w->columns[column].name = *text == '\2' ? text + 1 : text;
        if (*text == '\2')
            w->columns[column].numbers = allocate(w->rows, sizeof(double));
        else
            w->columns[column].texts = allocate(w->rows, sizeof(char *));
    }
    for (row = 0; row < w->rows; row++)
        for (column = 0; column < w->column_count; column++, text += strlen(text) + 1)
            if (w->columns[column].numbers)
                ((double *)w->columns[column].numbers)[row] = strtod(text, NULL);
            else
                ((const char **)w->columns[column].texts)[row] = strcmp(text, "\1") == 0 ? NULL : text;
}

static int same(const work *a, const work *b) {
    const ddptrain_info *info = ddptrain_model_info(a->model);
    return memcmp(a->results.outputs, b->results.outputs, a->rows * info->outputs * sizeof(float)) == 0 &&
           memcmp(a->results.predictions, b->results.predictions, a->rows * info->predictions * sizeof(double)) == 0 &&
           memcmp(a->results.probabilities, b->results.probabilities, a->rows * info->probabilities * sizeof(float)) ==
               0;
}

static int run_all(ddptrain_model *model, const work *first, size_t threads) {
    const ddptrain_info *info = ddptrain_model_info(model);
    static work works[MAX_THREADS];
    pthread_t ids[MAX_THREADS];
    size_t i, column;
    int code = 0;
    for (i = 0; i < threads; i++) {
        works[i] = *first;
        works[i].number = i;
        works[i].results.outputs = allocate(first->rows * info->outputs, sizeof(float));
        works[i].results.predictions = allocate(first->rows * info->predictions, sizeof(double));
        works[i].results.probabilities = allocate(first->rows * info->probabilities, sizeof(float));
    }
    for (i = 1; i < threads; i++)
        if (pthread_create(&ids[i], NULL, run, &works[i]) != 0) exit(3);
    run(&works[0]);
    for (i = 1; i < threads; i++) pthread_join(ids[i], NULL);
    for (i = 0; i < threads && code == 0; i++) {
        code = works[i].code;
        if (code) fprintf(stderr, "%s\n", works[i].message);
        if (!code && !same(&works[0], &works[i])) code = 2;
    }
    if (!code) {
        fwrite(works[0].results.outputs, sizeof(float), first->rows * info->outputs, stdout);
        fwrite(works[0].results.predictions, sizeof(double), first->rows * info->predictions, stdout);
        fwrite(works[0].results.probabilities, sizeof(float), first->rows * info->probabilities, stdout);
    }
    for (i = 0; i < threads; i++) {
        free(works[i].results.outputs);
        free(works[i].results.predictions);
        free(works[i].results.probabilities);
    }
    for (column = 0; column < first->column_count; column++)
        free((void *)first->columns[column].texts), free((void *)first->columns[column].numbers);
    return code;
}

int main(int count, char **words) {
    work first;
    ddptrain_model *model;
    ddptrain_options options = DDPTRAIN_OPTIONS;
    size_t size, threads;
    char *bytes;
    int code;
    if (count != 6) return 3;
    memset(&first, 0, sizeof first);
    code = ddptrain_model_open(words[1], &options, &model, first.message, sizeof first.message);
    if (code) {
        fprintf(stderr, "%s\n", first.message);
        return code;
    }
    first.bytes = bytes = read_all(&size);
    first.model = model;
    first.kind = words[2];
    first.rows = (size_t)strtoul(words[3], NULL, 10);
    threads = (size_t)strtoul(words[4], NULL, 10);
    first.repeats = (int)strtol(words[5], NULL, 10);
    if (threads > MAX_THREADS) return 3;
    if (strcmp(first.kind, "table") == 0) read_table(&first);
    code = run_all(model, &first, threads);
    free(first.columns);
    free(bytes);
    ddptrain_model_close(model);
    return code;
}
