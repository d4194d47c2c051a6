/* Predicts a row while the n-th allocation of the process fails, for every n up to N, for test_embed.py:
 *
 *     embed_memory MODEL SIZE N
 *
 * Each failure must give DDPTRAIN_NO_MEMORY, and the model must work afterwards; prints their number. The functions
 * below replace those of the C library for libddptrain_predict, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddptrain.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);

static long left; /* allocations until one fails; 0: none does */

static int fails(void) { return left > 0 && --left == 0; }
void *malloc(size_t size) { return fails() ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails() ? NULL : __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { return fails() ? NULL : __libc_realloc(block, size); }

static float outputs[64], probabilities[64];
static double predictions[64];
static char message[300];

static int predict(ddptrain_model *model, const float *row, long fail_at) {
    ddptrain_results results = {outputs, predictions, probabilities};
    int code;
    left = fail_at;
    code = ddptrain_predict(model, row, 1, &results, message, sizeof message);
    return code;
}

/* How many allocations have failed; -1: one had another status. */
static long sweep(ddptrain_model *model, const float *row, long last) {
    float expected[64];
    long n, failed = 0;
    if (predict(model, row, 0)) return -1;
    memcpy(expected, outputs, sizeof expected);
    for (n = 1; n <= last; n++) {
        int code = predict(model, row, n);
        if (left == 0 && code != DDPTRAIN_NO_MEMORY) return -1;
        if (left > 0 && code != DDPTRAIN_OK) return -1;
        failed += left == 0;
        memset(outputs, 0, sizeof outputs);
        if (predict(model, row, 0) || memcmp(expected, outputs, sizeof expected) != 0) return -1;
    }
    return failed;
}

int main(int count, char **words) {
    ddptrain_model *model;
    long size = count == 4 ? strtol(words[2], NULL, 10) : 0;
    float *row = calloc((size_t)size + 1, sizeof *row);
    if (size <= 0 || !row) return 3;
    if (ddptrain_model_open(words[1], NULL, &model, message, sizeof message)) return 1;
    printf("%ld\n", sweep(model, row, strtol(words[3], NULL, 10)));
    ddptrain_model_close(model);
    free(row);
    return 0;
}
