/* bench/export.py: predicts the rows of a file one at a time, by the C file of an export (-DFILE_HEADER) and by
 * libddptrain_predict, and prints nanoseconds of processor time per row and the sum of the outputs.
 *
 *     predict_rows ROWS PASSES [RUN] <rows */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef FILE_HEADER
#include FILE_HEADER
#else
#include "ddptrain.h"
#endif

#define INPUTS 13
#define OUTPUTS 3

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

#ifdef FILE_HEADER
static int start(const char *run) { return run ? 0 : 0; }
static int predict(const float *row, float *outputs) { return model_predict(row, outputs); }
#else
static ddptrain_model *model;
static char message[400];
static int start(const char *run) {
    int code = ddptrain_model_open(run, NULL, &model, message, sizeof message);
    if (code) fprintf(stderr, "%s\n", message);
    return code;
}
static int predict(const float *row, float *outputs) {
    ddptrain_results results = {outputs, NULL, NULL};
    return ddptrain_predict(model, row, 1, &results, NULL, 0);
}
#endif

int main(int count, char **words) {
    long rows = count > 2 ? strtol(words[1], NULL, 10) : 0, passes = count > 2 ? strtol(words[2], NULL, 10) : 0, pass,
         row;
    float *inputs = malloc((size_t)rows * INPUTS * sizeof *inputs), outputs[OUTPUTS];
    double sum = 0, begin;
    if (rows <= 0 || !inputs || fread(inputs, INPUTS * sizeof *inputs, (size_t)rows, stdin) != (size_t)rows) return 3;
    if (start(count > 3 ? words[3] : NULL)) return 1;
    begin = now();
    for (pass = 0; pass < passes; pass++)
        for (row = 0; row < rows; row++) {
            if (predict(inputs + row * INPUTS, outputs)) return 2;
            sum += (double)(outputs[0] + outputs[1] + outputs[2]);
        }
    printf("%.3f %.6f\n", (now() - begin) * 1e9 / (double)(passes * rows), sum / (double)passes);
    free(inputs);
    return 0;
}
