/* bench/export.py: predicts the rows of a file, by the C file of an export (-DFILE_HEADER) one at a time and by
 * libddptrain_predict BATCH at a time, and prints nanoseconds of processor time per row and the sum of the outputs of
 * the rows. ROWS is a multiple of BATCH.
 *
 *     predict_rows ROWS PASSES [RUN BATCH] <rows */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef FILE_HEADER
#include FILE_HEADER
#else
#include "ddptrain.h"
#endif

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

#ifdef FILE_HEADER
static size_t input_size = 13, output_size = 3;
static int start(const char *run) { return run ? 0 : 0; }
static int predict(const float *rows, long count, float *outputs) {
    return count == 1 ? model_predict(rows, outputs) : 1;
}
#else
static ddptrain_model *model;
static size_t input_size, output_size;
static char message[400];
static int start(const char *run) {
    int code = ddptrain_model_open(run, NULL, &model, message, sizeof message);
    if (code)
        fprintf(stderr, "%s\n", message);
    else
        input_size = ddptrain_model_info(model)->input_size, output_size = ddptrain_model_info(model)->outputs;
    return code;
}
/* Tokens have four bytes, too. */
static int predict(const float *rows, long count, float *outputs) {
    ddptrain_results results = {outputs, NULL, NULL};
    if (ddptrain_model_info(model)->inputs == DDPTRAIN_INPUTS_TOKENS)
        return ddptrain_predict_tokens(model, (const int32_t *)(const void *)rows, (size_t)count, &results, NULL, 0);
    return ddptrain_predict(model, rows, (size_t)count, &results, NULL, 0);
}
#endif

int main(int count, char **words) {
    long rows = count > 2 ? strtol(words[1], NULL, 10) : 0, passes = count > 2 ? strtol(words[2], NULL, 10) : 0, pass,
         row, batch = count > 4 ? strtol(words[4], NULL, 10) : 1;
    if (rows <= 0 || batch <= 0 || start(count > 3 ? words[3] : NULL)) return 1;
    float *inputs = malloc((size_t)rows * input_size * sizeof *inputs),
          *outputs = malloc((size_t)batch * output_size * sizeof *outputs);
    double sum = 0, begin = now();
    if (!inputs || !outputs || fread(inputs, input_size * sizeof *inputs, (size_t)rows, stdin) != (size_t)rows)
        return 3;
    for (pass = 0; pass <= passes; pass++) {
        if (pass == 1) begin = now(), sum = 0; /* the first one allocates */
        for (row = 0; row < rows; row += batch) {
            if (predict(inputs + (size_t)row * input_size, batch, outputs)) return 2;
            for (size_t i = 0; i < (size_t)batch * output_size; i++) sum += (double)outputs[i];
        }
    }
    printf("%.3f %.6f\n", (now() - begin) * 1e9 / (double)(passes * rows), sum / (double)passes);
    free(inputs);
    free(outputs);
    return 0;
}
