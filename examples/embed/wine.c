/* Predicts two wines with the model of a run folder:
 *
 *     cc wine.c $(pkg-config --cflags --libs ddptrain_predict) -o wine
 *     ./wine runs/wine_mlp
 */
#include <ddptrain.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    const float wines[2][13] = {
        {14.23f, 1.71f, 2.43f, 15.6f, 127, 2.8f, 3.06f, 0.28f, 2.29f, 5.64f, 1.04f, 3.92f, 1065},
        {12.37f, 0.94f, 1.36f, 10.6f, 88, 1.98f, 0.57f, 0.28f, 0.42f, 1.95f, 1.05f, 1.82f, 520}};
    double classes[2];
    ddptrain_model *model;
    char message[500];
    int code = ddptrain_model_open(count > 1 ? words[1] : "runs/wine_mlp", NULL, &model, message, sizeof message);
    if (code == DDPTRAIN_OK) {
        const ddptrain_info *info = ddptrain_model_info(model);
        float *probabilities = malloc(2 * info->probabilities * sizeof *probabilities);
        ddptrain_results results = {NULL, NULL, NULL};
        results.predictions = classes;
        results.probabilities = probabilities;
        code = probabilities && info->input_size == 13
                   ? ddptrain_predict(model, wines[0], 2, &results, message, sizeof message)
                   : DDPTRAIN_USAGE;
        for (size_t row = 0; code == DDPTRAIN_OK && row < 2; row++) {
            size_t label = (size_t)classes[row];
            printf("class %zu, probability %.9g\n", label, (double)probabilities[row * info->probabilities + label]);
        }
        free(probabilities);
    }
    if (code != DDPTRAIN_OK) fprintf(stderr, "%s\n", message);
    ddptrain_model_close(model);
    return code;
}
